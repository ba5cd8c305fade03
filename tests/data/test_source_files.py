"""Files: how they are named, found, indexed in parts, kept in the cache; and what is said when they change."""

from __future__ import annotations

import logging
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import add

from allranks.data.base import BadSample, Source
from allranks.data.index import DatasetIndex
from allranks.data.sources import parts
from allranks.data.sources.files import FileSource
from allranks.data.sources.folder import folder
from allranks.data.sources.patterns import expand_braces, parse_pattern
from allranks.data.sources.sequence import sequence
from allranks.data.sources.text import text
from allranks.data.sources.webdataset import webdataset
from allranks.errors import DataChanged, DataError


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def names(index: DatasetIndex) -> list[str]:
    return [file.name for file in index.files]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, a_txt="1", b_txt="2", x__c_txt="3", x__y__d_txt="4", x__y__e="5", z__a_txt="6")
    write(tmp_path, **{".hidden_txt": "no", "_SUCCESS_txt": "no", ".git__a_txt": "no"})
    for path in tmp_path.rglob("*.txt"):
        os.utime(path, (1, 1))
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["a.txt", "b.txt", "x/c.txt", "x/y/d.txt", "z/a.txt"]),
        ("*.txt", ["_SUCCESS.txt", "a.txt", "b.txt"]),
        ("a.txt", ["a.txt"]),
        ("x", ["c.txt", "y/d.txt"]),
        ("x/", ["c.txt", "y/d.txt"]),
        ("**/*.txt", ["_SUCCESS.txt", "a.txt", "b.txt", "x/c.txt", "x/y/d.txt", "z/a.txt"]),
        ("**/a.txt", ["a.txt", "z/a.txt"]),
        ("x/**", ["c.txt", "y/d.txt", "y/e"]),
        ("?/*.txt", ["x/c.txt", "z/a.txt"]),
        ("[xz]/**/[a-d].txt", ["x/c.txt", "x/y/d.txt", "z/a.txt"]),
        ("{a,b,x/c}.txt", ["a.txt", "b.txt", "x/c.txt"]),
    ],
)
def test_patterns_find_files(tree: Path, pattern: str, expected: list[str]) -> None:
    """Below the deepest folder without wild signs, by name; hidden ones only where they are meant."""
    assert names(text(f"{tree}/{pattern}").index()) == expected
    assert names(text(f"file://{tree}/{pattern}").index()) == expected


def test_a_list_of_patterns_is_one_source(tree: Path) -> None:
    """Below the folder that they share; a file that two of them name is there once."""
    source = text([tree / "x" / "y", f"{tree}/x/*.txt", f"{tree}/x/c.txt"])
    assert source.place.root == f"{tree}/x"
    assert names(source.index()) == ["c.txt", "y/d.txt"]


def test_ranges_in_braces_are_counted_out() -> None:
    assert list(expand_braces("s-{08..11}-{a,b}.tar")) == [
        f"s-{n}-{c}.tar" for n in ("08", "09", "10", "11") for c in "ab"
    ]


def test_a_path_from_here_is_found_from_elsewhere(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    source = text("x/*.txt")
    monkeypatch.chdir("/")
    assert names(source.index()) == ["c.txt"]
    assert source.where == "x/*.txt"


def test_no_file_says_what_is_there(tree: Path) -> None:
    with pytest.raises(
        DataError, match=rf"no file matches {tree}/\*.json; in {tree} there is _SUCC.*a.txt, b.txt, x/, z/"
    ):
        text(f"{tree}/*.json").index()
    with pytest.raises(DataError, match="nothing, or no such folder"):
        text(f"{tree}/none/*.json").index()
    (tree / "empty").mkdir()
    with pytest.raises(DataError, match=r"with names that end in .txt or .txt.gz"):
        text(tree / "empty").index()


def test_patterns_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="empty"):
        parse_pattern([])
    with pytest.raises(DataError, match="name 2: /, s3://bucket/"):
        parse_pattern(["/data/a", "s3://bucket/a"])
    with pytest.raises(DataError, match="found http://"):
        parse_pattern("http://host/a")


def test_the_place_of_a_bucket() -> None:
    """A name without a dot is a folder."""
    assert parse_pattern("s3://bucket/data/train").root == "s3://bucket/data/train"
    assert parse_pattern("s3://bucket/data/a.txt").root == "s3://bucket/data"
    assert parse_pattern("gs://bucket/*.txt").root == "gs://bucket/"
    assert parse_pattern(["s3://b/x/1.txt", "s3://b/x/y/2.txt"]).patterns == (("1.txt",), ("y", "2.txt"))


class Watched:
    """Which files are scanned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from allranks.data.sources import line_file

        self.scanned: list[str] = []
        scan = line_file.scan_lines

        def watched(file: Any, **options: Any) -> Any:
            self.scanned.append(file.name)
            return scan(file, **options)

        monkeypatch.setattr(line_file, "scan_lines", watched)

    def of(self, source: FileSource) -> tuple[list[str], DatasetIndex]:
        self.scanned.clear()
        index = source.index()
        return sorted(self.scanned), index


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr("allranks.data.sources.listing.YOUNG_S", 0.0)
    return Watched(monkeypatch)


def test_a_file_that_has_just_been_written_is_indexed_again(
    tree: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change may come within a tick of the file system's clock."""
    monkeypatch.undo()
    watched = Watched(monkeypatch)
    write(tree, x__c_txt="new")
    source = text(tree / "x")
    source.index()
    assert watched.of(source)[0] == ["c.txt"]


def test_only_what_is_new_or_changed_is_indexed(tree: Path, watched: Watched) -> None:
    """Beside the data; the index is what it would be without a cache."""
    source = text(tree / "x")
    assert watched.of(source)[0] == ["c.txt", "y/d.txt"]
    assert watched.of(source)[0] == []
    assert len(list((tree / "x" / ".allranks-index").iterdir())) == 1
    write(tree, x__c_txt="changed", x__new_txt="new\nnew")
    scanned, index = watched.of(source)
    assert scanned == ["c.txt", "new.txt"]
    (tree / "x" / "new.txt").unlink()
    scanned, index = watched.of(source)
    assert scanned == []
    assert names(index) == ["c.txt", "y/d.txt"]
    fresh = text(tree / "x", cache=str(tree / "elsewhere"))
    assert watched.of(fresh)[0] == ["c.txt", "y/d.txt"]
    assert fresh.index().digest == index.digest
    assert watched.of(fresh)[0] == []
    assert watched.of(text(tree / "x", block_bytes=7))[0] == ["c.txt", "y/d.txt"]


def test_a_touched_file_is_indexed_again_and_is_the_same(tree: Path, watched: Watched) -> None:
    """The index depends on the content, not on its time: a copy on another host is as good."""
    source = text(tree / "x")
    before = source.index()
    os.utime(tree / "x" / "c.txt", (2, 2))
    scanned, after = watched.of(source)
    assert scanned == ["c.txt"]
    assert after.digest == before.digest


@pytest.mark.parametrize("damage", [b"", b"no index", b"cut", b"flip"])
def test_a_damaged_cache_is_built_anew(
    tree: Path, watched: Watched, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning."""
    source = text(tree / "x")
    before = source.index()
    (path,) = (tree / "x" / ".allranks-index").iterdir()
    whole = path.read_bytes()
    path.write_bytes({b"cut": whole[:-7], b"flip": whole[:-9] + b"\xff" + whole[-8:]}.get(damage, damage))
    with caplog.at_level(logging.WARNING):
        scanned, after = watched.of(source)
    assert scanned == ["c.txt", "y/d.txt"]
    assert after.digest == before.digest
    assert f"{path}: the index is damaged" in caplog.text
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_uses_the_users_cache(
    tree: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Root may write anywhere, so a file stands where the cache's folder would be."""
    users = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(users))
    (tree / "x" / ".allranks-index").write_text("in the way")
    source = text(tree / "x")
    assert len(watched.of(source)[0]) == 2
    assert len(list((users / "allranks" / "index").iterdir())) == 1
    assert watched.of(source)[0] == []


def test_where_nothing_can_be_kept_that_is_said(tree: Path, watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    source = text(tree / "x", cache=str(tree / "a.txt" / "cache"))
    with caplog.at_level(logging.WARNING):
        assert len(watched.of(source)[0]) == 2
    assert len(watched.of(source)[0]) == 2
    assert "the index is not kept: cannot write" in caplog.text


def test_an_index_may_be_made_in_parts(tree: Path) -> None:
    """Some files each, merged: the same index as that of all at once."""
    source = text(f"{tree}/**/*.txt")
    found = source.list_files()
    indexes = [source.scan_files(found[at::2]) for at in (1, 0)]
    whole = parts.merge_indexes("text", [DatasetIndex.decode(index.encode()) for index in indexes])
    source.store_index(whole, found)
    assert whole.digest == text(f"{tree}/**/*.txt", cache=f"{tree}/other").index().digest
    assert source.cached_index(found).digest == whole.digest
    with pytest.raises(DataError, match="is in two parts"):
        parts.merge_indexes("text", [whole, whole])
    with pytest.raises(DataError, match="an index of text files cannot be joined with an index of jsonl files"):
        parts.merge_indexes("jsonl", [whole])


def all_of(source: Source, index: DatasetIndex) -> list[Any]:
    reader = source.open(index)
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: path.write_text("longer than it was"), r"expected 4 bytes, found 18 bytes"),
        (lambda path: path.write_text("Same"), r"expected the digest [0-9a-f]{16} in bytes 0 to 4, found"),
        (lambda path: path.unlink(), r"expected 4 bytes, found no such file"),
    ],
)
def test_a_file_that_changes_is_named(tmp_path: Path, change: Callable[[Path], Any], says: str) -> None:
    """Before a sample of it is given."""
    write(tmp_path, a_txt="same")
    source = text(tmp_path)
    index = source.index()
    change(tmp_path / "a.txt")
    with pytest.raises(DataChanged, match=rf"{tmp_path}/a.txt has changed since it was indexed: {says}") as error:
        all_of(source, index)
    assert error.value.path == f"{tmp_path}/a.txt"


def test_a_file_that_is_cut_off_while_it_is_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, a_txt="one\n" * 1000)
    source = text(tmp_path, block_bytes=100)
    index = source.index()
    reader = source.open(index)
    reader.read(0)
    os.truncate(tmp_path / "a.txt", 1000)
    with pytest.raises(DataChanged, match=r"expected bytes 3,900 to 4,000, found a shorter file"):
        reader.read(len(index) - 1)


def test_files_of_a_folder_that_change_are_named(tmp_path: Path) -> None:
    write(tmp_path, a__x_txt="one", a__y_txt="two")
    source = folder(tmp_path)
    index = source.index()
    (tmp_path / "a" / "x.txt").write_text("three")
    (tmp_path / "a" / "y.txt").unlink()
    for block, found in enumerate(["5 bytes", "no such file"]):
        with pytest.raises(DataChanged, match=f"expected 3 bytes, found {found}"):
            source.open(index).read(block)


def test_labels_need_folders(tree: Path) -> None:
    source = folder(tree, labels=True)
    with pytest.raises(DataError, match=r"a.txt is not in the folder of a class, so the file has no label"):
        source.open(source.index())


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_names_of_members_may_be_long(tmp_path: Path, form: int) -> None:
    """In every format of tar; folders and what has no dot are passed over; large members are jumped over."""
    long = "/".join(["folder" * 5] * 4) + "/" + "n" * 60
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        about = tarfile.TarInfo("folder")
        about.type = tarfile.DIRTYPE
        tar.addfile(about)
        for number in range(4):
            add(tar, f"{long}{number}.big.bin", bytes([number]) * (700_000 * (number % 2)))
            add(tar, f"{long}{number}.cls", b"%d" % number)
        add(tar, "README", b"no sample")
        add(tar, "ü.txt", "Größe".encode())
    source = webdataset(tmp_path / "a.tar")
    index = source.index()
    assert len(index) == 2
    found = all_of(source, index)
    assert [one["cls"] for one in found[:4]] == [b"0", b"1", b"2", b"3"]
    assert found[3]["big.bin"] == b"\3" * 700_000
    assert found[3]["__key__"] == f"{long}3"
    assert found[4] == {"__key__": "ü", "txt": "Größe".encode()}


def test_a_member_that_cannot_be_decoded_is_bad(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "1.json", b"{")
        add(tar, "2.cls", b"7\n")
    bad, good = all_of(webdataset(tmp_path, decode=True), webdataset(tmp_path).index())
    assert isinstance(bad, BadSample)
    assert "1.json cannot be decoded" in bad.why
    assert good == {"__key__": "2", "cls": 7}


@pytest.mark.parametrize(("keep", "says"), [(700, "would end behind"), (1500, "would end behind"), (-1, "no header")])
def test_a_tar_that_is_damaged_is_named(tmp_path: Path, keep: int, says: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "1.bin", b"1" * 1000)
        add(tar, "2.bin", b"2" * 1000)
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(data[:keep] if keep > 0 else data[:1536] + b"rubbish!" * 64 + data[2048:])
    with pytest.raises(DataError, match=rf"a.tar is not a complete tar: at byte [\d,]+, .*{says}"):
        webdataset(tmp_path).index()


def test_rows_of_an_object_that_raise() -> None:
    """As an error that names the row, or as a Bad row."""

    class Rows:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> int:
            return [10, 0, 30][row] // (row != 1)

    index = sequence(Rows()).index()
    with pytest.raises(DataError, match=r"row 1 of .*Rows: ZeroDivisionError") as error:
        all_of(sequence(Rows()), index)
    assert error.value.sample == 1
    first, bad, last = all_of(sequence(Rows(), on_corrupt="mask"), index)
    assert (first, last) == (10, 30)
    assert isinstance(bad, BadSample)
    with pytest.raises(DataChanged, match=r"Rows:3 here, builtins.list:2 in the index"):
        sequence(Rows()).open(sequence([1, 2]).index())
    with pytest.raises(DataError, match="found generator"):
        sequence(iter_of := (row for row in [1]))
    iter_of.close()


def test_a_long_sequence_has_a_million_blocks_at_most() -> None:
    index = sequence(range(3_000_001)).index()
    assert len(index) <= 1 << 20
    assert index.samples == 3_000_001
    assert sequence(range(3_000_001)).open(index).read(len(index) - 1).take(np.array([0])) == [3_000_000]


def test_thousands_of_files(tmp_path: Path) -> None:
    """Are listed and found unchanged in seconds."""
    for number in range(4000):
        (tmp_path / f"{number:05}.txt").write_text(f"{number}\n")
    source = text(tmp_path)
    index = source.index()
    assert index.samples == 4000
    started = time.monotonic()
    assert source.index().digest == index.digest
    assert time.monotonic() - started < 20
    assert all_of(source, index)[::1000] == ["0", "1000", "2000", "3000"]
