"""Tickets at the door of a collective, compared with nothing but values."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.errors import Mismatch
from allranks.gate.ticket import Entry, Leaf, Shapes, compare, leaf_mismatch, shapes


def entry(sequence: int = 1, step: int | None = 7, digest: str = "d", where: str = "a.py:1") -> Entry:
    return Entry(sequence, step, digest, False, where)


def array(*shape: int, dtype: str = "float32") -> Any:
    return SimpleNamespace(shape=shape, dtype=dtype)


def test_equal_tickets_pass_wherever_they_were_written() -> None:
    """The line of the call may differ over ranks; nothing else."""
    assert compare([entry(), entry(where="b.py:2"), entry()]) is None


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (entry(sequence=2), "ranks 0-1, 3: call 1 (a.py:1); rank 2: call 2 (a.py:1). Did a rank leave out a call"),
        (entry(step=8), "ranks 0-1, 3: step 7 (a.py:1); rank 2: step 8 (a.py:1). Did a rank skip a step"),
        (entry(step=None), "rank 2: no step (a.py:1)"),
        (entry(digest="e"), "ranks 0-1, 3: digest d (a.py:1); rank 2: digest e (a.py:1). Did every rank build"),
        (entry(digest="", where=""), "rank 2: no digest. Did"),
        (entry(step=9, digest="e"), "step 7, digest d (a.py:1); rank 2: step 9, digest e (a.py:1). Did a rank skip"),
    ],
)
def test_the_odd_rank_is_named_with_what_it_holds(odd: Entry, says: str) -> None:
    with pytest.raises(Mismatch) as caught:
        compare([entry(), entry(), odd, entry()])
    assert says in str(caught.value)
    assert caught.value.ranks == (2,)


def test_10_000_tickets_are_compared() -> None:
    """At the largest size that the library plans for, the few that differ are named as ranges."""
    entries = [entry() for _ in range(10_000)]
    assert compare(entries) is None
    entries[8000:8008] = [entry(step=6)] * 8
    with pytest.raises(Mismatch, match=r"ranks 0-7999, 8008-9999: step 7.*ranks 8000-8007: step 6") as caught:
        compare(entries)
    assert caught.value.ranks == tuple(range(8000, 8008))


def test_groups_with_leaves_are_to_be_compared_leaf_by_leaf() -> None:
    """Where only the digests differ and all ranks can say what is behind them, the groups come back instead."""
    told = [Entry(1, 7, digest, True, "a.py:1") for digest in "ddede"]
    assert compare(told) == [[0, 1, 3], [2, 4]]


def test_the_first_leaf_that_differs_is_named() -> None:
    ours = (Leaf("a", (3,), "float32"), Leaf("opt/mu/0", (512, 64), "float32"), Leaf("z", (1,), "int32"))
    theirs = (Leaf("a", (3,), "float32"), Leaf("opt/mu/0", (512, 128), "float32"), Leaf("z", (1,), "int8"))
    error = leaf_mismatch([([0, 1, 2], ours), ([3], theirs)])
    assert "leaf 'opt/mu/0' is float32[512, 64] on ranks 0-2, float32[512, 128] on rank 3 (1 more leaf" in str(error)
    assert (error.leaf, error.ranks) == ("opt/mu/0", (3,))


def test_a_missing_leaf_and_another_order_are_told() -> None:
    a, b = Leaf("a", (3,), "float32"), Leaf("b", (), "int32")
    assert "leaf 'b' is int32[] on rank 0, missing on rank 1" in str(leaf_mismatch([([0], (a, b)), ([1], (a,))]))
    assert "different orders" in str(leaf_mismatch([([0], (a, b)), ([1], (b, a))]))


def test_a_tree_of_any_kind_is_described_by_path() -> None:
    @dataclass
    class State:
        model: Any
        step: int

    tree = State({"w": array(2, 3), "b": [array(3, dtype="torch.bfloat16"), None]}, 5)
    assert shapes(tree) == Shapes(
        (
            Leaf("model/w", (2, 3), "float32"),
            Leaf("model/b/0", (3,), "bfloat16"),
            Leaf("model/b/1", (), "NoneType"),
            Leaf("step", (), "int"),
        )
    )


@pytest.mark.parametrize(
    "other",
    [{"v": array(2, 3)}, {"w": array(3, 2)}, {"w": array(2, 3, dtype="int8")}, {"w": array(2, 3), "b": array()}],
)
def test_the_digest_sees_path_shape_and_dtype(other: Any) -> None:
    assert shapes({"w": array(2, 3)}).digest == shapes({"w": array(2, 3)}).digest
    assert shapes({"w": array(2, 3)}).digest != shapes(other).digest
