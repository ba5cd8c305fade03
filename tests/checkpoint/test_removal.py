"""What is removed: a manifest, the files that it names, and our own names. All else stays; no link is followed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from proving import blank, open_run, state

from allranks.cli.main import main
from allranks.errors import NewerFormat, StorageError
from allranks.storage.local import LocalStorage

Remove = Callable[[Path], None]


def by_retention(run: Path) -> None:
    with open_run(LocalStorage(run), keep_last=1) as ckpt:
        ckpt.save(9, state(9), block=True)


def by_gc(run: Path) -> None:
    assert main(["ckpt", "gc", str(run), "--keep-last", "1", "--older-than", "0s"]) == 0


by_both = pytest.mark.parametrize("remove", [by_retention, by_gc])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the steps 1, 2 and 3."""
    where = tmp_path / "run"
    with open_run(LocalStorage(where)) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, state(step), block=True)
    return where


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the run's retention reports."""
    found: list[str] = []

    def log(text: str, *values: object, level: int) -> None:
        assert level == 30
        found.append(text % values)

    monkeypatch.setattr("allranks.checkpoint.retention.log", log)
    return found


@by_both
def test_files_of_others_in_a_step_stay_and_are_named(
    run: Path, remove: Remove, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = run / "checkpoint-1"
    (mine / "notes.txt").write_text("mine")
    (mine / "eval").mkdir()
    (mine / "eval" / "rank-00000-of-00001.0badcafe.safetensors").write_text("mine")
    (mine / "model.safetensors").write_text("mine")
    remove(run)
    assert set(files(mine)) == {"notes.txt", "eval/rank-00000-of-00001.0badcafe.safetensors", "model.safetensors"}
    assert not (run / "checkpoint-2").exists()
    said = " ".join(messages) + capsys.readouterr().out
    assert "eval, model.safetensors, notes.txt" in said


@by_both
@pytest.mark.parametrize("holds", ["the step", "other files", "both"])
def test_a_step_folder_that_is_a_link_is_not_followed(
    run: Path, tmp_path: Path, remove: Remove, holds: str, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if holds != "other files":
        shutil.copytree(run / "checkpoint-1", elsewhere, dirs_exist_ok=True)
    if holds != "the step":
        (elsewhere / "thesis.tex").write_text("mine")
        (elsewhere / "rank-00000-of-00001.0badcafe.safetensors").write_text("mine")
    before = files(elsewhere)
    shutil.rmtree(run / "checkpoint-1")
    (run / "checkpoint-1").symlink_to(elsewhere)
    remove(run)
    assert files(elsewhere) == before
    assert (run / "checkpoint-1").is_symlink()
    assert not (run / "checkpoint-2").exists()
    if remove is by_gc or holds != "other files":  # for retention, what has no manifest is no step
        assert "symbolic link" in " ".join(messages) + capsys.readouterr().out


@by_both
def test_a_file_of_a_step_that_is_a_link_goes_and_what_it_leads_to_stays(
    run: Path, tmp_path: Path, remove: Remove
) -> None:
    (shard,) = (run / "checkpoint-1").glob("*.safetensors")
    moved = tmp_path / "large-disk.safetensors"
    shard.rename(moved)
    shard.symlink_to(moved)
    remove(run)
    assert moved.exists()
    assert not (run / "checkpoint-1").exists()


@by_both
def test_a_manifest_of_another_program_is_not_ours(run: Path, remove: Remove) -> None:
    foreign = run / "checkpoint-1" / "manifest.json"
    foreign.write_text('{"name": "web app", "icons": []}')
    before = files(run / "checkpoint-1")
    remove(run)
    assert files(run / "checkpoint-1") == before


def as_a_newer_allranks_writes_it(step: Path) -> None:
    body = (step / "manifest.json").read_bytes().split(b"\n", 1)[1].replace(b'"version":1', b'"version":2')
    (step / "manifest.json").write_bytes(b'{"digest":"' + xxhash.xxh3_128_hexdigest(body).encode() + b'",\n' + body)


@by_both
def test_a_step_of_a_newer_allranks_is_never_removed(
    run: Path, remove: Remove, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    as_a_newer_allranks_writes_it(run / "checkpoint-2")
    before = files(run / "checkpoint-2")
    remove(run)
    assert files(run / "checkpoint-2") == before
    assert not (run / "checkpoint-1").exists()
    assert "newer allranks" in " ".join(messages) + capsys.readouterr().out


def test_a_step_of_a_newer_allranks_is_never_passed_over(run: Path) -> None:
    """Not with fallback; only by who names an older step, and then it is not removed."""
    as_a_newer_allranks_writes_it(run / "checkpoint-3")
    before = files(run / "checkpoint-3")
    with open_run(LocalStorage(run)) as ckpt:
        for fallback in (False, True):
            with pytest.raises(NewerFormat, match=r"version 2 of the format.*Install a newer allranks"):
                ckpt.restore(blank(), fallback=fallback)
        ckpt.restore(blank(), step=2)
        ckpt.save(4, state(4), block=True)
    assert files(run / "checkpoint-3") == before


def test_commands_tell_a_newer_step_from_a_damaged_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_a_newer_allranks_writes_it(run / "checkpoint-3")
    assert main(["ckpt", "ls", str(run)]) == 0
    assert "newer" in capsys.readouterr().out
    assert main(["ckpt", "verify", str(run), "--all"]) == 1
    said = capsys.readouterr().out
    assert "NOT VERIFIED" in said
    assert "DAMAGED" not in said
    assert main(["ckpt", "show", str(run)]) == 2
    assert "Install a newer allranks" in capsys.readouterr().err


def test_the_bytes_that_gc_frees_are_those_that_go(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoint-1" / "large").write_bytes(bytes(10**7))
    assert main(["ckpt", "gc", str(run), "--keep-last", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes"] < 10**6
    assert document["kept"] == [{"step": 1, "why": "not ours: large"}]


def test_no_storage_removes_through_a_link(tmp_path: Path) -> None:
    """Neither a file below a linked folder, nor a linked folder that is empty. A link itself is a name like another."""
    (tmp_path / "run" / "a").mkdir(parents=True)
    (tmp_path / "out" / "empty").mkdir(parents=True)
    (tmp_path / "out" / "file").write_text("mine")
    storage = LocalStorage(tmp_path / "run")
    for link, target in (("linked", "out"), ("a/deep", "out"), ("empty", "out/empty")):
        (tmp_path / "run" / link).symlink_to(tmp_path / target)
    for path in ("linked/file", "a/deep/file", "linked/empty/file"):
        with pytest.raises(StorageError, match="is a symbolic link"):
            storage.delete(path)
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.remove_folder("linked/empty")
    storage.remove_folder("empty")
    assert (tmp_path / "out" / "empty").is_dir()
    assert (tmp_path / "out" / "file").exists()
    storage.delete("a/deep")
    assert not os.path.lexists(tmp_path / "run" / "a" / "deep")
    assert (tmp_path / "out" / "file").exists()


def test_a_link_that_leads_nowhere_does_not_hide_a_run(run: Path) -> None:
    (run / "loop").symlink_to(run / "loop")
    (run / "broken").symlink_to(run / "nowhere")
    assert open_run(LocalStorage(run)).steps() == (1, 2, 3)
