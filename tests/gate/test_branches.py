"""Why only some ranks make a call, from the places in the program where they are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from allranks.errors import CollectiveOnOneRank
from allranks.gate.lockstep.branches import branches_of_source, divergence_reason, frame_as_json
from allranks.gate.lockstep.calls import make_call, mismatch_of_calls, missing_ranks_error

SOURCE = """\
def evaluate(model):
    if not is_main():
        return
    gather(model)

def train():
    for epoch in range(2):
        for batch in data:
            step(batch)
            if dist.get_rank() == 0:
                evaluate(model)
        reduce(loss)
    if rank == 0:
        save(a)
    elif rank == 1:
        save(b)
    if step % 2 == 0:
        reduce(c)
"""
FOUND = branches_of_source(SOURCE)
TRAIN, EVALUATE = 6, 1


def at(*places: tuple[int, int]) -> list[list[object]]:
    """Return the frames of a rank, outermost first, as (function, line)."""
    return [frame_as_json("train.py", function, line, FOUND) for function, line in places]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        # An evaluation under a condition in the caller, and the others are in the next step.
        (
            [([0], at((TRAIN, 11), (EVALUATE, 4))), ([1, 2], at((TRAIN, 9)))],
            "only rank 0 makes the call, under `if dist.get_rank() == 0` (train.py:10)",
        ),
        # Behind an early return.
        (
            [([0], at((EVALUATE, 4))), ([1], at((TRAIN, 12)))],
            "only rank 0 makes the call, under `if not is_main(): return` (train.py:2)",
        ),
        (
            [([0, 1], at((TRAIN, 12))), ([2], at((TRAIN, 9)))],
            "ranks 0-1 have left the loop early, `for batch in data` (train.py:8)",
        ),
        # Another line of the loop, the next epoch, both arms of one condition, one that says nothing of ranks.
        ([([0], at((TRAIN, 9))), ([1], at((TRAIN, 9)))], None),
        ([([0], at((TRAIN, 9))), ([1], at((TRAIN, 7)))], None),
        ([([0], at((TRAIN, 14))), ([1], at((TRAIN, 16)))], None),
        ([([0], at((TRAIN, 18))), ([1], at((TRAIN, 19)))], None),
        ([([0], []), ([1], at((TRAIN, 18)))], None),
    ],
)
def test_the_branch_that_not_all_ranks_are_in(groups: Sequence[tuple[Sequence[int], object]], says: str | None) -> None:
    found = divergence_reason(groups)
    assert (found and found.text) == says
    assert (found and divergence_reason(groups[::-1])) == found


def test_a_source_that_is_none_has_no_branches() -> None:
    assert branches_of_source("def f(:") == []


def test_a_call_of_one_rank_under_a_condition_on_the_rank_is_a_collective_on_one_rank() -> None:
    """Also where the others have ended; of a rank under no condition, these have left early."""
    words = [
        {**make_call(what, where).to_message(), "step": "", "deviates": False, "frames": frames}
        for what, where, frames in [
            ("all_gather", "train.py:11", at((TRAIN, 11))),
            ("all_reduce", "train.py:9", at((TRAIN, 9))),
        ]
    ]
    error = mismatch_of_calls(5, [([0], words[0]), ([1], words[1])])
    assert isinstance(error, CollectiveOnOneRank)
    assert error.ranks == (0,)
    assert "call 5 differs: rank 0: all_gather (train.py:11); rank 1: all_reduce (train.py:9): only rank 0" in str(
        error
    )
    made = make_call("all_gather", "train.py:11")
    assert isinstance(
        missing_ranks_error(0, [1, 2], call_number=6, group_call=made, frames=at((TRAIN, 11))), CollectiveOnOneRank
    )
    left = missing_ranks_error(0, [1, 2], call_number=6, group_call=made, frames=at((TRAIN, 9)))
    assert not isinstance(left, CollectiveOnOneRank)
    assert left.ranks == (1, 2)
    assert (
        "ranks 1-2 have ended after 5 calls; rank 0 is in call 6, all_gather (train.py:11): ranks 1-2 left early."
        in str(left)
    )
