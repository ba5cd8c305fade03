"""Whoever starts the ranks under Lightning: the callback finds the world that they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import harness
import pytest

HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "lightning_alone.py"


def run(how: str, folder: Path, fault: str, *launcher: str, **variables: str) -> harness.Rank:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    environ = harness.clean_environ({"PYTHONWARNINGS": "ignore", **variables})
    environ["PYTHONPATH"] = os.pathsep.join([path, environ["PYTHONPATH"]])
    command = [sys.executable, *launcher, str(PROGRAM), how, str(folder), fault]
    return harness.run_commands([(command, environ)], patience=300).ranks[0]


@pytest.mark.needs("lightning")
@pytest.mark.parametrize(
    ("how", "launcher"),
    [
        pytest.param("popen", (), marks=pytest.mark.soak),
        pytest.param("spawn", (), marks=pytest.mark.soak),
        pytest.param("popen", ("-m", "allranks", "run", "-n", "2"), marks=pytest.mark.soak),
    ],
)
def test_ranks_are_compared_whoever_starts_them(how: str, launcher: tuple[str, ...], tmp_path: Path) -> None:
    """``strategy="ddp"`` runs the script again for each rank, ``ddp_spawn`` sends the trainer to new processes."""
    ended = run(how, tmp_path, "weights", *launcher)
    assert ended.code not in (0, None), ended
    assert "leaf 'model/net.2.weight', float32[2, 8], on rank" in ended.err + ended.out, ended
    assert "trained" not in ended.out


@pytest.mark.needs("lightning")
@pytest.mark.soak
def test_a_world_of_one_made_before_lightning_starts_ranks_is_refused(tmp_path: Path) -> None:
    """``allranks.init()`` at the top of a script cannot know of ranks that do not exist yet."""
    ended = run("popen", tmp_path, "early")
    assert ended.code not in (0, None), ended
    assert "the framework trains as rank 0 of 2, and this process is rank 0 of 1" in ended.err
    assert "Leave allranks.init() out" in ended.err


@pytest.mark.needs("lightning")
@pytest.mark.soak
def test_a_rank_that_stops_is_named_with_what_the_trainer_does_there(tmp_path: Path) -> None:
    """The watch came with the callback: nobody has called ``allranks.init()``."""
    ended = run("popen", tmp_path, "stall", ALLRANKS_HANG_AFTER="4", ALLRANKS_ON_HANG="end")
    assert ended.code not in (0, None), ended
    assert "HANG: rank 0 waits for rank 1" in ended.err, ended.err
    assert "Python (training step) at" in ended.err
    assert "in on_before_backward" in ended.err
    assert "step 1;" in ended.err
