"""Files that lie, and files that attack: refused, in words, before anything is touched, run or allocated."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save_file

import allranks
from allranks.errors import AllranksError, Damaged, Unsafe
from allranks.world.detect import single_world


def load(path: Path, into: Any, **known: Any) -> Any:
    return allranks.load(path, into, world=single_world(), **known)


class Bomb:
    """Whoever unpickles this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def archive(path: Path, records: dict[str, bytes], **known: Any) -> None:
    with zipfile.ZipFile(path, "w", **known) as file:
        for name, data in records.items():
            file.writestr(name, data)


def records_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {entry.filename: file.read(entry) for entry in file.infolist()}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path) -> None:
    """In a file of torch, in the metadata of DCP, in a value of DCP; torch's own DCP reader runs the second."""
    mark = tmp_path / "mark"
    torch.save({"w": torch.ones(2), "bomb": Bomb(mark)}, tmp_path / "a.pt")
    into = {"w": torch.zeros(2)}
    report = load(tmp_path / "a.pt", into)
    assert into["w"].tolist() == [1, 1]
    assert "nothing of it was executed: bomb (" in str(report)

    dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    metadata = pickle.loads((tmp_path / "dcp" / ".metadata").read_bytes())
    metadata.planner_data["x"] = Bomb(mark)
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(metadata))
    assert load(tmp_path / "dcp", {"w": torch.zeros(2)}).coverage == 1.0
    assert not mark.exists()

    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(Unsafe):
        load(tmp_path / "a.pkl", into)
    assert not mark.exists()


def tensor_pickle(storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """What torch writes for {"w": a tensor}, with any numbers in it."""
    out = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return storage if value is Ellipsis else None

    class Tensor:
        def __reduce__(self) -> Any:
            return (torch._utils._rebuild_tensor_v2, (Ellipsis, offset, shape, stride, False, {}))

    Pickler(out, 2).dump({"w": Tensor()})
    return out.getvalue()


KEPT = ("storage", torch.FloatStorage, "0", "cpu", 4)


@pytest.mark.parametrize(
    ("pkl", "data", "says"),
    [
        (tensor_pickle(KEPT, 0, (5,), (1,)), bytes(16), "exceeds its record"),
        (tensor_pickle(KEPT, 3, (2,), (1,)), bytes(16), "exceeds its record"),
        (tensor_pickle(KEPT, 0, (1 << 40, 1 << 40), (0, 0)), bytes(16), "strides"),
        (tensor_pickle(KEPT, 0, (1 << 62,), (1,)), bytes(16), "exceeds its record"),
        (tensor_pickle(KEPT, -1, (2,), (1,)), bytes(16), "offset, shape and strides"),
        (tensor_pickle(KEPT, 0, (2,), (-1,)), bytes(16), "offset, shape and strides"),
        (tensor_pickle(KEPT, 0, (4,), (1,)), bytes(8), "is missing, or has less than"),
        (tensor_pickle((*KEPT[:4], 1 << 50), 0, (4,), (1,)), bytes(16), "is missing, or has less than"),
        (tensor_pickle(("storage", os.system, "0", "cpu", 4), 0, (4,), (1,)), bytes(16), "unknown type"),
        (tensor_pickle("id", 0, (4,), (1,)), bytes(16), "is not a storage"),
        (b"\x80\x02]q\x00h\x00a.", b"", "nested too deeply"),
        (b"\x80\x02" + b"]" * 100_000 + b".", b"", "the file has no array"),
        (
            b"\x80\x02(" + b"]q\x00" + b"".join(b"](" + b"h\x00" * 9 + b"eq\x00" for _ in range(9)) + b"t.",
            b"",
            "too many leaves|has no array",
        ),
        (b"\x80\x02X\xff\xff\xff\x7fabc", b"", "byte 2: it ends in an argument of 2,147,483,647 bytes"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", b"", "the file has no array"),
        (b"", b"", "byte 0: it ends without STOP"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(N}X\1\0\0\0aK\x01stb.", b"", "changes a function that it names"),
    ],
)
def test_lies_in_a_file_of_torch(pkl: bytes, data: bytes, says: str, tmp_path: Path) -> None:
    """Tensors beyond their records, storages that are none, pickles without end."""
    archive(tmp_path / "a.pt", {"a/data.pkl": pkl, "a/data/0": data})
    with pytest.raises(AllranksError, match=says):
        load(tmp_path / "a.pt", {"w": torch.zeros(4)})


def compressed(path: Path) -> None:
    archive(path, {"a/data.pkl": bytes(1 << 20), "a/data/0": bytes(1 << 22)}, compression=zipfile.ZIP_DEFLATED)


def absolute(path: Path) -> None:
    archive(path, {"/etc/passwd": b"x", "a/data.pkl": b""})


def above(path: Path) -> None:
    archive(path, {"a/../../data.pkl": b"x"})


def overlapping(path: Path) -> None:
    """The directory at the end says of the second record that it begins within the first."""
    torch.save({"w": torch.ones(64), "v": torch.ones(64)}, path)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        one, other = (file.getinfo(f"a/data/{n}") for n in (0, 1))
    entries = [i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"]
    at = next(i for i in entries if data[i + 46 : i + 46 + len(other.orig_filename)] == other.orig_filename.encode())
    struct.pack_into("<L", data, at + 42, one.header_offset)
    path.write_bytes(data)


def truncated(path: Path) -> None:
    torch.save({"w": torch.ones(64)}, path)
    path.write_bytes(path.read_bytes()[:-30])


def script(path: Path) -> None:
    archive(path, {"a/constants.pkl": b"x", "a/code/x.py": b"x"})


def big_endian(path: Path) -> None:
    torch.save({"w": torch.ones(4)}, path)
    records = records_of(path)
    archive(path, {**records, "a/byteorder": b"big"})


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (compressed, "has a compressed record"),
        (absolute, r"has a record named '/etc/passwd'"),
        (above, "has a record named 'a/../../data.pkl'"),
        (overlapping, "names 'a/data/1', but|over the record"),
        (truncated, "no zip archive"),
        (script, "no data.pkl: it is a TorchScript program"),
        (big_endian, "byte order is not little-endian"),
    ],
)
def test_tricks_with_zip(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """Bombs, other places, records over each other: torch writes none of these."""
    make(tmp_path / "a.pt")
    with pytest.raises((Unsafe, Damaged), match=says):
        load(tmp_path / "a.pt", {"w": torch.zeros(4)})


def tensors(header: Any, data: bytes = bytes(16), *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int = 0, end: int = 16, shape: Any = (4,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (tensors({"w": entry()}, length=1 << 40), r"header would have|no format"),
        (tensors({"w": entry()}, length=99_999_999), "the header would be bytes"),
        (tensors({"w": entry(0, 32, (8,))}), "leaf 'w' would be bytes 70-102 of a.safetensors, which has 86"),
        (tensors({"w": entry(0, 12)}), r"is float32\[4\], which does not fit its bytes 0-12"),
        (tensors({"w": entry(4, 20)}), "begins at byte 4"),
        (
            tensors({"w": entry(0, 16), "v": entry(0, 16)}),
            "begins at byte 0 of the data: expected 16",
        ),
        (tensors({"w": entry()}, bytes(20)), "its tensors end at byte"),
        (tensors({"w": entry(-16, 0)}), "bytes -16-0"),
        (tensors({"w": entry(shape=(-2, -2))}), "a dimension that is not an integer from 0"),
        (tensors({"w": entry(shape=(1 << 62, 1 << 62))}), "expected less than 2\\*\\*63 elements"),
        (tensors({"w": entry(dtype="F4")}), "has the dtype 'F4', which allranks does not know"),
        (tensors({"w": 3}), "has the entry 3"),
        (tensors(b'{"w": {}, "w": {}}'), "a name occurs twice"),
        (tensors(b"{" + b'"a":[' * 50_000), "not a JSON object"),
        (tensors(b"{\xff}"), "not a JSON object"),
        (tensors({"__metadata__": 5, "\x1b[2Jw": entry()}), r"\\x1b\[2Jw: float32"),
    ],
)
def test_lies_in_a_safetensors_file(content: bytes, says: str, tmp_path: Path) -> None:
    """Headers that are huge, or none; offsets with holes, over each other, beyond the end."""
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(AllranksError, match=says):
        load(tmp_path / "a.safetensors", {"w": np.zeros(4, np.float32), "v": np.zeros(4, np.float32)})


def test_an_index_that_leads_elsewhere(tmp_path: Path) -> None:
    """``weight_map`` names files beside it, and the tensors that are in them."""
    save_file({"w": np.ones(4, np.float32)}, tmp_path / "m.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    for where, says in (
        ("../secret", "expected a file in its folder"),
        ("/etc/passwd", "expected a file in its folder"),
        ("x.safetensors", "does not exist"),
    ):
        index.write_text(json.dumps({"weight_map": {"w": where}}))
        with pytest.raises(AllranksError, match=says):
            load(tmp_path, {"w": np.zeros(4, np.float32)})
    index.write_text(json.dumps({"weight_map": {"w": "m.safetensors", "v": "m.safetensors"}}))
    with pytest.raises(Damaged, match="names 1 tensors that no file holds, first 'v'"):
        load(tmp_path, {"w": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xdf\xff\xff\xff\xff", "would have"),
        (b"\x81\xa1w\xdd\xff\xff\xff\xff", "would have"),
        (b"\x81\xa1w" + b"\x91" * 300 + b"\xc0", "nested too deeply"),
        (b"\x81\xa1w\xc6\xff\xff\xff\xff", "would have"),
        (b"\x82\xa1w\xc0\xa1w\xc0", "repeated key 'w'"),
        (
            msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb(((4,), "float32", bytes(12))))}),
            "has 12 bytes: expected 16",
        ),
        (
            msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb(((-4,), "float32", b"")))}),
            "a dimension that is not an integer",
        ),
        (msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb(((4,), "object", bytes(32))))}), "the dtype 'object'"),
        (msgpack.packb({"w": msgpack.ExtType(1, b"\x93\xc6\xff\xff\xff\x7f")}), "would have"),
        (msgpack.packb({"w": 1}) + b"\0", "its content ends"),
    ],
)
def test_lies_in_a_msgpack_file(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.msgpack").write_bytes(content)
    with pytest.raises(Damaged, match=says):
        load(tmp_path / "a.msgpack", {"w": np.zeros(4, np.float32)})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lies_in_the_metadata_of_dcp(tmp_path: Path) -> None:
    """A file outside of the folder, a shard that is not there, a shard of another shape, shards that leave a hole."""
    dcp.save({"w": torch.ones(4, 2), "v": torch.ones(3)}, checkpoint_id=tmp_path, no_dist=True)
    good = (tmp_path / ".metadata").read_bytes()
    into = {"w": torch.zeros(4, 2), "v": torch.zeros(3)}

    def lie(change: Callable[[Any, Any], None]) -> None:
        metadata = pickle.loads(good)
        change(metadata, next(info for index, info in metadata.storage_data.items() if index.fqn == "w"))
        (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))

    def elsewhere(_: Any, info: Any) -> None:
        info.relative_path = "../x"

    def beyond(_: Any, info: Any) -> None:
        info.length = 1 << 40

    def reshaped(metadata: Any, _: Any) -> None:
        metadata.state_dict_metadata["w"].chunks[0].sizes = torch.Size([2, 2])

    def larger(metadata: Any, _: Any) -> None:
        metadata.state_dict_metadata["w"].size = torch.Size([8, 2])

    def overlapping(metadata: Any, info: Any) -> None:
        other = next(one for index, one in metadata.storage_data.items() if index.fqn == "v")
        info.offset = other.offset + 1

    for change, says in (
        (overlapping, "two shards have the bytes from"),
        (elsewhere, "expected a file in its folder"),
        (beyond, "would be bytes|two shards have the bytes from"),
        (reshaped, "expected a contiguous"),
    ):
        lie(change)
        with pytest.raises(AllranksError, match=says):
            load(tmp_path, into)
    lie(larger)
    with pytest.raises(Damaged, match="do not fill it exactly once"):
        load(tmp_path, {**into, "w": torch.zeros(8, 2)})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", ["torch", "DCP"])
def test_a_flipped_bit_is_found_by_its_crc(form: str, tmp_path: Path) -> None:
    """torch.load and DCP hand it out; of a tensor of several pieces, too, and of one that is cast."""
    state = {"w": torch.rand(700, 700), "v": torch.rand(3)}
    if form == "torch":
        torch.save(state, tmp_path / "a.pt")
    else:
        dcp.save(dict(state), checkpoint_id=tmp_path, no_dist=True)
    file = next(path for path in tmp_path.iterdir() if path.suffix in (".pt", ".distcp"))
    data = bytearray(file.read_bytes())
    at = data.find(state["w"].numpy().tobytes()[:64]) + 1_000_000
    data[at] ^= 4
    file.write_bytes(data)
    if form == "torch":
        assert not torch.equal(torch.load(file)["w"], state["w"]), "without us: other weights, and no error"
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(Damaged, match=r"have the CRC-32 [0-9a-f]{8}: expected [0-9a-f]{8}.*'w' is damaged"):
            load(tmp_path, {"w": torch.zeros(700, 700, dtype=dtype), "v": torch.zeros(3)})


def test_a_file_without_crcs_is_read_and_said(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(4)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert load(tmp_path / "a.pt", {"w": torch.zeros(4)}).checked.startswith("not at all")


def test_a_chunk_that_orbax_lost_is_not_zeros(tmp_path: Path) -> None:
    """Orbax reads a missing chunk as zeros."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as saver:
        saver.save(tmp_path / "it", {"w": np.ones(4, np.float32)})
    (tmp_path / "it" / "w" / "0").unlink()
    with pytest.raises(Damaged, match="array 'w' cannot be read"):
        load(tmp_path / "it", {"w": np.zeros(4, np.float32)})


SPARSE = """
import resource, sys
import numpy as np
import allranks
from allranks.world.detect import single_world
small = np.zeros((256, 4), np.float32)
allranks.load(sys.argv[1], {"small": np.ones(4, np.float32)}, allow_unexpected=["large*"], world=single_world())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = allranks.load(sys.argv[1], {"small": small[0], "large.7": np.ones((1 << 20,), np.float32)},
                       allow_unexpected=["large*"], world=single_world())
assert report.read == (4 << 20) + 16, report.read
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_twenty_gigabytes_of_which_a_part_is_wanted(tmp_path: Path) -> None:
    """A sparse file: what is wanted is read, and nothing else, into hardly more memory than it is."""
    many, size = 5120, 4 << 20
    header = {f"large.{n}": entry(n * size, (n + 1) * size, (size // 4,)) for n in range(many)}
    header["small"] = entry(many * size, many * size + 16)
    text = json.dumps(header).encode()
    file = tmp_path / "a.safetensors"
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + many * size + 16)
    assert file.stat().st_size > 20 << 30
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", SPARSE, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64, "MiB"
