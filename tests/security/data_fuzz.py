"""Change bytes of data files at random, from seeds, and read them with every reader.

As a program: ``python data_fuzz.py FIRST COUNT FOLDER`` tries the seeds from FIRST on, and prints JSON: how many inputs
were read, how many were refused, what else was raised, and the peak of memory in MB. It writes the seed before each try
into FOLDER/seed. The parent so knows which input has ended or stopped the program.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from allranks.data.base import BadSample
from allranks.data.batch import BatchCollator
from allranks.data.index import DatasetIndex
from allranks.data.pack import RowCarry
from allranks.data.plan import EpochPlan, choose_layout
from allranks.data.snapshot import ResumePosition
from allranks.data.sources import parquet as parquet_source
from allranks.data.sources.crc32c import masked_crcs
from allranks.data.sources.detect import open_source
from allranks.data.sources.footers import FooterReaders
from allranks.digest import digest, show
from allranks.errors import AllranksError

PATIENCE_S = 20
SAMPLES = 40


def lines(*, blank: bool = True) -> bytes:
    documents = ({"id": row, "text": "ä" * row, "more": [row / 2, {"a": None}]} for row in range(SAMPLES))
    return b"".join(
        json.dumps(one).encode() + (b"\n\n" if blank and not row % 9 else b"\n") for row, one in enumerate(documents)
    )


def framed(pack: Callable[[bytes], bytes]) -> bytes:
    data = lines()
    return b"".join(pack(data[at : at + 700]) for at in range(0, len(data), 700))


def table(*, nested: bool = True) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array(range(SAMPLES), pa.int64()),
        "text": [f"text {row} ä" for row in range(SAMPLES)],
        "same": ["one"] * SAMPLES,
        "maybe": [None if row % 3 else f"{row}" for row in range(SAMPLES)],
        "big": pa.array([(1 << 63) - 1 - row for row in range(SAMPLES)], pa.uint64()),
        "when": pa.array(range(SAMPLES), pa.timestamp("us")),
    }
    if nested:
        columns["list"] = pa.array([[row] * 2 for row in range(SAMPLES)], pa.list_(pa.int32()))
        columns["fixed"] = pa.array([[row, row] for row in range(SAMPLES)], pa.list_(pa.float32(), 2))
        columns["struct"] = pa.array([{"a": row, "b": [str(row)]} for row in range(SAMPLES)])
    return pa.table(columns)


def parquet(**how: Any) -> bytes:
    into = io.BytesIO()
    pq.write_table(table(), into, row_group_size=11, **how)
    return into.getvalue()


def arrow(make: Any, compression: str | None = None) -> bytes:
    into = io.BytesIO()
    with make(into, table().schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table(), max_chunksize=11)
    return into.getvalue()


def tar(form: int) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=form) as file:
        file.addfile(tarfile.TarInfo("folder/"))
        for row in range(12):
            long = "n" * (120 if form else 60) if row % 4 == 1 else ""
            for extension, content in (("json", b'{"a": [1, 2]}'), ("txt", "ä".encode()), ("cls", b"7")):
                info = tarfile.TarInfo(f"folder/{long}{row:03}é.{extension}")
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    return into.getvalue()


def npy() -> bytes:
    into = io.BytesIO()
    np.save(into, np.arange(700, dtype=np.int32) % 300)
    return into.getvalue()


def llm_c() -> bytes:
    return np.array([20240520, 1, 700, *[0] * 253], "<i4").tobytes() + (np.arange(700) % 300).astype("<u2").tobytes()


def tfrecord() -> bytes:
    """Ten examples, with one feature of an integer each."""
    found = b""
    for row in range(10):
        feature = bytes([0x1A, 3, 0x0A, 1, row])
        entry = bytes([0x0A, 1, 97, 0x12, len(feature)]) + feature
        data = bytes([0x0A, len(entry) + 2, 0x0A, len(entry)]) + entry
        size = struct.pack("<Q", len(data))
        crcs = masked_crcs(size + data, np.array([0, 8, 8 + len(data)])).astype("<u4").tobytes()
        found += size + crcs[:4] + data + crcs[4:]
    return found


def megatron_index() -> bytes:
    """Of 30 documents, of which BESIDE has the tokens."""
    sizes, bounds = np.full(30, 20, "<i4"), np.arange(31, dtype="<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 30, 31)
    return head + sizes.tobytes() + (bounds[:-1] * 40).tobytes() + bounds.tobytes()


# Of a file that is read together with another: the name and the content of that.
WRITTEN = Path(__file__).parents[1] / "data" / "written"
BESIDE = {
    "a.idx": ("a.bin", np.arange(600, dtype="<u2").tobytes()),
    "index.json": ("chunk-0-0.bin", (WRITTEN / "litdata" / "chunk-0-0.bin").read_bytes()),
}
# The source, its options, the name of the file, and its content.
Corpus = tuple[str, dict[str, Any], str, bytes]


def corpora() -> list[Corpus]:
    small = {"block_bytes": 300}
    found: list[Corpus] = [
        ("jsonl", small, "a.jsonl", lines()),
        ("jsonl", small, "a.jsonl.gz", framed(gzip.compress)),
        ("jsonl", {}, "b.jsonl.gz", gzip.compress(lines())),
        ("jsonl", small, "a.jsonl.zst", framed(zstandard.ZstdCompressor(write_checksum=True).compress)),
        ("jsonl", {}, "b.jsonl.zst", zstandard.compress(lines())),
        ("text", small, "a.txt", "\ufeffone\r\ntwo ä\n\n".encode() * 30),
        ("text", small, "a.txt.zst", framed(zstandard.compress)),
        *(("webdataset", {"decode": form != tarfile.GNU_FORMAT}, "a.tar", tar(form)) for form in range(3)),
        ("arrow", {}, "a.arrow", arrow(pa.ipc.new_file)),
        ("arrow", {}, "a.arrow", arrow(pa.ipc.new_stream)),
        ("arrow", {"columns": ["id", "list"]}, "a.arrow", arrow(pa.ipc.new_stream, "zstd")),
        ("parquet", {}, "a.parquet", parquet(compression="snappy")),
        ("parquet", {"on_corrupt": "mask"}, "a.parquet", parquet(compression="zstd", write_page_index=True)),
        ("parquet", {}, "a.parquet", parquet(compression="none", write_page_checksum=True)),
        ("parquet", {"columns": ["text", "struct"]}, "a.parquet", parquet(use_dictionary=False, version="1.0")),
        (
            "parquet",
            {},
            "a.parquet",
            parquet(data_page_version="2.0", column_encoding={"id": "DELTA_BINARY_PACKED"}, use_dictionary=["text"]),
        ),
        ("folder", {"labels": True}, "a/b.bin", b"\0" * 99),
        ("tokens", {"length": 16, "stride": 5, "targets": True}, "a.npy", npy()),
        ("tokens", {"length": 16, "vocab_size": 300}, "a.bin", llm_c()),
        ("tokens", {"eos_id": 3, "block_bytes": 99}, "a.bin", llm_c()),
        ("tokens", {"block_bytes": 99}, "a.idx", megatron_index()),
        ("mds", {}, "a.mds", (WRITTEN / "mds" / "shard.00000.mds").read_bytes()),
        ("litdata", {}, "index.json", (WRITTEN / "litdata" / "index.json").read_bytes()),
        ("tfrecord", {}, "a.tfrecord", tfrecord()),
    ]
    return found


EDGES = [0, 1, 0x7F, 0x80, 0xFF, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


def changed(data: bytes, dice: random.Random) -> bytes:
    """Return the bytes after one to four changes: bits, bytes, numbers of 4 and 8 bytes, cuts, copies, digits."""
    found = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        at = dice.randrange(len(found)) if found else 0
        kind = dice.randrange(8)
        if kind == 0 and found:
            found[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and found:
            found[at] = dice.randrange(256)
        elif kind == 2:
            width = dice.choice([1, 2, 4, 8])
            found[at : at + width] = (dice.choice(EDGES) & (1 << 8 * width) - 1).to_bytes(
                width, dice.choice(["little", "big"])
            )
        elif kind == 3:
            del found[at : at + dice.choice([1, 2, 16, 512, len(found)])]
        elif kind == 4:
            found[at:at] = found[(begin := dice.randrange(len(found) + 1)) : begin + dice.choice([1, 16, 512])]
        elif kind == 5:
            found[at:at] = bytes([dice.randrange(256)]) * dice.choice([1, 16, 4096])
        elif kind == 6:
            found[at : at + 8] = dice.choice([b"-1", b"77777777", b"1e999", b"{", b"[" * 3000, b"\n", b"\r", b"\0" * 8])
        elif kind == 7:
            end = len(found) - 8 - dice.randrange(min(2000, len(found)) + 1)  # where footers are
            at = max(0, end)
            found[at : at + 1] = bytes([dice.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])])
    return bytes(found)


def with_checksums(data: bytes) -> bytes:
    """Return a tar in which every header has a right checksum again, so that what is behind it is read, too."""
    found = bytearray(data)
    for at in range(0, len(found) - 511, 512):
        if found[at + 257 : at + 262] == b"ustar":
            found[at + 148 : at + 156] = b" " * 8
            found[at + 148 : at + 156] = b"%06o\0 " % sum(found[at : at + 512])
    return bytes(found)


def write_file(name: str, data: bytes, folder: Path) -> Path:
    """Write a file, and what is beside it; return the path that a source gets."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    if name not in BESIDE:
        return path
    (folder / BESIDE[name][0]).write_bytes(BESIDE[name][1])
    os.utime(folder / BESIDE[name][0], (1, 1))
    return folder / BESIDE[name][0]


def read_file(corpus: Corpus, data: bytes, folder: Path) -> None:
    """Index a file, read all its samples, and make columns of them."""
    kind, options, name, _ = corpus
    path = write_file(name, data, folder)
    source = open_source(
        kind,
        folder if kind == "folder" else path,
        **options,
        **({} if kind == "folder" else {"cache": str(folder / "cache")}),
    )
    read_source(source)


def read_source(source: Any) -> None:
    index = DatasetIndex.decode(source.index().encode())
    reader = source.open(index)
    for block in range(len(index)):
        rows = reader.read(block)
        many = int(index.rows[block])
        if hasattr(rows, "positions_of"):
            rows.positions_of(np.arange(many))
        samples = rows.take(np.arange(index.skip[block], index.skip[block] + many))
        assert len(samples) == many
        if not all(isinstance(sample, BadSample) for sample in samples):
            BatchCollator(lambda: None).make_columns(samples, np.arange(many))


def read_cache(corpus: Corpus, dice: random.Random, folder: Path) -> None:
    """Read a file of which the index comes from a cache that was changed, and sealed again."""
    kind, options, name, data = corpus
    path = write_file(name, data, folder)
    os.utime(path, (1, 1))
    source = open_source(kind, path, **options, cache=str(folder / "cache"))
    source.index()
    (cached,) = (folder / "cache").iterdir()
    body = changed(cached.read_bytes().partition(b"\n")[2], dice)
    cached.write_bytes(show(digest(body)).encode() + b"\n" + body)
    read_source(source)


def load_state(dice: random.Random) -> None:
    """Resume from a state of a loader that was changed."""
    index = DatasetIndex.from_blocks("n", [], [])
    layout = choose_layout(index, global_batch=8, seed=0, shuffle=True)
    facts = EpochPlan(index, layout, 0).facts()
    of = dict(facts)
    state: Any = {"epoch": 0, "depth": 2, "plan": of.pop("plan"), "of": of, "seen": [16, "ab12", 0]}
    state["carry"] = [[0, [1, 2, [[0, 1]], 0]]]
    for _ in range(dice.choice([1, 2, 3])):
        value = dice.choice(
            [None, -1, 1 << 70, 1.5, float("nan"), float("inf"), "x", [], {}, [[]], [[0, None]], True, b"x"]
        )
        at = dice.choice([*state, "part"])
        inside = state.get(at)
        if isinstance(inside, list) and inside and dice.random() < 0.6:
            inside[dice.randrange(len(inside))] = value
        else:
            state[at] = value
    resume = ResumePosition.from_state(state, facts, layout, rank=0)
    for carry in resume.carry.values():
        RowCarry.from_json(carry)


def attempt(seed: int, found: list[Corpus], folder: Path) -> None:
    dice = random.Random(seed)
    kind = dice.random()
    corpus = dice.choice(found)
    if kind < 0.05:
        load_state(dice)
    elif kind < 0.15 and corpus[0] != "folder":
        read_cache(corpus, dice, folder)
    else:
        data = changed(corpus[3], dice)
        read_file(corpus, with_checksums(data) if corpus[0] == "webdataset" and dice.random() < 0.7 else data, folder)


def attempts(first: int, count: int, folder: Path) -> dict[str, Any]:
    """Try seeds, and return the counts; ``raised`` has what was neither a result nor an error of ours, by seed."""
    found, place = corpora(), folder / "files"
    outcome: dict[str, Any] = {"read": 0, "refused": 0, "raised": {}}
    with shared_readers():
        for seed in range(first, first + count):
            (folder / "seed").write_text(str(seed))
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
            try:
                attempt(seed, found, place)
                outcome["read"] += 1
            except AllranksError:
                outcome["refused"] += 1
            except BaseException:
                outcome["raised"][seed] = traceback.format_exc()[-3000:]
    faulthandler.cancel_dump_traceback_later()
    return {**outcome, "MB": peak_mb()}


def peak_mb() -> int:
    """Return the peak of this process' memory in MB; ru_maxrss would count that of the process that started it."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10


@contextmanager
def shared_readers() -> Iterator[None]:
    """Let all Parquet sources use the same children: a new one for every source would take most of the time."""
    with FooterReaders() as readers, mock.patch.object(parquet_source, "FooterReaders") as made:
        made.side_effect = lambda: nullcontext(readers)
        yield


def fuzz(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Try seeds in child processes; yield what each child reports. A child that ends early is followed by another."""
    end = first + count
    while first < end:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, str(first), str(end - first), folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=None, check=False)
            if done.returncode == 0:
                yield json.loads(done.stdout.splitlines()[-1])
                return
            seed = int((Path(folder) / "seed").read_text())
            how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
            yield {"read": 0, "refused": seed - first, "raised": {str(seed): f"{how}\n{done.stderr[-3000:]}"}, "MB": 0}
            first = seed + 1


if __name__ == "__main__":
    print(json.dumps(attempts(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
