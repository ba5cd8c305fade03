"""The classifier on several devices: under pmap and under shard_map the same, and each bug of its past."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import seeds

TINY = "--hidden 8 --batch-size 16 --rows 70 --steps 4 --log-every 1"


def test_naming_the_axes_of_pmap_changes_nothing() -> None:
    """``in_axes=(0, 0)`` is what pmap takes anyway: the program is the same, to the letter."""

    def step(weights: jax.Array, rows: jax.Array) -> jax.Array:
        return weights - jax.lax.pmean(rows.mean(), "i")

    args = jnp.ones((1, 3)), jnp.ones((1, 4))
    before = jax.pmap(step, axis_name="i").lower(*args).as_text()
    assert jax.pmap(step, axis_name="i", in_axes=(0, 0)).lower(*args).as_text() == before


@pytest.mark.soak
def test_two_processes_of_two_devices_and_what_the_bugs_meet(tmp_path: Path) -> None:
    """Mapped by either, over a last batch that is not full, the losses are equal; keys and rows are judged before."""
    runs = [f"{TINY} --steps 6", f"{TINY} --pmap", *(f"{TINY} --break {bug}" for bug in ("seed", "keys"))]
    last = f"{TINY} --steps 6 --break uneven"
    said, job = seeds.outcomes("pmap_classifier", ["-n", "2", "-d", "2"], tmp_path / "out.json", [*runs, last])
    (mapped, _), (as_it_was, _), *errors = said
    assert len(mapped["losses"]) == 6  # the fifth batch has 6 rows of 16
    np.testing.assert_allclose(as_it_was["losses"], mapped["losses"][:4], rtol=1e-5)
    assert [(mine["error"], theirs["error"]) for mine, theirs in errors] == [("NotReady",) * 2] * 2
    (of_weights, _), (of_dropout, _) = errors
    assert re.search(r"same: key of the weights: rank 0: .*; rank 1: ", of_weights["says"])
    assert re.search(r"distinct: dropout keys: ranks 0 and 1 hold the same", of_dropout["says"])
    assert job.returncode == 1
    assert "IndivisibleError" in seeds.headline(job)
    assert "a dimension does not divide over the devices [jax-indivisible]" in job.stdout
    assert "Most often the last, smaller batch of an epoch" in job.stdout


@pytest.mark.soak
def test_a_device_that_fails_is_told_above_the_rendezvous() -> None:
    """A variable that does not exist changes no timeout, which is said; one that does ends the wait after 2 s."""
    launcher = ["-n", "1", "-d", "2", "--rendezvous-timeout", "2"]
    job = seeds.job("pmap_classifier", launcher, f"{TINY} --break device", XLA_RENDEZVOUS_WAIT_SECONDS="120")
    assert job.returncode == 134, job.stdout
    assert re.search(r"environment +note  nothing reads XLA_RENDEZVOUS_WAIT_SECONDS", job.stdout)
    cause = job.stdout.index("the loss is not finite on a device: look at its rows")
    told = job.stdout.index("a function of Python that a device's program calls has raised [jax-callback-failed]")
    rendezvous = job.stdout.index("Expected 2 threads to join the rendezvous, but not all of them arrived on time")
    assert cause < rendezvous
    assert told < rendezvous
    assert "not all device threads of this process came to a collective [xla-rendezvous]" in job.stdout


def test_the_check_finds_by_reading_what_it_can() -> None:
    """The key that all processes split alike, and the one that each makes of its clock."""
    assert seeds.found_by_reading("pmap_classifier") == {"AR701", "AR702"}


@pytest.mark.soak
def test_a_slow_device_is_no_deadlock() -> None:
    """The same job ends with a timeout that is too short, and trains on with one that is long enough."""
    flags = f"{TINY} --break slow"
    short = seeds.job("pmap_classifier", ["-n", "1", "-d", "2", "--rendezvous-timeout", "2"], flags)
    assert short.returncode == 134, short.stdout
    assert "[xla-rendezvous-abort]" in short.stdout
    enough = seeds.job("pmap_classifier", ["-n", "1", "-d", "2", "--rendezvous-timeout", "250"], flags)
    assert enough.returncode == 0, enough.stdout
    assert "step    4   loss" in enough.stdout


@pytest.mark.soak
@pytest.mark.parametrize(
    ("bug", "devices", "says"),
    [
        ("keys", "2", r"\[0-1\] +norm of the weights .*, first dropout key"),  # both processes have the same
        ("seed", "2", r"\[0\] +norm of the weights"),  # and each has other weights
        ("uneven", "1", "step    3   loss"),  # of 5 rows, which one process takes for 6 and the other for 4
    ],
)
def test_a_bug_without_us(bug: str, devices: str, says: str) -> None:
    """It trains, and ends with exit code 0."""
    flags = f"{TINY} --rows 37 --break {bug} --without-allranks"
    job = seeds.job("pmap_classifier", ["-n", "2", "-d", devices], flags)
    assert job.returncode == 0, job.stdout
    assert re.search(says, job.stdout), job.stdout
