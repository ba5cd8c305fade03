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
from allranks.data.transform import TransformChain
from allranks.errors import DataError
from allranks.failure import text_of

_PR_SET_PDEATHSIG = 1


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
    applied = _load_chain(chain)
    while True:
        wire.send_frame(channel, _process_frame(applied, frames.get()))


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


def _process_frame(chain: TransformChain | DataError, frame: wire.Frame) -> wire.Frame:
    try:
        if isinstance(chain, DataError):
            raise chain
        samples, ids, epoch = wire.unpack_samples(frame)
        return wire.pack_samples(list(chain.apply(samples, ids, epoch)), None)
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
