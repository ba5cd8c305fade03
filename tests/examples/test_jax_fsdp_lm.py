"""The job: what four ranks compute is what one process computes; and what it reads and says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TINY = "--size 32 --layers 1 --heads 2 --seq-len 16 --batch-size 16 --steps 6 --lr 1e-2"


def losses_of(launcher: Sequence[str], out: Path, *runs: str) -> list[list[float]]:
    """The losses of the runs, trained one after the other by the processes that ``launcher`` starts."""
    done = subprocess.run(
        [sys.executable, *launcher, str(HERE / "losses.py"), str(out), *(f"{TINY} {flags}" for flags in runs)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[list[float]] = json.loads(out.read_text())
    return found


def test_four_ranks_lose_what_one_process_loses(tmp_path: Path) -> None:
    """Step for step, sharded in two micro-batches or replicated in one: 4 ranks x 2 devices equal 1 process x 1."""
    (alone,) = losses_of((), tmp_path / "alone.json", "")
    together = losses_of(
        ("-m", "allranks", "run", "-n", "4", "-d", "2"),
        tmp_path / "together.json",
        "--grad-accum 2",
        "--no-fsdp --prefetch 1",
    )
    assert len(alone) == 6
    assert alone[-1] < alone[0] - 0.5
    for losses in together:
        np.testing.assert_allclose(losses, alone, rtol=2e-5)
