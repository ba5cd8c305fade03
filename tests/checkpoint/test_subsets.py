"""Arrays on the devices of some processes only (actor and learner, stages): saved, read by all, on any other subset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import subset_arrays
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proving import damaged, open_run, state
from subset_arrays import SubsetArray
from trip_jobs import RunJob

import allranks
from allranks import SimulatedWorld, World
from allranks.checkpoint import save_plan
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.save_operation import SaveOperation
from allranks.errors import Mismatch, SaveFailed
from allranks.storage import MemoryStorage


@pytest.fixture(autouse=True)
def subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``open_tree`` know these arrays."""
    monkeypatch.setitem(allranks.arrays.detect._LEAVES, "subset_arrays", subset_arrays.__name__)


SHAPES = st.lists(st.integers(1, 9), max_size=2).map(tuple)
SHAPE_AND_RANKS = st.tuples(
    SHAPES, st.sets(st.integers(0, 3)), st.booleans(), st.sets(st.integers(0, 3)), st.booleans()
)


def tree(leaves: list[Any], size: int, *, template: bool) -> dict[str, Any]:
    """Return the state that the job saves, or the other layout that a later one restores it in."""
    made: dict[str, Any] = {"everywhere": np.full(5, -1 if template else 7.0)}
    for number, (shape, ranks, whole, later, later_whole) in enumerate(leaves):
        content = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape) + 100 * number
        if template:
            content, ranks, whole = np.full_like(content, -1), later, later_whole
        place = tuple(sorted({rank % size for rank in ranks})) or (size - 1,)
        made[f"leaf{number}"] = SubsetArray(content, place, whole)
    return made


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SHAPE_AND_RANKS, min_size=1, max_size=4), st.integers(2, 4), st.integers(1, 4))
def test_any_subsets_are_restored_on_any_others(leaves: list[Any], size: int, later: int) -> None:
    """What is committed can be read, every byte is there, and the second save knows who holds what."""
    disk = MemoryStorage()

    def save(world: World) -> None:
        with Checkpointer(disk.new_process(), world, on_sigterm=False) as ckpt:
            for step in (1, 2):
                ckpt.save(step, tree(leaves, world.size, template=False), block=True)

    def restore(world: World) -> None:
        ckpt = Checkpointer(disk.new_process(), world, read_only=True)
        restored = ckpt.restore(tree(leaves, world.size, template=True))
        assert restored is not None
        found, meant = restored[0], tree(leaves, world.size, template=False)
        assert (found["everywhere"] == 7.0).all()
        for name, leaf in found.items():
            if isinstance(leaf, SubsetArray):
                here = subset_arrays.OpenContext(world.rank, world.size, False)
                for at, part in leaf.parts(here).items():
                    extent = subset_arrays.cell(at, leaf.content.shape, leaf.split(here).cuts)
                    assert (part == meant[name].content[extent.slices]).all()

    SimulatedWorld(size).run(save)
    assert damaged(disk) == []
    SimulatedWorld(later).run(restore)


def test_ranks_that_do_not_see_the_same_holders_are_told() -> None:
    """Rank 0 has an array of its own where the others see one of rank 1: nobody saves."""
    disk = MemoryStorage()

    def run(world: World) -> None:
        ckpt = Checkpointer(disk.new_process(), world, on_sigterm=False)
        with pytest.raises(Mismatch, match=r"leaf 'w' is on the devices of rank 1 .* and ranks 0-1 see it elsewhere"):
            ckpt.save(1, {"w": SubsetArray(np.zeros(3), (world.rank if world.rank < 2 else 1,))}, block=True)

    SimulatedWorld(3).run(run)
    assert not [path for path in disk.file_contents() if "checkpoint" in path]


def test_digests_and_comparisons_know_the_holders() -> None:
    """``verify`` compares nothing that one rank holds; ``tree_digest`` counts it, and once."""
    content, found = np.arange(6.0), {}

    def run(world: World, ranks: tuple[int, ...]) -> None:
        leaf = SubsetArray(content + 0.0 if world.rank in ranks else np.zeros(6), ranks)
        found[ranks, world.rank] = allranks.tree_digest({"w": leaf, "x": np.ones(2)}, world=world)

    for ranks in ((0,), (1,), (2,), (0, 2), (1, 2)):
        SimulatedWorld(3).run(lambda world, ranks=ranks: run(world, ranks))
    assert len(set(found.values())) == 1


# What nobody could read is never published.


def overlapping(declared: Any, *, size: int) -> save_plan.CheckpointLayout:
    """A plan with a fault: the first leaf's shards are those of the second."""
    sound = save_plan.plan_checkpoint_layout(declared, size=size)
    first, second, *rest = sound.leaves
    return save_plan.CheckpointLayout(
        sound.writers,
        sound.bytes,
        {first: sound.leaves[second], second: sound.leaves[second], **{name: sound.leaves[name] for name in rest}},
    )


def test_a_manifest_that_is_not_sound_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The save fails, says why, and leaves nothing; the one before is there."""
    disk = MemoryStorage()
    ckpt = open_run(disk)
    ckpt.save(1, state(1), block=True)
    monkeypatch.setattr("allranks.checkpoint.planner.plan_checkpoint_layout", overlapping)
    with pytest.raises(SaveFailed, match=r"the manifest of step 2 cannot be read back.*more than one shard"):
        ckpt.save(2, state(2, leaves=5), block=True)
    assert ckpt.steps() == (1,)
    assert not [path for path in disk.file_contents() if path.startswith("checkpoint-2/")]
    monkeypatch.undo()
    ckpt.save(3, state(3, leaves=6), block=True)
    assert ckpt.steps() == (1, 3)


@pytest.mark.parametrize("first", [False, True])
def test_files_that_are_not_as_planned_are_not_published(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """At the first save of a plan, and when its leaves are known to be sound."""
    disk = MemoryStorage()
    ckpt = open_run(disk)
    if not first:
        ckpt.save(1, state(1), block=True)
    write = SaveOperation._write_file
    monkeypatch.setattr(SaveOperation, "_write_file", lambda *how: {**write(*how), "bytes": 4097})
    with pytest.raises(SaveFailed, match="4097"):
        ckpt.save(2, state(2), block=True)
    assert 2 not in ckpt.steps()


# Real ranks.


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("n", "later"), [(3, 2), *[pytest.param(n, m, marks=pytest.mark.soak) for n, m in [(2, 4), (4, 3)]]]
)
def test_jax_arrays_of_some_processes(run_job: RunJob, tmp_path: Path, n: int, later: int) -> None:
    """On one process, the first or the last, on all but one, of keys, and of cells with unequal numbers of holders."""
    run_job(n, "save_subsets", tmp_path, devices=2)
    run_job(later, "restore_subsets", tmp_path, devices=2)
