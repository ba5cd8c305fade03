"""The JAX job: four ranks compute what one process computes, and one that fails in the middle takes all down."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest
import training

FOUR = ("-m", "allranks", "run", "-n", "4", "-d", "2")
TRAIN = Path(__file__).parents[2] / "examples" / "jax_fsdp_lm" / "train.py"
DEMO = TRAIN.with_name("demo.py")


@pytest.mark.soak  # the demo's test compares four ranks with three
def test_four_ranks_lose_what_one_process_loses(tmp_path: Path) -> None:
    """Step for step, sharded and in two micro-batches: 4 ranks x 2 devices equal 1 process x 1."""
    (alone,) = training.losses_of((), "train", tmp_path / "alone.json", "")
    (together,) = training.losses_of(FOUR, "train", tmp_path / "together.json", "--grad-accum 2")
    assert len(alone) == 6
    assert alone[-1] < alone[0] - 0.4
    np.testing.assert_allclose(together, alone, rtol=2e-5)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    """Before anything is compiled, with the sizes that would do."""
    done = training.run([*FOUR, str(TRAIN), "--batch-size", "20", "--grad-accum", "2"])
    assert done.returncode == 1, done.stdout
    headline = next(line for line in done.stdout.splitlines() if line.startswith("first failure: "))
    assert "a batch of 20 rows cannot be divided evenly: 4 ranks x 2 devices x 2 accumulation = 16" in headline
    assert headline.endswith("The nearest batch sizes are 16 and 32.")


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        pytest.param("kill", 137, "killed by SIGKILL", id="SIGKILL", marks=pytest.mark.soak),
        pytest.param("raise", 1, "OSError: the disk is gone", id="raises", marks=pytest.mark.soak),
    ],
)
def test_a_rank_that_fails_in_the_middle_ends_the_job(tmp_path: Path, how: str, code: int, says: str) -> None:
    """Within seconds, with that rank's exit code, and what happened to it as the headline."""
    failed = tmp_path / "when"
    tiny = training.TINY.replace("--steps 6", "--steps 1000000 --prefetch 1 --log-every 1").split()
    done = training.run([*FOUR, str(training.HERE / "fails.py"), how, str(failed), *tiny])
    seconds = time.time() - float(failed.read_text())
    assert done.returncode == code, done.stdout
    assert "step     2   loss" in done.stdout
    headline = next(line for line in done.stdout.splitlines() if line.startswith("first failure: "))
    assert headline.startswith("first failure: rank 2 "), done.stdout
    assert says in headline
    assert seconds < 20, f"the job was down {seconds:.1f} s after rank 2 had failed"


def test_the_demo_goes_on_as_if_nothing_had_happened() -> None:
    """Killed in a save, taken up by three ranks: the same losses at the same steps, and each row was taken once."""
    small = [
        *training.TINY.replace("--size 32", "--size 48").replace("--batch-size 16 --steps 6", "").split(),
        "--save-every",
        "5",
    ]
    done = training.run([str(DEMO), *small])
    assert done.returncode == 0, done.stdout
    assert "goes on from step 5, saves every 5" in done.stdout
    assert "The loss went on from" in done.stdout
    assert re.search(r"data     960 of [0-9,]+ rows of epoch 0 taken, each once, by the ledger of 3 ranks", done.stdout)
    assert "Each step of the training took 48 rows." in done.stdout
    assert "each of them once." in done.stdout.splitlines()[-1]
