"""Detect the format of a file or directory by its content, not only by its name, and open it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from allranks.checkpoint import inventory, manifest_document, paths
from allranks.errors import NotThere, UnknownFormat, Unsafe
from allranks.loading.formats import dcp, flax, native, pickle_tree, pt, safetensors
from allranks.loading.formats.base import CheckpointSource, FileBlob
from allranks.storage import limits
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage

_KNOWN = (
    "allranks reads safetensors, files of torch.save, torch.distributed.checkpoint, Orbax and Flax (msgpack), its own "
    "checkpoints, and pickles with allow_pickle=True."
)
# The usual names of the weights in a directory of Hugging Face, which may have other files.
_USUAL = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin")
_NUMPY = b"\x93NUMPY"
_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA")


def open_source(path: str | os.PathLike[str], *, allow_pickle: bool) -> CheckpointSource:
    """Open the checkpoint at a path (local, ``file://``, ``s3://``, ``gs://``, ``az://``).

    A rank may call it without the others. Raises NotThere, UnknownFormat, Damaged, Unsafe.
    """
    address = os.fspath(path)
    if not address:
        raise NotThere("load: the path is empty.", path=address)
    address = address.rstrip("/") or "/"
    if os.path.basename(address) in (".", ".."):
        address = os.path.abspath(address)
    above, _, name = address.rpartition("/")
    outside = open_storage(above if "/" in address else ".") if above or "/" not in address else open_storage("/")
    if name and not above.endswith(":/") and outside.size(name) is not None:
        return _open_file(outside, name, allow_pickle=allow_pickle)
    folder = open_storage(address)
    entries = folder.list("")
    if not entries:
        if any(entry.name == name and entry.size is not None for entry in outside.list("")):
            outside.get(name, most=0)  # it is a pipe or a device
        raise NotThere(f"{folder.url} is empty, or does not exist.", path=address)
    files = [entry.name for entry in entries if entry.size is not None]
    folders = [entry.name for entry in entries if entry.size is None]
    return _open_folder(address, folder, files, folders)


def _open_file(storage: Storage, name: str, *, allow_pickle: bool) -> CheckpointSource:
    if name == paths.MANIFEST and _is_allranks_manifest(storage):
        return native.NativeSource(storage, None)
    size = storage.size(name) or 0
    head = bytearray(min(size, 16))
    storage.read(name, 0, [memoryview(head)])
    if head[:4] == b"PK\3\4":
        return pt.open_files(storage, [name])
    if name.endswith(".index.json"):
        return _open_index(storage, name)
    if len(head) > 8 and head[8:9] == b"{" and head[6:8] == b"\0\0":
        return safetensors.open_files(storage, [name])
    if len(head) > 1 and head[0] == 0x80 and head[1] in range(2, 6):
        return _open_pickle(storage, name, bytes(head), allow_pickle=allow_pickle)
    if head and (0x80 < head[0] < 0x90 or head[0] in (0xDE, 0xDF)):
        return flax.open_file(storage, name)
    if head.startswith(_NUMPY):
        raise UnknownFormat(
            f"{storage.url}/{name} has arrays without names, as np.save and Equinox's tree_serialise_leaves write.",
            path=name,
            remedy="Read it with eqx.tree_deserialise_leaves or np.load on every rank, and compare the result "
            "with allranks.verify.",
        )
    raise UnknownFormat(f"{storage.url}/{name} ({size} bytes) has an unknown format.", path=name, remedy=_KNOWN)


def _open_pickle(storage: Storage, name: str, head: bytes, *, allow_pickle: bool) -> CheckpointSource:
    # The magic number at the begin of files of torch before 1.6.
    if b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in head:
        raise UnknownFormat(
            f"{storage.url}/{name} has the format of torch before 1.6.",
            path=name,
            remedy="Load it with torch.load(path, weights_only=True), and save it again with torch.save.",
        )
    if not allow_pickle:
        raise Unsafe(
            f"{storage.url}/{name} is a pickle: loading it can run any code.",
            path=name,
            remedy="If you trust its author, pass allow_pickle=True.",
        )
    return pickle_tree.open_file(storage, name)


def _open_folder(address: str, storage: Storage, files: Sequence[str], folders: Sequence[str]) -> CheckpointSource:
    if paths.MANIFEST in files and _is_of_ours(storage, files):
        return native.NativeSource(storage, None)
    if any(paths.parse_step_folder(name) is not None for name in folders) and (
        steps := inventory.complete_steps(storage)
    ):
        return native.NativeSource(storage, steps[-1])
    if dcp.METADATA in files:
        return dcp.open_folder(storage)
    if {*_ORBAX, "manifest.ocdbt"} & set(files):
        return _open_orbax(address, files, folders)
    if indices := _common_ending(files, ".safetensors.index.json", ".bin.index.json"):
        return _open_index(storage, _single_file(address, indices))
    if tensors := _common_ending(files, ".safetensors"):
        return safetensors.open_files(storage, [_single_file(address, tensors)])
    if torchs := _common_ending(files, ".bin", ".pt", ".pth", ".ckpt"):
        return pt.open_files(storage, [_single_file(address, torchs)])
    there = ", ".join([*files, *(f"{folder}/" for folder in folders)][:12])
    remedy = _KNOWN if files else "If one of these folders is the checkpoint, give its path."
    raise UnknownFormat(
        f"{storage.url} is not a checkpoint of a known format: it contains {there}.", path=address, remedy=remedy
    )


def _is_of_ours(storage: Storage, files: Iterable[str]) -> bool:
    """Return whether manifest.json is a manifest of allranks, valid or not: other programs use this name, too."""
    return any(paths.parse_shard_file(name) for name in files) or _is_allranks_manifest(storage)


def _is_allranks_manifest(storage: Storage) -> bool:
    return manifest_document.is_allranks_manifest(storage.get(paths.MANIFEST, most=limits.metadata_limit()))


def _common_ending(files: Iterable[str], *endings: str) -> list[str]:
    return [name for name in files if name.endswith(endings)]


def _single_file(address: str, names: Sequence[str]) -> str:
    if usual := [name for name in names if name in _USUAL]:
        return usual[0]
    if len(names) > 1:
        raise UnknownFormat(
            f"{address} has {len(names)} checkpoints: {', '.join(names[:8])}: expected one.",
            path=address,
            remedy="Give the path of one of them.",
        )
    return names[0]


def _open_index(storage: Storage, name: str) -> CheckpointSource:
    index = safetensors.read_index(FileBlob.of_file(storage, name))
    files = list(dict.fromkeys(index.values()))
    if all(file.endswith(".safetensors") for file in files):
        return safetensors.open_files(storage, files, index=index)
    return pt.open_files(storage, files)


def _open_orbax(address: str, files: Sequence[str], folders: Sequence[str]) -> CheckpointSource:
    if "://" in address:
        raise UnknownFormat(f"{address}: Orbax directories can only be read from file systems.", path=address)
    if "_METADATA" not in files:
        items = [name for name in folders if os.path.exists(os.path.join(address, name, "_METADATA"))]
        if not items:
            raise UnknownFormat(
                f"{address} is a directory of Orbax without an item that has a _METADATA file.",
                path=address,
                remedy="Restore it with Orbax, and save it with PyTreeSave or StandardSave.",
            )
        address = os.path.join(address, _single_file(address, items))
    try:
        from allranks.loading.formats import orbax
    except ModuleNotFoundError as error:
        if error.name != "tensorstore":
            raise
        remedy = "Install it: pip install tensorstore"
        raise UnknownFormat(
            f"{address}: reading Orbax directories needs tensorstore, which is not installed.", remedy=remedy
        ) from error
    return orbax.open_folder(open_storage(address), address)
