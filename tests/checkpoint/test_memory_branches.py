"""The step in memory and branches of a run: what is given up does not come back, what is not is never lost."""

from __future__ import annotations

import pytest
from proving import blank, state
from test_memory_tier import BIG, Machines, job, machines, opened, remember, resumed  # noqa: F401

from allranks import World
from allranks.checkpoint.memory.replicated_storage import ReplicatedMemory
from allranks.errors import CannotStore, StorageError


def test_a_training_that_begins_anew_gives_up_the_step_in_memory(machines: Machines) -> None:  # noqa: F811
    """Also one without the tier, which cannot restore it."""
    job(lambda world: remember(opened(machines, world), 20))

    def anew(world: World) -> None:
        ckpt = opened(machines, world, memory_every=None)
        assert ckpt.restore(blank(**BIG)) is None
        ckpt.save(10, state(10, 1, **BIG), block=True)

    job(anew)
    assert resumed(machines) == (10, 1, "storage", "")


def test_a_step_in_memory_outlives_a_rewind_in_the_process(machines: Machines) -> None:  # noqa: F811
    """The newest step on disk was of the branch that was given up: it does not make the one in memory old."""

    def run(world: World) -> None:
        ckpt = opened(machines, world)
        for step in (20, 40):
            ckpt.save(step, state(step, **BIG), block=True)
        ckpt.restore(blank(**BIG), step=20)
        remember(ckpt, 35, 1)
        ckpt._release_run()

    job(run)
    assert resumed(machines) == (35, 1, "memory", "")


def test_a_job_that_was_taken_over_leaves_the_memory_of_its_successor(machines: Machines) -> None:  # noqa: F811
    def run(world: World) -> None:
        first = opened(machines, world)
        first.save(10, state(10, **BIG), block=True)
        second = opened(machines, world, take_over=True)
        remember(second, 15, 1)
        first._release_run()

    job(run)
    assert resumed(machines) == (15, 1, "memory", "")


def test_a_rewind_whose_first_save_is_refused_gives_nothing_up(machines: Machines) -> None:  # noqa: F811
    def run(world: World) -> None:
        ckpt = opened(machines, world)
        for step in (10, 20):
            ckpt.save(step, state(step, **BIG), block=True)
        remember(ckpt, 25)

    def rewound(world: World) -> None:
        ckpt = opened(machines, world)
        ckpt.restore(blank(**BIG), step=10)
        with pytest.raises(CannotStore):
            ckpt.save(11, {"a lock": object()}, block=True)
        ckpt._release_run()

    job(run)
    job(rewound)
    assert resumed(machines) == (25, 0, "memory", "")


def test_a_job_that_ends_with_its_last_step_in_memory_alone_says_so(
    machines: Machines,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(world: World) -> None:
        ckpt = opened(machines, world)
        remember(ckpt, 30)
        ckpt._release_run()

    job(run)
    assert "step 30 is only in the memory of the hosts" in caplog.text
    assert resumed(machines) == (30, 0, "memory", "")


def test_memory_that_breaks_while_it_is_read_is_an_error_and_no_older_step(
    machines: Machines,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``like`` may be half filled by then; None, or a step that fills less of it, would be a mix."""

    def run(world: World) -> None:
        ckpt = opened(machines, world)
        ckpt.save(10, state(10, **BIG), block=True)
        remember(ckpt, 13)

    def broken(*_: object) -> None:
        raise StorageError("the connection failed")

    job(run)
    with monkeypatch.context() as patch:
        patch.setattr(ReplicatedMemory, "read", broken)
        with pytest.raises(StorageError, match="the connection failed"):
            resumed(machines)
    assert resumed(machines) == (13, 0, "memory", "")
