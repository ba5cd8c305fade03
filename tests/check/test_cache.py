"""The cache folder: what is kept comes back, what is damaged does not, and nothing of others is touched."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.check import cache
from allranks.check.cache import Folder, key_of, secret, version
from allranks.check.kept import Judged, read, written
from allranks.findings import Edit, Finding, Fix, Note, Place, Row
from allranks.report.base import RuleNote

PLACE = Place("a/b.py", 1, 2, 3, 4)
JUDGED = Judged(
    findings=(
        Finding(
            "AR101",
            "a-fault",
            "error",
            "名",
            PLACE,
            "a.b.f",
            "cluster",
            "advice",
            notes=(Note("x", PLACE), Note("y")),
            fix=Fix("mend", (Edit(PLACE, "z"),), safe=False),
        ),
        Finding("AR102", "b-fault", "info", "m", PLACE, "", "", ""),
    ),
    rows=(Row("data", "ok", (Note("seen", PLACE),)), Row("gating", "not seen")),
    files=3,
    lines=4,
    rules=(RuleNote("AR101", "a-fault", "Finds."),),
)


def folder(path: Path, made_by: str = "0" * 32, secret: bytes = b"mine") -> Folder:
    return Folder(path / "cache", made_by, secret)


def test_what_was_judged_comes_back_unchanged() -> None:
    assert read(written(JUDGED)) == JUDGED


@given(st.one_of(st.binary(), st.text('[]{}"findings:,1 ').map(str.encode)))
def test_what_is_no_judgement_is_none(raw: bytes) -> None:
    """Whatever stands in the cache: it is text, never run."""
    assert read(raw) is None


def test_a_run_and_its_files_are_kept(tmp_path: Path) -> None:
    """For this version of the check alone, in a folder that backups and git leave out."""
    first = folder(tmp_path)
    assert first.judged("k") is None
    assert first.get(b"a") is None
    first.put(b"a", b"1" * 1000)
    first.put(b"", b"")
    first.keep("k", b"text")
    again = folder(tmp_path)
    assert again.judged("k") == b"text"
    assert (again.get(b"a"), again.get(b""), again.get(b"b")) == (b"1" * 1000, b"", None)
    assert folder(tmp_path, "1" * 32).judged("k") is None
    assert (tmp_path / "cache" / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"
    assert first.lost == again.lost == []


def test_files_of_other_runs_stay(tmp_path: Path) -> None:
    """A run on a part of the project does not make the rest cold."""
    for name in (b"a", b"b"):
        one = folder(tmp_path)
        one.get(name)
        one.put(name, name)
        one.keep(name.decode(), b"")
    last = folder(tmp_path)
    assert (last.get(b"a"), last.get(b"b")) == (b"a", b"b")


@pytest.mark.parametrize("name", ["run-k.json", "files"])
@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw[:-1] + b"?", lambda _: b"", lambda raw: raw * 2]
)
def test_damage_is_reported_and_left_out(tmp_path: Path, name: str, damage) -> None:
    one = folder(tmp_path)
    one.put(b"a", b"value")
    one.keep("k", b"text")
    file = tmp_path / "cache" / ("0" * 32) / name
    file.write_bytes(damage(file.read_bytes()))
    again = folder(tmp_path)
    found = (again.judged("k"), again.get(b"a"))
    assert found == ((None, b"value") if name.startswith("run") else (b"text", None))
    assert again.lost == [f"{name} is damaged, or not of this user; left out"]


def test_a_cache_that_came_with_the_code_is_not_believed(tmp_path: Path) -> None:
    """Another user's, or a stranger's in a repository: it could hide findings."""
    one = folder(tmp_path, secret=b"theirs")
    one.put(b"a", b"value")
    one.keep("k", b"text")
    again = folder(tmp_path)
    assert (again.judged("k"), again.get(b"a")) == (None, None)
    assert len(again.lost) == 2


def test_runs_that_begin_together_have_one_secret(tmp_path: Path, monkeypatch) -> None:
    """And none of them takes a file that another is still writing for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    together = Barrier(8)

    def begin(_: int) -> bytes:
        together.wait()
        return secret()

    with ThreadPoolExecutor(8) as runs:
        assert set(runs.map(begin, range(8))) == {(tmp_path / "allranks" / "secret").read_bytes()}
    assert [path.name for path in (tmp_path / "allranks").iterdir()] == ["secret"]


def test_the_secret_is_made_once_and_is_this_users(tmp_path: Path, monkeypatch) -> None:
    """Where no home can be written there is one for each run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert secret() == secret()
    assert (tmp_path / "allranks" / "secret").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "allranks" / "secret"))
    assert secret() != secret()


def test_the_folder_does_not_grow_without_end(tmp_path: Path, monkeypatch) -> None:
    """The newest runs, the newest versions, and what is known of files as far as it fits."""
    monkeypatch.setattr(cache, "JUDGED", 3)
    monkeypatch.setattr(cache, "LARGEST", 10)
    for number in range(6):
        one = folder(tmp_path, str(number // 2) * 32)
        one.get(b"")
        one.put(str(number).encode(), b"12345")
        for run in range(4):
            one.keep(f"{number}-{run}", b"")
    homes = sorted(path.name[0] for path in (tmp_path / "cache").iterdir() if path.is_dir())
    assert homes == ["1", "2"]
    assert len(list((tmp_path / "cache" / ("2" * 32)).glob("run-*"))) == 3


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    """`cache-dir` may point anywhere by mistake."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ".gitignore").write_text("mine\n")
    one = folder(tmp_path)
    one.keep("k", b"")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".gitignore"]
    assert (tmp_path / "cache" / ".gitignore").read_text() == "mine\n"
    assert "holds other things" in one.lost[0]


def test_a_key_knows_paths_contents_and_settings() -> None:
    """Moving a byte from one file to the next makes another key."""
    keys = {
        key_of({"a": b"xy", "b": b"z"}, 1),
        key_of({"a": b"x", "b": b"yz"}, 1),
        key_of({"a": b"xy", "c": b"z"}, 1),
        key_of({"a": b"xy", "b": b"z"}, 2),
    }
    assert len(keys) == 4
    assert key_of({"b": b"z", "a": b"xy"}, 1) in keys
    assert version() == version()
