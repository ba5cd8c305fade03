"""The next start removes temporary folders of killed processes: only ours, and only when their process is gone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from allranks.cli.leftovers import copies_of_killed_rehearsals, remove_leftovers
from allranks.rehearse.watch.undo import PATHS, Journal
from allranks.storage.temporary_folder import abandoned_folder, temporary_folder

HOLDER = """
import os, sys
from allranks.rehearse.watch.undo import Journal
from allranks.storage.temporary_folder import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    if sys.argv[1] == "undo":
        Journal(folder).note("write", [sys.argv[2]])
    else:
        open(folder + "/part", "w").close()
        os.symlink(sys.argv[2], folder + "/link")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of the user."""
    path = tmp_path / "file of the user"
    path.write_text("before")
    return path


def killed(purpose: str, theirs: Path) -> Path:
    """Return the folder of a process that was killed."""
    command = [sys.executable, "-c", HOLDER, purpose, str(theirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        remove_leftovers()
        assert os.listdir(folder)  # it lives
        process.send_signal(signal.SIGKILL)
    return folder


@pytest.mark.parametrize("purpose", ["rehearse", "export"])
def test_the_folder_of_a_killed_process_is_removed(purpose: str, temporary: Path, theirs: Path) -> None:
    folder = killed(purpose, theirs)
    assert os.listdir(folder)
    remove_leftovers()
    assert os.listdir(temporary) == []
    assert theirs.read_text() == "before"


def test_copies_of_files_of_the_user_stay_and_are_reported(temporary: Path, theirs: Path) -> None:
    """A killed rehearsal has not restored the files: the copy may be the only one."""
    folder = killed("undo", theirs)
    theirs.write_text("as the rehearsal has made it")
    remove_leftovers()
    assert copies_of_killed_rehearsals() == [str(folder)]
    (line,) = (folder / PATHS).read_text().splitlines()
    assert json.loads(line)["path"] == str(theirs)
    assert (folder / json.loads(line)["copy"]).read_text() == "before"
    for path in folder.iterdir():
        path.unlink()
    remove_leftovers()
    assert os.listdir(temporary) == []


def test_folders_of_others_stay(temporary: Path, theirs: Path) -> None:
    names = [
        "allranks-export-x1",
        "allranks-export-",
        "allranks-other-12345678",
        "export-12345678",
        "allranks-Export-1",
    ]
    for name in names:
        (temporary / name).mkdir(mode=0o700)
    (temporary / "allranks-export-11111111").mkdir()
    (temporary / "allranks-export-11111111").chmod(0o755)
    (temporary / "allranks-export-22222222").symlink_to(theirs.parent)
    (temporary / "allranks-export-33333333").touch()
    os.mkfifo(temporary / "allranks-export-44444444")
    before = sorted(os.listdir(temporary))
    with temporary_folder("export") as living:
        remove_leftovers()
        assert os.path.isdir(living)
    assert sorted(os.listdir(temporary)) == before
    assert theirs.exists()


def test_a_folder_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, seen = fcntl.flock, []

    def lock_late(fd: int, how: int) -> None:
        if not seen:
            seen.extend(os.listdir(temporary))
            os.rmdir(temporary / seen[0])
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with temporary_folder("export") as folder:
        assert os.listdir(temporary) == [os.path.basename(folder)] != seen
        with abandoned_folder(folder) as purpose:
            assert purpose is None
    assert os.listdir(temporary) == []


def test_a_file_system_without_locks_keeps_the_folders(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_folder("export") as folder:
        remove_leftovers()
        assert os.path.isdir(folder)
    assert os.listdir(temporary) == []


def test_a_journal_lists_its_copies(tmp_path: Path, theirs: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.note("write", [str(theirs)])
    journal.note("write", [str(theirs)])
    assert len((tmp_path / PATHS).read_text().splitlines()) == 1
