"""Lines: the one pass against the plain way; lines that cannot be used."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from allranks.data.base import BadSample, Source
from allranks.data.index import DatasetIndex
from allranks.data.sources.lines import divide_into_blocks, line_spans
from allranks.data.sources.text import text
from allranks.errors import DataError

CONTENT = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bcd", b"\n\n", b"x" * 20])).map(b"".join)


def lines_of(data: bytes, *, blanks: bool) -> list[bytes]:
    """The plain way."""
    lines = data.split(b"\n")
    ends = [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]
    return ends if blanks else [line for line in ends if line]


@given(data=CONTENT, size=st.integers(1, 40), cuts=st.lists(st.integers(0, 200)), blanks=st.booleans())
def test_blocks_hold_all_lines(data: bytes, size: int, cuts: list[int], blanks: bool) -> None:
    """However the bytes come in chunks: whole lines, each once, of at least the size, with their number and check."""
    bounds = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    found = list(
        divide_into_blocks(
            [bytearray(data[a:b]) for a, b in pairwise(bounds)], min_block_bytes=size, counts_blank_lines=blanks
        )
    )
    assert found == list(divide_into_blocks([data], min_block_bytes=size, counts_blank_lines=blanks))
    assert b"".join(data[block.begin : block.end] for block in found) == data
    for block in found:
        inside = data[block.begin : block.end]
        expected = lines_of(inside, blanks=blanks)
        begins, ends = line_spans(inside, counts_blank_lines=blanks)
        assert [inside[a:b] for a, b in zip(begins, ends, strict=True)] == expected
        assert block.rows == len(expected)
        assert block.check == xxhash.xxh3_64_intdigest(inside)
        assert inside.endswith(b"\n") or block.end == len(data)
        assert inside.find(b"\n", 0, len(inside) - 1) < size or len(inside) >= size
        assert b"\n" not in inside[size - 1 : -1]


@given(data=CONTENT, size=st.integers(1, 60), frame=st.integers(1, 50), blanks=st.just(True))
def test_frames_hold_all_lines(data: bytes, size: int, frame: int, blanks: bool) -> None:
    """Of a compressed file, whose frames end anywhere: every line once, in order."""
    with TemporaryDirectory() as folder:
        packed = b"".join(gzip.compress(data[at : at + frame]) for at in range(0, len(data), frame))
        Path(folder, "a.txt.gz").write_bytes(packed)
        source = text(f"{folder}/a.txt.gz", block_bytes=size)
        assert [line.encode() for line in samples(source, source.index())] == lines_of(data, blanks=blanks)


def samples(source: Source, index: DatasetIndex) -> list[object]:
    reader = source.open(index)
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


def test_frames_are_read_about_once(tmp_path: Path) -> None:
    """A block's last line is in the next frame, of which little is read."""
    lines = [f"{number} {number**9} {number**11}" for number in range(100_000)]
    data = "\n".join(lines).encode()
    packed = b"".join(gzip.compress(data[at : at + 65_280]) for at in range(0, len(data), 65_280))
    (tmp_path / "a.txt.gz").write_bytes(packed)
    source = text(tmp_path)
    index = source.index()
    assert len(index) > 10
    reader = source.open(index)
    assert [
        one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))
    ] == lines
    assert reader.bytes_read < 1.5 * len(packed)


def test_a_huge_line_is_a_block(tmp_path: Path) -> None:
    """Larger than what is read at a time."""
    huge = "x" * (9 << 20)
    (tmp_path / "a.txt").write_text(f"small\n{huge}\nend")
    source = text(tmp_path / "a.txt")
    assert samples(source, source.index()) == ["small", huge, "end"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    source = text(tmp_path / "a.txt")
    assert samples(source, source.index()) == ["one", "two"]


def test_what_is_no_utf8_is_bad(tmp_path: Path) -> None:
    """The lines around it stay what they are."""
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\xfe\nthree\n")
    source = text(tmp_path / "a.txt")
    one, bad, three = samples(source, source.index())
    assert (one, three) == ("one", "three")
    assert isinstance(bad, BadSample)
    assert "a.txt: line 2 of the block at byte 0 is no UTF-8" in bad.why


@pytest.mark.needs("orjson")
def test_what_is_no_json_is_bad(tmp_path: Path) -> None:
    """Empty lines are no samples; a line that is cut off is one, and says where it is."""
    from allranks.data.sources.jsonl import jsonl

    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n\n\r\n{"a": \n[2]\r\n')
    source = jsonl(tmp_path / "a.jsonl")
    index = source.index()
    first, bad, last = samples(source, index)
    assert (first, last) == ({"a": 1}, [2])
    assert isinstance(bad, BadSample)
    assert f"{tmp_path}/a.jsonl: line 2 of the block at byte 0 is no JSON" in bad.why


def test_an_archive_that_is_cut_off_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(bytes(range(256)) * 99)
    (tmp_path / "a.txt.gz").write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"a.txt.gz cannot be unpacked \(gzip\).*ends inside a frame") as error:
        text(tmp_path).index()
    assert error.value.path == f"{tmp_path}/a.txt.gz"


def test_an_archive_that_is_damaged_is_named(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"line\n" * 9999))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "a.txt.gz").write_bytes(whole)
    with pytest.raises(DataError, match="cannot be unpacked"):
        text(tmp_path).index()
