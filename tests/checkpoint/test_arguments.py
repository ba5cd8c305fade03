"""An argument that makes no sense is refused by its name, with what was expected, before anything is done."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import allranks
from allranks.checkpoint import keep_last, read
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import AllranksError, BadArgument
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world

STATE = {"params": {"w": np.ones(3)}, "n": 1}
# Tried for each argument; of what makes sense there, GOOD has the numbers.
ODD: tuple[Any, ...] = (
    *(3, 2.5, "x", b"x", None, [3], [None], object(), True, {"a": 1}, -1, float("nan"), (), ("loss",), np.int64(2)),
    *({"params": 3}, lambda _: (), enum, [[3]], ["a", 3], [b"x"], {1: "a"}, {"a": b"x"}, 0),
)
X, INT, NONE, NUMBER, EMPTY, NAMES, FUNCTION = 2, 0, 4, 1, 12, 13, 16
GOOD: dict[str, set[int]] = {
    "every": {INT, NONE},
    "every_minutes": {INT, NONE, NUMBER},
    "keep_last": {INT, NONE},
    "keep_every": {INT, NONE},
    "keep_best": {NONE},
    "keep": {NONE, FUNCTION},
    "items": {NONE},
    "integrity": set(),
    "memory": {INT, NONE},
    "timeout": {INT, NUMBER},
    "per_rank": {X, EMPTY, NAMES},
    "from_main": {X, EMPTY, NAMES},
    "compression": {NONE},
    "where": set(),
    "rename": {NONE},
    "allow_missing": {X, EMPTY, NAMES},
    "allow_unexpected": {X, EMPTY, NAMES},
    "only": set(),
    "slices": {NONE},
    "to": set(),
    "best": set(),
    "step": {INT, len(ODD) - 1},
    "metrics": {NONE, 9, 15},
}


def saved() -> MemoryStorage:
    disk = MemoryStorage()
    with Checkpointer(disk, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, STATE, block=True)
    return disk


def made(given: Mapping[str, Any]) -> None:
    beside = {"keep_last": 1} if {"keep_every", "keep_best"} & given.keys() else {}
    with Checkpointer(MemoryStorage(), single_world(), on_sigterm=False, **beside, **given) as ckpt:
        ckpt.save(1, STATE, block=True)


def written(given: Mapping[str, Any]) -> None:
    with Checkpointer(MemoryStorage(), single_world(), on_sigterm=False) as ckpt:
        ckpt.save(given.get("step", 1), STATE, metrics=given.get("metrics"), block=True)


def restored(given: Mapping[str, Any]) -> None:
    like = {"params": {"w": np.zeros(3)}, "n": 0}
    Checkpointer(saved(), single_world(), read_only=True).restore(like, **given)


USES: dict[str, Callable[[Mapping[str, Any]], object]] = {
    **dict.fromkeys(["step", "metrics"], written),
    **dict.fromkeys(["rename", "allow_missing", "allow_unexpected"], restored),
    **dict.fromkeys(["only", "slices", "to"], lambda given: read(saved(), **given)),
    "best": lambda given: read(saved(), "best", **given),
    "where": lambda given: Checkpointer(given["where"], single_world(), on_sigterm=False),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", GOOD)
def test_an_odd_argument_is_refused_by_its_name(name: str) -> None:
    use = USES.get(name, made)
    for number, value in enumerate(ODD):
        if number in GOOD[name]:
            use({name: value})
        elif not (name == "where" and isinstance(value, str)):
            with pytest.raises(AllranksError) as raised:
                use({name: value})
            assert name.removesuffix("s") in str(raised.value) or name == "only", (value, raised.value)


@pytest.mark.parametrize("items", [{"params": 3}, {"params": [3]}, {"params": []}, {"params": "every"}])
def test_a_policy_of_an_item_is_named(items: Any) -> None:
    with pytest.raises(BadArgument, match=r"items\['params'\]=.*: expected a policy, or a list of policies"):
        made({"items": items})


def test_an_iterator_of_policies_or_globs_is_taken() -> None:
    made({"keep": iter([keep_last(1)]), "per_rank": iter(["a"]), "items": {"params": iter([keep_last(2)])}})


def test_load_refuses_globs_that_are_none(tmp_path: Any) -> None:
    with pytest.raises(BadArgument, match="allow_missing=3: expected a glob of paths"):
        allranks.load(tmp_path, into={}, allow_missing=3)  # type: ignore[arg-type]


def test_what_no_manifest_has_room_for_is_refused() -> None:
    with pytest.raises(AllranksError, match=r"rank 0: .*'a' has 33 dimensions: expected 32 at most"):
        Checkpointer(MemoryStorage(), single_world(), on_sigterm=False).save(1, {"a": np.ones((1,) * 33)})
    made_of = np.ones((1,) * 32)
    Checkpointer(MemoryStorage(), single_world(), on_sigterm=False).save(1, {"a": made_of}, block=True)
    with pytest.raises(BadArgument, match=r"step=9223372036854775808: expected an int from 0 on, below 2\*\*63"):
        written({"step": 1 << 63})
