"""Run one command per host, all at once, and merge what they print."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from allranks.engines.base import EngineFailed
from allranks.engines.frames import is_stdout, with_host
from allranks.engines.host_script import common_exit_code

_UNREACHABLE = 255
# What a launcher needs after the first one has ended, over the grace of its ranks.
_MORE_THAN_GRACE = 30.0


def hold(commands: Mapping[str, Sequence[str]], given: Mapping[str, str], *, grace: float) -> int:
    """Run the launchers of a job, print what they print, and return the exit code of the job.

    The launchers end with this process, because their standard input ends. After Ctrl-C they have ``grace`` seconds for
    their ranks (exit code 130); a second Ctrl-C ends the connections. Raises EngineFailed if a connection failed first.
    """
    group = _Group(commands, given)
    interrupted = False
    try:
        while True:
            try:
                for host, line in group.lines(grace + _MORE_THAN_GRACE):
                    shown = with_host(host, line, of=len(commands))
                    print(shown, file=sys.stdout if is_stdout(line) else sys.stderr, flush=True)
                break
            except KeyboardInterrupt:
                if interrupted:
                    break
                interrupted = True
                group.release()
        if interrupted:
            return 130
        if group.codes[0] == _UNREACHABLE:
            raise EngineFailed(f"the connection to host {group.ended[0]} failed; the job was ended.")
        return common_exit_code(group.codes)
    finally:
        group.close()


def lines(commands: Mapping[str, Sequence[str]], given: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of all hosts as they come. Raises EngineFailed that names the hosts whose command failed."""
    group = _Group(commands, given)
    try:
        for host, line in group.lines(None):
            yield with_host(host, line, of=len(commands))
    finally:
        group.close()
    failed = [host for host, code in zip(group.ended, group.codes, strict=True) if code]
    if failed:
        raise EngineFailed(f"{len(failed)} of {len(commands)} hosts failed: {', '.join(failed)}: see above.")


def outputs(commands: Mapping[str, Sequence[str]], given: Mapping[str, str], *, kind: str) -> dict[str, str]:
    """Return what each host has printed. Raises EngineFailed that names the hosts whose command failed."""
    processes = {
        host: subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for host, argv in commands.items()
    }
    results: dict[str, tuple[str, str]] = {}

    def run(host: str) -> None:
        results[host] = processes[host].communicate(given[host])

    threads = [threading.Thread(target=run, args=(host,), daemon=True) for host in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [
        f"{host}: {results[host][1].strip() or f'exit code {process.returncode}'}"
        for host, process in processes.items()
        if process.returncode
    ]
    if failed:
        raise EngineFailed(f"{kind}: {len(failed)} of {len(commands)} hosts failed: {'; '.join(failed)}")
    return {host: out for host, (out, _) in results.items()}


class _Group:
    """One process per host, in a session of its own: Ctrl-C of the terminal does not reach it.

    ``ended`` are the hosts whose processes have ended, in this order; ``codes`` are their exit codes.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], given: Mapping[str, str]) -> None:
        self.ended: list[str] = []
        self.codes: list[int] = []
        self._lines: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
        self._processes = {}
        self._readers = []
        for host, argv in commands.items():
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._processes[host] = process
            self._readers.append(threading.Thread(target=self._read, args=(host, process, given[host]), daemon=True))
            self._readers[-1].start()

    def _read(self, host: str, process: subprocess.Popen[str], given: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has failed: its own words say why
            process.stdin.write(given)
            process.stdin.flush()
        for line in process.stdout:
            self._lines.put((host, line.rstrip("\n")))
        process.stdout.close()
        process.wait()
        self._lines.put((host, None))

    def lines(self, patience: float | None) -> Iterator[tuple[str, str]]:
        """Yield (host, line) until every process has ended.

        When a connection fails, or ``patience`` seconds after the first process has ended, the others are released.
        """
        deadline: float | None = None
        while len(self.codes) < len(self._processes):
            try:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                host, line = self._lines.get(timeout=timeout)
            except queue.Empty:
                self.release()
                deadline = None
                continue
            if line is not None:
                yield host, line
                continue
            self.ended.append(host)
            self.codes.append(self._processes[host].returncode)
            if patience is not None and deadline is None:
                deadline = time.monotonic() + (0 if self.codes[-1] == _UNREACHABLE else patience)

    def release(self) -> None:
        """Close the standard input of every process: the launchers there end their ranks."""
        for process in self._processes.values():
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def close(self) -> None:
        """Kill the processes that have not ended, and their children."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # gcloud has children
        for reader in self._readers:
            reader.join()
        self.release()
