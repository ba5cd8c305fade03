"""transformers.Trainer on two real ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import harness
import pytest

PROGRAM = Path(__file__).parent / "programs" / "hf_train.py"


def run(*arguments: str) -> harness.Job:
    return harness.run(2, ["-W", "ignore", str(PROGRAM), *arguments], patience=300)


@pytest.mark.needs("transformers", "accelerate")
def test_ranks_are_compared_and_leave_together_when_one_is_preempted(tmp_path: Path) -> None:
    """Other weights on rank 1 stop both ranks; SIGTERM on rank 1 has both save one step, and leave with 143."""
    job = run(str(tmp_path))
    assert job.codes == [143, 143], job
    for rank in job.ranks:
        stopped = re.findall(r"stopped: .*", rank.out)
        assert len(stopped) == 2, job
        assert "leaf 'model/line.bias', float32[1], on rank 1" in stopped[0] or "a tie" in stopped[0], stopped
        assert "at step 2" in stopped[1]
        assert "leaf 'parameters/line.bias'" in stopped[1]
        assert "goes on without us: True" in rank.out
        assert "not reached" not in rank.out
    saved = list(tmp_path.glob("checkpoint-*"))
    assert len(saved) == 1, saved
    state = json.loads((saved[0] / "trainer_state.json").read_text())
    assert 2 < state["global_step"] < 5000
    assert saved[0].name == f"checkpoint-{state['global_step']}"
    told = f"saved step {state['global_step']} to {tmp_path}/{saved[0].name} and left (SIGTERM on rank 1)"
    assert told in job.ranks[0].err


@pytest.mark.soak
@pytest.mark.needs("transformers", "accelerate")
def test_a_preempted_training_goes_on(tmp_path: Path) -> None:
    """As any checkpoint of the Trainer's does."""
    run(str(tmp_path))
    [saved] = tmp_path.glob("checkpoint-*")
    steps = json.loads((saved / "trainer_state.json").read_text())["global_step"] + 2
    job = run(str(tmp_path), "resume", str(steps))
    assert job.codes == [0, 0], job
    assert all(f"resumed, and ended at step {steps}" in rank.out for rank in job.ranks), job
