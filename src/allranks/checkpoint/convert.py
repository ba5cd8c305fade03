"""Write a checkpoint, or a part of it, in another library's format: ``.pt``, DCP or Orbax. Every byte is verified.

The exported part must fit into memory as a whole, because those libraries write objects in memory.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from allranks.arrays.base import FillTarget
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.export import check_output_path, is_below, path_without_prefix, select_leaves
from allranks.checkpoint.manifest import Manifest
from allranks.errors import AllranksError, AlreadyThere, CannotStore, StorageError
from allranks.extent import Extent
from allranks.failure import text_of
from allranks.storage import deletion, limits

Write = Callable[[Any, Path], None]
# The paths of the files of an export that is a folder: nothing else is ever replaced.
_DATABASE = r"(manifest\.ocdbt|d/[0-9a-f]{32})"
_FILES = {
    "dcp": re.compile(r"\.metadata|__[0-9]+_[0-9]+\.distcp"),
    "orbax": re.compile(
        rf"_METADATA|_CHECKPOINT_METADATA|_sharding|commit_success\.txt|_strings\.json|(ocdbt\.process_[0-9]+/)?{_DATABASE}"
        r"|array_metadatas/process_[0-9]+|descriptor/descriptor\.pbtxt"
    ),
}
# The arrays that each format cannot hold: by dtype; and the formats that hold no empty arrays.
_NOT_IN_TORCH = frozenset(
    [
        *("int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "bcomplex32"),
    ]
)
_NOT_IN = {
    "pt": _NOT_IN_TORCH,
    "dcp": _NOT_IN_TORCH,
    "orbax": frozenset(
        [
            *("int1", "uint1", "uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"),
            *("bcomplex32", "complex32"),
        ]
    ),
}
_WITHOUT_EMPTY = frozenset(["orbax"])
# The dtypes that only torch names, and also writes.
_KINDS_IN_TORCH = frozenset(["", "torch.float4_e2m1fn_x2"])
_LISTED = 3
_OTHER = "Choose another OUT."
# The writer of each format (``module:function``), and the framework of its arrays.
FORMATS = {
    "pt": ("allranks.checkpoint.foreign.torch:write_pt", "torch"),
    "dcp": ("allranks.checkpoint.foreign.torch:write_dcp", "torch"),
    "orbax": ("allranks.checkpoint.foreign.jax:write_orbax", "numpy"),
}


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """What to export, and how.

    ``to``: one of FORMATS. ``prefix``: only leaves below it are exported. ``strip``: remove the prefix from the paths.
    ``force``: replace an existing export in the same format.
    """

    to: str
    prefix: str = ""
    strip: bool = False
    force: bool = False


def convert_checkpoint(
    reader: ChunkReader, manifest: Manifest, output_path: Path, conversion: ConversionOptions
) -> int:
    """Write a checkpoint to ``output_path``, a file (``pt``) or a folder. Return the number of bytes of its arrays.

    Raises AlreadyThere, Damaged, StorageError. Raises AllranksError if the library is not installed, no leaf is
    selected, or the path of a leaf is the begin of another leaf's path.
    """
    output_path = check_output_path(output_path)
    place, framework = FORMATS[conversion.to]
    write = _import_writer(place, conversion.to)
    if output_path.exists() and not conversion.force:
        raise AlreadyThere(f"export: OUT {output_path} already exists.", remedy="Choose another OUT, or pass --force.")
    _refuse_others(output_path, conversion.to)
    paths = select_leaves(manifest, conversion.prefix)
    _refuse_arrays(manifest, paths, conversion.to)
    arrays = _read_arrays(reader, manifest, paths, framework)
    values = {path: value for path, value in manifest.values.items() if is_below(path, conversion.prefix)}
    stripped = conversion.prefix if conversion.strip else ""
    tree = tree_of({path_without_prefix(path, stripped): leaf for path, leaf in {**arrays, **values}.items()})
    if conversion.to == "dcp":
        tree = _as_dict(tree)
    with _replace_atomically(output_path, conversion.to) as temporary:
        try:
            write(tree, temporary)
        except OSError:
            raise
        except Exception as error:
            raise AllranksError(f"export --to {conversion.to} failed: {text_of(error)}") from error
    return sum(one.nbytes for one in {id(array): array for array in arrays.values()}.values())


def _refuse_arrays(manifest: Manifest, paths: Sequence[str], to: str) -> None:
    """Raise CannotStore if an array has a dtype or shape that the format ``to`` cannot hold."""
    odd: dict[str, str] = {}
    for path in paths:
        leaf = manifest.leaves[path]
        if to in _WITHOUT_EMPTY and 0 in leaf.shape:
            odd[path] = f"{leaf.dtype}{list(leaf.shape)}, which is empty"
        elif leaf.dtype in _NOT_IN[to] or (FORMATS[to][1] == "torch" and leaf.kind not in _KINDS_IN_TORCH):
            odd[path] = f"of {leaf.kind or leaf.dtype}"
    if odd:
        told = "; ".join(f"{path!r} is {what}" for path, what in list(odd.items())[:_LISTED])
        more = f"; and {len(odd) - _LISTED} more" if len(odd) > _LISTED else ""
        raise CannotStore(
            f"export --to {to}: this format cannot hold {len(odd)} of {len(paths)} arrays: {told}{more}.",
            leaf=next(iter(odd)),
            remedy="Export the other arrays with --prefix, or all of them to safetensors.",
        )


def _as_dict(tree: Any) -> dict[str, Any]:
    """Return the tree as the dict that DCP needs. Raises CannotStore for a single array."""
    if isinstance(tree, list):
        return {str(number): child for number, child in enumerate(tree)}
    if not isinstance(tree, dict):
        raise CannotStore(
            "export --to dcp: the state is a single array: expected a dict.",
            leaf="",
            remedy="Export it with --to pt, --to orbax or --to safetensors.",
        )
    return tree


def _import_writer(place: str, to: str) -> Write:
    module, _, function = place.partition(":")
    try:
        return cast(Write, getattr(import_module(module), function))
    except ImportError as error:
        library = "orbax-checkpoint" if to == "orbax" else "torch"
        raise AllranksError(f"--to {to} needs {library}, which cannot be imported: {error}.") from error


def _read_arrays(reader: ChunkReader, manifest: Manifest, paths: Sequence[str], framework: str) -> dict[str, Any]:
    """Read the arrays, and return them by path in the framework's type; tied arrays are one object."""
    saved_as = {path: manifest.ties.get(path, path) for path in paths}
    buffers = {path: np.empty(manifest.leaves[path].shape, DTYPES[manifest.leaves[path].dtype]) for path in paths}
    wanted = {path: buffers[path] for path in paths if saved_as[path] == path or saved_as[path] not in buffers}
    reader.fill_targets([(path, FillTarget(Extent.of_shape(buffer.shape), buffer)) for path, buffer in wanted.items()])
    from_stored = (
        import_module(f"allranks.arrays.leaves.{framework}").from_stored if framework != "numpy" else _return_buffer
    )
    made = {path: from_stored(buffer, manifest.leaves[path].kind) for path, buffer in wanted.items()}
    return {path: made[path] if path in made else made[saved_as[path]] for path in paths}


def _return_buffer(buffer: Any, _kind: str) -> Any:
    return buffer


def tree_of(leaves: Mapping[str, Any]) -> Any:
    """Return leaves as nested dicts, given by path; there is one level for each ``/``.

    Children called 0, 1, 2, ... become a list. But children of ``state``, which are parameter numbers in optimizers of
    torch, become a dict with int keys.
    """
    if set(leaves) == {""}:
        return leaves[""]
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        if len(parents) > limits.DEPTH:
            raise CannotStore(
                f"leaf {path[:80]!r}... has {len(parents):,} levels: expected at most {limits.DEPTH} in a nested dict.",
                leaf=path,
                remedy="Export it to safetensors, which has names in place of nested dicts.",
            )
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise AllranksError(f"leaf {path!r} is below another leaf: a nested dict cannot hold both.")
        if isinstance(node.get(last), dict):
            raise AllranksError(f"leaf {path!r} has other leaves below it: a nested dict cannot hold both.")
        node[last] = leaf
    return _lists_from_numbers(tree, "")


def _lists_from_numbers(node: Any, name: str) -> Any:
    if not isinstance(node, dict):
        return node
    children = {key: _lists_from_numbers(child, key) for key, child in node.items()}
    if children.keys() != {str(number) for number in range(len(children))}:
        numbered = name == "state" and all(key.isdecimal() for key in children)
        return {int(key): child for key, child in children.items()} if numbered else children
    if name == "state":
        return {int(key): child for key, child in children.items()}
    return [children[str(number)] for number in range(len(children))]


def _pattern_of(to: str) -> Callable[[str], bool]:
    """Return whether the file with a path below an export to ``to`` is a part of the export."""
    return lambda path: _FILES[to].fullmatch(path) is not None


@contextmanager
def _replace_atomically(out: Path, to: str) -> Iterator[Path]:
    """Yield a temporary path beside ``out``. What the block writes there replaces ``out`` at the end."""
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _make_durable(temporary)
        if out.is_dir() and (left := deletion.delete_tree(out, is_ours=_pattern_of(to))):
            raise AlreadyThere(f"export: OUT {out} has got other files: {', '.join(left[:_LISTED])}.", remedy=_OTHER)
        os.rename(temporary, out)
    except OSError as error:
        raise StorageError(f"cannot write {out}: {error.strerror} ({error.filename}).", path=str(out)) from error
    finally:
        for one in out.parent.iterdir() if out.parent.is_dir() else ():
            if one.name.startswith(temporary.name):  # (Orbax has temporary names of its own)
                deletion.delete_tree(one)


def _refuse_others(out: Path, to: str) -> None:
    """Raise AlreadyThere if ``out`` exists and is not an export in the format ``to``."""
    remedy = f"Choose another OUT: --force replaces only an export to {to}."
    if out.is_symlink():
        raise AlreadyThere(
            f"{out} is a symbolic link to {os.readlink(out)}: expected an export to {to}.",
            remedy="Give the path that it leads to, or remove the link.",
        )
    if out.is_dir() is (to in _FILES):
        if out.is_dir() and (others := sorted(path for path in _paths_below(out) if not _pattern_of(to)(path))):
            raise AlreadyThere(
                f"{out} holds {', '.join(others[:_LISTED])}, which is not part of an export to {to}.", remedy=remedy
            )
    elif out.exists():
        found, expected = ("folder", "file") if out.is_dir() else ("file", "folder")
        raise AlreadyThere(f"{out} exists, and is a {found}: expected a {expected}.", remedy=remedy)


def _paths_below(out: Path) -> Iterator[str]:
    """Yield the paths below a folder of everything that is not a folder, without following links; of a link, ``link/``.

    So no pattern of an export's files matches a link.
    """
    for folder, folders, files in os.walk(out):
        for name in (*folders, *files):
            path = os.path.relpath(os.path.join(folder, name), out)
            if os.path.islink(os.path.join(folder, name)):
                yield f"{path}/"
            elif name in files:
                yield path


def _make_durable(path: Path) -> None:
    """Make a file, or all files below a folder, durable, so that they survive a power cut."""
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        fd = os.open(one, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
