"""Of two ranks that wait for each other, the one that made a call more than the program makes is told from the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.hang.calls import NO_CALLS, RecentCalls, odd_one

# A step of DDP with two buffers: their broadcasts, then the gradients.
STEP = ("broadcast [8]", "broadcast [1]", "allreduce [57]")


def after(*calls: str, steps: int = 6) -> RecentCalls:
    forms = (*STEP * steps, *calls)
    return RecentCalls(len(forms), forms)


@pytest.mark.parametrize(
    ("calls", "others", "odd"),
    [
        # An evaluation through DDP: its broadcasts, then a barrier that all make.
        ((*STEP[:2], *STEP[:2], "barrier"), ("barrier",), 0),
        # A metric that rank 0 alone reduces, while the others begin the next step.
        (("allreduce [1]",), STEP[:2], 0),
        (("allreduce [1]", *STEP[:1]), STEP[:1], 0),
        (("barrier",), STEP[:1], 0),
        # One that leaves out a whole step has skipped it: it is behind, and that is what is odd.
        ((*STEP, "barrier"), ("barrier",), 1),
        ((*STEP * 2, "barrier"), ("barrier",), 1),
        # Nothing to tell them apart by.
        (("barrier",), ("barrier",), None),
        (("barrier",), ("gather",), None),
    ],
)
def test_the_rank_that_departs_from_the_steps_is_named(
    calls: tuple[str, ...], others: tuple[str, ...], odd: int | None
) -> None:
    """Whichever comes first."""
    assert odd_one(after(*calls), after(*others)) == odd
    assert odd_one(after(*others), after(*calls)) == (None if odd is None else 1 - odd)


def test_without_calls_in_common_nobody_is_named() -> None:
    assert odd_one(NO_CALLS, NO_CALLS) is None
    assert odd_one(RecentCalls(1, ("a",)), RecentCalls(1, ("b",))) is None
    assert odd_one(RecentCalls(900, ("a",) * 5), RecentCalls(12, ("a",) * 5)) is None


@given(
    step=st.lists(st.sampled_from("abcd"), min_size=1, max_size=6),
    steps=st.integers(3, 8),
    at=st.integers(0, 5),
    kept=st.integers(6, 30),
)
@settings(max_examples=300)
def test_a_call_that_no_step_makes_is_always_found(step: list[str], steps: int, at: int, kept: int) -> None:
    """Somewhere within a step; though only the last calls are known."""
    before = step * steps + step[: at % len(step)]
    rest = [*step[at % len(step) :], *step]
    mine, others = [*before, "metric"], [*before, rest[0]]
    extra = RecentCalls(len(mine), tuple(mine[-kept:]))
    usual = RecentCalls(len(others), tuple(others[-kept:]))
    if kept > len(step):
        assert odd_one(extra, usual) == 0
        assert odd_one(usual, extra) == 1
