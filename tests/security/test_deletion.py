"""What allranks deletes: the manifest, the files that it names, and its own names. All else stays, and is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks.check.cache import Folder
from allranks.checkpoint import holds, removal
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.inventory import StepFolder
from allranks.cli.main import main
from allranks.errors import StorageError
from allranks.storage import deletion
from allranks.storage.base import Storage
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world

OURS = "rank-00000-of-00001.0badcafe.safetensors"
Remove = Callable[[Path], None]


def state(step: int) -> dict[str, Any]:
    return {"w": np.full(4, step, np.float32)}


def open_run(run: Path | Storage, **options: Any) -> Checkpointer:
    return Checkpointer(run, single_world(), on_sigterm=False, **options)


def by_retention(run: Path) -> None:
    with open_run(run, keep_last=1) as ckpt:
        ckpt.save(9, state(9), block=True)


def by_gc(run: Path) -> None:
    assert main(["ckpt", "gc", str(run), "--keep-last", "1", "--older-than", "0s"]) == 0


by_both = pytest.mark.parametrize("remove", [by_retention, by_gc])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the steps 1, 2 and 3."""
    where = tmp_path / "run"
    with open_run(where) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, state(step), block=True)
    return where


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user, outside of the run, with files of our names among others."""
    where = tmp_path / "mine"
    where.mkdir()
    for name in ("manifest.json", OURS, "thesis.tex", "00000001.json", "1.00112233.json"):
        (where / name).write_text("mine")
    return where


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """All that the user is told."""
    found: list[str] = []
    monkeypatch.setattr("allranks.checkpoint.retention.log", lambda text, *values, **_: found.append(text % values))

    def told() -> str:
        out = capsys.readouterr()
        return " ".join([*found, out.out, out.err])

    return told


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@by_both
def test_hard_links_keep_their_bytes(run: Path, tmp_path: Path, remove: Remove) -> None:
    """A user who has linked a file of a step elsewhere keeps it."""
    (shard,) = (run / "checkpoint-1").glob("*.safetensors")
    kept, before = tmp_path / "kept", shard.read_bytes()
    os.link(shard, kept)
    remove(run)
    assert not (run / "checkpoint-1").exists()
    assert kept.read_bytes() == before


@by_both
def test_a_run_is_named_by_a_link(run: Path, mine: Path, tmp_path: Path, remove: Remove) -> None:
    """The address is the user's: its steps are those of the run. Files of others in them stay."""
    (run / "checkpoint-1" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(run)
    before = contents(mine)
    remove(tmp_path / "link")
    assert contents(run / "checkpoint-1") == {"notes.txt": b"mine"}
    assert not (run / "checkpoint-2").exists()
    assert contents(mine) == before


def test_a_link_to_a_run_that_is_changed_is_not_followed(run: Path, tmp_path: Path) -> None:
    """A storage deletes in the folder that it was opened on, wherever its address leads later."""
    other = shutil.copytree(run, tmp_path / "other")
    (tmp_path / "link").symlink_to(run)
    storage, before = LocalStorage(tmp_path / "link"), contents(other)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    removal.remove_step(storage, 1)
    assert contents(other) == before


@by_both
@pytest.mark.parametrize("name", ["fence", "hold"])
def test_folders_of_a_run_that_are_links_are_not_followed(run: Path, mine: Path, remove: Remove, name: str) -> None:
    """Nothing in what they lead to is deleted or replaced; who would have to write there is told."""
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(mine)
    (mine / "00000001.json").unlink()
    before = contents(mine)
    if name == "fence" and remove is by_retention:
        with pytest.raises(StorageError, match=r"'fence' is a symbolic link.*Remove the link"):
            remove(run)
    else:
        remove(run)
        assert not (run / "checkpoint-1").exists()
    assert contents(mine) == before


@by_both
def test_a_file_of_another_program_called_memory_json_stays(run: Path, remove: Remove) -> None:
    (run / "memory.json").write_text('{"notes": "mine"}')
    remove(run)
    assert (run / "memory.json").read_text() == '{"notes": "mine"}'


def test_a_step_that_becomes_a_link_between_check_and_removal(
    run: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], str]
) -> None:
    """At the last moment: after all checks, before the first file. The other steps are removed all the same."""
    before, held = contents(mine), holds.held_steps

    def swap(storage: Storage) -> dict[int, str]:
        found = held(storage)
        if not (run / "checkpoint-1" / "manifest.json").exists() and not (run / "checkpoint-1").is_symlink():
            (run / "checkpoint-1").rename(tmp_path / "aside")
            (run / "checkpoint-1").symlink_to(mine)
        return found

    monkeypatch.setattr(holds, "held_steps", swap)
    by_retention(run)
    assert contents(mine) == before
    assert (run / "checkpoint-1").is_symlink()
    assert not (run / "checkpoint-2").exists()
    assert "step 1 of" in (told := messages())
    assert "'checkpoint-1' is a symbolic link" in told


def test_a_folder_that_is_swapped_all_the_time(tmp_path: Path, mine: Path) -> None:
    """Real threads: one exchanges a folder and a link to the user's, the other deletes. Nothing of the user goes."""
    folder, link, spare = tmp_path / "run" / "a", tmp_path / "link", tmp_path / "spare"
    folder.mkdir(parents=True)
    link.symlink_to(mine)
    storage, before, stop = LocalStorage(tmp_path / "run"), contents(mine), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(folder, spare)
            os.rename(link, folder)
            os.rename(folder, link)
            os.rename(spare, folder)

    thread = threading.Thread(target=swap)
    thread.start()
    refused, tries, until = 0, 0, time.monotonic() + 60
    try:
        while tries < 500 or (refused < 10 and time.monotonic() < until):
            tries += 1
            try:
                storage.delete(f"a/{OURS}")
            except StorageError:
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert contents(mine) == before
    assert refused > 0


def test_without_us_a_swapped_folder_is_followed(tmp_path: Path, mine: Path) -> None:
    """By its path, the file of the user goes: what is checked is not what is deleted."""
    folder = tmp_path / "run" / "a"
    folder.mkdir(parents=True)
    assert not folder.is_symlink()
    folder.rmdir()
    folder.symlink_to(mine)
    (folder / OURS).unlink()
    assert not (mine / OURS).exists()


BOTH = """
import sys
from pathlib import Path
from test_deletion import by_retention
from allranks.cli.main import main
by_retention(Path(sys.argv[1]))
assert main(["ckpt", "gc", sys.argv[1], "--keep-last", "1", "--older-than", "0s"]) == 1
"""


def remove_by_both(command: list[str], run: Path) -> str:
    """Remove steps in a process that is started by a command, which takes its rights or mounts; return its output."""
    words = [*command, sys.executable, "-c", BOTH, str(run)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


CAN_PREPARE = os.getuid() == 0 and shutil.which("setpriv") and shutil.which("unshare")


@pytest.mark.skipif(not CAN_PREPARE, reason="only root can mount, and give a folder away")
def test_steps_behind_a_mount_and_of_another_user_stay(run: Path, mine: Path) -> None:
    """A folder of the user is mounted over step 1: it is as if the step were a link to it. Step 2 belongs to another
    user, and the process has no right of root over it. Step 3 goes."""
    shutil.copytree(run / "checkpoint-1", mine, dirs_exist_ok=True)
    os.chown(run / "checkpoint-2", 65534, 65534)
    before = contents(mine), contents(run / "checkpoint-2")
    script = f'mount --bind "{mine}" "{run}/checkpoint-1" && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this container may not mount")
    told = remove_by_both(["unshare", "--mount", "sh", "-c", script, "sh"], run)
    assert (contents(mine), contents(run / "checkpoint-2")) == before
    assert not (run / "checkpoint-3").exists()
    assert told.count("'checkpoint-1' is a mount point") == 2
    assert "Unmount it, or remove the files by hand" in told
    assert told.count("this user has no permission") == 2


class Stubborn(LocalStorage):
    """A run in which the files of step 1 cannot be deleted."""

    def delete(self, path: str) -> None:
        if path.startswith("checkpoint-1/"):
            raise StorageError(f"cannot delete {path!r}: the file system does not allow it.", path=path)
        super().delete(path)


def test_one_step_that_cannot_be_removed_does_not_keep_the_others(
    run: Path, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], str]
) -> None:
    """It is reported once, not at each save."""
    with open_run(Stubborn(run), keep_last=1) as ckpt:
        for step in (4, 5, 6):
            ckpt.save(step, state(step), block=True)
    assert {one.name for one in run.iterdir() if one.name.startswith("checkpoint")} == {"checkpoint-1", "checkpoint-6"}
    assert messages().count("the file system does not allow it") == 1
    monkeypatch.setattr("allranks.cli.place.open_storage", lambda *_, **__: Stubborn(run))
    assert main(["ckpt", "gc", str(run), "--keep-last", "1", "--older-than", "0s"]) == 1
    assert "left step 1: cannot delete 'checkpoint-1/" in messages()


def test_the_cache_of_check_removes_its_own_entries(tmp_path: Path) -> None:
    """Of old versions; a folder of the user's beside them stays."""
    place = tmp_path / "cache"
    for version in ("1" * 32, "2" * 32, "3" * 32):
        Folder(place, version, b"secret").keep("ab", b"{}")
        os.utime(place / version, (int(version[0]), int(version[0])))
    (place / ("4" * 32)).mkdir()
    (place / ("4" * 32) / "thesis.tex").write_text("mine")
    os.utime(place / ("4" * 32), (0, 0))
    Folder(place, "5" * 32, b"secret").keep("ab", b"{}")
    assert not (place / ("1" * 32)).exists()
    assert (place / ("4" * 32) / "thesis.tex").read_text() == "mine"


def test_a_tree_is_deleted_without_leaving_it(tmp_path: Path, mine: Path) -> None:
    tree, before = tmp_path / "tree", contents(mine)
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("x")
    (tree / "a" / "link").symlink_to(mine)
    os.mkfifo(tree / "pipe")
    (tree / "other").write_text("other")
    assert deletion.delete_tree(tree, is_ours=lambda path: path != "other") == ("other",)
    assert [one.name for one in tree.iterdir()] == ["other"]
    (tmp_path / "link").symlink_to(tree)
    assert deletion.delete_tree(tmp_path / "link") == ()
    assert (tree / "other").exists()
    assert deletion.delete_tree(tree) == ()
    assert deletion.delete_tree(tree) == ()
    assert deletion.delete_tree(tree / "in" / "nothing") == ()
    assert not tree.exists()
    assert contents(mine) == before


def test_gc_says_what_stays_and_ls_says_what_gc_does(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged steps, and what others have put into the folders of saves that were never completed."""
    (run / "checkpoint-1" / "manifest.json").write_bytes(b'{"digest":"00",\n"format":"allranks-checkpoint"}')
    for step, names in {4: (), 5: (OURS,), 6: (OURS, "notes\nleft step 9: forged"), 7: ("notes",)}.items():
        (run / f"checkpoint-{step}").mkdir()
        for name in names:
            (run / f"checkpoint-{step}" / name).write_text("x")
    (run / "checkpoint-8").symlink_to(run / "checkpoint-5")
    main(["ckpt", "ls", str(run)])
    notes = [line for line in capsys.readouterr().out.splitlines() if "`allranks ckpt gc`" in line]
    assert [note.partition("`allranks ckpt gc` ")[2] for note in notes] == [
        "removes it.",
        "removes it.",
        "removes the files of allranks in it, and leaves the others.",
        "leaves it: it has no file of allranks.",
        "leaves it: its folder is a symbolic link.",
    ]
    main(["ckpt", "gc", str(run), "--older-than", "0s"])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("left")] == [
        f"left step 1: {removal.DAMAGED}",
        "left step 6: not ours: notes\\nleft step 9: forged",
        "left step 7: not ours: notes",
        f"left step 8: {removal.LINK}",
    ]
    folders = {path.name for path in run.iterdir() if path.name.startswith("checkpoint-")}
    assert folders == {f"checkpoint-{step}" for step in (1, 2, 3, 6, 7, 8)}


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [as_pipe, as_loop, Path.mkdir], ids=["pipe", "loop of links", "folder"])
def test_a_step_whose_manifest_is_no_file_is_verified_and_stays(
    make: Callable[[Path], None], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = run / "checkpoint-2" / "manifest.json"
    manifest.unlink()
    make(manifest)
    assert main(["ckpt", "verify", str(run), "--all"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert ["DAMAGED" in line for line in lines] == [False, True, False]
    assert main(["ckpt", "show", f"{run}@1"]) == 0  # the other steps can be used
    capsys.readouterr()
    if make is not as_loop:  # which leads nowhere, as a link to a file that was removed
        assert main(["ckpt", "verify", f"{run}@2"]) == 1
        assert capsys.readouterr().out.splitlines() == lines[1:2]
    main(["ckpt", "gc", str(run), "--older-than", "0s"])
    assert f"left step 2: {removal.DAMAGED}" in capsys.readouterr().out
    assert list(manifest.parent.glob("rank-*"))


def test_leftovers_are_chosen_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 folders, each was compared with all others: 45 s."""

    def compared(*_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(removal.LeftoverFiles, "__eq__", compared)
    folders = [StepFolder(step, "unfinished", (), folder_modified=float(step)) for step in range(10)]
    chosen = removal.choose_leftovers(folders, now_seconds=10.0, older_than=6.0)
    assert [one.step for one in chosen.remove] == [0, 1, 2, 3, 4]
    assert [one.step for one in chosen.spare] == [5, 6, 7, 8, 9]


def test_a_tree_that_is_too_deep_stays(tmp_path: Path) -> None:
    """And what is not so deep goes: no error ends the command that cleans up."""
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(deletion._DEEPEST + 20):
        os.mkdir("a", dir_fd=opened)
        below = os.open("a", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(opened)
    (tmp_path / "a" / "file").write_text("x")
    (stays,) = deletion.delete_tree(tmp_path / "a")
    assert stays.count("/") == deletion._DEEPEST
    assert not (tmp_path / "a" / "file").exists()
