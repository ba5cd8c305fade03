"""A writer that exists on rank 0 and is called by all; TensorBoard on real ranks is in test_reproductions.py."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.errors import AllranksError, CollectiveOnOneRank
from allranks.gate.writer import RankWriter
from allranks.world import main_rank_section
from allranks.world.base import RankIdentity, World
from allranks.world.store import LocalStore


def world_of_two(rank: int) -> World:
    return World(RankIdentity(rank, 2, rank, ("here", "here"), "simulated"), LocalStore())


class Run:
    """Looks like a run of wandb."""

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.config = SimpleNamespace(seed=0)
        self.logged: list[Any] = []
        self.alone: list[bool] = []
        self.name = "run-1"

    def log(self, values: Any) -> int:
        self.alone.append(main_rank_section.current_section() is not None)
        self.logged.append(values)
        return len(self.logged)

    def __enter__(self) -> Run:
        self.logged.append("entered")
        return self

    def __exit__(self, *error: object) -> None:
        self.logged.append("left")


def use(writer: RankWriter) -> Any:
    """What a training script does with its writer; the same lines on every rank."""
    with writer as run:
        run.log({"loss": 1.5})
    writer.run = Run()
    writer.run.summary["best"] = 1
    writer.run.config.seed = 3
    writer.summary["x"] = 2
    return writer.log({"loss": 1.25})


def test_on_the_main_rank_it_acts_on_the_object() -> None:
    run = Run()
    writer = RankWriter(lambda: run, world=world_of_two(0))
    assert use(writer) == 4
    assert run.logged == ["entered", {"loss": 1.5}, "left", {"loss": 1.25}]
    assert run.alone == [True, True]
    assert (run.summary, run.run.summary, run.run.config.seed) == ({"x": 2}, {"best": 1}, 3)  # type: ignore[attr-defined]
    assert writer.name == "run-1"


def test_elsewhere_the_object_is_never_made_and_calls_return_none() -> None:
    def make() -> Run:
        raise AssertionError("made on rank 1")

    writer = RankWriter(make, world=world_of_two(1))
    assert use(writer) is None
    assert writer(1) is None
    assert not writer.name
    assert "nothing" in repr(writer)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_plain_callback_acts_on_the_main_rank_only(rank: int) -> None:
    seen: list[int] = []
    callback = RankWriter(lambda: seen.append, world=world_of_two(rank))
    callback(5)
    assert seen == ([5] if rank == 0 else [])


def test_a_collective_inside_the_write_is_refused() -> None:
    """Arguments may reduce, on all ranks; the write is rank 0's alone."""
    world = world_of_two(0)
    for writer in (
        RankWriter(lambda: world.barrier, world=world),
        RankWriter(lambda: SimpleNamespace(write=world.barrier), world=world).write,
    ):
        with pytest.raises(CollectiveOnOneRank):
            writer()
    with pytest.raises(CollectiveOnOneRank):
        RankWriter(world.barrier, world=world)


@pytest.mark.parametrize("rank", [0, 1])
def test_it_pretends_to_no_protocol(rank: int) -> None:
    """``copy`` and ``pickle`` ask for methods that a proxy must not make up."""
    writer = RankWriter(Run, world=world_of_two(rank))
    assert not hasattr(writer, "__deepcopy__")
    assert not hasattr(copy.copy(writer), "__array__")


def test_without_a_world_it_says_what_to_do() -> None:
    with pytest.raises(AllranksError, match=r"allranks\.init\(\)"):
        RankWriter(Run)
