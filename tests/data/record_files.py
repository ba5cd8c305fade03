"""Write small files as other libraries do: MDS shards, chunks of litdata, TFRecord and ArrayRecord files."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Of samples {"id": number, "text": text}.
_MDS = {"column_names": ["id", "text"], "column_encodings": ["int", "str"], "column_sizes": [8, None]}
_LEAF = {"type": None, "context": None, "children_spec": []}
_SPEC = [1, {"type": "builtins.dict", "context": '["id", "text"]', "children_spec": [_LEAF, _LEAF]}]
_LITDATA = {"compression": None, "data_format": ["int", "str"], "data_spec": json.dumps(_SPEC)}


def with_table(records: Sequence[bytes], header: bytes = b"") -> bytes:
    """A file that begins with the number of its records and their bounds."""
    bounds = 4 + 4 * (len(records) + 1) + len(header) + np.cumsum([0, *map(len, records)])
    return struct.pack("<I", len(records)) + bounds.astype("<u4").tobytes() + header + b"".join(records)


def write_mds(path: Path, ids: Sequence[int]) -> None:
    texts = [f"t{number}".encode() for number in ids]
    records = [struct.pack("<Iq", len(text), number) + text for number, text in zip(ids, texts, strict=True)]
    path.write_bytes(with_table(records, json.dumps({"version": 2, "format": "mds", **_MDS}, sort_keys=True).encode()))


def write_litdata(folder: Path, chunks: Sequence[Sequence[int]]) -> None:
    index: list[dict[str, Any]] = []
    for number, ids in enumerate(chunks):
        texts = [f"t{one}".encode() for one in ids]
        records = [struct.pack("<IIq", 8, len(text), one) + text for one, text in zip(ids, texts, strict=True)]
        data = with_table(records)
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        index.append({"filename": name, "chunk_size": len(ids), "chunk_bytes": len(data)})
    (folder / "index.json").write_text(json.dumps({"chunks": index, "config": _LITDATA}))


def write_tfrecord(path: Path, ids: Sequence[int]) -> None:
    path.write_bytes(b"".join(record(example({"id": [number], "text": [f"t{number}".encode()]})) for number in ids))


def write_array_records(path: Path, records: Sequence[bytes], options: str = "group_size:1") -> None:
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), options)
    for one in records:
        writer.write(one)
    writer.close()


def varint(number: int) -> bytes:
    number, found = number & (1 << 64) - 1, b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def example(features: dict[str, Any]) -> bytes:
    """A tf.train.Example, as TensorFlow writes it: numbers packed, or not."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            feature = field(1, b"".join(field(1, value) for value in values))
        elif isinstance(values[0], float):
            feature = field(2, field(1, np.array(values, "<f4").tobytes()))
        else:
            feature = field(3, field(1, b"".join(map(varint, values))))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def checksum(data: bytes) -> bytes:
    """The plain way, bit by bit."""
    register = 0xFFFFFFFF
    for letter in data:
        register ^= letter
        for _ in range(8):
            register = register >> 1 ^ 0x82F63B78 * (register & 1)
    register ^= 0xFFFFFFFF
    return struct.pack("<I", ((register >> 15 | register << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    return size + checksum(size) + data + checksum(data)
