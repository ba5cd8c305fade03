"""The torch twin: as many ranks as one likes, under any launcher, compute what one process computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import training


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(("-m", "allranks", "run", "-n", "4"), id="allranks run"),
        pytest.param(
            ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            id="torchrun",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_ranks_lose_what_one_process_loses(launcher: tuple[str, ...], tmp_path: Path) -> None:
    """Step for step, in two micro-batches: 4 ranks under allranks run and 2 under torchrun equal 1 process."""
    (alone,) = training.losses_of((), "torch_ddp_lm", tmp_path / "alone.json", "--grad-accum 1")
    assert len(alone) == 6
    assert alone[-1] < alone[0] - 0.4
    (together,) = training.losses_of(
        launcher, "torch_ddp_lm", tmp_path / "together.json", "--grad-accum 2", by="torch_trains.py"
    )
    np.testing.assert_allclose(together, alone, rtol=2e-5)
