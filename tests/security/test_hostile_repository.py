"""Repositories of others, of which ``allranks check`` reads code, settings and a cache that may have come with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.check import cache
from allranks.check.cache import TAG, Folder
from allranks.cli import check_run, explain
from allranks.cli.main import main
from allranks.readiness import flags

VERSION = "0" * 32


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder_of(path: Path) -> Folder:
    return Folder(path / "cache", VERSION, b"mine")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file of Python."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "train.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "repository"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of the user whose files have names as in the cache."""
    there = tmp_path / "theirs"
    there.mkdir()
    for name in ("files", *(f"run-{number}.json" for number in range(40))):
        (there / name).write_text("mine")
    return there


@pytest.mark.parametrize("at", ["cache", "version"])
def test_a_cache_that_is_a_link_is_not_written_or_emptied(tmp_path: Path, theirs: Path, at: str) -> None:
    """Old runs would be removed from the folder that it leads to."""
    before = sorted((one.name, one.read_bytes()) for one in theirs.iterdir())
    place = tmp_path / "cache"
    if at == "cache":
        place.symlink_to(theirs)
    else:
        place.mkdir()
        (place / "CACHEDIR.TAG").write_text(TAG)
        (place / VERSION).symlink_to(theirs)
    one = folder_of(tmp_path)
    assert (one.judged("ab"), one.get(b"a")) == (None, None)
    one.put(b"a", b"value")
    one.keep("ab", b"{}")
    assert "is a symbolic link" in one.lost[0]
    assert sorted((one.name, one.read_bytes()) for one in theirs.iterdir()) == before


def test_no_link_in_a_cache_is_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository may have a link for every name that a new file could get, and for the entries."""
    monkeypatch.setattr(cache, "token_hex", lambda _: "aa")
    (tmp_path / "theirs").write_text("mine")
    home = tmp_path / "cache" / VERSION
    home.mkdir(parents=True)
    (home.parent / "CACHEDIR.TAG").write_text(TAG)
    (home / "files.aa").symlink_to(tmp_path / "theirs")
    for name in ("files", "run-ab.json"):
        (home / name).symlink_to("/dev/zero")
    one = folder_of(tmp_path)
    assert (one.judged("ab"), one.get(b"a")) == (None, None)
    one.put(b"a", b"value")
    one.keep("ab", b"{}")
    assert "File exists" in one.lost[0]
    assert (tmp_path / "theirs").read_text() == "mine"


def test_no_link_beside_a_file_is_written_through_by_a_fix(
    repository: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_run, "token_hex", lambda _: "aa")
    (repository / ".train.py.aa").symlink_to(theirs / "files")
    with pytest.raises(check_run.ConfigWrong, match="cannot be written: File exists"):
        check_run._replace(repository / "train.py", b"x = 2\n")
    assert (theirs / "files").read_text() == "mine"
    assert (repository / ".train.py.aa").is_symlink()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "is a pipe"),
        (endless, "is a device"),
        (Path.mkdir, "is a folder"),
        (lambda path: path.symlink_to(path), "link that leads to itself|symbolic links"),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40), "1,099,511,627,776 bytes"),
        (lambda path: path.write_bytes(b"\xff"), "utf-8"),
        (lambda path: path.write_text(f"allranks = {'[' * 100_000}"), "not valid TOML"),
    ],
    ids=["pipe", "device", "folder", "loop of links", "1 TiB", "no text", "deep"],
)
@pytest.mark.parametrize("name", ["pyproject.toml", "baseline.json"])
def test_settings_that_are_no_file_are_an_error_at_once(
    repository: Path, capsys: pytest.CaptureFixture[str], name: str, make: Callable[[Path], None], says: str
) -> None:
    """A pipe would wait for a writer, and a device has no end."""
    make(repository / name)
    if name == "baseline.json":
        (repository / "pyproject.toml").write_text('[tool.allranks.check]\nbaseline = "baseline.json"\n')
    assert main(["check", "--no-cache", "."]) == 2
    said = capsys.readouterr().err
    assert name in said
    assert re.search(says if name == "pyproject.toml" else f"{says}|not a baseline|no baseline", said)
    assert "Traceback" not in said


def test_a_repository_that_excludes_all_its_files_says_so(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / ".gitignore").write_text("*\n")
    assert main(["check", "--no-cache", "."]) == 0
    assert "found no Python file, notebook or script here that .gitignore does not exclude" in capsys.readouterr().err


def test_a_line_of_a_log_without_an_end_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any length, in linear time and limited memory; the numbers of lines are right before and behind it."""
    monkeypatch.setattr(explain, "BLOCK", 8)
    monkeypatch.setattr(explain, "LONGEST_LINE", 8)
    lines = b"one\n\ntwo\n" + b"x" * 100 + b"\nlast"
    (tmp_path / "log").write_bytes(lines)
    with open(tmp_path / "log", "rb", buffering=0) as log:
        blocks = list(explain._blocks(log))
    assert max(len(block) for _, block in blocks) <= 16
    assert blocks[-1] == (5, b"last")
    assert b"".join(block for _, block in blocks).count(b"x") == 100
    assert all(number == 4 for number, block in blocks if b"x" in block and b"\n" not in block)


@pytest.fixture
def modules(repository: Path) -> Path:
    """The working folder, with files that are named as modules of Python and of packages, and say that they ran."""
    for name in ("struct", "runpy", "json", "ctypes", "pyarrow", "hashlib", "jaxlib", "numpy"):
        (repository / f"{name}.py").write_text("open('imported', 'w').close()\n")
    return repository


def test_modules_of_the_working_folder_are_not_imported_by_a_launcher(modules: Path, tmp_path: Path) -> None:
    """Nor by its ranks, whose script is elsewhere: as with Python."""
    (tmp_path / "train.py").write_text("import json\nprint(json.dumps({}))\n")
    command = [sys.executable, "-P", "-m", "allranks", "run", "-n", "2", str(tmp_path / "train.py")]
    done = subprocess.run(command, cwd=modules, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[0-1] {}\n"), done.stderr
    assert not (modules / "imported").exists()


@pytest.mark.needs("pyarrow")
def test_modules_of_the_working_folder_are_not_imported_to_read_footers(modules: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    program = (
        "from allranks.data.sources.detect import open_source; import sys;"
        "print(open_source('parquet', sys.argv[1], cache=sys.argv[2]).index().rows.sum())"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "a.parquet"), str(tmp_path / "cache")]
    done = subprocess.run(command, cwd=modules, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert not (modules / "imported").exists()


@pytest.mark.needs("jax")
def test_modules_of_the_working_folder_are_not_imported_to_read_flags(modules: Path) -> None:
    assert flags.read_in_child("").digest
    assert not (modules / "imported").exists()
