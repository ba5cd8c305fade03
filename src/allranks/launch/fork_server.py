"""Start the fork server (`allranks.launch.fork_server_main`) from the launcher, send it messages, read its reports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from allranks.errors import AllranksError
from allranks.launch import fork_server_messages as messages
from allranks.launch.job import Call, Target, to_json
from allranks.process import wait_readable

# The ranks' sys.path is as in a fresh interpreter; the fork server's sys.path also has the folder of allranks. It does
# not have the working folder, which ``-c`` puts first: a file there may have the name of a module.
BOOT = """\
import sys
path = [entry for entry in sys.path if entry]
sys.path[:] = [*path, {root!r}]
from allranks.launch.fork_server_main import main
main({fd}, path, {files})
"""
# With more threads OpenBLAS starts them while NumPy is imported, and a process with threads must not be forked.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
CLOSE_PATIENCE = 6.0


class ForkServer:
    """The launcher's access to one fork server, for one job or for several jobs one after the other.

    After ``preload``, Python targets run in forks of the server process, into which the frameworks are imported.
    Without ``preload``, each rank starts its own interpreter. ``env`` is the environment in which the frameworks are
    imported. With ``stdin``, the rank (there should be only one) gets our standard input; otherwise ranks have none.
    ``files`` is the number of descriptors that a rank may open (None: as many as we).
    ``close`` (or the end of a ``with``) kills all processes below the server.
    """

    def __init__(self, env: Mapping[str, str], *, stdin: bool = False, files: int | None = None) -> None:
        root = str(Path(__file__).parents[2])
        self._has_ranks = False
        self._sock, theirs = messages.socket_pair()
        self._outbox = messages.Outbox(self._sock)
        with theirs:
            boot = BOOT.format(root=root, fd=theirs.fileno(), files=files)
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, messages.IGNORED)  # until its Python can ignore them
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", boot],
                    stdin=None if stdin and sys.stdin is not None else subprocess.DEVNULL,
                    stdout=2,  # what an import prints is the launcher's business, and no rank's output
                    env={**env, **ENVIRONMENT},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # a Ctrl-C in the terminal is for the launcher alone
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor of the connection, for a selector. It is readable when reports wait."""
        return self._sock.fileno()

    @property
    def is_sending(self) -> bool:
        """Whether messages wait to be sent: call ``flush`` when the connection is writable."""
        return not self._outbox.is_empty

    def flush(self) -> None:
        """Send the messages that wait, as far as the server reads them. Raises BrokenPipeError if it has ended."""
        self._outbox.flush()

    def preload(self, target: Target, *, cwd: str) -> None:
        """Tell the server to import the frameworks that the target's source imports.

        The server answers with ``Ready``.
        """
        self._outbox.put(messages.Preload(target=to_json(target), cwd=cwd))

    def prepare(self, call: Call) -> messages.Ready:
        """Call a function in the fork server that imports what ranks will share.

        Wait for its end and return the answer. Raises AllranksError if the fork server ends instead.
        """
        self._outbox.put(messages.Preload(call=to_json(call)))
        got = messages.receive(self._sock)
        if got is None or not isinstance(got[0], messages.Ready):
            raise AllranksError(
                f"the fork server ended while it called {call.function}: read its output above this message."
            )
        return got[0]

    def spawn(self, spawn: messages.Spawn, *, out: int, err: int) -> None:
        """Start a rank with these descriptors as its stdout and stderr. They are closed here.

        Raises BrokenPipeError if the fork server has ended.
        """
        self._has_ranks = True
        self._outbox.put(spawn, (out, err))

    def order(self, message: messages.Kill | messages.Sweep) -> None:
        """Send a message to the server. Raises BrokenPipeError if the fork server has ended."""
        self._outbox.put(message)

    def reports(self) -> list[messages.Message | None]:
        """Return the server's reports since the last call, without waiting.

        If the server has ended, the last item is None.
        """
        found: list[messages.Message | None] = []
        while True:
            try:
                got = messages.receive(self._sock, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            except ConnectionResetError:
                got = None
            found.append(got[0] if got else None)
            if got is None:
                return found

    def close(self) -> None:
        """End the fork server and all processes below it. May be called again."""
        self._outbox.close()
        self._sock.close()
        if self._process.returncode is None:
            with open(os.pidfd_open(self._process.pid), "rb") as end:
                patience = CLOSE_PATIENCE if self._has_ranks else 0.0  # without ranks it may be deep in an import
                if not wait_readable([end.fileno()], patience):
                    self._process.kill()
            self._process.wait()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
