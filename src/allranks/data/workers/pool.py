"""Run a pool of worker processes; a process that dies is started again.

A worker is a new Python process. It is not a fork, because a fork of a process with JAX's threads may hang. It is not
started by multiprocessing's spawn either, which runs an unguarded training script again in each worker. The numeric
libraries in a worker use one thread each, because the workers share the cores. If a function imports JAX, JAX uses no
accelerator there.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

import allranks.data.workers.wire as wire
from allranks.data.base import SampleTransform
from allranks.errors import DataError, WorkerDied
from allranks.failure import text_of
from allranks.gate.log import log

_LOG = logging.getLogger("allranks.data")
_IN_HAND = 2  # pieces a worker has: the one it works at, and the next
_MOST_DEATHS = 2
_REST_S = 5.0  # after the end of an iteration; the next epoch mostly begins at once


@dataclass(slots=True, eq=False)
class _SampleList:
    samples: list[Any]
    ids: NDArray[np.int64]
    epoch: int
    future: Future[Sequence[Any]]
    deaths: int = 0

    def request_frame(self) -> wire.Frame:
        return wire.pack_samples(self.samples, self.ids, self.epoch)

    def set_result(self, answer: wire.Frame) -> None:
        """Set the future of the piece from the worker's answer: to the samples, or to the error."""
        try:
            samples, failure, *drawn = wire.unpack_samples(answer)
        except Exception as error:
            self.set_error(f"what a worker process made of samples cannot be read: {text_of(error)}.", error)
            return
        if failure is None:
            for module in chain.from_iterable(drawn):
                _report_draws(module)
            self.future.set_result(samples)
            return
        raised, cause, text = failure
        raised.__cause__ = cause
        raised.add_note(text)
        self.future.set_exception(raised)

    def set_error(self, why: str, cause: Exception) -> None:
        failure = DataError(why)
        failure.__cause__ = cause
        self.future.set_exception(failure)

    def count_death(self, how: str) -> bool:
        """Count that a worker died at this piece; return whether the piece fails, after the second death."""
        self.deaths += 1
        if self.deaths < _MOST_DEATHS:
            _LOG.warning("a worker process %s; the %d samples that it had are done again", how, len(self.ids))
            return False
        first, last = int(self.ids.min()), int(self.ids.max())
        ids = ", ".join(map(str, self.ids[:8].tolist())) + (
            f", ..., from {first} to {last}" if len(self.ids) > 8 else ""
        )
        self.future.set_exception(
            WorkerDied(
                f"a worker process {how} at {len(self.ids)} samples of epoch {self.epoch} (ids {ids}), and the next "
                "worker ended at the same samples.",
                sample=first if first == last else None,
                remedy="After SIGKILL, it was probably out of memory. After another end, map these samples with "
                "workers=0, to see the error.",
            )
        )
        return True


@cache
def _report_draws(module: str) -> None:
    """Tell the user, once, that functions draw from the global generator of a module."""
    log(
        "allranks: a function of map or filter draws from the global generator of %s in a worker process, so each "
        "start of the job draws other values. Use that of the sample: .map(fn, random=True) calls fn(sample, rng).",
        module,
        level=logging.WARNING,
    )


class _RequestQueue:
    """The queue of pieces (lists of samples) that no worker has yet. Threads that take from it are numbered from 0."""

    def __init__(self, takers: int) -> None:
        self.closed = False
        self._pieces: deque[_SampleList] = deque()
        self._hungry = set(range(takers))
        self._changed = threading.Condition()
        self._rest_at = math.inf  # when idle takers end their processes, by the monotonic clock

    def put(self, piece: _SampleList) -> None:
        with self._changed:
            if self.closed:
                raise DataError("the workers are closed: samples cannot be submitted.")
            self._pieces.append(piece)
            self._rest_at = math.inf
            self._changed.notify()

    def rest(self) -> None:
        """Let idle takers end their processes in some seconds, unless a piece comes before."""
        with self._changed:
            self._rest_at = time.monotonic() + _REST_S
            self._changed.notify_all()

    def wait_for_work(self) -> None:
        """Wait until there is a piece, or the queue is closed. Return at once unless the takers rest."""
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self.closed or self._rest_at == math.inf)

    def take(self, taker: int, *, wait: bool) -> _SampleList | None:
        """Return the next piece; None if the queue is closed, or the taker shall rest.

        Without ``wait``, also return None if there are no more pieces than idle takers. A taker that waits is idle. At
        the start, all takers are.
        """
        with self._changed:
            while True:
                if wait:
                    self._hungry.add(taker)
                    self._wait_for_piece()
                if not self._pieces or (not wait and len(self._pieces) <= len(self._hungry)):
                    return None
                piece = self._pieces.popleft()
                if piece.future.set_running_or_notify_cancel():
                    self._hungry.discard(taker)
                    return piece

    def _wait_for_piece(self) -> None:
        """Wait for a piece, for the end of the queue, or for the time to rest."""
        while not self._pieces and not self.closed and (left := self._rest_at - time.monotonic()) > 0:
            self._changed.wait(None if left == math.inf else left)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            left = list(self._pieces)
            self._pieces.clear()
            self._changed.notify_all()
        for piece in left:
            piece.future.cancel()


class _WorkerThread:
    """A thread that sends pieces to one worker process and reads its answers. It restarts a worker that dies."""

    def __init__(self, number: int, queue: _RequestQueue, chain: wire.Frame) -> None:
        self._number, self._queue, self._chain = number, queue, chain
        self._held: deque[_SampleList] = deque()
        self._lock = threading.RLock()  # of the process: none is started any more once the queue is closed
        self._process: WorkerProcess | None = None
        self.thread = threading.Thread(target=self._run, name="allranks worker", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process else None

    def stop_process(self) -> None:
        """End the process, and so the thread. The queue must be closed before."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
        if self.thread is not threading.current_thread():
            self.thread.join()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        while not self._queue.closed:
            try:
                self._queue.wait_for_work()
                self._serve_requests(self._start())
                self._end_process()
            except (EOFError, OSError) as error:
                self._count_death(self._end_process() or f"could not be started ({error})")
        self._end_process()
        for piece in self._held:
            piece.future.set_exception(DataError("the workers were closed before these samples were done."))

    def _start(self) -> WorkerProcess:
        with self._lock:
            if self._queue.closed:
                raise EOFError
            self._process = WorkerProcess()
            return self._process

    def _serve_requests(self, process: WorkerProcess) -> None:
        """Work until the queue is closed or its takers rest (then return).

        Raises EOFError or OSError if the process has ended.
        """
        process.send(self._chain)
        for piece in self._held:
            process.send(piece.request_frame())
        while True:
            while len(self._held) < _IN_HAND and (taken := self._queue.take(self._number, wait=not self._held)):
                self._send_request(process, taken)
            if not self._held:
                return
            answer = process.receive()
            self._held.popleft().set_result(answer)

    def _send_request(self, process: WorkerProcess, piece: _SampleList) -> None:
        try:
            frame = piece.request_frame()
        except Exception as error:
            piece.set_error(f"samples cannot be sent to a worker process: {text_of(error)}.", error)
            return
        self._held.append(piece)
        process.send(frame)

    def _end_process(self) -> str:
        with self._lock:
            process, self._process = self._process, None
            return process.kill_and_describe() if process else ""

    def _count_death(self, how: str) -> None:
        """Count the death for the piece that the process was working on. The next process does its other pieces."""
        if not self._held and (piece := self._queue.take(self._number, wait=True)):
            self._held.append(piece)
        if not self._queue.closed and self._held and self._held[0].count_death(how):
            self._held.popleft()


class ProcessPool:
    """A pool of ``count`` worker processes that apply a chain."""

    def __init__(self, chain: SampleTransform, count: int) -> None:
        """Start the processes. This takes them about 0.2 s, but pieces can be submitted at once.

        Raises DataError if the chain cannot be sent to them.
        """
        try:
            frame = wire.dump_value(chain)
        except Exception as error:
            raise DataError(
                f"the functions to apply cannot be sent to worker processes: {text_of(error)}.",
                remedy="Use functions that hold no open files, locks or device arrays; or set workers=0.",
            ) from error
        self._queue = _RequestQueue(count)
        self._feeders = [_WorkerThread(number, self._queue, frame) for number in range(count)]
        self._end = weakref.finalize(self, _close_pool, self._queue, self._feeders, os.getpid())

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that are running."""
        return [pid for feeder in self._feeders if (pid := feeder.pid) is not None]

    def submit(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Future[Sequence[Any]]:
        piece = _SampleList(list(samples), ids, epoch, Future())
        self._queue.put(piece)
        return piece.future

    def rest(self) -> None:
        self._queue.rest()

    def close(self) -> None:
        self._end()


def _close_pool(queue: _RequestQueue, feeders: list[_WorkerThread], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the process that has the workers
    queue.close()
    for feeder in feeders:
        feeder.stop_process()


_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JAX_PLATFORMS": "cpu",
    "PYTHONUNBUFFERED": "1",  # what a function prints is there when the worker is killed
}


class WorkerProcess:
    """A worker process. Start it from a thread that lasts, because the kernel ends the worker with that thread."""

    def __init__(self) -> None:
        """Start the process. Raises OSError if no process can be started.

        SIGINT and SIGTERM are sent to the whole process group, but only the parent must handle them. So the calling
        thread must block them, and the worker inherits that.
        """
        ours, theirs = socket.socketpair()
        like_us = f"import sys; sys.path[:], sys.argv[:] = {sys.path!r}, {sys.argv!r}"
        program = f"{like_us}; from allranks.data.workers.child import serve_socket; serve_socket({theirs.fileno()})"
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
            )
        self._channel = ours
        self.pid = self._popen.pid

    def send(self, frame: wire.Frame) -> None:
        """Send a frame: first the chain, then pieces. Raises OSError if the process has ended."""
        wire.send_frame(self._channel, frame)

    def receive(self) -> wire.Frame:
        """Wait for the answer to the oldest piece, and return it. EOFError or OSError if the process has ended."""
        return wire.receive_frame(self._channel)

    def kill(self) -> None:
        """Kill the process. Any thread may call this."""
        self._popen.kill()

    def kill_and_describe(self) -> str:
        """Kill the process if it has not ended, wait for its end, and return a text that says how it ended."""
        self._popen.kill()
        code = self._popen.wait()
        self._channel.close()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
