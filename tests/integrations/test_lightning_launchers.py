"""Whoever starts the ranks under Lightning: the callback finds the world that they are."""

from __future__ import annotations

import os
from pathlib import Path

import harness
import pytest

HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "lightning_alone.py"


def run(*arguments: str, folder: Path) -> harness.Rank:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environ = harness.clean_environ() | {"PYTHONWARNINGS": "ignore"}
    environ["PYTHONPATH"] = os.pathsep.join([path, environ["PYTHONPATH"]])
    command = [harness.sys.executable, str(PROGRAM), arguments[0], str(folder), *arguments[1:]]
    return harness.run_commands([(command, environ)], patience=300).ranks[0]


@pytest.mark.needs("lightning")
@pytest.mark.parametrize("how", ["popen", pytest.param("spawn", marks=pytest.mark.soak)])
def test_ranks_that_lightning_starts_are_compared(how: str, tmp_path: Path) -> None:
    """``strategy="ddp"`` runs the script again for each rank, ``ddp_spawn`` sends the trainer to new processes."""
    ended = run(how, "late", folder=tmp_path)
    assert ended.code not in (0, None), ended
    assert "leaf 'model/net.2.weight', float32[2, 8], on rank" in ended.err, ended.err
    assert "trained" not in ended.out


@pytest.mark.needs("lightning")
@pytest.mark.soak
def test_a_world_of_one_made_before_lightning_starts_ranks_is_refused(tmp_path: Path) -> None:
    """``allranks.init()`` at the top of a script cannot know of ranks that do not exist yet."""
    ended = run("popen", "early", folder=tmp_path)
    assert ended.code not in (0, None), ended
    assert "the framework says rank 0 of 2, but allranks.init() made this process rank 0 of 1" in ended.err
    assert "Leave allranks.init() out" in ended.err
