"""Types that no framework knows are stored as what they are encoded to, and come back as they were."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import io
import pathlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import allranks
from allranks.arrays import codecs
from allranks.checkpoint import read, register_type
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import CannotStore, DoesNotFit, Mismatch, RemoteError
from allranks.storage import MemoryStorage
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld


class Color(enum.Enum):
    RED = "r"
    BLUE = object()


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mode(enum.Flag):
    A = 1
    B = 2


class Name(enum.StrEnum):
    X = "x"
    Y = "y"


UTC = datetime.UTC
# What is saved, and what the template has.
BUILT_IN: dict[str, tuple[Any, Any]] = {
    "enum": (Color.BLUE, Color.RED),
    "int enum": (Size.LARGE, Size.SMALL),
    "str enum": (Name.Y, Name.X),
    "flags": (Mode.A | Mode.B, Mode.A),
    "datetime": (datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime.datetime(1970, 1, 1)),
    "date": (datetime.date(2026, 1, 2), datetime.date(1970, 1, 1)),
    "time": (datetime.time(1, 2, 3), datetime.time(0)),
    "timedelta": (datetime.timedelta(-1, 5, 7), datetime.timedelta()),
    "path": (pathlib.Path("/a/b c"), pathlib.Path()),
    "pure path": (pathlib.PureWindowsPath("c:\\x"), pathlib.PureWindowsPath()),
    "decimal": (decimal.Decimal("1.10"), decimal.Decimal(0)),
    "uuid": (uuid.UUID(int=5), uuid.UUID(int=0)),
    "complex": (1 - 2j, 0j),
    "bytes": (b"\x00\xff longer", b""),
    "no bytes": (b"", b"some"),
    "bytearray": (bytearray(b"abc"), bytearray(b"ab")),
}


@dataclass(frozen=True)
class Vocabulary:
    """A type of the program's own; of a dataclass the fields are stored, unless it is registered."""

    tokens: tuple[str, ...]
    weights: Any = None


class Int8Tensor(torch.Tensor):
    """Stands for the quantised weights of torchao: a tensor that wraps others."""

    q: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, q: torch.Tensor, scale: torch.Tensor) -> Int8Tensor:
        made: Int8Tensor = torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=scale.dtype)
        made.q, made.scale = q, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["q", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Int8Tensor(args[0].q, args[0].scale)
        raise NotImplementedError(func)


class Layer(torch.nn.Module):
    """Stands for a layer of TransformerEngine: its extra state grows as it trains."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(codecs, "_REGISTERED", {})
    yield
    codecs.is_registered.cache_clear()
    codecs._codec_of.cache_clear()


def trip(saved: Any, template: Any) -> Any:
    """Return what comes back into a template of what is saved."""
    disk = MemoryStorage()
    with Checkpointer(disk, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"x": saved}, block=True)
        found = ckpt.restore({"x": template})
    assert found is not None
    return found[0]["x"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_built_in_comes_back(name: str) -> None:
    saved, template = BUILT_IN[name]
    found = trip({"deep": [saved]}, {"deep": [template]})["deep"][0]
    assert found == saved
    assert type(found) is type(saved)


def test_a_file_in_memory_comes_back() -> None:
    assert trip(io.BytesIO(b"abc"), io.BytesIO()).getvalue() == b"abc"


def by_rank(value: Callable[[int], Any]) -> None:
    disk = MemoryStorage()

    def job(world: World) -> None:
        with Checkpointer(disk, world, on_sigterm=False) as ckpt:
            ckpt.save(1, {"x": value(world.rank)}, block=True)

    SimulatedWorld(2).run(job).values()


def test_ranks_that_differ_are_named() -> None:
    for values in ((Color.RED, Color.BLUE), (b"a", b"b"), (b"a", b"ab")):
        with pytest.raises(Mismatch, match="'x'"):
            by_rank(lambda rank, values=values: values[rank])  # type: ignore[misc]


def test_a_type_of_the_program_comes_back(tmp_path: pathlib.Path) -> None:
    """Also of another length, where that is said; ``read`` shows the encoded."""
    register_type(
        Vocabulary,
        lambda v: {"tokens": list(v.tokens), "weights": v.weights, "made": "2026-01-01"},
        lambda tree, _: Vocabulary(tuple(tree["tokens"]), tree["weights"]),
        fixed=False,
    )
    saved = Vocabulary(("a", "b", "c"), np.arange(3.0))
    found = trip(saved, Vocabulary((), np.zeros(0)))
    assert found.tokens == saved.tokens
    assert found.weights.tolist() == [0, 1, 2]
    with Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"x": saved}, block=True)
    assert read(tmp_path)[0]["x"]["made"] == "2026-01-01"
    assert read(tmp_path, like={"x": Vocabulary(())})[0]["x"].tokens == saved.tokens
    assert allranks.load(tmp_path, into={"x": Vocabulary(())}, world=single_world()).state["x"].tokens == saved.tokens


def test_a_fixed_type_of_another_shape_does_not_fit() -> None:
    register_type(Vocabulary, lambda v: v.weights, lambda array, _: Vocabulary((), array))
    assert trip(Vocabulary((), np.ones(2)), Vocabulary((), np.zeros(2))).weights.tolist() == [1, 1]
    with pytest.raises(DoesNotFit, match=r"'x': \[2\] in the checkpoint, \[3\] here"):
        trip(Vocabulary((), np.ones(2)), Vocabulary((), np.zeros(3)))


def test_quantised_weights_come_back_in_place() -> None:
    """A tensor that wraps others is refused, with the line to write; registered, it is a parameter like others."""

    def model(number: int) -> torch.nn.Module:
        made = torch.nn.Module()
        weight = Int8Tensor(torch.full((2, 3), number, dtype=torch.int8), torch.full((2, 1), number / 4))
        made.weight = torch.nn.Parameter(weight, requires_grad=False)
        return made

    with pytest.raises(CannotStore, match=r"wraps other tensors.*register_type\(Int8Tensor, encode, decode\)"):
        trip(model(5), model(0))
    register_type(Int8Tensor, lambda t: {"q": t.q, "scale": t.scale}, lambda _, like: like)
    template = model(0)
    weight: Any = template.weight
    assert trip(model(5), template) is template
    assert template.weight is weight
    assert (weight.q.tolist(), weight.scale.tolist()) == ([[5] * 3] * 2, [[1.25]] * 2)


@pytest.mark.parametrize(
    ("saved", "template"),
    [(torch.arange(9, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8)), (b"pickled", b"")],
    ids=["tensor", "bytes"],
)
def test_the_extra_state_of_a_module_comes_back(saved: Any, template: Any) -> None:
    model, other = Layer(saved), Layer(template)
    weight = other.linear.weight
    assert trip({"m": model}, {"m": other})["m"] is other
    assert bytes(other.extra) == bytes(saved)
    assert other.linear.weight is weight
    assert torch.equal(weight, model.linear.weight)


def test_an_encoding_that_fails_is_told_on_all_ranks() -> None:
    def encode(_: Vocabulary) -> Any:
        raise ValueError("no tokens")

    register_type(Vocabulary, encode, lambda _, like: like)
    with pytest.raises(CannotStore, match=r"'x': encode of .*Vocabulary failed.*no tokens"):
        by_rank(lambda rank: Vocabulary(()) if rank else 1)
    register_type(Vocabulary, lambda v: v, lambda _, like: like)
    with pytest.raises(CannotStore, match=r"returned a .*Vocabulary: expected arrays"):
        trip(Vocabulary(()), None)
    register_type(Vocabulary, lambda _: {"made": [datetime.date(2026, 1, 1)]}, lambda _, like: like, fixed=False)
    with pytest.raises(
        CannotStore, match=r"'x': encode of .*fixed=False, returned a tree with a date: expected arrays"
    ):
        trip(Vocabulary(()), Vocabulary(()))
    register_type(Vocabulary, lambda v: list(v.tokens), lambda tree, _: Vocabulary(tree[9]))
    with pytest.raises(DoesNotFit, match=r"'x': decode of .*Vocabulary.*IndexError"):
        trip(Vocabulary(("a",)), Vocabulary(("b",)))


def test_a_stranger_is_refused_with_the_line_to_write() -> None:
    with pytest.raises((CannotStore, RemoteError), match=r"'x' is object.*register_type\(object, encode, decode\)"):
        by_rank(lambda _: object())


class Newer(enum.Enum):
    GREEN = 1


def refuse(_: Any, __: Any) -> Any:
    raise IndexError("no such token")


def put(tree: Any, like: Any) -> Any:
    """Decode as who fills the template's own memory."""
    like.weights[:] = tree["weights"]
    return like


# By what is decoded: what is saved, what the template has, and words of the error.
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "enum": (Newer.GREEN, Color.RED, r"decode of .*Color.*expected one of RED, BLUE, found 'GREEN'"),
    "date": ("2026-13-01", datetime.date(2026, 1, 1), r"decode of datetime.date.*month must be"),
    "arrays": (Vocabulary((), np.ones(3)), Vocabulary((), np.zeros(3)), r"IndexError: no such token"),
    "tensors": (Vocabulary((), torch.ones(3)), Vocabulary((), torch.zeros(3)), r"IndexError: no such token"),
    "tied": (Vocabulary((), np.ones(2)), Vocabulary((), np.zeros(2)), r"IndexError: no such token"),
}


WAYS: dict[str, Callable[[pathlib.Path, Any, World], object]] = {
    "restore": lambda run, into, world: Checkpointer(run, world, read_only=True).restore(into),
    "read": lambda run, into, _: read(run, like=into),
    "load": lambda run, into, world: allranks.load(run, into=into, world=world),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_restore_that_cannot_decode_changes_nothing(kind: str, way: str, tmp_path: pathlib.Path) -> None:
    """Arrays before and after the object, a module, and the object's own arrays stay; so they do on all ranks."""
    saved, like, words = REFUSED[kind]
    register_type(Vocabulary, lambda v: {"weights": v.weights}, refuse)
    model, fresh = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    template = {"a": np.zeros(2), "b": [like], "c": fresh}
    if kind == "tied":
        template["a"] = like.weights
    before = copy.deepcopy(fresh.state_dict())
    with Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"a": np.ones(2), "b": [saved], "c": model}, block=True)
    with pytest.raises(DoesNotFit, match=rf"'b/0': .*{words}.* Nothing has changed"):
        WAYS[way](tmp_path, template, single_world())
    assert template["a"].tolist() == [0, 0]  # type: ignore[attr-defined]
    assert all(torch.equal(one, before[name]) for name, one in fresh.state_dict().items())
    if isinstance(like, Vocabulary):
        assert not like.weights.any()


@pytest.mark.parametrize("way", ["restore", "load"])
def test_what_one_rank_cannot_decode_changes_nothing_on_any(way: str, tmp_path: pathlib.Path) -> None:
    register_type(Vocabulary, lambda v: {"weights": v.weights}, put)
    with Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"a": np.ones(2), "b": Newer.GREEN, "v": Vocabulary((), np.ones(2))}, block=True)
    templates = [{"a": np.zeros(2), "b": b, "v": Vocabulary((), np.zeros(2))} for b in (Newer.GREEN, Color.RED)]

    def job(world: World) -> str:
        into = templates[world.rank]
        with pytest.raises(DoesNotFit) as raised:
            WAYS[way](tmp_path, into, world)
        return str(raised.value)

    told = SimulatedWorld(2).run(job).values()
    assert all("found 'GREEN'" in one for one in told)
    assert "rank 1 cannot" in told[0]
    assert not any(one["a"].any() or one["v"].weights.any() for one in templates)  # type: ignore[attr-defined]
