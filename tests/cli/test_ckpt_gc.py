"""``allranks ckpt gc``: what no manifest names goes, once nobody can be writing it; steps go if asked."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runs import Said, four_ranks, save

from allranks.checkpoint import fence
from allranks.checkpoint.inventory import StepFolder
from allranks.checkpoint.removal import LeftoverChoice, choose_leftovers
from allranks.process import started as process_started
from allranks.storage.base import Entry
from allranks.storage.local import LocalStorage

NAME = "rank-00000-of-00001.{}.safetensors"


@pytest.fixture
def left(run: Path, arrays: dict[str, np.ndarray]) -> Path:
    """The run, with a save that died two hours ago, one that goes on, and a file in a good step that is not its own."""
    storage = LocalStorage(run)
    save(storage, 300, four_ranks(arrays), unfinished=True)
    save(storage, 400, four_ranks(arrays), unfinished=True)
    (run / "checkpoint-200" / NAME.format("0badcafe")).write_bytes(bytes(5000))
    for step in (100, 200, 300):
        folder = run / f"checkpoint-{step}"
        for path in [*folder.iterdir(), folder]:
            os.utime(path, (time.time() - 7200,) * 2)
    return run


def names(run: Path) -> set[str]:
    return {path.name for path in run.iterdir()}


def test_dead_saves_go_and_young_ones_stay(ckpt: Callable[..., Said], left: Path) -> None:
    before = names(left)
    dry = ckpt("gc", left, "--dry-run")
    assert dry.code == 0
    assert names(left) == before
    assert "would remove step 300: unfinished save: 4 files" in dry.out
    assert "would remove step 200: files that no manifest names: 1 file, 5 kB" in dry.out
    assert "left step 400: " in dry.out
    document = ckpt("gc", left, "--json").document
    assert document["removed"]
    assert [one["step"] for one in document["leftovers"]] == [200, 300]
    assert [one["step"] for one in document["spared"]] == [400]
    assert names(left) == before - {"checkpoint-300"}
    assert ckpt("verify", left, "--all").code == 0
    assert "checkpoint-400" in names(left)
    assert "nothing to remove" in ckpt("gc", left).out
    assert ckpt("gc", left, "--older-than", "0s").code == 0
    assert "checkpoint-400" not in names(left)


def test_steps_go_by_the_policy_if_asked(ckpt: Callable[..., Said], run: Path) -> None:
    said = ckpt("gc", run, "--keep-last", 1)
    assert said.code == 0
    assert "removed step 100: not kept by the policy" in said.out
    assert names(run) == {"checkpoint-200"}


def test_a_damaged_step_and_files_of_others_are_left_alone(ckpt: Callable[..., Said], left: Path) -> None:
    """Nobody knows which files a manifest that cannot be read has named."""
    (left / "checkpoint-200" / "manifest.json").write_text("{}")
    (left / "checkpoint-300" / "notes.txt").write_text("mine")
    (left / "wandb").mkdir()
    many = len(list((left / "checkpoint-200").iterdir()))
    assert ckpt("gc", left, "--older-than", "0s", "--keep-last", 1).code == 0
    assert len(list((left / "checkpoint-200").iterdir())) == many
    assert names(left) == {"checkpoint-100", "checkpoint-200", "checkpoint-300", "wandb"}
    assert [path.name for path in (left / "checkpoint-300").iterdir()] == ["notes.txt"]


@pytest.fixture
def neighbour() -> Iterator[fence.RunOwner]:
    """Another live process of this machine."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield replace(fence.this_process(), pid=process.pid, started=process_started(process.pid) or 0)
        process.kill()


def test_while_a_live_job_holds_the_run_nothing_is_removed_unless_by_force(
    ckpt: Callable[..., Said], left: Path, neighbour: fence.RunOwner
) -> None:
    before = names(left) | {"fence"}
    fence.acquire_fence(LocalStorage(left), neighbour)
    said = ckpt("gc", left)
    assert (said.code, said.out) == (2, "")
    assert f"process {neighbour.pid} on host {neighbour.host}" in said.err
    assert "--force" in said.err
    assert names(left) == before
    assert ckpt("gc", left, "--force").code == 0
    assert names(left) == before - {"checkpoint-300"}


def test_a_job_of_another_machine_is_named(ckpt: Callable[..., Said], left: Path) -> None:
    """Whether it lives cannot be seen; what it might be writing is young, and stays."""
    fence.acquire_fence(LocalStorage(left), fence.RunOwner("far", 7, "another machine", 5, "job 9"))
    said = ckpt("gc", left)
    assert said.code == 0
    assert said.out.startswith("note: process 7 on host far of job job 9")
    assert "checkpoint-400" in names(left)


def found(*ages: float | None, state: str = "unfinished") -> StepFolder:
    """A folder whose files were last changed so many seconds before 1000."""
    files = [Entry(NAME.format(f"{n:08x}"), 10, None if a is None else 1000 - a) for n, a in enumerate(ages)]
    return StepFolder(1, state, tuple(files), folder_modified=1000 - max(filter(None, ages), default=50))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ages", "goes"),
    [
        ((61, 99), True),
        ((59, 99), False),  # another rank still writes: the whole save is young
        ((60,), True),
        ((None, 99), False),  # a storage that does not say
        ((), False),  # an empty folder, 50 seconds old
    ],
)
def test_a_save_is_as_old_as_its_last_change(ages: tuple[float | None, ...], goes: bool) -> None:
    decided = choose_leftovers([found(*ages)], now_seconds=1000, older_than=60)
    assert (len(decided.remove), len(decided.spare)) == ((1, 0) if goes else (0, 1))


def test_a_damaged_step_holds_no_leftovers() -> None:
    assert choose_leftovers([found(99, state="damaged")], now_seconds=1000, older_than=60) == LeftoverChoice((), ())
