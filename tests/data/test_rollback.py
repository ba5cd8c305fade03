"""The ledger lives in the checkpoint: who goes back to older weights goes back to what had been read by then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import go_on, plan_of

from allranks import Checkpointer, World
from allranks.data.audit import verify_epoch
from allranks.data.ledger import Ledger, sum_of_range
from allranks.data.plan import rows_of_rank
from allranks.data.snapshot import ResumePosition, Snapshot
from allranks.errors import AllranksError, LedgerMismatch, Mismatch, StepExists

SAMPLES, BATCH = 1003, 24
plan = plan_of(SAMPLES, BATCH, streams=8)
FACTS = plan.facts()


class Loader:
    """What a loader does with all this, and no data."""

    def __init__(self, world: World, state: object = None, *, skip: int = 0) -> None:
        self.world = world
        rows = rows_of_rank(world.rank, world.size, BATCH)
        self.ledger = Ledger(plan.steps, rows)
        if state is not None:
            resume = ResumePosition.from_state(state, FACTS, plan.layout, rank=world.rank)
            self.ledger = Ledger(plan.steps, rows, begin=resume.step + skip, seen=resume.seen)
        self.gathers = 0

    def to(self, step: int) -> None:
        go_on(plan, self.ledger, self.ledger.end, step)

    def state(self) -> Snapshot:
        depth = self.ledger.end * plan.layout.depth_of_step
        return Snapshot(self.world, 0, depth, FACTS, self.ledger.total, self.ledger.seen)


def weights(step: int) -> dict[str, Any]:
    return {"w": np.full(4, step, np.float32)}


@pytest.mark.world(n=3, backend="torch")
def test_a_rollback_takes_the_ledger_back_with_the_weights(world: World, shared_tmp_path: Path) -> None:
    """Save, go on, restore an older step: the epoch is proven, with what was read twice in between given up.

    With a step left out after the restore, or the state of the given-up branch, the proof fails on every rank.
    """
    with Checkpointer(shared_tmp_path, world, every=10, on_sigterm=False) as ckpt:
        loader = Loader(world)
        for step in range(1, 26):
            loader.to(step)
            ckpt.maybe_save(step, weights(step), extra={"data": loader.state()})
        newer = loader.state().gathered()
        ckpt.wait()

        restored = ckpt.restore(weights(0), step=10)
        assert restored is not None
        assert restored[0]["w"][0] == 10
        state = restored.extra["data"]
        assert (state["depth"], state["seen"][0]) == (30, 240)
        assert len(json.dumps(state)) <= 256
        loader = Loader(world, state)
        for step in range(11, plan.steps + 1):
            loader.to(step)
            ckpt.maybe_save(step, weights(step), extra={"data": loader.state()})
        assert verify_epoch(world, plan, loader.ledger) == sum_of_range(0, SAMPLES)

    for wrong, skip, samples in ((state, 1, SAMPLES - BATCH), ({**newer, "depth": 30}, 0, SAMPLES + 15 * BATCH)):
        loader = Loader(world, wrong, skip=skip)
        loader.to(plan.steps)
        words = f"rank {world.rank}: the ledger of epoch 0 .*: {samples} samples were taken, and 1003 planned: before"
        with pytest.raises(LedgerMismatch, match=words):
            verify_epoch(world, plan, loader.ledger)


class Part:
    """One rank's part of a value; counts how often it is gathered."""

    def __init__(self, world: World, log: list[int], *, broken: bool = False) -> None:
        self.world, self.log, self.broken = world, log, broken

    def gathered(self) -> list[int]:
        if self.broken:
            raise ZeroDivisionError("no part")
        self.log.append(self.world.rank)
        return [int(one) for one in self.world.all_gather(self.world.rank, name="part")]


@pytest.mark.world(n=3, backend="torch")
def test_parts_are_gathered_when_they_are_saved(world: World, shared_tmp_path: Path) -> None:
    """At no other step; wherever in extra; and a rank that refuses or fails lets no other rank wait."""
    log: list[int] = []
    ckpt = Checkpointer(shared_tmp_path, world, every=2, on_sigterm=False)
    extra: dict[str, Any] = {"b": [Part(world, log), 1], "a": {"deep": Part(world, log)}, "c": (1, "x")}
    if world.rank == 1:  # as a dict that was built in another order
        extra = dict(reversed(extra.items()))
    for step in range(1, 5):
        ckpt.maybe_save(step, weights(step), extra=extra)
    assert len(log) == 4
    ckpt.wait()
    restored = ckpt.restore(weights(0))
    assert restored is not None
    assert restored.extra == {"b": [[0, 1, 2], 1], "a": {"deep": [0, 1, 2]}, "c": [1, "x"]}

    with pytest.raises(StepExists):
        ckpt.save(4, weights(4), extra=extra)
    why = (
        r"extra: a value's gathered\(\) failed: ZeroDivisionError: no part"
        if world.rank == 2
        else "came with different calls"
    )
    with pytest.raises(AllranksError, match=why):
        ckpt.save(6, weights(6), extra=Part(world, log, broken=world.rank == 2))
    with pytest.raises(Mismatch, match="different calls"):
        ckpt.save(6, weights(6), extra=Part(world, log) if world.rank == 0 else None)
    ckpt.save(6, weights(6), extra=Part(world, log), block=True)
    ckpt.close()
