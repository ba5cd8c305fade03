"""What is deleted: never the newest, and what a naive reading of the policy says."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint.retention_policy import (
    BestCheckpoints,
    RetentionPolicy,
    Saved,
    choose_removed_steps,
    decide_retention,
)

METRICS = st.none() | st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1.0, 2.0])
COUNTS = st.none() | st.integers(1, 6)
BESTS = st.none() | st.tuples(st.just("loss"), st.sampled_from(["min", "max"]), st.integers(1, 4))


def kept_naively(saved: dict[int, float | None], last: int, every: int | None, best: Any) -> set[int]:
    """Asked of every step by itself: how many are newer, how many are better."""
    kept = {step for step in saved if sum(other > step for other in saved) < last}
    kept |= {step for step in saved if every and step % every == 0}
    if best:
        sign = -1 if best[1] == "min" else 1
        marks = {s: (sign * m, s) for s, m in saved.items() if m is not None and m == m}
        kept |= {s for s, mark in marks.items() if sum(other > mark for other in marks.values()) < best[2]}
    return kept


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 40), METRICS, max_size=12), st.integers(1, 6), COUNTS, BESTS, st.randoms())
def test_what_the_policy_does_not_name_is_deleted(
    metrics: dict[int, float | None], last: int, every: int | None, best: Any, random: Any
) -> None:
    """In any order of the checkpoints; the newest stays."""
    saved = [Saved(step, {} if value is None else {"loss": value}) for step, value in metrics.items()]
    random.shuffle(saved)
    gone = choose_removed_steps(saved, RetentionPolicy(last, every, best))
    assert list(gone) == sorted(metrics.keys() - kept_naively(metrics, last, every, best))
    assert not saved or max(metrics) not in gone


@settings(deadline=None)
@given(st.sets(st.integers(0, 40), max_size=12))
def test_without_a_policy_everything_stays(steps: set[int]) -> None:
    assert choose_removed_steps([Saved(step, {}) for step in steps], RetentionPolicy()) == ()


def test_of_equal_metrics_the_later_is_better() -> None:
    saved = [Saved(step, {"loss": 1.0}) for step in (1, 2, 3, 4)]
    assert choose_removed_steps(saved, RetentionPolicy(1, None, BestCheckpoints("loss", "min", 2))) == (1, 2)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"keep_last": 0}, "keep_last=0: expected an int above 0"),
        ({"keep_last": True}, "keep_last=True: expected an int above 0"),
        ({"keep_last": 2, "keep_every": -1}, "keep_every=-1: expected an int above 0"),
        ({"keep_last": 2, "keep_best": ("loss", "least", 1)}, "'min' or 'max'"),
        ({"keep_last": 2, "keep_best": ("loss", "min")}, "'min' or 'max'"),
        ({"keep_last": 2, "keep_best": ("loss", "min", 0)}, "an int above 0"),
        ({"keep_every": 10}, "without keep_last every step is kept"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RetentionPolicy(**policy)


def test_a_function_gets_the_steps_in_their_order() -> None:
    saved = [Saved(step, {}) for step in (8, 1, 100, 9, 12)]
    assert decide_retention(saved, lambda saved: [one.step for one in saved[-2:]], {}).remove == (1, 8, 9)


@pytest.mark.parametrize("kept", [["1"], ["checkpoint-1"], [(1, 0.5)], [True, False], [999, -1], [None]])
def test_a_function_that_returns_no_steps_removes_nothing(kept: Any) -> None:
    saved = [Saved(step, {}, frozenset({"w"})) for step in (1, 2, 3)]
    for policy, items in ((lambda _: kept, {}), (RetentionPolicy(keep_last=1), {"w": lambda _: kept})):
        with pytest.raises(ValueError, match=r"expected steps of the checkpoints that were passed"):
            decide_retention(saved, policy, items)
