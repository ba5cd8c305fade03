"""Small corpora of every kind: files on disk (uneven, one of them empty), the source of them, and its samples."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from allranks.data.base import Source
from allranks.data.sources.detect import open_source

SIZES = (37, 0, 5, 1, 211)
Corpus = tuple[Source, list[Any]]


def documents(number: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": number * 1000 + row, "text": f"document {row} of {number} → " + "ä" * (row % 50)} for row in range(count)
    ]


def many(count: int = 0) -> list[list[dict[str, Any]]]:
    return [documents(number, size + count) for number, size in enumerate(SIZES)]


def flat(files: list[list[Any]]) -> list[Any]:
    return [sample for file in files for sample in file]


def json_bytes(samples: list[Any]) -> bytes:
    return b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)


def framed(data: bytes, pack: Callable[[bytes], bytes], size: int) -> bytes:
    """The data as frames of ``size`` bytes each, which do not end where lines do."""
    return b"".join(pack(data[at : at + size]) for at in range(0, len(data), size))


def jsonl(folder: Path) -> Corpus:
    for number, samples in enumerate(many()):
        (folder / f"{number}.jsonl").write_bytes(json_bytes(samples))
    return open_source("jsonl", folder / "*.jsonl", block_bytes=500), flat(many())


def jsonl_gz(folder: Path) -> Corpus:
    for number, samples in enumerate(many()):
        (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(json_bytes(samples)))
    return open_source("jsonl", folder, block_bytes=500), flat(many())


def jsonl_zst_frames(folder: Path) -> Corpus:
    import zstandard

    for number, samples in enumerate(many()):
        data = framed(json_bytes(samples), zstandard.compress, 700)
        (folder / f"{number}.jsonl.zst").write_bytes(data)
    return open_source("jsonl", folder, block_bytes=1000), flat(many())


def text(folder: Path) -> Corpus:
    lines = [["", "one", "", "two → three"], [], ["x" * 1000, ""], ["without an end"]]
    for number, file in enumerate(lines):
        (folder / f"{number}.txt").write_bytes("".join(f"{line}\r\n" for line in file).encode())
    (folder / "3.txt").write_bytes(b"without an end")
    return open_source("text", folder, block_bytes=10), flat(lines)


def text_gz_frames(folder: Path) -> Corpus:
    lines = [f"line {number}" * (number % 7) for number in range(500)]
    data = framed("\n".join(lines).encode(), gzip.compress, 99)
    (folder / "all.txt.gz").write_bytes(data + b"\0" * 512)
    return open_source("text", folder / "all.txt.gz", block_bytes=400), lines


def parquet(folder: Path) -> Corpus:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, samples in enumerate(many()):
        schema = pa.schema({"id": pa.int64(), "text": pa.string()})
        pq.write_table(pa.Table.from_pylist(samples, schema), folder / f"{number}.parquet", row_group_size=16)
    return open_source("parquet", folder), flat(many())


def arrow(folder: Path) -> Corpus:
    import pyarrow as pa

    for number, samples in enumerate(many()):
        schema = pa.schema({"id": pa.int64(), "text": pa.string()})
        table = pa.Table.from_pylist(samples, schema)
        write = pa.ipc.new_file if number % 2 else pa.ipc.new_stream
        with write(folder / f"{number}.arrow", schema) as file:
            file.write_table(table, max_chunksize=16)
    return open_source("arrow", folder), flat(many())


def webdataset(folder: Path) -> Corpus:
    for number, samples in enumerate(many()):
        with tarfile.open(folder / f"shard-{number:03}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for sample in samples:
                add(tar, f"{sample['id']:07}.json", json.dumps(sample).encode())
                add(tar, f"{sample['id']:07}.cls", b"%d" % (sample["id"] % 10))
    expected = [{"__key__": f"{one['id']:07}", "json": one, "cls": one["id"] % 10} for one in flat(many())]
    return open_source("webdataset", f"{folder}/shard-{{000..004}}.tar", decode=True), expected


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def folder(folder: Path) -> Corpus:
    expected = []
    for name, label in (("cat/1.jpg", 0), ("cat/2.jpg", 0), ("dog/a/1.jpg", 1), ("dog/z.jpg", 1)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 3)
        expected.append({"path": name, "bytes": name.encode() * 3, "label": label})
    return open_source("folder", folder, labels=True), expected


def sequence(_: Path) -> Corpus:
    return open_source("sequence", list(range(100, 177))), list(range(100, 177))


def sequence_numpy(_: Path) -> Corpus:
    rows = np.arange(40).reshape(20, 2)
    return open_source("sequence", rows), list(rows)


def huggingface(_: Path) -> Corpus:
    import datasets

    data = datasets.Dataset.from_list(flat(many())).select(list(range(100, 10, -1)))
    return open_source("huggingface", data), flat(many())[100:10:-1]


def token_file(tokens: Any, header: tuple[int, int] | None = None) -> bytes:
    """The bytes of a flat file of tokens, with a header as llm.c writes it: its magic number and version."""
    words = np.zeros(256, "<i4")
    words[:3] = (*(header or (0, 0)), len(tokens))
    return (words.tobytes() if header else b"") + tokens.tobytes()


def megatron_index(documents: list[Any], code: int = 8) -> bytes:
    """The .idx of these documents, each of one sequence."""
    sizes = np.array([len(one) for one in documents], "<i4")
    width = documents[0].dtype.itemsize
    places = (np.cumsum(sizes) - sizes).astype("<i8") * width
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1)
    return head + sizes.tobytes() + places.tobytes() + np.arange(len(sizes) + 1, dtype="<i8").tobytes()


def token_arrays() -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.integers(1, 500, size).astype("<u2") for size in (700, 0, 5, 64, 1500)]


def tokens(folder: Path) -> Corpus:
    expected = []
    for number, found in enumerate(token_arrays()):
        (folder / f"{number}.bin").write_bytes(token_file(found, (20240520, 1) if number in (0, 3) else None))
        for at in range(0, len(found) - 20, 15):
            window = found[at : at + 21].astype(np.int64)
            expected.append({"tokens": window[:-1], "targets": window[1:]})
    return open_source("tokens", folder, length=20, stride=15, targets=True, block_bytes=200), expected


def documents_of(found: Any, eos_id: int) -> list[Any]:
    return [one for one in np.split(found, np.flatnonzero(found == eos_id) + 1) if len(one)]


def tokens_documents(folder: Path) -> Corpus:
    expected = []
    for number, found in enumerate(token_arrays()):
        some = found % 40
        np.save(folder / f"{number}.npy", some)
        expected += [{"tokens": one.astype(np.int32)} for one in documents_of(some, 7)]
    return open_source("tokens", folder, eos_id=7, as_dtype="int32", block_bytes=300), expected


def tokens_megatron(folder: Path) -> Corpus:
    expected = []
    for number, found in enumerate(token_arrays()):
        documents = documents_of(found % 40, 7) or [found]
        (folder / f"{number}.bin").write_bytes(b"".join(one.tobytes() for one in documents))
        (folder / f"{number}.idx").write_bytes(megatron_index(documents))
        expected += [{"tokens": one.astype(np.int64)} for one in documents if len(found)]
    return open_source("tokens", folder / "*.bin", block_bytes=300), expected


KINDS: dict[str, Callable[[Path], Corpus]] = {
    "jsonl": jsonl,
    "jsonl.gz": jsonl_gz,
    "jsonl.zst, many frames": jsonl_zst_frames,
    "text": text,
    "text.gz, many frames": text_gz_frames,
    "parquet": parquet,
    "arrow": arrow,
    "webdataset": webdataset,
    "folder": folder,
    "sequence": sequence,
    "sequence of numpy": sequence_numpy,
    "huggingface": huggingface,
    "tokens": tokens,
    "tokens, documents": tokens_documents,
    "tokens, Megatron": tokens_megatron,
}
NEEDS = {
    "jsonl": ("orjson",),
    "jsonl.gz": ("orjson",),
    "jsonl.zst, many frames": ("orjson", "zstandard"),
    "parquet": ("pyarrow",),
    "arrow": ("pyarrow",),
    "huggingface": ("datasets", "pyarrow"),
}
