"""docs/format.md is true: its example is sound, and its reader loads what the format says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import deserialize

from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.manifest_decode import decode_manifest
from allranks.checkpoint.manifest_encode import encode_manifest
from allranks.digest import hasher_by_name
from allranks.extent import Extent

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
NONCE = "ab12cd34" * 4
ARRAYS = {
    "w": np.arange(32, dtype=np.float32).reshape(8, 4),
    "step": np.array(1200, np.int64),
    "mask": np.array([True, False, True]),
}
# Which rows of which leaf stand in the file of which rank, by falling item size.
PLACED = {0: {"step": slice(None), "w": slice(0, 4), "mask": slice(None)}, 1: {"w": slice(4, 8)}}


def block(language: str) -> str:
    """The only block of this language on the page."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def shard_file(rank: int) -> bytes:
    """A file as the page says, made by hand."""
    tensors: dict[str, Any] = {"__metadata__": {"allranks": json.dumps({"step": 1200, "nonce": NONCE, "rank": rank})}}
    data = b""
    for path, rows in PLACED[rank].items():
        array = ARRAYS[path] if rows == slice(None) else ARRAYS[path][rows]
        name = path if rows == slice(None) else f"{path}[{rows.start}:{rows.stop},0:4]"
        dtype = {"float32": "F32", "int64": "I64", "bool": "BOOL"}[array.dtype.name]
        ends = [len(data), len(data) + array.nbytes]
        tensors[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": ends}
        data += array.tobytes()
    header = json.dumps(tensors, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 4096)
    return len(header).to_bytes(8, "little") + header + data


def checkpoint() -> tuple[Manifest, dict[str, bytes]]:
    """The page's example, and the files that it names."""
    digest = hasher_by_name("xxh3-128")
    content = {f"rank-0000{rank}-of-00002.ab12cd34.safetensors": shard_file(rank) for rank in PLACED}
    files = [
        StoredFile(name, len(data), (4096, len(data)), (digest(data[:4096]), digest(data[4096:])))
        for name, data in content.items()
    ]
    # In the first file w stands behind the step's 8 bytes.
    rows = ShardRun(Shard(0, 4104, Extent((0, 0), (4, 4))), 2, 1, -8, (4, 0))
    leaves = {
        "w": StoredLeaf((8, 4), "float32", "", (rows,)),
        "step": StoredLeaf((), "int64", "", (ShardRun(Shard(0, 4096, Extent((), ()))),)),
        "mask": StoredLeaf((3,), "bool", "", (ShardRun(Shard(0, 4168, Extent((0,), (3,)))),)),
    }
    made = Manifest(
        step=1200,
        nonce=NONCE,
        created="2025-11-03T12:00:00Z",
        world_size=2,
        integrity="xxh3-128",
        files=tuple(files),
        leaves=leaves,
        values={"optimizer": "adam", "clip": None},
        extra={"data": {"epoch": 3}},
        metrics={"loss": 0.25},
        versions={"allranks": "0.1.0"},
    )
    return made, content


def test_the_example_is_what_allranks_writes() -> None:
    """To the byte, and it is sound."""
    manifest, _ = checkpoint()
    assert block("json") == encode_manifest(manifest).decode()
    assert decode_manifest(block("json").encode(), path="docs/format.md") == manifest


def test_the_files_open_in_safetensors() -> None:
    """Which knows nothing of us."""
    tensors = {name: bytes(found["data"]) for name, found in deserialize(shard_file(0))}
    assert tensors["w[0:4,0:4]"] == ARRAYS["w"][:4].tobytes()
    assert tensors["mask"] == ARRAYS["mask"].tobytes()


def test_the_reader_of_the_page_loads_a_checkpoint(tmp_path: Path) -> None:
    """Arrays and values; a flipped bit in a file or in the manifest stops it."""
    manifest, content = checkpoint()
    for name, data in {**content, "manifest.json": encode_manifest(manifest)}.items():
        (tmp_path / name).write_bytes(data)
    reader: dict[str, Any] = {}
    exec(compile(block("python"), "docs/format.md", "exec"), reader)  # what a stranger would copy
    found = reader["load"](tmp_path)
    assert found.keys() == {*ARRAYS, "optimizer", "clip"}
    for path, array in ARRAYS.items():
        np.testing.assert_array_equal(found[path], array, strict=True)
    assert (found["optimizer"], found["clip"]) == ("adam", None)
    for name in (*content, "manifest.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-3] + bytes([whole[-3] ^ 4]) + whole[-2:])
        with pytest.raises((AssertionError, ValueError)):
            reader["load"](tmp_path)
        (tmp_path / name).write_bytes(whole)
