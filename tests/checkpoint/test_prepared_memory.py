"""The memory for copies is allocated and touched behind the program, before the first save that copies."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from allranks.checkpoint import stage
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.storage import MemoryStorage
from allranks.storage.base import BLOCK
from allranks.world.detect import single_world


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the blocks that are made, as they are made: by which thread, and the block."""
    blocks: list[Any] = []
    fresh = stage.fresh_block

    def block() -> Any:
        blocks.append((threading.current_thread().name, fresh()))
        return blocks[-1][1]

    monkeypatch.setattr(stage, "fresh_block", block)
    return blocks


def prepared() -> None:
    """Return once the memory is there."""
    for thread in threading.enumerate():
        if thread.name == "allranks-memory":
            thread.join(60)
            assert not thread.is_alive()


class Broken:
    """Its state cannot be had."""

    def state_dict(self) -> Any:
        raise KeyError("epoch")

    def load_state_dict(self, _: Any) -> None:
        pass


STATES: dict[str, tuple[Any, int]] = {
    "numpy": ({"w": np.ones(BLOCK // 2, np.float32), "n": 1}, 3),
    "torch": ({"w": torch.ones(BLOCK // 4)}, 2),
    "jax": ({"w": jnp.ones(BLOCK // 4)}, 0),  # nobody changes it
    "none": ({"n": 1}, 0),
    "no state": ({"f": print}, 0),
    "broken": ({"b": Broken()}, 0),
}


@pytest.mark.parametrize("kind", STATES)
def test_the_first_save_copies_into_memory_that_is_there(kind: str, made: list[Any]) -> None:
    state, many = STATES[kind]
    ckpt = Checkpointer(MemoryStorage(), single_world(), every=10, on_sigterm=False)
    assert ckpt.maybe_save(1, state) is None
    prepared()
    assert [name for name, _ in made] == ["allranks-memory"] * many
    if kind in ("no state", "broken"):
        ckpt._seen = None
        ckpt.close()
        return
    ckpt.maybe_save(2, state)
    prepared()
    assert len(made) == many
    handle = ckpt.maybe_save(10, state)
    assert handle is not None
    assert handle.wait().copied == many * BLOCK
    ckpt.close()
    if kind in ("numpy", "torch"):
        assert len(made) == many


def test_no_more_than_was_allowed_is_prepared(made: list[Any]) -> None:
    state, _ = STATES["numpy"]
    with Checkpointer(MemoryStorage(), single_world(), every=10, memory=BLOCK, on_sigterm=False) as ckpt:
        ckpt.maybe_save(1, state)
        prepared()
        assert len(made) == 1


def test_a_pool_that_ends_prepares_no_more(made: list[Any]) -> None:
    """Nor does one of which a save has taken the blocks meanwhile."""
    pool = stage.BlockPool()
    pool.stop_allocation()
    pool.allocate_blocks(3)
    assert made == []
    pool = stage.BlockPool()
    assert [pool.take_block() is not None for _ in range(2)] == [True, True]
    pool.allocate_blocks(3)
    assert (len(made), pool.allocated_bytes) == (3, 3 * BLOCK)
    assert not made[2][1][:: stage.mmap.PAGESIZE].any()


def test_close_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the block that it is at."""
    at, go_on, made = threading.Event(), threading.Event(), []
    fresh = stage.fresh_block

    def block() -> Any:
        made.append(None)
        if threading.current_thread().name == "allranks-memory":
            at.set()
            assert go_on.wait(60)
        return fresh()

    monkeypatch.setattr(stage, "fresh_block", block)
    state, _ = STATES["numpy"]
    ckpt = Checkpointer(MemoryStorage(), single_world(), every=10, on_sigterm=False)
    ckpt.maybe_save(1, state)
    assert at.wait(60)
    ckpt._seen = None  # nothing is saved
    ckpt.close()
    go_on.set()
    prepared()
    assert len(made) == 1
