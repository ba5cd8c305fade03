"""MDS shards, chunks of litdata and files of tokens whose headers, indexes or samples lie."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("xxhash")

from allranks import Dataset
from allranks.data.base import BadSample
from allranks.data.sources import records
from allranks.data.sources.detect import open_source
from allranks.errors import DataError

LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def table_of(header: bytes, rows: Sequence[bytes]) -> bytes:
    ends = np.cumsum([8 + 4 * len(rows) + len(header), *map(len, rows)])
    return struct.pack(f"<{len(rows) + 2}I", len(rows), *ends.tolist()) + header + b"".join(rows)


def values(*parts: bytes) -> bytes:
    return struct.pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)


def mds(path: Path, columns: Sequence[tuple[str, str, int | None]], rows: Sequence[bytes]) -> Path:
    names, encodings, sizes = zip(*columns, strict=True) if columns else ((), (), ())
    header = {"column_names": names, "column_encodings": encodings, "column_sizes": sizes}
    (path / "s.mds").write_bytes(table_of(json.dumps(header).encode(), rows))
    return path / "s.mds"


def litdata(path: Path, formats: Sequence[str], spec: Any, rows: Sequence[bytes], **config: Any) -> Path:
    (path / "chunk-0-0.bin").write_bytes(table_of(b"", rows))
    config |= {"data_format": formats, "data_spec": json.dumps([1, spec])}
    chunks = [{"filename": "chunk-0-0.bin", "chunk_size": len(rows)}]
    (path / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    return path / "chunk-0-0.bin"


def dict_of(*keys: Any) -> dict[str, Any]:
    return {"type": "builtins.dict", "context": json.dumps(keys), "children_spec": [LEAF for _ in keys]}


def samples_of(source: Any) -> list[Any]:
    index = source.index()
    reader = source.open(index)
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


@pytest.mark.needs("pyarrow")
def test_a_sample_whose_bytes_are_an_arrow_file_is_a_sample(tmp_path: Path) -> None:
    """It would be read in place of its chunk: as many rows as the chunk has samples, of whoever wrote the sample."""
    import pyarrow as pa

    rows, sink = pa.table({"a": [666, 777]}), io.BytesIO()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    last = sink.getvalue() + struct.pack("<I", len(sink.getvalue())) + b"LDARW01\0"
    chunk = litdata(tmp_path, ["bytes"], dict_of("a"), [values(b"one"), values(last)])
    assert samples_of(open_source("litdata", str(chunk))) == [{"a": b"one"}, {"a": last}]


@pytest.mark.parametrize(
    ("formats", "spec", "says"),
    [
        (["int", "int"], dict_of("a", "a"), "a key twice"),
        (["int", "int"], dict_of(1, True), "a key twice"),
        (["int", "int"], dict_of(float("nan"), float("nan")), "a key twice"),
        (["no_header_tensor:-1"], dict_of("a"), "number of a dtype"),
        (["no_header_numpy:-7"], dict_of("a"), "number of a dtype"),
        (["no_header_numpy"], dict_of("a"), "number of a dtype"),
        ([], dict_of(), "no values"),
        (["int"], {**dict_of("a"), "x": "x" * 1_000_000}, "1,000,000 characters"),
    ],
)
def test_an_index_of_litdata_that_cannot_be_is_named(tmp_path: Path, formats: list[str], spec: Any, says: str) -> None:
    """A key that occurs twice would remove a value, and a negative number would be a dtype from the end of the list."""
    chunk = litdata(tmp_path, formats, spec, [values(*[bytes(8) for _ in formats])] * 2)
    with pytest.raises(DataError, match=rf"index\.json .*{says}"):
        open_source("litdata", str(chunk)).index()


@pytest.mark.parametrize(
    ("columns", "says"), [([], "no columns"), ([("a", "bytes", 0)], "size 0"), ([("a", "int8", -1)], "size -1")]
)
def test_a_header_of_mds_whose_samples_have_no_bytes_is_named(
    tmp_path: Path, columns: list[tuple[str, str, int | None]], says: str
) -> None:
    """Four bytes of its table would be a sample of any number of columns."""
    with pytest.raises(DataError, match=says):
        open_source("mds", str(mds(tmp_path, columns, [b"", b""]))).index()


def test_a_record_of_mds_that_is_too_short_is_a_bad_sample(tmp_path: Path) -> None:
    columns = [("a", "bytes", None), ("b", "bytes", None)]
    good, short, empty = samples_of(
        open_source("mds", str(mds(tmp_path, columns, [values(b"x", b"y"), bytes(4), b""])))
    )
    assert good == {"a": b"x", "b": b"y"}
    assert isinstance(short, BadSample)
    assert "would end at byte 8 of 4" in str(short)
    assert isinstance(empty, BadSample)


def test_records_without_bytes_are_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of a block are in memory at once."""
    monkeypatch.setattr(records, "MOST_RECORDS", 10)
    index = open_source("mds", str(mds(tmp_path, [("a", "int8", 1)], [b""] * 25))).index()
    assert index.rows.tolist() == [10, 10, 5]


@pytest.mark.needs("zstandard")
def test_a_compressed_shard_of_many_records_is_refused(tmp_path: Path) -> None:
    import zstandard

    shard = mds(tmp_path, [("a", "int8", 1)], [b""] * 1000)
    packed = tmp_path / "p" / "s.mds.zstd"
    packed.parent.mkdir()
    packed.write_bytes(zstandard.compress(shard.read_bytes()))
    with pytest.raises(DataError, match="1,000 records needs 256,000 bytes"):
        open_source("mds", str(packed), max_block_bytes=100_000).index()
    assert open_source("mds", str(packed), max_block_bytes=300_000).index().rows.tolist() == [1000]


@pytest.mark.parametrize("documents", [[1, 2], [0, 1], [0, 2, 1]])
def test_documents_of_megatron_that_leave_out_tokens_are_named(tmp_path: Path, documents: list[int]) -> None:
    """They would never be read."""
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, len(documents))
    arrays = (np.array([3, 4], "<i4"), np.array([0, 6], "<i8"), np.array(documents, "<i8"))
    (tmp_path / "a.idx").write_bytes(head + b"".join(array.tobytes() for array in arrays))
    (tmp_path / "a.bin").write_bytes(bytes(14))
    with pytest.raises(DataError, match=r"a\.idx .* its documents are of sequences"):
        Dataset.tokens(str(tmp_path / "a.bin")).batch(2).loader(rank=0, size=1)


@pytest.mark.parametrize(
    ("version", "header"), [(b"\x01\x00", b"-" * 9000 + b"1"), (b"\x09\x00", b"{'descr':'<u2','shape':(8,)}\n")]
)
def test_a_header_of_numpy_that_cannot_be_is_named(tmp_path: Path, version: bytes, header: bytes) -> None:
    """Python's parser raises MemoryError without a text for the first one."""
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY" + version + size + header + bytes(16))
    with pytest.raises(DataError, match="no header of NumPy"):
        open_source("tokens", str(tmp_path / "a.npy"), length=4).index()
