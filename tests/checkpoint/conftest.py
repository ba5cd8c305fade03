"""Jobs of real ranks, as many as a test needs, one after the other: saved by four, restored by three."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trip_jobs import RunJob

from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.fork_server import ForkServer
from allranks.launch.job import Call, Job

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def run_job() -> Iterator[RunJob]:
    """``run_job(n, "function of trip_jobs", folder, devices=2, **arguments)``: every rank must end well."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    with ForkServer(environ) as fork_server:
        ready = fork_server.prepare(Call("trip_jobs:prepare"))
        assert not ready.obstacle, ready.obstacle

        def run(n: int, name: str, folder: Path, *, devices: int = 1, **arguments: Any) -> None:
            output = io.BytesIO()
            console = Console(n, out=output, color=False, live=False)
            call = Call("trip_jobs:run", json.dumps([name, str(folder), arguments]))
            result = local.run(
                Job(call, n, devices=devices, timeout=240),
                console,
                cwd=str(HERE),
                base=environ,
                fork_server=fork_server,
            )
            console.close()
            assert result.exit_code == 0, f"{name} on {n} ranks:\n{output.getvalue().decode(errors='replace')}"

        yield run
