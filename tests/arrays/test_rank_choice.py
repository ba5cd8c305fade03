"""Which arrays each rank has for itself, and what is saved of them."""

from __future__ import annotations

import pytest

from allranks.arrays.base import RankSplit
from allranks.arrays.grid import replicated_split
from allranks.arrays.leaves.base import ArraySpec, LeafRefused
from allranks.arrays.rank_choice import batch_statistics, spec_for_choice

NAMES = ("running_mean", "running_var", "num_batches_tracked")


@pytest.mark.parametrize("before", ["", "model/", "model/net.3.", "a.num_batches_tracked/"])
def test_batch_statistics_are_known_by_their_three_names(before: str) -> None:
    """One of them alone is the program's own, whatever it is called."""
    paths = [before + name for name in NAMES]
    assert sorted(batch_statistics(["w", *paths])) == sorted(paths)
    assert list(batch_statistics(["w", *paths[1:]])) == []
    assert list(batch_statistics([f"{before}my_{name}" for name in NAMES])) == []


def test_what_ranks_hold_together_is_no_ranks_own() -> None:
    """It is refused where somebody names it, and saved as it is where only its name is that of batch statistics."""
    together = ArraySpec((4,), "float32", RankSplit((2,), ((0,), (1,))))
    alone = ArraySpec((4,), "float32", replicated_split(1, 2))
    assert spec_for_choice(together, "usual", 2) is together
    for choice, says in (("main", "from_main="), ("rank", "per_rank=")):
        with pytest.raises(LeafRefused, match=says):
            spec_for_choice(together, choice, 2)
    for choice in ("main", "usual"):
        assert spec_for_choice(alone, choice, 2).split == RankSplit((1,), ((0,),))
    rows = spec_for_choice(alone, "rank", 2)
    assert (rows.shape, rows.per_rank, rows.split) == ((2, 4), True, RankSplit((2, 1), ((0,), (1,))))
