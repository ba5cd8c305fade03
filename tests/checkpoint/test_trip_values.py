"""Any tree of any arrays and values comes back as it was, through a real save and restore; a world of one."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.arrays import detect
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world

Moments = namedtuple("Moments", ["mu", "nu"])


@dataclass
class Layer:
    weight: Any
    rest: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    at: Any


def array_of(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Random bytes, so NaNs of every kind too; where a dtype has fewer bits than its byte, only those."""
    count = math.prod(shape)
    narrow = dtype.itemsize == 1 and dtype.name.startswith(("bool", "int", "uint")) and not dtype.name.endswith("8")
    if narrow:
        return np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)
    return np.frombuffer(np.random.default_rng(seed).bytes(count * dtype.itemsize), dtype).reshape(shape).copy()


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
ARRAYS = st.builds(array_of, st.sampled_from(sorted(DTYPES.values(), key=str)), SHAPES, st.integers(0, 1 << 32))
ODD_ARRAYS = st.one_of(
    ARRAYS,
    ARRAYS.map(lambda a: a.T),
    ARRAYS.map(lambda a: a[..., ::-1] if a.ndim else a),
    ARRAYS.map(lambda a: a[()] if a.ndim == 0 else a),
    st.builds(array_of, st.sampled_from([np.dtype(">f4"), np.dtype(">i8")]), SHAPES, st.integers(0, 9)),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.integers(-(1 << 9000), 1 << 9000), st.floats(), TEXT)
KEYS = TEXT.filter(lambda text: "/" not in text)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.dictionaries(KEYS, children, max_size=4)
    return st.one_of(
        items,
        items.map(OrderedDict),
        items.map(lambda made: defaultdict(list, made)),
        st.dictionaries(st.integers(0, 99), children, max_size=3),
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.builds(Moments, children, children),
        st.builds(Layer, children, children),
        st.builds(Frozen, children),
    )


TREES = st.recursive(ODD_ARRAYS | VALUES, containers, max_leaves=12)


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """What a container holds, by key; None for a leaf."""
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, list | tuple):
        return list(enumerate(node))
    if is_dataclass(node):
        return [(field.name, getattr(node, field.name)) for field in fields(node)]
    return None


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two trees are not the same: types, keys in their order, dtypes, shapes, every bit."""
    if type(one) is not type(other):
        yield f"{path}: {type(one)} and {type(other)}"
    elif (mine := children(one)) is not None:
        others = children(other) or []
        if [key for key, _ in mine] != [key for key, _ in others]:
            yield f"{path}: {mine} and {others}"
        for (key, a), (_, b) in zip(mine, others, strict=False):
            yield from differences(a, b, f"{path}/{key}")
    elif isinstance(one, np.ndarray | np.generic):
        if (one.dtype, one.shape) != (other.dtype, other.shape) or one.tobytes() != other.tobytes():
            yield f"{path}: {one!r} and {other!r}"
    elif one != other and not (one != one and other != other):
        yield f"{path}: {one!r} and {other!r}"


def blank(node: Any) -> Any:
    """The same structure, with other contents: a template."""
    if isinstance(node, np.ndarray):
        return np.full_like(node, 1) if node.dtype.names is None else node
    if isinstance(node, np.generic):
        return node.dtype.type(1) if node.dtype.byteorder != ">" else node
    if isinstance(node, dict):
        made = deepcopy(node)
        made.update({key: blank(child) for key, child in node.items()})
        return made
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return type(node)(*map(blank, node))
    if isinstance(node, list | tuple):
        return type(node)(map(blank, node))
    if is_dataclass(node):
        return type(node)(*(blank(getattr(node, field.name)) for field in fields(node)))  # type: ignore[arg-type, misc]
    return {bool: False, int: 0, float: 0.0, str: ""}.get(type(node))


def arrays_in(node: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(node, np.ndarray):
        yield node
    for _, child in children(node) or []:
        yield from arrays_in(child)


@pytest.fixture(params=["alone", "with jax"])
def frameworks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has imported no framework, or JAX, whose pytrees are then asked too."""
    if request.param == "with jax":
        pytest.importorskip("jax")
    else:
        monkeypatch.setattr(detect, "_LEAVES", {"numpy": detect._LEAVES["numpy"]})


@pytest.mark.usefixtures("frameworks")
def test_any_tree_comes_back(request: pytest.FixtureRequest) -> None:
    """Structure, types, dtypes and every bit; writable arrays of the template are filled in place; twice the same."""
    del request

    @settings(deadline=None, max_examples=50)
    @given(TREES, st.sampled_from(["xxh3-128", "blake3"]))
    def check(tree: Any, integrity: str) -> None:
        original = deepcopy(tree)
        with Checkpointer(MemoryStorage(), single_world(), integrity=integrity) as ckpt:
            ckpt.save(1, tree)
            ckpt.save(2, {"again": tree}, block=True)
            assert not list(differences(original, tree)), "a save changes nothing"
            template = blank(tree)
            restored = ckpt.restore(template, step=1)
            assert restored is not None
            assert not list(differences(original, restored[0]))
            for mine, made in zip(arrays_in(template), arrays_in(restored[0]), strict=True):
                assert mine is made or not mine.dtype.isnative
            second = ckpt.restore({"again": blank(tree)})
            assert second is not None
            assert not list(differences({"again": original}, second[0]))

    check()


def test_the_comparison_of_trees_can_fail() -> None:
    """It sees a type, a key, an order, a dtype, a shape, a bit, and the sign of a NaN."""
    nan, minus = np.float32(np.nan), np.copysign(np.float32(np.nan), np.float32(-1))
    for one, other in [
        ([1], (1,)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros(2, "f4"), np.zeros(2, "i4")),
        (np.zeros((2, 1)), np.zeros((1, 2))),
        (np.zeros(2), np.array([0, 1e-300])),
        (nan, minus),
        (1, True),
        (0.5, 0.25),
        (Frozen(1), Frozen(None)),
    ]:
        assert list(differences(one, other)), (one, other)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_comes_back_in_every_shape(name: str) -> None:
    """0-d, empty, one element, and more than a chunk; in place."""
    dtype = DTYPES[name]
    tree = {str(shape): array_of(dtype, shape, 7) for shape in [(), (0,), (3, 0, 2), (1,), (70_001,), (3, 5, 7)]}
    template = {key: np.zeros_like(value) for key, value in tree.items()}
    with Checkpointer(MemoryStorage(), single_world()) as ckpt:
        ckpt.save(0, tree, block=True)
        restored = ckpt.restore(template)
    assert restored is not None
    assert not list(differences(tree, restored[0]))
    assert all(restored[0][key] is template[key] for key in tree)
