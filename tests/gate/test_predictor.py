"""Ranks that foretell alike cannot part unseen, and loops of every form are soon foretold."""

from __future__ import annotations

from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.gate.lockstep.predictor import CallPredictor

CALLS = st.sampled_from("abc")
PROGRAMS = st.lists(CALLS, max_size=60)


def queries(calls: str) -> list[int]:
    """Make the calls; return the numbers of those that were not foretold."""
    predictor: CallPredictor[str] = CallPredictor()
    merge_queries = []
    for call in calls:
        if predictor.expected is call:
            predictor.count_predicted_call()
        else:
            predictor.count_agreed_call(call)
            merge_queries.append(predictor.count)
        assert predictor.stored_call(predictor.count) is call
    return merge_queries


@given(before=PROGRAMS, ours=st.one_of(CALLS, st.none()), theirs=st.one_of(CALLS, st.none()))
def test_of_two_ranks_that_part_at_least_one_asks(before: list[str], ours: str | None, theirs: str | None) -> None:
    """After any common past, two different next calls (None: it leaves, which is never foretold)."""
    predictor: CallPredictor[str] = CallPredictor()
    for call in before:
        if predictor.expected is call:
            predictor.count_predicted_call()
        else:
            predictor.count_agreed_call(call)
    must_agree = [call is None or predictor.expected is not call for call in (ours, theirs)]
    assert ours == theirs or any(must_agree)


@given(PROGRAMS, PROGRAMS)
def test_the_predictor_is_a_function_of_the_calls(one: list[str], other: list[str]) -> None:
    """Two ranks ask at the same calls as long as they make the same ones."""
    same = next((i for i, (a, b) in enumerate(zip_longest(one, other)) if a != b), len(one))
    merge_queries = [[n for n in queries("".join(calls)) if n <= same] for calls in (one, other)]
    assert merge_queries[0] == merge_queries[1]


@pytest.mark.parametrize(
    ("loop", "most"),
    [
        ("s", 2),
        ("abc", 4),
        ("mmmmu", 5),  # accumulation: four micro steps and an update
        ("s" * 100 + "e" * 10, 6),  # training and evaluation
        ("ggggg" + "gr" * 5 + "n", 12),  # FSDP: gathers forward, gathers and reductions backward, the norm
        ("b" * 5 + "l", 4),
    ],
)
def test_a_loop_is_soon_foretold(loop: str, most: int) -> None:
    """Few questions in the first rounds, none later, in 10,000 calls."""
    merge_queries = queries(loop * (10_000 // len(loop)))
    assert len(merge_queries) <= most
    assert merge_queries[-1] <= 3 * len(loop)


def test_an_irregular_loop_costs_a_few_questions_where_it_turns() -> None:
    """Evaluation after 97, 103, 100, ... steps: the calls between are free."""
    runs = [97, 103, 100, 90, 110, 95, 105, 101, 99, 100] * 4
    merge_queries = queries("".join("s" * steps + "eee" for steps in runs))
    assert len(merge_queries) <= 3 * len(runs)


def test_a_rare_call_in_a_loop_of_many_is_asked_for_alone() -> None:
    loop = "".join(chr(200 + i) for i in range(50))
    calls = (loop * 20 + "L") * 5
    later = [n for n in queries(calls) if n > 2 * len(loop) + 2]
    assert len(later) <= 2 * 5


@given(PROGRAMS.filter(bool), CALLS)
def test_a_call_that_is_taken_back_is_as_if_it_had_not_been(before: list[str], call: str) -> None:
    """Its number is given again, and the next call is asked for, whatever it is."""
    predictor: CallPredictor[str] = CallPredictor()
    for made in before:
        predictor.count_predicted_call() if predictor.expected is made else predictor.count_agreed_call(made)
    predictor.remove_last_call()
    assert (predictor.count, predictor.expected) == (len(before) - 1, None)
    predictor.count_agreed_call(call)
    assert predictor.stored_call(len(before)) is call
    if predictor.expected is not None:
        for _ in range(3):
            predictor.count_predicted_call()
