"""Trees of plain containers and NumPy arrays: taken apart, refused, filled in place, put together."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import carried, fill, wholes

from allranks.arrays.base import RankSplit
from allranks.arrays.detect import open_tree
from allranks.arrays.grid import cell_extent, extent_on_device, split_of
from allranks.arrays.leaves.numpy import DTYPES
from allranks.errors import CannotStore
from allranks.extent import Extent

Pair = namedtuple("Pair", ["mu", "nu"])


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    weights: Any
    step: Any

    def __post_init__(self) -> None:
        if self.weights is None:
            raise ValueError("a constructor that must not be called")


class Counted:
    """What a sampler is like: a state, given and loaded."""

    def __init__(self, at: int) -> None:
        self.at, self.loads = at, 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "seen": np.full(2, self.at)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.seen, self.loads = state["at"], state["seen"], self.loads + 1


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
arrays = st.builds(
    lambda dtype, shape, seed: (
        np.frombuffer(np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize) or b"", np.uint8)
        .copy()
        .view(dtype)
        .reshape(shape)
    ),
    st.sampled_from([d for name, d in DTYPES.items() if name not in {"bool"} and "int2" not in name]),
    shapes,
    st.integers(0, 99),
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
words = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    arrays | scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(words, inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
        | st.dictionaries(words, inner, max_size=2).map(OrderedDict)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Frozen, arrays, inner)
    ),
    max_leaves=8,
)


def blank(tree: Any) -> Any:
    """The same tree with other contents."""
    if isinstance(tree, np.ndarray):
        return np.zeros_like(tree)
    if isinstance(tree, dict):
        return type(tree)((key, blank(branch)) for key, branch in tree.items())
    if isinstance(tree, Pair):
        return Pair(*map(blank, tree))
    if isinstance(tree, Frozen):
        return Frozen(blank(tree.weights), blank(tree.step))
    if isinstance(tree, list | tuple):
        return type(tree)(map(blank, tree))
    return tree if tree is None else 0


def same(one: Any, other: Any) -> bool:
    """Equal in type, structure and bytes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Frozen):
        return same(one.weights, other.weights) and same(one.step, other.step)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@settings(max_examples=150, deadline=None)
@given(trees)
def test_what_comes_back_is_what_went_in(tree: Any) -> None:
    """Bytes, dtypes, shapes, JSON values, the types of containers and the order of their keys."""
    assert same(carried(tree, blank(tree)), tree)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_one_tree_has_one_key(tree: Any) -> None:
    """Two openings say the same; a leaf more says something else."""
    one, two = (open_tree(tree, rank=0, size=2) for _ in range(2))
    assert (one.hash_key, one.declared_arrays) == (two.hash_key, two.declared_arrays)
    more = open_tree([tree, np.zeros(1)], rank=0, size=2)
    assert one.hash_key != more.hash_key
    assert one.hash_key != open_tree([tree], rank=0, size=2).hash_key or not one.declared_arrays


def test_arrays_are_filled_where_they_are() -> None:
    """Also those with strides, through the array itself; read-only ones and scalars come back new, of their kind."""
    strided = np.zeros((6, 4))[::2, 1:3]
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    foreign = np.zeros(2, ">i4")
    template = {"a": strided, "b": fixed, "c": np.float32(0), "d": np.zeros(()), "e": foreign}
    state = {"a": np.arange(6.0).reshape(3, 2), "b": np.ones(3), "c": np.float32(7), "d": np.array(3.0)}
    back = carried(state | {"e": np.array([1, 2], ">i4")}, template)
    assert back["a"] is strided
    assert strided.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert back["d"] is template["d"]
    assert (fixed.tolist(), back["b"].tolist()) == ([0, 0, 0], [1, 1, 1])
    assert (type(back["c"]), back["c"]) == (np.float32, 7)
    assert (back["e"].dtype.str, back["e"].tolist()) == (">i4", [1, 2])


def test_what_may_change_is_said_to() -> None:
    """A contiguous array is looked at where it lies, and may change; of any other a copy is taken."""
    array = np.arange(4.0)
    opened = open_tree([array, array[::2], np.int8(3)], rank=0, size=1)
    first, second, third = (opened.cell_bytes(number, 0) for number in range(3))
    assert np.shares_memory(first.data, array)
    assert [held.mutable for held in (first, second, third)] == [True, False, False]
    assert second.data.view(float).tolist() == [0, 2]
    assert third.data.tolist() == [3]


def test_each_rank_has_an_array_of_its_own() -> None:
    """One cell, held by all; one split for all arrays of as many dimensions."""
    opened = open_tree({"a": np.zeros((3, 2)), "b": np.zeros((5, 5))}, rank=1, size=3)
    one, two = opened.declared_arrays
    assert one.split == RankSplit((1, 1), ((0, 1, 2),))
    assert one.split is two.split
    assert (one.path, one.shape, one.dtype, one.kind) == ("a", (3, 2), "float64", "")


def test_objects_give_their_state_and_load_it() -> None:
    """They stay the objects that they are, load once, and may stand anywhere."""
    old, new = Counted(5), Counted(0)
    back = carried({"data": [old], "hits": Counter(a=2)}, {"data": [new], "hits": Counter(a=9)})
    assert back["data"][0] is new
    assert (new.at, new.seen.tolist(), new.loads) == (5, [5, 5], 1)
    assert back["hits"] == Counter(a=2)


def test_values_are_taken_by_path() -> None:
    """Where the checkpoint has none, the template's own stays; None is a value like others."""
    opened = open_tree({"step": 1, "rest": [None, "x"]}, rank=0, size=1)
    assert opened.values == {"step": 1, "rest/0": None, "rest/1": "x"}
    assert opened.rebuild_tree({"step": 7, "rest/0": 2.5}) == {"step": 7, "rest": [2.5, "x"]}
    assert open_tree(3, rank=0, size=1).values == {"": 3}


def test_all_that_cannot_be_stored_is_named() -> None:
    """By path, with what it is and what to do; the first eight, and how many more."""
    with pytest.raises(CannotStore) as caught:
        open_tree({"f": len, "raw": object(), "deep": [{"s": {1}}], "o": np.array([object()])}, rank=3, size=4)
    text = str(caught.value)
    assert text.startswith("rank 3: 4 leaves of the state cannot be stored: 'deep/0/s' is set; 'f' is ")
    for part in (
        "(len)",
        "'raw' is object",
        "array of object",
        "eqx.filter(model, eqx.is_array)",
        "register_type(object, encode, decode)",
    ):
        assert part in text
    assert caught.value.ranks == (3,)
    assert caught.value.leaf == "deep/0/s"
    with pytest.raises(CannotStore, match="'7' is object; and 4 more"):
        open_tree([object() for _ in range(12)], rank=0, size=1)
    for leaf in (np.array(["text"]), np.zeros(1, "M8[s]"), np.ma.zeros(2), np.longdouble(1), float):
        with pytest.raises(CannotStore, match="a leaf of the state cannot be stored: '' is"):
            open_tree(leaf, rank=0, size=1)


@pytest.mark.parametrize("tree", [{"a": {"b": 1}, "a/b": 2}, {1: 1, "1": 2}], ids=["slash", "type"])
def test_two_leaves_of_one_path_are_refused(tree: Any) -> None:
    with pytest.raises(CannotStore, match=r"several leaves have the same path: '(a/b|1)'"):
        open_tree(tree, rank=0, size=1)


def test_keys_that_make_no_path_are_refused() -> None:
    with pytest.raises(CannotStore, match=r"the key b'k' of 'a' has the type bytes: expected a string or a number\."):
        open_tree({"a": {b"k": 1}}, rank=0, size=1)


def test_cells_cover_an_array_once() -> None:
    """The cells of a grid, numbered, are the parts that it was recognised from; uneven and empty ones too."""
    for shape, count in (((5, 3), 4), ((4, 2), 8), ((9, 1), 7), ((3, 0), 2), ((0,), 3)):
        parts = [((rank,), extent_on_device((rank,), shape, [(0, 1)], (count,))) for rank in range(count)]
        split = split_of(shape, parts)
        seen = np.zeros(shape, int)
        for number, holders in enumerate(split.holders):
            seen[cell_extent(number, shape, split.cuts).slices] += 1
            assert all(parts[rank][1] == cell_extent(number, shape, split.cuts) for rank in holders)
        assert (seen == 1).all()
        assert sorted(rank for holders in split.holders for rank in holders) == list(range(count))


def test_parts_that_are_no_grid_are_known() -> None:
    """A gap, parts of other sizes, a hole in the middle."""

    def boxes(*bounds: tuple[int, int]) -> list[tuple[tuple[int], Extent]]:
        return [((0,), Extent((start,), (stop - start,))) for start, stop in bounds]

    assert split_of((4,), boxes((0, 2), (2, 4))) is not None
    for bounds in ([(0, 1), (1, 4)], [(0, 2)], [(1, 4)], [(0, 2), (2, 3)], [(0, 2), (0, 4), (2, 4)]):
        assert split_of((4,), boxes(*bounds)) is None
    corners = [((0,), Extent((row, column), (1, 1))) for row, column in ((0, 0), (0, 1), (1, 0))]
    assert split_of((2, 2), corners) is None


def test_sharding_one_dimension_twice_follows_torch() -> None:
    """Chunks of chunks, and strided ones, which the later axis cuts first; a part in two runs is no box."""
    mesh, shape = (2, 2), (8,)
    nested = [extent_on_device((i, j), shape, [(0, 1), (0, 1)], mesh) for i in range(2) for j in range(2)]
    assert [extent.offset for extent in nested] == [(0,), (2,), (4,), (6,)]
    strided = [extent_on_device((i, j), shape, [(0, 2), (0, 1)], mesh) for i in range(2) for j in range(2)]
    assert [extent.offset for extent in strided] == [(0,), (4,), (2,), (6,)]
    assert extent_on_device((0, 0), shape, [(0, 2), None], mesh) is None


def test_a_template_stays_as_it_is_until_its_targets_are_written() -> None:
    template = {"a": np.zeros(2)}
    opened = open_tree(template, rank=0, size=1, for_restore=True)
    assert opened.rebuild_tree({})["a"] is template["a"]
    fill(opened, wholes(open_tree({"a": np.ones(2)}, rank=0, size=1)))
    assert opened.rebuild_tree({})["a"].tolist() == [1, 1]
