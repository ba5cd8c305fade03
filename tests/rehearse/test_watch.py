"""The watcher and the journal on real files and real system calls."""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.launch.job import Job, Script
from allranks.rehearse.run import run_once
from allranks.rehearse.watch.syscalls import decode, filter_program, opened_for
from allranks.rehearse.watch.undo import Journal

needs_seccomp = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no table of system calls")


@pytest.mark.parametrize(
    ("flags", "operation"),
    [
        (os.O_RDONLY, "read"),
        (os.O_WRONLY, "write"),
        (os.O_RDWR | os.O_CREAT, "write"),
        (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "create"),
        (os.O_WRONLY | os.O_APPEND, "append"),
        (os.O_WRONLY | os.O_CREAT | os.O_EXCL, "exclusive"),
        (os.O_RDONLY | os.O_TRUNC, "create"),
        (os.O_RDONLY | os.O_CREAT, "append"),
    ],
)
def test_what_a_file_is_opened_for(flags: int, operation: str) -> None:
    assert opened_for(flags) == operation


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_stops_the_calls_of_its_table_and_no_others(machine: str) -> None:
    """A small machine for BPF: what is returned for each number of a call, and for another architecture."""
    program = [
        struct.unpack_from("HBBI", filter_program(machine), at) for at in range(0, len(filter_program(machine)), 8)
    ]
    architecture = program[1][3]

    def verdict(number: int, arch: int) -> int:
        at, loaded = 0, 0
        while True:
            code, yes, no, value = program[at]
            if code == 0x20:
                loaded = arch if value == 4 else number
            elif code == 0x15:
                at += yes if loaded == value else no
            else:
                return value
            at += 1

    stopped = {number for number in range(600) if verdict(number, architecture) == 0x7FC00000}
    assert stopped == {number for number in range(600) if decode(machine, number, [0] * 6) is not None}
    assert len(stopped) > 8
    assert all(verdict(number, 1) == 0x7FFF0000 for number in stopped)


WRITERS = """
import os, shutil, subprocess, sys, tempfile, threading
from pathlib import Path

open("by_open", "w").close()
open("by_append", "a").close()
Path("by_path").write_text("x")
os.close(os.open("by_os_open", os.O_CREAT | os.O_WRONLY))
os.mkdir("by_mkdir")
os.makedirs("by/makedirs")
os.rename("by_open", "by_rename")
os.symlink("by_path", "by_symlink")
os.link("by_path", "by_link")
os.truncate("by_path", 0)
shutil.copy("by_path", "by_copy")
os.unlink("by_link")
subprocess.run([sys.executable, "-c", "open('by_child', 'w')"], check=True)
subprocess.run(["touch", "by_touch"], check=True)
thread = threading.Thread(target=lambda: open("by_thread", "w").close())
thread.start()
thread.join()
directory = os.open(".", os.O_RDONLY)
os.mkdir("by_descriptor", dir_fd=directory)
if os.fork() == 0:
    open("by_fork", "w").close()
    os._exit(0)
os.wait()
"""


@needs_seccomp
def test_every_change_is_seen_with_its_line_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of threads, children and other programs; what was there before is there again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "write.py").write_text(WRITERS)
    (tmp_path / "by_append").write_text("before")
    (tmp_path / "undo").mkdir()
    journal = Journal(str(tmp_path / "undo"))
    run = run_once(Job(Script("write.py"), 1, hang_after=0), {"steps": 0}, journal=journal)
    assert run.result.exit_code == 0, run.output
    assert run.trace.notes == ()
    changed = {
        os.path.relpath(event.data["paths"][-1], tmp_path): event
        for event in run.trace.of("file")
        if event.data["operation"] not in ("read", "exists", "list")
    }
    names = {name for name in changed if name.startswith("by")}
    assert names == {
        *("by_open", "by_append", "by_path", "by_os_open", "by_mkdir", "by", "by/makedirs", "by_rename", "by_symlink"),
        *("by_link", "by_copy", "by_child", "by_touch", "by_thread", "by_descriptor", "by_fork"),
    }
    lines = WRITERS.splitlines()
    for name in ("by_append", "by_path", "by_mkdir", "by_rename", "by_copy", "by_thread", "by_descriptor"):
        where = changed[name].where
        assert where is not None, name
        assert name in lines[where.line - 1] or name == "by_path", name
    journal.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by_append", "undo", "write.py"]
    assert (tmp_path / "by_append").read_text() == "before"


INTERRUPTED = """
import os, signal, sys, threading, time

signal.signal(signal.SIGUSR1, lambda *_: None)
main = threading.main_thread().ident

def send():
    while True:
        time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)

threading.Thread(target=send, daemon=True).start()
for number in range(1000):
    os.mkdir("folder")
    os.rename("folder", "other")
    os.rmdir("other")
"""


@needs_seccomp
def test_a_signal_interrupts_no_call_that_it_does_not_interrupt_without_the_watcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a repetition, some 30 of these calls raise InterruptedError."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "change.py").write_text(INTERRUPTED)
    run = run_once(Job(Script("change.py"), 1, hang_after=0), {"steps": 0})
    assert run.result.exit_code == 0, run.output


CHANGERS = """
import os, shutil

def write(path, text="new"):
    with open(path, "w") as file:
        file.write(text)

def through_a_link():
    write("latest")
    write("lost")
    write("folder_link/inner")

def link_becomes_a_file():
    os.unlink("latest")
    write("latest")

def link_moves():
    os.symlink("other", "tmp")
    os.replace("tmp", "latest")

def hard_links():
    os.link("other", "second")
    write("second")
    os.link("lone", "tmp")
    os.replace("tmp", "other")

def file_becomes_a_folder():
    os.unlink("other")
    os.mkdir("other")
    write("other/inner")

def folder_becomes_a_file():
    shutil.rmtree("folder")
    write("folder")

def rotation():
    for number in range(3):
        if os.path.exists("prev"):
            shutil.rmtree("prev")
        if os.path.exists("last"):
            os.rename("last", "prev")
        os.mkdir("last")
        write("last/w", str(number))

def folder_is_moved_and_made_anew():
    write("folder/more")
    os.rename("folder", "moved")
    os.mkdir("folder")
    write("folder/inner")
    write("folder/more")

def folder_onto_an_empty_one():
    os.rename("folder", "empty")

def folder_with_rights():
    shutil.rmtree("private")
    os.mkdir("private")

def a_fifo():
    os.mkfifo("fifo")

def truncated_by_a_reader():
    os.close(os.open("other", os.O_RDONLY | os.O_TRUNC))

def code():
    write("settings.py")

def itself():
    shutil.rmtree(os.getcwd())

here = os.getcwd()
for name in sorted(os.listdir(".")):
    os.chdir(os.path.join(here, name))
    globals()[name]()
"""


def _tree(root: Path) -> dict[str, tuple[int, int, str]]:
    """Return the mode, the time of the last change and the content of each file, link and folder."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        link = path.is_symlink()
        content = os.readlink(path) if link else path.read_text() if path.is_file() else ""
        found[os.path.relpath(path, root)] = (status.st_mode, 0 if link else status.st_mtime_ns, content)
    return found


@needs_seccomp
def test_folders_are_as_before_whatever_a_run_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, modes and times, also of what links point to."""
    work, copies, script = tmp_path / "work", tmp_path / "undo", tmp_path / "change.py"
    copies.mkdir()
    script.write_text(CHANGERS)
    names = re.findall(r"^def (\w+)\(\):", CHANGERS, re.MULTILINE)
    for name in names:
        place = work / name
        for folder in ("folder", "private", "empty"):
            (place / folder).mkdir(parents=True)
        for file in ("folder/inner", "private/inner", "target", "other", "lone", "settings.py"):
            (place / file).write_text(file)
        (place / "private").chmod(0o700)
        for link, target in (("latest", "target"), ("lost", "absent"), ("folder_link", "folder")):
            (place / link).symlink_to(target)
    for path in sorted(work.rglob("*"), reverse=True):
        if not path.is_symlink():
            os.utime(path, (1e9, 1e9))
    before = _tree(work)
    monkeypatch.chdir(work)
    journal = Journal(str(copies))
    run = run_once(Job(Script(str(script)), 1, hang_after=0), {"steps": 0}, journal=journal)
    assert run.result.exit_code == 0, run.output
    changed = _tree(work)
    assert all(any(changed.get(path) != before[path] for path in before if path.startswith(name)) for name in names)
    assert journal.undo() == {}
    assert _tree(work) == before


def test_the_journal_puts_back_what_was_overwritten_renamed_and_removed(tmp_path: Path) -> None:
    keep, old, folder = tmp_path / "keep", tmp_path / "old", tmp_path / "undo"
    keep.write_text("one")
    old.write_text("two")
    folder.mkdir()
    journal = Journal(str(folder))
    journal.note("create", [str(keep)])
    keep.write_text("changed")
    journal.note("rename", [str(old), str(tmp_path / "new")])
    old.rename(tmp_path / "new")
    journal.note("rename", [str(tmp_path / "new"), str(keep)])
    (tmp_path / "new").rename(keep)
    journal.note("remove", [str(keep)])
    keep.unlink()
    journal.undo()
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()} == {
        "keep": "one",
        "old": "two",
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "append", "remove", "rename"]), st.sampled_from("abc"), st.sampled_from("abc")
        )
    )
)
def test_the_journal_puts_back_any_row_of_changes(moves: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copies:
        place = Path(folder)
        (place / "a").write_text("one")
        (place / "b").write_text("two")
        journal = Journal(copies)
        for number, (operation, first, second) in enumerate(moves):
            path, other = place / first, place / second
            journal.note(operation, [str(path), str(other)] if operation == "rename" else [str(path)])
            if operation == "rename" and path.exists():
                path.rename(other)
            elif operation == "remove":
                path.unlink(missing_ok=True)
            elif operation != "rename":
                with path.open("w" if operation == "create" else "a") as file:
                    file.write(str(number))
        journal.undo()
        assert {path.name: path.read_text() for path in place.iterdir()} == {"a": "one", "b": "two"}


def test_the_journal_leaves_a_folder_with_files_of_others(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    made = tmp_path / "made"
    journal.note("mkdir", [str(made)])
    made.mkdir()
    (made / "of somebody else").write_text("x")
    journal.undo()
    assert (made / "of somebody else").read_text() == "x"


def test_the_journal_removes_folders_that_were_tried_from_the_inside_out(tmp_path: Path) -> None:
    """As Path.mkdir(parents=True) does."""
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    (tmp_path / "undo").mkdir()
    journal = Journal(str(tmp_path / "undo"))
    for path in (inner, outer, inner):
        journal.note("mkdir", [str(path)])
    inner.mkdir(parents=True)
    journal.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["undo"]


FOLDERS = """
import os, sys, tempfile
from pathlib import Path
from types import SimpleNamespace

from allranks.rehearse.probe import files

def write(kind, *, path="", direct=None, **_):
    if kind == "mkdir":
        print(os.path.basename(path), direct)

page = SimpleNamespace(announce=lambda *_: None)
recorder = SimpleNamespace(place=lambda: 1, write=write, is_users=lambda file: file == __file__, page=page)
files.attach(recorder, is_watched=sys.argv[1] == "watched")
os.mkdir("a")
os.makedirs("b/c", exist_ok=True)
Path("d").mkdir()
tempfile.mkdtemp(prefix="e", suffix="e", dir=".")
"""


@pytest.mark.parametrize("way", ["watched", "not watched"])
def test_a_folder_that_the_program_makes_is_known_as_its_own(way: str, tmp_path: Path) -> None:
    """The parent ``b`` and a library's folder are not: each rank may name such a folder for itself."""
    (tmp_path / "program.py").write_text(FOLDERS)
    command = [sys.executable, "program.py", way]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    named = dict(line.split() for line in done.stdout.splitlines())
    library = next(name for name in named if name.startswith("e"))
    assert named == {"a": "True", "b": "False", "c": "True", "d": "True", library: "False"}
