"""``allranks run --guard``: programs that do not import allranks are compared over ranks, and correct ones run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import harness
import pytest

from allranks import agent
from allranks.guard.replicas import Claim, differing, failure

PROGRAMS = Path(__file__).parent / "programs"
TORCH, JAX = (
    pytest.param("plain_torch.py", marks=pytest.mark.needs("torch")),
    pytest.param("plain_jax.py", marks=pytest.mark.needs("jax")),
)


def run(program: str, fault: str = "", *, guard: bool = True, timeout: float = 60) -> harness.Job:
    script = [str(PROGRAMS / program), *([fault] if fault else [])]
    options = ["--guard"] if guard else []
    command = [sys.executable, "-m", "allranks", "run", "-n", "2", "--timeout", str(timeout), *options, *script]
    return harness.run_commands([(command, harness.clean_environ())])


def line_of(program: str) -> int:
    return next(n for n, line in enumerate((PROGRAMS / program).read_text().splitlines(), 1) if "# HERE" in line)


@pytest.mark.parametrize("program", [pytest.param(*TORCH.values, marks=[*TORCH.marks, pytest.mark.soak]), JAX])
def test_a_gather_under_if_rank_0_raises_and_names_the_line(program: str) -> None:
    """On every rank, where it would hang."""
    job = run(program, "gather")
    assert job.codes == [1], job
    assert "CollectiveOnOneRank" in job.ranks[0].err, job
    assert "only rank 0 makes the call, under `if fault == 'gather' and" in job.ranks[0].err, job
    assert f"{program}:{line_of(program)}" in job.ranks[0].err, job


@pytest.mark.soak
@pytest.mark.parametrize("program", [TORCH, JAX])
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("gather last", "CollectiveOnOneRank", "rank 1 has ended after"),
        ("fewer steps", "Mismatch", r"rank 1 has (ended after|left the loop early)"),
    ],
)
def test_a_rank_that_has_left_early_is_named_first(program: str, fault: str, kind: str, says: str) -> None:
    """Whether it makes no call where rank 0 gathers, or no step more; the headline says which."""
    job = run(program, fault)
    assert job.codes == [1], job
    assert re.search(rf"first failure: .*errors\.{kind}: .*{says}", job.ranks[0].err), job


@pytest.mark.soak
@pytest.mark.parametrize("program", [TORCH, JAX])
def test_without_the_guard_that_gather_hangs(program: str) -> None:
    """Or the ranks exchange what is not meant for each other."""
    job = run(program, "gather", guard=False, timeout=15)
    assert "allranks.errors" not in job.ranks[0].err, job
    assert f"{program}:{line_of(program)}: " not in job.ranks[0].err, job


@pytest.mark.soak
@pytest.mark.parametrize(
    ("program", "fault", "says"),
    [
        pytest.param("plain_torch.py", "seed", "1 of 1 parameters differ", marks=pytest.mark.needs("torch")),
        pytest.param(
            "plain_torch.py",
            "rate",
            "group 0 at step 1 of the optimizer: rank 0: 0.1; rank 1: 0.2.",
            marks=pytest.mark.needs("torch"),
        ),
        pytest.param("plain_jax.py", "replica", "argument 1", marks=pytest.mark.needs("jax")),
        pytest.param("plain_jax.py", "value", "argument 3: rank 0: 1.0; rank 1: 2.0", marks=pytest.mark.needs("jax")),
    ],
)
def test_replicas_and_values_that_differ_end_the_job(program: str, fault: str, says: str) -> None:
    """Without the guard, the job ends as if all were well."""
    job = run(program, fault)
    assert job.codes == [1], job
    assert says in job.ranks[0].err, job
    bare = run(program, fault, guard=False)
    assert bare.codes == [0], bare


@pytest.mark.soak
@pytest.mark.parametrize(
    ("program", "fault"),
    [
        pytest.param("plain_torch.py", "", marks=pytest.mark.needs("torch")),
        pytest.param("plain_torch.py", "init", marks=pytest.mark.needs("torch")),
        pytest.param("plain_jax.py", "", marks=pytest.mark.needs("jax")),
    ],
)
def test_a_correct_program_runs_as_ever(program: str, fault: str) -> None:
    """Also one that calls allranks.init() itself."""
    job = run(program, fault)
    assert job.codes == [0], job
    assert all(f"rank {rank} is done" in job.ranks[0].out for rank in (0, 1)), job
    assert "allranks" not in job.ranks[0].err, job


def claims(*columns: tuple[str, str]) -> list[Claim]:
    return [Claim(f"float32[{number}]", value, gradient) for number, (value, gradient) in enumerate(columns)]


@pytest.mark.parametrize(
    ("ranks", "places"),
    [
        ([claims(("a", "g"), ("b", "h"))] * 3, ()),
        ([claims(("a", "g"), ("b", "h")), claims(("a", "g"), ("c", "h"))], (1,)),
        # Gradients that nobody reduced: an expert, a stage of a pipeline, one of a population.
        ([claims(("a", "g")), claims(("b", "h"))], ()),
        # No gradient tells that it was reduced.
        ([claims(("a", "")), claims(("b", ""))], ()),
        ([claims(("a", "g")), claims(("b", "g"), ("c", "g"))], ()),
    ],
)
def test_what_must_be_equal_is_known_by_its_gradient(ranks: list[list[Claim]], places: tuple[int, ...]) -> None:
    assert differing(ranks) == places


def test_the_ranks_in_the_minority_fail() -> None:
    """With what, and what to do."""
    ranks = [claims(("a", "g")), claims(("b", "g")), claims(("a", "g"))]
    found = failure(ranks, (0,), where="train.py:8", host="a", step=1)
    assert (found.rank, found.where, found.exit_code) == (1, "train.py:8", 1)
    assert "found others on rank 1 than on ranks 0, 2" in found.what
    assert "broadcast the parameters of rank 0" in found.what


def test_nobody_is_guarded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = agent.load("allranks_agent_guard")
    monkeypatch.delenv("ALLRANKS_GUARD", raising=False)
    assert not guard.is_wanted()
    monkeypatch.setenv("ALLRANKS_GUARD", "1")
    assert guard.is_wanted()
