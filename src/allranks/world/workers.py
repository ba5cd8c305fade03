"""Let worker processes of a rank ignore a SIGTERM to the complete job, while the rank saves.

Slurm, systemd and torchrun send SIGTERM to every process of a job. A DataLoader's workers would die of it, and the
training loop with them, before the rank has saved. So each process that a rank starts by multiprocessing (a
DataLoader's workers, a Pool, workers of Hugging Face datasets and grain), by fork, spawn or forkserver, gets our
handler for SIGTERM. The handler reads a page of memory that the worker shares with the rank:

- If the rank does not answer SIGTERM by a save, the worker dies of the signal, as it would without us.
- If the rank itself has called ``terminate()`` for this worker, the worker dies of the signal.
- Otherwise the worker continues. From then on one of its threads waits for the end of the rank, to end the worker.

A program that a worker execs does not have our handler.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from allranks import agent
from allranks.process import wait_readable

# The libraries that fork worker processes; Hugging Face datasets uses the second.
LIBRARIES = ("multiprocessing", "multiprocess")
_SIGNALS = "torch.utils.data._utils.signal_handling"
# The page, in ints: whether the rank answers; by a pid's place, who was terminated, and who has our handler.
_PLACES = 1023
_SIZE = 4 * (1 + 2 * _PLACES)
# How many seconds a terminated worker may take to return from C code.
PATIENCE = 5.0


class _SharedPage:
    """A page of memory that a rank shares with its workers. A worker opens it by its ``path``."""

    def __init__(self, rank: int, path: str = "") -> None:
        self.rank = rank
        fd = os.open(path, os.O_RDWR) if path else os.memfd_create("allranks-workers", os.MFD_CLOEXEC)
        if not path:
            os.ftruncate(fd, _SIZE)
        self.path = path or f"/proc/{rank}/fd/{fd}"
        self._ints = memoryview(mmap.mmap(fd, _SIZE)).cast("i")
        if path:
            os.close(fd)

    @property
    def answers(self) -> bool:
        """Whether the rank answers SIGTERM by a save."""
        return bool(self._ints[0])

    @answers.setter
    def answers(self, value: bool) -> None:
        self._ints[0] = value

    def terminate(self, pid: int) -> None:
        self._ints[1 + pid % _PLACES] = pid

    def is_terminated(self, pid: int) -> bool:
        return self._ints[1 + pid % _PLACES] == pid

    def enter(self, pid: int) -> None:
        """Record that process ``pid`` is a worker."""
        self._ints[1 + pid % _PLACES] = 0
        self._ints[1 + _PLACES + pid % _PLACES] = pid

    def is_worker(self, pid: int) -> bool:
        return self._ints[1 + _PLACES + pid % _PLACES] == pid


_page: _SharedPage | None = None
_hooked = False
_watches = False
_is_loader = False  # a worker of torch's DataLoader


def prepare_workers() -> None:
    """Give our SIGTERM handler to the workers that this rank starts from now on.

    Call once for each rank, or more often.
    """
    global _page, _hooked
    if _page is None or _page.rank != os.getpid():
        _page = _SharedPage(os.getpid())
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_in_child)
        after_import = agent.load("allranks_agent_imports").after_import
        for library in LIBRARIES:
            after_import(f"{library}.process", _watch_start)
            after_import(f"{library}.popen_fork", _watch_terminate)
            after_import(f"{library}.forkserver", _watch_forkserver)
        after_import(_SIGNALS, _watch_torch)


def set_answer(answers: bool) -> None:
    """Record whether this rank answers SIGTERM by a save. Call after ``prepare_workers``."""
    if _page is not None:
        _page.answers = answers


def attach_worker(rank: int, path: str) -> None:
    """Attach this process, which is a spawned worker of process ``rank``, to the page at ``path``."""
    global _page, _hooked
    with contextlib.suppress(OSError):  # the rank has ended
        _page, _hooked = _SharedPage(rank, path), True
        _become_worker()
        agent.load("allranks_agent_imports").after_import(_SIGNALS, _watch_torch)


def _in_child() -> None:
    """Set up a forked child as a worker, if multiprocessing forked it."""
    launcher = sys._getframe(1).f_globals.get("__name__", "")
    if launcher in {f"{library}.popen_fork" for library in LIBRARIES}:
        _become_worker()


def _become_worker() -> None:
    global _watches
    assert _page is not None
    _page.enter(os.getpid())
    _watches = False
    signal.signal(signal.SIGTERM, worker_sigterm_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def worker_sigterm_handler(_: int, __: FrameType | None) -> None:
    """Handle SIGTERM in a worker: die, or continue until the rank ends."""
    assert _page is not None
    if _page.is_terminated(os.getpid()):
        os._exit(
            0
        ) if _is_loader else _die_by_sigterm()  # of a loader, the rank would take any other code for a failure
    elif not _page.answers:
        _die_by_sigterm()
    else:
        _watch_rank(_page.rank)


def _die_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _watch_rank(rank: int) -> None:
    """End this worker when its rank ends. Takes no lock: a signal may arrive while the thread holds one."""
    global _watches
    if not _watches:
        _watches = True
        _thread.start_new_thread(_end_with, (rank,))


def _end_with(rank: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        wait_readable([os.pidfd_open(rank)], None)
    os._exit(128 + signal.SIGTERM)


class _AttachOnUnpickle:
    """An object that is pickled to a spawned worker. Unpickling it there attaches the worker to the page."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[int, str]]:
        assert _page is not None
        return attach_worker, (_page.rank, _page.path)


def _watch_start(process: ModuleType) -> None:
    start = process.BaseProcess.start

    @functools.wraps(start)
    def attending(self: Any) -> None:
        self._allranks = _AttachOnUnpickle()
        start(self)

    process.BaseProcess.start = attending


def _watch_terminate(popen: ModuleType) -> None:
    send = popen.Popen._send_signal

    @functools.wraps(send)
    def announcing(self: Any, signum: int) -> None:
        if signum == signal.SIGTERM and _page is not None and _page.is_worker(self.pid):
            _page.terminate(self.pid)
            _kill_later(self)
        send(self, signum)

    popen.Popen._send_signal = announcing


def _kill_later(popen: Any) -> None:
    """Kill a terminated worker after ``PATIENCE`` seconds: in C code, Python calls no signal handler."""

    def kill() -> None:
        time.sleep(PATIENCE)
        with contextlib.suppress(OSError):
            popen.kill()

    try:
        threading.Thread(target=kill, name="allranks-terminate", daemon=True).start()
    except RuntimeError:  # the interpreter is about to end
        popen.kill()


def _watch_forkserver(forkserver: ModuleType) -> None:
    """Make the fork server block SIGTERM, by a mask that it inherits. It ends with its rank anyway."""
    ensure = forkserver.ForkServer.ensure_running

    @functools.wraps(ensure)
    def masked(self: Any) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            ensure(self)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    forkserver.ForkServer.ensure_running = masked


def _watch_torch(signals: ModuleType) -> None:
    """Set our handler in a DataLoader's worker after torch has set its own, which lets the worker die of SIGTERM."""
    theirs = signals._set_worker_signal_handlers

    @functools.wraps(theirs)
    def set_handlers() -> None:
        global _is_loader
        theirs()
        if _page is not None:
            _become_worker()
            _is_loader = True

    signals._set_worker_signal_handlers = set_handlers  # type: ignore[attr-defined]
