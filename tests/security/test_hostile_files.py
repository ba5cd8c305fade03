"""Checkpoint files of others: each attack is one AllranksError that names the file, at once, and in little memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files
import msgpack
import numpy as np
import pytest

import allranks
from allranks.checkpoint import holds, inventory
from allranks.cli.main import main
from allranks.errors import AllranksError, BadArgument, Damaged, NotAFile, Unsafe
from allranks.loading.formats.detect import open_source
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world

DEADLINE = 30  # seconds; each input takes less than one


@pytest.fixture(autouse=True)
def _deadline() -> Iterator[None]:
    """Fail a test that hangs, where it hangs."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not read within {DEADLINE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(DEADLINE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def load(path: Path) -> object:
    return allranks.load(path, {"w": np.zeros(3, np.float32)}, world=single_world(), strict=False)


@pytest.mark.parametrize("name", hostile_files.TORCH)
def test_a_pickle_of_torch(name: str, tmp_path: Path) -> None:
    value, says = hostile_files.TORCH[name]
    (tmp_path / "a.pt").write_bytes(hostile_files.pt(hostile_files.leaf(value)))
    with pytest.raises(AllranksError, match=says) as error:
        load(tmp_path / "a.pt")
    assert "a.pt" in str(error.value)


def test_the_plain_tensor_is_read(tmp_path: Path) -> None:
    """The builder of the attacks builds a valid file, too."""
    (tmp_path / "a.pt").write_bytes(hostile_files.pt(hostile_files.leaf(hostile_files.tensor())))
    into = {"w": np.zeros(3, np.float32)}
    allranks.load(tmp_path / "a.pt", into, world=single_world())
    assert into["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", hostile_files.MANIFESTS)
def test_a_manifest(name: str, tmp_path: Path) -> None:
    old, new, says = hostile_files.MANIFESTS[name]
    shutil.copytree(hostile_files.NATIVE, tmp_path / "run")
    (tmp_path / "run" / "checkpoint-3" / "manifest.json").write_bytes(hostile_files.manifest_with(old, new))
    with pytest.raises(Damaged, match=says) as error:
        load(tmp_path / "run")
    assert "checkpoint-3/manifest.json" in str(error.value)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()
    (path / "mine").write_text("mine")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


NO_FILES = [
    (fifo, "is a pipe: expected a file"),
    (endless, "is a device: expected a file"),
    (folder, "is a folder: expected a file"),
    (sparse, r"has 1,099,511,627,776 bytes: expected at most 268,435,456.*ALLRANKS_METADATA_LIMIT"),
]


@pytest.mark.parametrize(("make", "says"), NO_FILES)
def test_a_manifest_that_is_no_file(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """Readers and commands name it; gc removes nothing of its step, and the other steps stay usable."""
    run = tmp_path / "run"
    shutil.copytree(hostile_files.NATIVE, run)
    (run / "checkpoint-4").mkdir()
    make(run / "checkpoint-4" / "manifest.json")
    shard = run / "checkpoint-4" / "rank-00000-of-00001.0badcafe.safetensors"
    shard.write_bytes(b"x")
    os.utime(shard, (0, 0))
    storage = LocalStorage(run)
    with pytest.raises(Damaged, match=says):
        inventory.load_manifest(storage, 4)
    assert [one.state for one in inventory.survey_folders(storage)] == ["whole", "damaged"]
    assert main(["ckpt", "ls", str(run)]) == 1
    assert main(["ckpt", "verify", str(run / "checkpoint-4")]) in (1, 2)
    assert main(["ckpt", "gc", str(run), "--keep-last", "1", "--older-than", "0s"]) == 0
    assert {one.name for one in (run / "checkpoint-4").iterdir()} == {"manifest.json", shard.name}
    assert (run / "checkpoint-3" / "manifest.json").exists()


@pytest.mark.parametrize(
    "name", ["a.pt", "a.safetensors", "model.safetensors.index.json", ".metadata", "manifest.json"]
)
@pytest.mark.parametrize(("make", "says"), NO_FILES[:2])
def test_a_checkpoint_that_is_no_file(name: str, make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """Given by its path, or by its folder."""
    make(tmp_path / name)
    with pytest.raises(NotAFile, match=says):
        open_source(tmp_path / name, allow_pickle=True)
    with pytest.raises(AllranksError):
        open_source(tmp_path, allow_pickle=True)
    with pytest.raises(NotAFile, match=says):
        LocalStorage(tmp_path).get(name)


@pytest.mark.parametrize("make", [fifo, endless, folder, sparse])
def test_a_hold_that_is_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "hold").mkdir()
    make(tmp_path / "hold" / "3.00112233.json")
    assert holds.held_steps(LocalStorage(tmp_path)) == {}
    assert os.path.lexists(tmp_path / "hold" / "3.00112233.json")


def safetensors(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def repeated(many: int) -> bytes:
    return b",".join(b'"k%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % n for n in range(many))


OTHERS = {
    "a.safetensors: half a surrogate": (
        safetensors(b'{"\\ud800":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
        "half of a surrogate pair",
    ),
    "a.safetensors: a product of long numbers": (
        safetensors(b'{"w":{"dtype":"F32","shape":[' + b",".join([b"9" * 4000] * 2_000) + b'],"data_offsets":[0,4]}}'),
        "the shape has 2,000 dimensions: expected at most 64",
    ),
    "a.safetensors: a name twice of 60,000": (
        safetensors(b"{" + repeated(60_000) + b"," + repeated(1) + b"}"),
        "a name occurs twice",
    ),
    "a.safetensors: booleans": (
        safetensors(b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[false,false]}}'),
        "has the entry",
    ),
    "a.safetensors: a long name": (
        safetensors(b'{"' + b"n" * 5000 + b'":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
        "has 5,000 characters: expected at most 4,096",
    ),
    "a.msgpack: a product of 300,000 numbers": (
        msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb(([1 << 62] * 300_000, "float32", b"")))}),
        "the shape has 300,000 dimensions: expected at most 64",
    ),
    "a.msgpack: long names": (
        b"\x81\xda\x13\x88" + b"n" * 5000 + b"\x91\xc0",
        "a name has 5,000 characters: expected at most 4,096",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_format(name: str, tmp_path: Path) -> None:
    content, says = OTHERS[name]
    path = tmp_path / name.partition(":")[0]
    path.write_bytes(content)
    with pytest.raises((Damaged, Unsafe), match=says):
        load(path)


def test_a_msgpack_file_of_many_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of it is a value: the most values follow from the limit, which a user can raise."""
    path = tmp_path / "a.msgpack"
    path.write_bytes(b"\x81\xa1w\xdd" + struct.pack(">I", 20_000) + bytes(20_000))
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "1MiB")
    with pytest.raises(
        Unsafe, match=r"more than 16,384 values, or long texts. If you trust the file, set ALLRANKS_METADA"
    ):
        load(path)
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "2MiB")
    assert len(open_source(path, allow_pickle=False).values) == 20_000


@pytest.mark.needs("orbax")
def test_an_orbax_array_that_leads_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(hostile_files.NATIVE.with_name("orbax_zarr"), tmp_path / "a")
    metadata = (tmp_path / "a" / "_METADATA").read_text()
    (tmp_path / "a" / "_METADATA").write_text(metadata.replace('"key": "w"', '"key": "../../b/w"'))
    with pytest.raises(Unsafe, match=r"names the array '../../b/w': expected an array in its folder"):
        load(tmp_path / "a")


@pytest.mark.needs("orbax")
@pytest.mark.parametrize(
    ("shape", "chunks", "says"),
    [
        ([2, 2], [1 << 40, 2], "has chunks of .1099511627776, 2.: expected at most its shape"),
        (
            [1 << 40, 2],
            [1 << 40, 2],
            "a chunk of array 'w' would have 8,796,093,022,208 bytes: .* the memory of this host",
        ),
    ],
)
def test_an_orbax_array_of_huge_chunks(shape: list[int], chunks: list[int], says: str, tmp_path: Path) -> None:
    """TensorStore itself ends the process, if it reads such a chunk."""
    shutil.copytree(hostile_files.NATIVE.with_name("orbax_zarr"), tmp_path / "a")
    array = tmp_path / "a" / "w" / ".zarray"
    array.write_text(json.dumps(json.loads(array.read_text()) | {"shape": shape, "chunks": chunks}))
    with pytest.raises(AllranksError, match=says):
        allranks.load(tmp_path / "a", world=single_world())


@pytest.mark.parametrize("text", ["0", "-5", "lots", "1TB", "1e9"])
def test_a_wrong_limit_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", text)
    with pytest.raises(BadArgument, match=rf"ALLRANKS_METADATA_LIMIT='{text}': expected a number of bytes"):
        load(hostile_files.NATIVE)
    monkeypatch.setenv("ALLRANKS_METADATA_LIMIT", "100")
    with pytest.raises(
        Damaged, match=r"has \d+ bytes: expected at most 100. If you trust the file, set ALLRANKS_METADATA"
    ):
        load(hostile_files.NATIVE)


WITHOUT_US = """
import io, pickle, signal, sys, zipfile
signal.setitimer(signal.ITIMER_REAL, 0.3)
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name): return object
with zipfile.ZipFile(sys.argv[1]) as file:
    Unpickler(io.BytesIO(file.read("a/data.pkl"))).load()
"""


def test_python_hashes_shared_tuples_for_ever(tmp_path: Path) -> None:
    """Without us: a pickle of 500 bytes does not end, though nothing of it is called."""
    value, _ = hostile_files.TORCH["shared tuples as a key"]
    (tmp_path / "a.pt").write_bytes(hostile_files.pt(hostile_files.leaf(value)))
    done = subprocess.run([sys.executable, "-c", WITHOUT_US, str(tmp_path / "a.pt")], timeout=60)
    assert done.returncode == -signal.SIGALRM


def test_views_that_need_more_memory_than_the_host_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred views of one record: without a template, each would become an array of its own."""
    view = hostile_files.tensor(hostile_files.storage(3))
    views = b"".join(hostile_files.text(f"w{n}") + view for n in range(100))
    (tmp_path / "a.pt").write_bytes(hostile_files.pt(hostile_files.HEAD + b"}(" + views + b"u."))
    assert allranks.load(tmp_path / "a.pt", world=single_world()).coverage == 1.0
    monkeypatch.setattr("allranks.storage.limits.memory_of_host", lambda: 1000)
    with pytest.raises(Unsafe, match=r"all arrays of the file would have 1,200 bytes: expected at most 1,000.*into="):
        allranks.load(tmp_path / "a.pt", world=single_world())
