"""The sequence-condensing language model: its block, its job on four ranks and then two, and each bug of its past."""

from __future__ import annotations

import pickle
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seeds

sys.path.append(str(seeds.EXAMPLES / "seqcond_fsdp"))

import seqcond

TINY = (
    "--size tiny --num-layers 1 --seqcond-heads 2 --seqcond-query-heads 4 --seq-len 16 --batch-size 16 --fsdp "
    "--steps 8 --lr 1e-2 --log-every 1 --save-every 4 --sample-every 100 --sample-length 8"
)


def test_condensing_is_its_recurrence() -> None:
    """All summaries at once are those of one step after the other; so are their gradients."""

    def one_after_the_other(kept: jax.Array, read: jax.Array) -> jax.Array:
        summaries = [read[0]]
        for now, new in zip(kept[1:], read[1:], strict=True):
            summaries.append(now * summaries[-1] + new)
        return jnp.stack(summaries)

    @jax.jit
    def both(kept: jax.Array, read: jax.Array, weights: jax.Array) -> list[Any]:
        found = [jax.vjp(condense, kept, read) for condense in (seqcond.condense, one_after_the_other)]
        return [(summaries, *back(weights)) for summaries, back in found]

    rng = np.random.default_rng(0)
    kept, read, weights = rng.uniform(size=(7, 3, 1)), rng.normal(size=(7, 3, 5)), rng.normal(size=(7, 3, 5))
    for mine, naive in zip(*both(kept, read, weights), strict=True):
        np.testing.assert_allclose(mine, naive, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["seqcond", pytest.param("transformer", marks=pytest.mark.soak)])  # not ours to prove
def test_reading_and_generating_are_the_same_model(kind: str) -> None:
    """Byte by byte, from what is left of the past, the logits are those of the whole text."""
    flags = {"num_layers": 2, "expand": 2.0, "seqcond_heads": 2, "seqcond_query_heads": 4, "heads": 2, "seq_len": 8}
    args = Namespace(model=kind, size="tiny", **flags)

    @jax.jit
    def both(text: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = seqcond.language_model(args, key=jax.random.key(0))
        model = eqx.tree_at(lambda model: model.output, model, jax.random.normal(jax.random.key(1), (32, 256)))
        whole, _ = model(text, jnp.arange(8))

        def step(past: Any, at: jax.Array) -> tuple[Any, jax.Array]:
            logits, past = model(text[at][None], at[None], past)
            return past, logits[0]

        return whole, jax.lax.scan(step, model.empty(8), jnp.arange(8))[1]

    whole, one_by_one = both(jnp.arange(97, 105, dtype=jnp.uint8))
    np.testing.assert_allclose(one_by_one, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.soak
def test_four_ranks_then_two_and_what_the_bugs_meet(tmp_path: Path) -> None:
    """Two ranks go on from four ranks' step 4 with the same losses; bugs are errors on all ranks, or end the job.

    The files that four ranks wrote as they used to hold a quarter of the weights, and are refused.
    """
    run, old = tmp_path / "run", tmp_path / "run_step8.pkl"
    ((four, *_),), job = seeds.outcomes(
        "seqcond_fsdp", ["-n", "4"], tmp_path / "four.json", [f"{TINY} --checkpoint {run} --break save-race"]
    )
    assert job.returncode == 0, job.stdout
    assert four["losses"][-1] < four["losses"][0] - 0.2
    params = pickle.loads(old.read_bytes())["params"]
    assert params["embedding"].shape == (64, 32), "without us: a quarter of (256, 32), and no complaint"

    tries = [
        f"--checkpoint {run} --from-step 4 --sample-every 8",
        f"--checkpoint {tmp_path / 'a'} --init-from {old}",
        f"--checkpoint {tmp_path / 'b'} --break generator",
        f"--checkpoint {tmp_path / 'c'} --break local-rows",
        f"--checkpoint {tmp_path / 'd'} --break gate --sample-every 4",
    ]
    said, job = seeds.outcomes("seqcond_fsdp", ["-n", "2"], tmp_path / "two.json", [f"{TINY} {one}" for one in tries])
    (two, _), *errors = said
    np.testing.assert_allclose(two["losses"], four["losses"][4:], rtol=2e-5)
    kinds = [(mine["error"], theirs["error"]) for mine, theirs in errors]
    assert kinds == [("DoesNotFit",) * 2, ("DataError",) * 2, ("NotReady",) * 2]
    refused, empty, half = (mine["says"] for mine, _ in errors)
    assert "embedding: float32[64, 32] in the file (embedding), float32[256, 32] here" in refused
    assert "there is no sample on ranks 0-1. Does a generator function return gen()" in empty
    assert "global arrays of 8 rows" in half
    assert re.search(r"\[0\] +def ", job.stdout), "the sample that all made at step 8"
    assert job.returncode == 1
    assert "rank 0: lockstep 'jit(sample)' (examples/seqcond_fsdp/train.py" in seeds.headline(job)
    # It was told so in the save, and then here: rank 0 cannot come to any meeting.
    assert "rank 1: all_gather 'all_gather' (tests/examples/outcomes.py" in seeds.headline(job)


@pytest.mark.soak
def test_data_that_ends_early_under_our_eyes(tmp_path: Path) -> None:
    """The rank that is done ends the job, and the first line of its report says who did what, where."""
    flags = f"{TINY} --checkpoint {tmp_path} --break uneven --steps 100"
    job = seeds.job("seqcond_fsdp", ["-n", "4"], flags)
    assert job.returncode == 1, job.stdout
    assert "rank 1: no more calls, the region ends (examples/seqcond_fsdp/train.py" in seeds.headline(job)
    assert "jit(train_step) (examples/seqcond_fsdp/train.py" in seeds.headline(job)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("bug", "code", "says"),
    [
        ("generator", 0, "trained 0 steps"),
        ("local-rows", 0, r"step     8   loss 5\.\d+ +of 4 rows"),
        ("gate", 124, "step     6   loss"),  # and then nothing, until --timeout
        ("uneven", 1, "Connection closed by peer|left early"),
    ],
)
def test_a_bug_without_us(tmp_path: Path, bug: str, code: int, says: str) -> None:
    """Nothing is trained, a quarter of the rows is used, or the job stands still: nobody says so."""
    flags = f"{TINY} --checkpoint {tmp_path / 'old'} --break {bug} --sample-every 6 --without-allranks"
    job = seeds.job("seqcond_fsdp", ["-n", "4", "--timeout", "100"], flags)
    assert job.returncode == code, job.stdout
    assert re.search(says, job.stdout), job.stdout
    assert "Mismatch" not in job.stdout


def test_the_check_finds_by_reading_what_it_can() -> None:
    """The write of all ranks, the generator whose rows are lost, the shard as the whole."""
    assert seeds.found_by_reading("seqcond_fsdp") == {"AR101", "AR309", "AR403"}
