"""What goes on behind the program's back: it saves the state of the moment of the call, fails aloud, and ends."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proving import blank, open_run, same, state

from allranks import SimulatedWorld, World
from allranks.checkpoint import inventory
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.saver import RunSaver
from allranks.errors import SaveFailed
from allranks.storage import LocalStorage, MemoryStorage

SIZE = {"leaves": 3, "items": 1 << 16}


class Held:
    """A storage that begins to write once the program has changed its state."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.began_after = 0
        self.disk = MemoryStorage(before=self._before)

    def _before(self, operation: str, path: str) -> None:
        del path
        if operation == "create":  # before the file asks for its first block
            assert self.changed.wait(60)
            self.began_after += 1


def numpy_states() -> tuple[Any, Callable[[Any, int], Any]]:
    made = state(0, **SIZE)

    def change(there: dict[str, Any], step: int) -> dict[str, Any]:
        for name, new in state(step, **SIZE).items():
            if name == "name":
                there[name] = new
            else:
                there[name][...] = new
        return there

    return made, change


def torch_states() -> tuple[Any, Callable[[Any, int], Any]]:
    torch = pytest.importorskip("torch")
    made = {f"layer{i}": torch.zeros(SIZE["items"]) for i in range(3)}

    def change(there: Any, step: int) -> Any:
        for i, tensor in enumerate(there.values()):
            tensor.fill_(1000 * step + i / 16)
        return there

    return made, change


def jax_states() -> tuple[Any, Callable[[Any, int], Any]]:
    jax = pytest.importorskip("jax")
    made = {f"layer{i}": jax.numpy.zeros(SIZE["items"]) for i in range(3)}
    step_of = jax.jit(
        lambda there, step: {name: 0 * one + 1000 * step + i / 16 for i, (name, one) in enumerate(there.items())},
        donate_argnums=0,
    )
    return made, step_of


KINDS = {
    "numpy": numpy_states,
    "torch": pytest.param(torch_states, marks=pytest.mark.needs("torch")),
    "jax": pytest.param(jax_states, marks=pytest.mark.needs("jax")),
}


def torn(states: Callable[[], tuple[Any, Callable[[Any, int], Any]]], saves: int, **options: Any) -> list[int]:
    """Save, and change the state as soon as ``save`` has returned; return the steps that are not what they were."""
    there, change = states()
    held = Held()
    ckpt = open_run(held.disk, keep_last=2, **options)
    wrong = []
    for step in range(1, saves + 1):
        there = change(there, step)
        held.changed.clear()
        handle = ckpt.save(step, there)
        assert not handle.done()
        there = change(there, -step)
        held.changed.set()
        handle.wait()
        files = held.disk.file_contents()
        manifest = inventory.load_manifest(held.disk, step)
        (file,) = manifest.files
        data = files[f"checkpoint-{step}/{file.name}"]
        for i in range(SIZE["leaves"]):
            (run,) = manifest.leaves[f"layer{i}"].runs
            found = np.frombuffer(data, np.float32, SIZE["items"], run.first.begin)
            if not (found == np.float32(1000 * step + i / 16)).all():
                wrong.append(step)
                break
    assert held.began_after == saves
    ckpt.close()
    return wrong


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("states", KINDS.values(), ids=KINDS)
def test_a_state_changed_or_donated_right_after_save_is_not_torn(
    states: Callable[[], tuple[Any, Callable[[Any, int], Any]]],
) -> None:
    """Though every byte is written after that."""
    assert torn(states, 50) == []


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("states", KINDS.values(), ids=KINDS)
def test_so_it_is_a_thousand_times(states: Callable[[], tuple[Any, Callable[[Any, int], Any]]]) -> None:
    assert torn(states, 1000) == []


def test_a_save_that_copies_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail."""
    job = RunSaver._make_operation

    def lazy(self: RunSaver, order: Any, *rest: Any) -> Any:
        object.__setattr__(order, "wait", True)
        made = job(self, order, *rest)
        object.__setattr__(order, "wait", False)
        return made

    monkeypatch.setattr(RunSaver, "_make_operation", lazy)
    assert torn(numpy_states, 3) == [1, 2, 3]


def test_a_state_larger_than_the_memory_for_copies_is_not_torn() -> None:
    """``save`` then waits for blocks to be written, and returns when the last is copied."""
    storage = MemoryStorage(before=lambda operation, _: time.sleep(0.002 * (operation == "block")))
    ckpt = open_run(storage, memory=8 << 20)
    there = state(0, leaves=9, items=1 << 20)
    for step in (1, 2, 3):
        for name, new in state(step, leaves=9, items=1 << 20).items():
            there[name] = new
        handle = ckpt.save(step, there)
        for name in there:
            if name != "name":
                there[name][...] = -5
        assert handle.wait().copied <= 8 << 20
        found = ckpt.restore(blank(leaves=9, items=1 << 20))
        assert found is not None
        assert same(found[0], state(step, leaves=9, items=1 << 20))


def test_a_failure_of_one_rank_is_raised_on_every_rank_and_the_next_save_succeeds() -> None:
    """It names the rank whose disk was full; nothing of it is left."""
    disk = MemoryStorage()
    told: dict[int, list[str]] = {}

    def run(world: World) -> None:
        storage = disk.new_process()
        ckpt = Checkpointer(storage, world, on_sigterm=False)
        if world.rank == 2:
            storage.fail_operation("block", "checkpoint-20/*", error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        for step in (10, 20, 30, 40):
            try:
                ckpt.save(step, state(step, leaves=8), block=True)
            except SaveFailed as error:
                told.setdefault(world.rank, []).append(f"{error.ranks} {str(error).partition(': ')[2]}")

    assert SimulatedWorld(4).run(run).errors == {}
    assert len({tuple(words) for words in told.values()}) == 1
    assert len(told) == 4
    (words,) = told[0]
    assert words.startswith("(2,) save of step 20 stopped: rank 2: StorageError")
    assert "ENOSPC" in words
    assert inventory.complete_steps(disk) == (10, 30, 40)
    assert not [path for path in disk.file_contents() if path.startswith("checkpoint-20/")]


def test_a_failure_behind_the_program_is_raised_by_its_next_call() -> None:
    """And that is all: the call after it saves."""
    storage = MemoryStorage()
    ckpt = open_run(storage)
    storage.fail_operation("finish", error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    ckpt.save(10, state(10))
    with pytest.raises(SaveFailed, match=r"save of step 10 stopped: rank 0: .*ENOSPC"):
        ckpt.save(20, state(20))
    ckpt.save(30, state(30))
    ckpt.close()
    assert inventory.complete_steps(storage) == (30,)


def leftovers() -> tuple[set[str], int]:
    return {thread.name for thread in threading.enumerate()}, len(os.listdir("/proc/self/fd"))


def test_saves_leave_no_thread_no_descriptor_and_no_memory(tmp_path: Path) -> None:
    """Some of which fail."""
    leave_nothing(tmp_path, 60)


@pytest.mark.soak
def test_so_do_a_thousand(tmp_path: Path) -> None:
    leave_nothing(tmp_path, 1000)


def leave_nothing(folder: Path, saves: int) -> None:
    storage = LocalStorage(folder)
    ckpt = open_run(storage, keep_last=1)
    before, failed, held = None, 0, set()
    for step in range(1, saves + 1):
        if step == 10:
            before = leftovers()
        if step % 20 == 19:
            (folder / f"checkpoint-{step}").write_text("in the way")
        try:
            held.add(ckpt.save(step, state(step, **SIZE), block=step % 2 == 0).wait().copied)
        except SaveFailed:
            failed += 1
            with pytest.raises(SaveFailed):  # said again, for ranks that did not wait
                ckpt.wait()
    found = ckpt.restore(blank(**SIZE))
    ckpt.close()
    assert failed == saves // 20
    assert found is not None
    assert same(found[0], state(saves, **SIZE))
    assert leftovers() == before
    assert max(held) <= 16 << 20
