"""SIGTERM on any rank, at a bad moment: all ranks save the same step, and leave with 143."""

from __future__ import annotations

from pathlib import Path

import harness
import numpy as np
import pytest

from allranks.checkpoint import audit
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.world.single import single_world

PROGRAM = Path(__file__).parent / "programs" / "preempted.py"


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "moment",
    [
        "in the write of a save",
        pytest.param("right after a save", marks=pytest.mark.soak),
        pytest.param("before a meeting", marks=pytest.mark.soak),
        pytest.param("on all ranks", marks=pytest.mark.soak),
    ],
)
def test_all_ranks_save_the_same_step_and_leave(moment: str, tmp_path: Path) -> None:
    """Exactly one more save, whole, of the state at that step; and the next job goes on from there."""
    job = harness.run(3, [str(PROGRAM), str(tmp_path), moment])
    assert job.codes == [143] * 3, job
    ckpt = Checkpointer(tmp_path, single_world(), read_only=True)
    steps = ckpt.steps()
    assert list(steps[:-1]) == list(range(3, steps[-1], 3))
    assert {audit.load(ckpt._storage, step).world_size for step in steps} == {3}
    assert len(list(tmp_path.glob("checkpoint-*"))) == len(steps)
    restored = ckpt.restore({"weights": np.zeros(1000, np.float32)})
    assert restored is not None
    assert (restored[0]["weights"] == restored[1]).all()
    ckpt.close()
