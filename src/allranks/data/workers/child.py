"""Run a worker process: apply the transforms to each list of samples ("piece") that it receives."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from queue import SimpleQueue

import allranks.data.workers.wire as wire
from allranks.arrays.generators.base import GlobalState
from allranks.arrays.global_generators import count_draws, read_global_states
from allranks.data.transform import TransformChain
from allranks.errors import DataError
from allranks.failure import text_of

_PR_SET_PDEATHSIG = 1
_WATCHED_PIECES = 4


def serve_socket(descriptor: int) -> None:
    """Serve the socket ``descriptor``; never returns. The first frame is the chain, each further frame a piece.

    A thread reads ahead, so that the next piece is in memory when one is done. The thread also detects the end of the
    parent at once. If a function does not let other threads run, the kernel ends this process with its parent.
    """
    channel = socket.socket(fileno=descriptor)
    frames: SimpleQueue[wire.Frame] = SimpleQueue()
    threading.Thread(target=_receive_frames, args=(channel, frames), daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    chain = frames.get()
    applied, watch = _load_chain(chain), DrawWatch()
    while True:
        wire.send_frame(channel, _process_frame(applied, frames.get(), watch))


class DrawWatch:
    """Finds out whether functions draw from a global generator: in this process, only they do.

    In the first piece they may import modules that draw. So the pieces 2 to 4 count.
    """

    def __init__(self) -> None:
        self._piece = 0
        self._before: dict[str, GlobalState] = {}

    def begin_piece(self) -> None:
        self._piece += 1
        self._before = read_global_states() if 1 < self._piece <= _WATCHED_PIECES else {}

    def drawn_modules(self) -> tuple[str, ...]:
        """Return the modules from whose generators the piece has drawn."""
        after = read_global_states() if self._before else {}
        return tuple(
            module for module, state in self._before.items() if module in after and count_draws(state, after[module])
        )


def _receive_frames(channel: socket.socket, frames: SimpleQueue[wire.Frame]) -> None:
    try:
        while True:
            frames.put(wire.receive_frame(channel))
    except (EOFError, OSError):
        os._exit(0)  # nobody is left to hear of anything


def _load_chain(frame: wire.Frame) -> TransformChain | DataError:
    """Return the chain from its frame, or the error with which to answer every piece."""
    try:
        chain: TransformChain = wire.load_value(frame)
    except Exception as error:
        text = f"a worker process cannot load the functions to apply: {text_of(error)}."
        refusal = DataError(text, remedy="What they import must be importable from this process' sys.path, too.")
        refusal.__cause__ = error
        return refusal
    return chain


def _process_frame(chain: TransformChain | DataError, frame: wire.Frame, watch: DrawWatch) -> wire.Frame:
    try:
        if isinstance(chain, DataError):
            raise chain
        samples, ids, epoch = wire.unpack_samples(frame)
        watch.begin_piece()
        made = list(chain.apply(samples, ids, epoch))
        return wire.pack_samples(made, None, watch.drawn_modules())
    except Exception as error:
        return _failure_frame(error)


def _failure_frame(error: Exception) -> wire.Frame:
    """Return a frame with an error: with its cause, without its cause, or as text; always with its traceback."""
    text = f"In worker process {os.getpid()}:\n{traceback.format_exc()}"
    for carried in ((error, error.__cause__), (error, None)):
        try:
            frame = wire.pack_samples([], (*carried, text))
            wire.unpack_samples(frame)
        except Exception:  # noqa: S112 - whatever a stranger's exception does when it is pickled
            continue
        return frame
    return wire.pack_samples([], (DataError(text_of(error)), None, text))
