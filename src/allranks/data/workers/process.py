"""Start one worker process, and talk to it.

It is a Python of its own, not a fork (a fork of a process with JAX's threads may hang) and not multiprocessing's spawn
(that runs the training script again in each worker, unless it is guarded). Its numeric libraries use one thread each,
as the workers share the cores, and its JAX, if a function imports it, no accelerator.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import allranks.data.workers.wire as wire

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JAX_PLATFORMS": "cpu",
    "PYTHONUNBUFFERED": "1",  # what a function prints is there when the worker is killed
}


class Process:
    """A worker that was started. Start it from a thread that lasts: the kernel ends the worker with the thread."""

    def __init__(self) -> None:
        """Start the process. Raises OSError where no process can be started.

        SIGINT and SIGTERM, sent to the whole group, are for the parent: the calling thread must block them, and the
        worker inherits that.
        """
        ours, theirs = socket.socketpair()
        like_us = f"import sys; sys.path[:], sys.argv[:] = {sys.path!r}, {sys.argv!r}"
        program = f"{like_us}; from allranks.data.workers.child import main; main({theirs.fileno()})"
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
        """Send the chain, first, or a piece. Raises OSError if the process has ended."""
        wire.send(self._channel, frame)

    def receive(self) -> wire.Frame:
        """Wait for the answer to the oldest piece. Raises EOFError or OSError if the process has ended."""
        return wire.receive(self._channel)

    def kill(self) -> None:
        """End the process. Any thread may call."""
        self._popen.kill()

    def bury(self) -> str:
        """End the process, if it has not ended, and return a text that says how it ended."""
        self._popen.kill()
        code = self._popen.wait()
        self._channel.close()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
