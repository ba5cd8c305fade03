"""N ranks of a small program over loopback, each a process; what they print after ``RESULT`` comes back as JSON."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULT = "RESULT "
SOURCE = HERE.parents[1] / "src"


class Ranks:
    """The processes of one program; a context manager, at whose end none of them is left."""

    def __init__(self, program: str, *arguments: str, size: int = 2) -> None:
        port = _free_port()
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "programs" / program), *arguments],
                env=_environment(rank, size, port),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            for rank in range(size)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def results(self, timeout: float = 120) -> list[Any]:
        """Wait until all have ended well; return each rank's result."""
        deadline = time.monotonic() + timeout
        found = []
        for rank, process in enumerate(self.processes):
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            assert process.returncode == 0, f"rank {rank} ended with {process.returncode}:\n{output}"
            (said,) = [line for line in output.splitlines() if line.startswith(RESULT)]
            found.append(json.loads(said.removeprefix(RESULT)))
        return found

    def wait_for_line(self, rank: int, line: str) -> None:
        """Read a rank's output until it says this line."""
        output = self.processes[rank].stdout
        assert output is not None
        seen = []
        for said in output:
            seen.append(said)
            if said.strip() == line:
                return
        raise AssertionError(f"rank {rank} never said {line!r}:\n{''.join(seen)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        "NPROC": "4",
    }
