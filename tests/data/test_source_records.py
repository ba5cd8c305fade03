"""Files that other libraries write: MDS shards, chunks of litdata, TFRecord files; and damaged ones.

``written`` has files that mosaicml-streaming 0.13 and litdata 0.2 wrote.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_files import checksum, example, field, record, varint, write_array_records

from allranks import Dataset
from allranks.data.base import BadSample
from allranks.data.sources.crc32c import masked_crcs
from allranks.data.sources.detect import open_source
from allranks.data.sources.file import ByteCounter, FileBytes
from allranks.data.sources.tfrecord import parse_example
from allranks.errors import DataChanged, DataError
from allranks.storage.local import LocalStorage
from allranks.storage.memory import MemoryStorage

WRITTEN = Path(__file__).parent / "written"


def samples_of(source: Any) -> list[Any]:
    index = source.index()
    reader = source.open(index)
    return [one for block in range(len(index)) for one in reader.read(block).take(np.arange(index.rows[block]))]


def show(sample: Any) -> str:
    kinds = {name: (type(value).__name__, getattr(value, "dtype", None)) for name, value in sample.items()}
    return f"{sample} {kinds}"


def mds_sample(row: int) -> dict[str, Any]:
    return {
        "b": bytes([row]),
        "d": np.full((1, row + 1), row, np.int32),
        "f": np.float32(row / 3),
        "id": row,
        "j": {"a": [row]},
        "n": np.arange(row + 1, dtype=np.float64),
        "s": np.full((2, 2), row, np.int16),
        "sf": row / 7,
        "si": row * 10**20,
        "text": f"t{row} ä",
    }


def litdata_sample(row: int) -> dict[str, Any]:
    return {
        "id": row,
        "text": f"t{row}",
        "f": row / 2,
        "b": bytes([row]),
        "t": np.arange(row + 1),
        "m": np.ones((2, 3), np.float32),
        "n": np.arange(3, dtype=np.int16),
        "m2": np.ones((2, 2)),
        "l": [1, (2, "x")],
        "ok": True,
    }


SAMPLES = {"mds": mds_sample, "litdata": litdata_sample}


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples_are_those_that_the_library_was_given(kind: str, tmp_path: Path) -> None:
    found = samples_of(open_source(kind, WRITTEN / kind, cache=str(tmp_path)))
    assert list(map(show, found)) == [show(SAMPLES[kind](row)) for row in range(10)]


@pytest.mark.parametrize("kind", SAMPLES)
def test_they_are_read_in_batches(kind: str, tmp_path: Path) -> None:
    data = getattr(Dataset, kind)(WRITTEN / kind, cache=str(tmp_path))
    ids = [
        number
        for batch in data.map(lambda one: {"id": one["id"]}).batch(4).loader(rank=0, size=1)
        for number in batch["id"]
    ]
    assert sorted(ids) == [0, 0, *range(10)]  # two rows of padding


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN / request.param, tmp_path / "data"))


FIRST = [("mds", "mds", "shard.00000.mds"), ("litdata", "litdata", "chunk-0-0.bin")]


@pytest.mark.parametrize(("folder", "kind", "name"), FIRST, indirect=["folder"])
def test_a_file_that_is_damaged_is_named(folder: Path, kind: str, name: str) -> None:
    """Cut at every length, a count or a bound that does not fit; a sample with damaged sizes is masked."""
    path = folder / name
    good = path.read_bytes()
    for data in (
        *(good[:size] for size in range(0, len(good), 7)),
        b"\xff" * 4 + good[4:],
        good[:4] + b"\xff" * 4 + good[8:],
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            samples_of(open_source(kind, path))
    first = struct.unpack("<I", good[4:8])[0]
    path.write_bytes(good[:first] + b"\xff" * 4 + good[first + 4 :])
    found = samples_of(open_source(kind, path))
    assert isinstance(found[0], BadSample)
    assert f"{name}: record 0 cannot be decoded" in found[0].why
    assert not isinstance(found[1], BadSample)


PACKED = ["mds_zstd", "mds_gz"]


@pytest.mark.needs("zstandard")
@pytest.mark.parametrize("folder", PACKED, indirect=True)
def test_compressed_shards_of_mds_are_read(folder: Path, tmp_path: Path) -> None:
    """Each is one block."""
    source = open_source("mds", folder, cache=str(tmp_path))
    assert samples_of(source) == [{"id": row, "text": f"t{row}"} for row in range(100)]
    assert source.index().rows.tolist() == [95, 5]
    assert samples_of(source) == samples_of(open_source("mds", folder, cache=str(tmp_path)))  # from the cached index


@pytest.mark.needs("zstandard")
@pytest.mark.parametrize("folder", PACKED, indirect=True)
def test_compressed_shards_that_are_damaged_or_too_large_are_named(folder: Path, tmp_path: Path) -> None:
    (path,) = folder.glob("shard.00000.*")
    good, cache = path.read_bytes(), str(tmp_path / "cache")
    for size in range(1, len(good), 31):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match=rf"{path.name} cannot be unpacked"):
            open_source("mds", path, cache=cache).index()
    path.write_bytes(good)
    with pytest.raises(DataError, match=rf"{path.name}: the file needs .* bytes of memory or more, unpacked from"):
        open_source("mds", path, max_block_bytes=1000, cache=cache).index()
    source = open_source("mds", path, cache=cache)
    index = source.index()
    shutil.copy(next(folder.glob("shard.00001.*")), path)
    with pytest.raises(DataChanged, match="has changed"):
        source.open(index).read(0)


@pytest.mark.needs("zstandard")
@pytest.mark.parametrize("end", ["zstd", "gz"])
def test_a_small_shard_that_asks_for_much_memory_is_refused(end: str, tmp_path: Path) -> None:
    import zstandard

    zeros = b"\0" * (300 << 20)
    path = tmp_path / f"shard.00000.mds.{end}"
    path.write_bytes(gzip.compress(zeros, 1) if end == "gz" else zstandard.compress(zeros))
    with pytest.raises(DataError, match=r"needs 2[567]\d,.* bytes of memory or more, unpacked from"):
        open_source("mds", path).index()


@pytest.mark.needs("zstandard")
@pytest.mark.parametrize("folder", ["mds_zstd"], indirect=True)
def test_a_shard_that_is_there_compressed_and_not_is_refused(folder: Path) -> None:
    """mosaicml-streaming keeps both if it is asked to: each sample would be read twice."""
    shutil.copy(WRITTEN / "mds" / "shard.00000.mds", folder)
    with pytest.raises(DataError, match=r"shard\.00000\.mds and .*shard\.00000\.mds\.zstd hold the same samples"):
        open_source("mds", folder).index()
    assert open_source("mds", folder / "*.zstd").index().samples == 100


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"str_int"', b'"pkl"    ', r"pickles can run any program, and are refused\. Write the samples without it"),
        (b'"str_int"', b'"strings"', "expected a known one"),
        (b'"b", "d"', b'"b", "b"', "not different texts"),
        (b"column_names", b"column_naems", "column_names"),
        (b'{"column', b'["column', "header is damaged"),
    ],
)
@pytest.mark.parametrize("folder", ["mds"], indirect=True)
def test_a_header_of_mds_that_does_not_fit_is_named(folder: Path, old: bytes, new: bytes, says: str) -> None:
    path = folder / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(DataError, match=rf"shard\.00000\.mds.*{says}"):
        samples_of(open_source("mds", path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda found: found["config"].update(compression="zstd"), "compression is 'zstd'"),
        (lambda found: found["config"].update(compression_level="batch"), "compression_level is 'batch'"),
        (
            lambda found: found["config"].update(item_loader="TokensLoader"),
            r"item_loader is 'TokensLoader', which is not supported\. Read it with Dataset\.tokens\.$",
        ),
        (
            lambda found: found["config"]["data_format"].__setitem__(0, "pickle"),
            r"pickles can run any program, and are refused\. Write the samples without it",
        ),
        (lambda found: found["config"]["data_format"].__setitem__(0, "no_header_tensor:99"), "IndexError"),
        (lambda found: found["config"]["data_format"].pop(), "11 values and 12 places"),
        (lambda found: found["chunks"][0].update(chunk_size=5), "has 4 samples, and the index says 5"),
        (lambda found: found["config"].update(data_spec="[1, {}]"), "KeyError"),
        (lambda found: found.pop("config"), "KeyError"),
    ],
)
@pytest.mark.parametrize("folder", ["litdata"], indirect=True)
def test_an_index_of_litdata_that_does_not_fit_is_named(folder: Path, change: Any, says: str) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=rf"index\.json.*{says}"):
        samples_of(open_source("litdata", folder))


@pytest.mark.parametrize("folder", ["litdata"], indirect=True)
def test_chunks_need_their_index(folder: Path) -> None:
    (folder / "index.json").unlink()
    with pytest.raises(DataError, match=r"expected an index\.json in its folder, found chunk-0-0\.bin, chunk-0-1\.bin"):
        samples_of(open_source("litdata", folder))


def test_a_folder_that_is_not_of_litdata_is_named_with_its_files(tmp_path: Path) -> None:
    """Whatever its files begin with."""
    (tmp_path / "notes").mkdir()
    for content in (b"", b"abc", bytes(5000)):
        (tmp_path / "train.bin").write_bytes(content)
        with pytest.raises(
            DataError, match=r"train\.bin: expected an index\.json in its folder, found notes/, train\."
        ):
            open_source("litdata", tmp_path).index()


def test_a_shard_without_a_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.mds").write_bytes(b"abc")
    with pytest.raises(DataError, match=r"a\.mds \(3 bytes\).*expected the number of its records, in 4 bytes"):
        open_source("mds", tmp_path).index()


@pytest.mark.needs("pyarrow", "zstandard")
@pytest.mark.parametrize("folder", ["litdata", "litdata_arrow", "litdata_zstd", "litdata_tokens"], indirect=True)
def test_the_index_of_a_folder_is_read_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """For all chunks of a scan, and for all chunks of a reader. Another reader reads it again, so it sees a change."""
    read, names = LocalStorage.read, list[str]()
    monkeypatch.setattr(LocalStorage, "read", lambda self, path, *rest: names.append(path) or read(self, path, *rest))
    kind, options = ("tokens", {"length": 16}) if "tokens" in request.node.name else ("litdata", {})
    source = open_source(kind, folder, cache=str(tmp_path), **options)
    index = source.index()
    assert len(index.files) == 3
    assert names.count("index.json") == 2  # in the listing, and in the scan
    for _ in range(2):
        names.clear()
        reader = source.open(index)
        assert sum(len(reader.read(block).take(np.arange(1))) for block in range(len(index))) == len(index)
        assert names.count("index.json") == 1
    (folder / "index.json").write_text("{}")
    with pytest.raises(DataError, match=r"index\.json.*KeyError"):
        source.open(index).read(0)


@pytest.mark.needs("pyarrow", "zstandard")
@pytest.mark.parametrize(
    ("folder", "rows", "sample"),
    [
        ("litdata_arrow", [256, 44, 256, 44, 100], lambda row: {"id": row, "text": f"t{row} ä", "score": row / 2}),
        ("litdata_zstd", [300, 300, 100], lambda row: {"id": row, "n": np.arange(row % 5, dtype=np.int16)}),
    ],
    indirect=["folder"],
)
def test_chunks_of_litdata_in_arrow_or_compressed_are_read(
    folder: Path, rows: list[int], sample: Any, tmp_path: Path
) -> None:
    """Texts and numbers are stored as record batches by litdata 0.2.76, each of which is a block."""
    source = open_source("litdata", folder, cache=str(tmp_path))
    assert list(map(show, samples_of(source))) == [show(sample(row)) for row in range(700)]
    assert source.index().rows.tolist() == rows
    again = open_source("litdata", folder, cache=str(tmp_path))  # from the cached index
    assert list(map(show, samples_of(again))) == list(map(show, samples_of(source)))


@pytest.mark.needs("pyarrow", "zstandard")
@pytest.mark.parametrize("folder", ["litdata_arrow", "litdata_zstd"], indirect=True)
def test_such_chunks_that_are_damaged_are_named(folder: Path, tmp_path: Path) -> None:
    path = next(folder.glob("chunk-0-1.*"))
    good = path.read_bytes()
    cache = str(tmp_path / "cache")
    for data in (*(good[:size] for size in range(1, len(good), 97)), good[:-12] + b"\xff" * 4 + good[-8:]):
        path.write_bytes(data)
        with pytest.raises(DataError, match=path.name.replace(".", r"\.")):
            open_source("litdata", path, cache=cache).index()
    path.write_bytes(good)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"][1]["chunk_size"] = 301
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="has 300 samples, and the index says 301"):
        open_source("litdata", path, cache=cache).index()
    with pytest.raises(DataError, match="bytes of memory or more, unpacked from"):
        samples_of(
            open_source("litdata", path.with_name(path.name.replace("-1", "-0")), max_block_bytes=99, cache=cache)
        )


# ---- TFRecord


FEATURES = [
    {"id": [row], "image": [bytes([row]) * (700 * row)], "x": [row / 2, 1.5], "y": [-row, 1 << 62]} for row in range(6)
]


def test_checksums_are_those_of_another_library() -> None:
    """tensorboard writes b"abc" so."""
    assert record(b"abc") == b"\x03\0\0\0\0\0\0\0\xb0\x99I\x0eabcnW\xf1!"


@settings(max_examples=25)
@given(st.lists(st.binary(max_size=600), max_size=4))
def test_checksums_of_many_records(records: list[bytes]) -> None:
    bounds = np.cumsum([0, *map(len, records)])
    found = masked_crcs(b"".join(records), bounds)
    assert found.astype("<u4").tobytes() == b"".join(map(checksum, records))


def test_tfrecords_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"".join(record(example(one)) for one in FEATURES))
    found = samples_of(open_source("tfrecord", tmp_path))
    for one, features in zip(found, FEATURES, strict=True):
        assert list(one) == ["id", "image", "x", "y"]
        assert one["id"].tolist() == features["id"]
        assert one["image"] == features["image"]
        assert (one["x"].dtype, one["x"].tolist()) == (np.float32, features["x"])
        assert (one["y"].dtype, one["y"].tolist()) == (np.int64, features["y"])
    raw = samples_of(open_source("tfrecord", tmp_path, examples=False))
    assert [one["record"] for one in raw] == list(map(example, FEATURES))


def test_numbers_that_are_not_packed() -> None:
    """Each in a field of its own, as other writers do."""
    ints, floats = b"".join(b"\x08" + varint(one) for one in (5, 300)), b"\x0d" + struct.pack("<f", 2.5)
    entries = field(1, field(1, b"i") + field(2, field(3, ints))) + field(
        1, field(1, b"f") + field(2, field(2, floats))
    )
    found = parse_example(field(1, entries))
    assert found["i"].tolist() == [5, 300]
    assert found["f"].tolist() == [2.5]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_a_value_error(data: bytes) -> None:
    for some in (data, example(FEATURES[1])[:30] + data):
        try:
            parse_example(some)
        except ValueError:
            continue


@pytest.mark.parametrize("at", [0, 9, 12, 14, -1])
def test_a_tfrecord_with_a_changed_byte_is_named(at: int, tmp_path: Path) -> None:
    """In a length, its checksum, the record, and the record's checksum."""
    path = tmp_path / "a.tfrecord"
    data = bytearray(b"".join(record(example(one)) for one in FEATURES))
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"a\.tfrecord.*(another checksum|would end at byte)"):
        samples_of(open_source("tfrecord", path))


def test_a_tfrecord_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    good = record(b"one") + record(b"two")
    for size in range(1, len(good)):
        path.write_bytes(good[:size])
        if size != len(record(b"one")):
            with pytest.raises(DataError, match=r"a\.tfrecord .* is not a complete TFRecord file: at byte"):
                open_source("tfrecord", path, examples=False, cache=str(tmp_path / "c")).index()


def test_a_record_that_is_no_example_is_masked(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(record(example(FEATURES[0])) + record(b"\xff\xff"))
    found = samples_of(open_source("tfrecord", tmp_path))
    assert isinstance(found[1], BadSample)
    assert "a.tfrecord, bytes 0 to" in found[1].why


def test_a_tfrecord_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(record(b"one") * 3)
    source = open_source("tfrecord", path, examples=False)
    index = source.index()
    path.write_bytes(record(b"one") * 2)
    with pytest.raises(DataChanged, match=r"a\.tfrecord has changed"):
        source.open(index).read(0)


# ---- ArrayRecord


@pytest.mark.needs("array_record")
@pytest.mark.parametrize("options", ["group_size:1", "group_size:7,brotli:6", "group_size:100,uncompressed"])
def test_array_records_are_read(options: str, tmp_path: Path) -> None:
    """Blocks have complete groups of records. A file without a record, and one without a byte, have no sample."""
    noise = np.random.default_rng(0)
    records = [noise.bytes(size) for size in noise.integers(0, 9000, 500).tolist()]
    write_array_records(tmp_path / "a.array_record", records, options)
    write_array_records(tmp_path / "b.array_record", [], options)
    (tmp_path / "c.array_record").touch()
    source = open_source("array_record", tmp_path)
    assert [one["record"] for one in samples_of(source)] == records
    group = int(options.partition(":")[2].partition(",")[0])
    assert len(source.index()) > 2
    assert (source.index().begin % group == 0).all()
    assert samples_of(open_source("array_record", tmp_path)) == samples_of(source)  # from the cached index


@pytest.mark.needs("array_record")
def test_examples_in_array_records(tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    write_array_records(path, [*map(example, FEATURES), b"\xff"])
    found = samples_of(open_source("array_record", path, examples=True))
    assert [one["id"].tolist() for one in found[:-1]] == [one["id"] for one in FEATURES]
    assert "a.array_record: record 6 cannot be decoded" in found[-1].why
    ids = [row for batch in Dataset.array_record(path).batch(4).loader(rank=0, size=1) for row in batch.ids[batch.mask]]
    assert sorted(ids) == list(range(7))


@pytest.mark.needs("array_record")
def test_an_array_record_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    """Cut off anywhere, also at the end of a block of 64 KiB, where its reader finds no record."""
    path, cache = tmp_path / "a.array_record", str(tmp_path / "c")
    write_array_records(path, [np.random.default_rng(0).bytes(3000) for _ in range(100)])
    good = path.read_bytes()
    for size in (1, 1000, 1 << 16, 3 << 16, len(good) - (1 << 16), len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match=r"a\.array_record .* is not a complete ArrayRecord file"):
            open_source("array_record", path, cache=cache).index()
    path.write_bytes(good)
    source = open_source("array_record", path, cache=cache)
    index = source.index()
    at = len(good) // 2  # not one of the places that the stamp is made of
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(DataError, match=r"a\.array_record: records 0 to 100 cannot be read: "):
        source.open(index).read(0)
    path.write_bytes(b"x" + good[1:])
    with pytest.raises(DataChanged, match=r"a\.array_record has changed"):
        source.open(index).read(0)


@pytest.mark.needs("array_record")
def test_array_records_need_their_package_and_a_local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="can be read from a local disk only"):
        array_record_format().scan_file(FileBytes(MemoryStorage(), "a.array_record", 3, ByteCounter()))
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    monkeypatch.delitem(sys.modules, "allranks.data.sources.array_record")
    with pytest.raises(DataError, match=r"array_record needs array_record\S*, which is not installed"):
        open_source("array_record", "x")


def array_record_format() -> Any:
    return open_source("array_record", "x").format
