"""A process that dies at any operation of its storage, or before any system call, leaves the old step or the new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
import pytest
from proving import blank, damaged, newest, open_run, state

from allranks.checkpoint import inventory, keep_every, paths, removal
from allranks.checkpoint.items import items_in
from allranks.checkpoint.retention import RunRetention
from allranks.storage import MemoryStorage
from allranks.storage.base import Storage
from allranks.storage.memory import Effect, SimulatedCrash

PROGRAM = Path(__file__).parent / "programs" / "dies_anywhere.py"
EFFECTS: dict[str, tuple[Effect, ...]] = {
    **dict.fromkeys(("block", "put"), ("none", "torn", "whole")),
    **dict.fromkeys(("create", "finish", "delete"), ("none", "whole")),
}


@dataclass(frozen=True)
class Story:
    """A run holds ``steps`` of branch 0; a job goes on from one of them, and saves another, of branch 1."""

    steps: tuple[int, ...]
    goes_on: int | None
    saves: int
    options: dict[str, Any] = field(default_factory=dict)


STORIES = {
    "first save": Story((), None, 10),
    "later save": Story((10,), 10, 20),
    "later save, older ones removed": Story((10, 20, 30), 30, 40, {"keep_last": 1}),
    "later save, older ones reduced to an item": Story(
        (10, 20), 20, 40, {"keep_last": 1, "items": {"layer0": keep_every(10)}}
    ),
    "over a step of a branch given up": Story((10, 20), 10, 20),
    "below steps of a branch given up": Story((10, 20, 30), 10, 15, {"keep_last": 1}),
}


def tell(story: Story, storage: Storage) -> None:
    """Bring a run to where the story begins."""
    ckpt = open_run(storage, items=story.options.get("items"))
    for step in story.steps:
        ckpt.save(step, state(step), block=True)
    ckpt.close()


def live(story: Story, storage: Storage, *, block: bool = True) -> None:
    """What the job does that is to die."""
    ckpt = open_run(storage, **story.options)
    ckpt.restore(blank(), step=story.goes_on)
    ckpt.save(story.saves, state(story.saves, branch=1), block=block).wait()
    ckpt.close()


def judge(story: Story, storage: Storage, *, saved: bool) -> None:
    """Whoever comes after sees the old or the new, whole, and can save, with nothing tidied up by hand."""
    assert damaged(storage) == []
    old = [(step, 0) for step in story.steps] or [None]
    new = (story.saves, 1)
    assert newest(storage) in ([new] if saved else [*old, new])
    ckpt = open_run(storage, **story.options)
    ckpt.restore(blank())
    ckpt.save(99, state(99), block=True)
    assert newest(storage) == (99, 0)
    if "items" in story.options:
        assert [held(storage, step) for step in (10, 20) if step in inventory.complete_steps(storage)][:1] == [
            {"layer0"}
        ]


def held(storage: Storage, step: int) -> frozenset[str]:
    """Return the items of a step, which has no file besides theirs."""
    manifest = inventory.load_manifest(storage, step)
    there = {entry.name for entry in storage.list(paths.step_folder(step)) if not entry.name.endswith(".torn.tmp")}
    assert there == {paths.MANIFEST, *(file.name for file in manifest.files)}
    return items_in(manifest)


def deaths(story: Story) -> Iterator[tuple[MemoryStorage, bool]]:
    """Yield the storage after a death at every operation, with every effect, and whether the manifest was there."""
    whole = MemoryStorage()
    tell(story, whole)
    process = whole.new_process()
    live(story, process)
    published = process.log.index(("put", paths.manifest_path(story.saves)))
    # The story of the first save is also that of opening a run.
    first = 0 if not story.steps else next(i for i, (operation, _) in enumerate(process.log) if operation == "create")
    for number, (operation, _) in enumerate(process.log[first:], first):
        for effect in EFFECTS.get(operation, ("none",)):
            storage = MemoryStorage()
            tell(story, storage)
            process = storage.new_process()
            process.crash_at(number + 1, effect)
            with pytest.raises(SimulatedCrash):
                live(story, process)
            yield storage, number > published


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_crash_at_any_operation_leaves_the_old_or_the_new(story: Story) -> None:
    """Also where the power goes at that moment."""
    count = 0
    for storage, saved in deaths(story):
        judge(story, storage.after_power_cut(count), saved=saved)
        judge(story, storage, saved=saved)
        count += 2
    print(f"{count} deaths, with and without a power cut")
    assert count > 20


def test_a_removal_that_begins_with_the_files_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""

    def backwards(storage: Storage, step: int) -> None:
        for entry in storage.list(paths.step_folder(step)):
            if entry.name != paths.MANIFEST:
                storage.delete(f"{paths.step_folder(step)}/{entry.name}")
        storage.delete(paths.manifest_path(step))

    monkeypatch.setattr("allranks.checkpoint.retention.remove_step", backwards)
    with pytest.raises(AssertionError, match="the file does not exist"):
        test_a_crash_at_any_operation_leaves_the_old_or_the_new(STORIES["later save, older ones removed"])


def test_a_reduction_that_begins_with_the_files_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(storage: Storage, step: int, names: Sequence[str]) -> bool:
        for file in inventory.load_manifest(storage, step).files:
            if ".layer0." not in file.name:
                storage.delete(f"{paths.step_folder(step)}/{file.name}")
        return removal.reduce_step(storage, step, names)

    monkeypatch.setattr("allranks.checkpoint.retention.reduce_step", backwards)
    with pytest.raises(AssertionError, match="the file does not exist"):
        test_a_crash_at_any_operation_leaves_the_old_or_the_new(STORIES["later save, older ones reduced to an item"])


def test_a_branch_given_up_that_stays_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest step would be one that the program went back behind; with keep_last=1 it would be the only one."""
    monkeypatch.setattr(RunRetention, "before_commit", lambda _: None)
    with pytest.raises(AssertionError, match=r"assert \(30, 0\) in \[\(15, 1\)\]"):
        test_a_crash_at_any_operation_leaves_the_old_or_the_new(STORIES["below steps of a branch given up"])


NORMAL = ["over a step of a branch given up"]


def killed_anywhere(folder: Path, stories: Sequence[str]) -> None:
    done = harness.run(1, [str(PROGRAM), str(folder), *stories], environ=lambda *_: {}, patience=600)
    print(done)
    assert done.codes == [0]


def test_a_process_killed_before_any_system_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """SIGKILL in a real directory, while a thread of the process writes."""
    killed_anywhere(tmp_path, NORMAL)


@pytest.mark.soak
def test_so_it_is_in_every_story(tmp_path: Path) -> None:
    killed_anywhere(tmp_path, [name for name in STORIES if name not in NORMAL])
