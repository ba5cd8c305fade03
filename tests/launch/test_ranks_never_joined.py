"""Programs that each believe to be alone are told from those whose ranks have met, by any means that can be seen."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import harness
import pytest

from allranks import agent

PROGRAMS = {
    "alone": "import {0}",
    "torch's world": "import torch.distributed as dist; dist.init_process_group('gloo'); dist.destroy_process_group()",
    "JAX's world": "import jax; jax.distributed.initialize(); jax.distributed.shutdown()",
    "torch's rpc": (
        "import os, torch.distributed.rpc as rpc\n"
        "rank = int(os.environ['RANK'])\nrpc.init_rpc(f'worker{{rank}}', rank=rank, world_size=2); rpc.shutdown()"
    ),
    "plain Python": "print('hello')",
}


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The agent's file, in a process that uses torch alone and has met nobody."""
    module = agent.load("allranks_agent_joins")
    monkeypatch.setattr(module, "_sizes", set())
    monkeypatch.setattr(module, "FRAMEWORKS", ("a_framework",))
    monkeypatch.setitem(sys.modules, "a_framework", ModuleType("a_framework"))
    return module


def test_a_program_that_has_met_nobody_says_its_framework(joins: Any) -> None:
    """Also where its framework has made a world of one."""
    assert joins.unjoined_frameworks() == "a_framework"
    joins.on_report("joined", backend="a_framework", size=1)
    assert joins.unjoined_frameworks() == "a_framework"
    joins.on_report("joined", backend="a_framework", size=2)
    assert joins.unjoined_frameworks() == ""


def test_ranks_that_met_by_mpi_or_at_the_launchers_port_have_met(joins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An MPI world of two; a connection that this process holds, of a program of its own."""
    world = SimpleNamespace(Get_size=lambda: 2)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(COMM_WORLD=world, Is_initialized=lambda: True))
        assert joins.unjoined_frameworks() == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        assert joins.unjoined_frameworks() == "a_framework"
        with socket.create_connection(server.getsockname()):
            assert joins.unjoined_frameworks() == ""


@pytest.mark.soak
@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_real_ranks(program: str, framework: str, tmp_path: Path) -> None:
    """A line at the end of a job of two that never met, with exit code 0; no line of any other job."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAMS[program].format(framework))
    command = [sys.executable, "-m", "allranks", "run", "-n", "2", str(script)]
    job = harness.run_commands([(command, harness.clean_environ())])
    assert job.codes == [0], job
    said = re.search(r"^the 2 ranks never met: 2 separate programs\? Each uses (\w+)", job.ranks[0].text, re.MULTILINE)
    assert (said[1] if said else "") == (framework if program == "alone" else ""), job
