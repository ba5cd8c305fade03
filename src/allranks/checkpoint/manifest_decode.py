"""Read a manifest from JSON, as docs/format.md describes it. ``manifest_encode`` writes it.

Every field is checked. Data that is not a valid manifest is refused as damaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, cast

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.integrity import InvalidManifest, check_files, check_leaves
from allranks.checkpoint.json_value import unpack_json
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.manifest_document import (
    COMPRESSED,
    PLAIN,
    NewerManifest,
    check_keys,
    is_allranks_manifest,
    parse_document,
    shorten,
)
from allranks.digest import hasher_by_name
from allranks.errors import Damaged, NewerFormat
from allranks.extent import Extent

LIMIT = 1 << 63
MOST_DIMENSIONS = 32
MOST_SHARDS = 10**8
# The most bytes of a chunk: a reader takes a chunk into memory. This library writes at most 8 MiB (docs/format.md).
MOST_CHUNK = 256 << 20

_NONCE = re.compile(r"[0-9a-f]{32}")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_KIND = re.compile(r"key<[A-Za-z0-9_]{1,64}>")
_KIND_EXTENDED = re.compile(rf"{_KIND.pattern}|torch\.[a-z][a-z0-9_]{{0,62}}")
# A name with no "/" and no leading dot stays in its folder.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+@-]{0,254}")
_KEYS_OF_LEAF = {"dtype", "shape", "shards"}
_KEYS_OF_SHARD = {"file", "offset", "shape", "bytes"}
_KEYS_OF_ROW = _KEYS_OF_SHARD | {"count", "step"}
_KEYS_OF_STEP = {"file", "bytes", "offset"}


def decode_manifest(data: bytes, *, path: str) -> Manifest:
    """Return the manifest in the bytes of the file ``path``. Raises Damaged if it is not valid, or NewerFormat."""
    try:
        document = parse_document(data)
        manifest = _decode_manifest(document)
        check_leaves(manifest.leaves)
        check_files(manifest.files, manifest.leaves)
        manifest = _add_ties(manifest, document.get("ties", {}))
    except NewerManifest as newer:
        raise NewerFormat(
            f"{path} {newer}.",
            path=path,
            remedy="The checkpoint is not damaged. Install a newer allranks.",
        ) from newer
    except InvalidManifest as fault:
        raise Damaged(
            f"{path} is not a valid manifest: {fault}.",
            path=path,
            leaf=fault.leaf,
            where=(0, len(data)),
            remedy="Restore another step: this one is damaged.",
        ) from fault
    return manifest


def named_files(data: bytes) -> tuple[str, ...] | None:
    """Return the names of the files in a manifest; () if it is damaged. Leaves are not checked.

    Returns None for a manifest in a newer version of the format, and for a file of another program.
    """
    try:
        document = parse_document(data)
        files = _decode_files(document["files"], document["integrity"], compressed=document["version"] >= COMPRESSED)
        return tuple([file.name for file in files])
    except NewerManifest:
        return None
    except InvalidManifest:
        return () if is_allranks_manifest(data) else None


def _decode_integer(value: Any, what: str, *, low: int = 0) -> int:
    if type(value) is not int or not low <= value < LIMIT:
        raise InvalidManifest(f"{what} is {shorten(value)}: expected an integer from {low} to 2**63 - 1")
    return value


def _decode_integers(value: Any, what: str, *, low: int = 0) -> tuple[int, ...]:
    if type(value) is not list:
        raise InvalidManifest(f"{what} is {shorten(value)}: expected a list")
    for number in value:
        if type(number) is not int or not low <= number < LIMIT:
            raise InvalidManifest(f"{what} is {shorten(value)}: expected integers from {low} to 2**63 - 1")
    return tuple(value)


def _decode_string(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if type(value) is not str or not pattern.fullmatch(value):
        raise InvalidManifest(f"{what} is {shorten(value)}: expected a match of {pattern.pattern}")
    return value


def _decode_manifest(document: dict[str, Any]) -> Manifest:
    integrity = document["integrity"]
    files = _decode_files(document["files"], integrity, compressed=document["version"] >= COMPRESSED)
    world = _decode_integer(document["world"], "world", low=1)
    leaves = _decode_leaves(document["leaves"], len(files), extended=document["version"] > PLAIN, world=world)
    values = {path: _decode_scalar(path, value) for path, value in _decode_mapping(document, "values").items()}
    rows = _rank_values(document, world) if "rank_values" in document else {}
    both = (values.keys() & leaves.keys()) | (rows.keys() & (values.keys() | leaves.keys()))
    if both:
        raise InvalidManifest(f"{min(both)!r} occurs twice, as an array, a value, or a value of each rank")
    return Manifest(
        step=_decode_integer(document["step"], "step"),
        nonce=_decode_string(document["nonce"], "nonce", _NONCE),
        created=_decode_time(document["created"]),
        world_size=world,
        integrity=integrity,
        files=files,
        leaves=leaves,
        values=values | rows,
        extra=_decode_json_value(document["extra"], "extra"),
        metrics={name: _decode_metric(name, value) for name, value in _decode_mapping(document, "metrics").items()},
        versions={name: _decode_version(name, value) for name, value in _decode_mapping(document, "versions").items()},
        rank_values=frozenset(rows),
    )


def _rank_values(document: dict[str, Any], world: int) -> dict[str, list[Any]]:
    """Return the rank-local values of a manifest: for each path, a list with the value of each rank."""
    found = {}
    for path, value in _decode_mapping(document, "rank_values").items():
        if type(value) is not list or len(value) != world:
            raise InvalidManifest(
                f"value {path!r} is {shorten(value)}: expected a list of {world}, one for each rank", leaf=path
            )
        found[path] = [_decode_scalar(path, one) for one in value]
    return found


def _add_ties(manifest: Manifest, ties: Any) -> Manifest:
    """Return the manifest with the leaves that are tied to other leaves added."""
    if type(ties) is not dict:
        raise InvalidManifest(f"ties is {shorten(ties)}: expected an object")
    for path, other in ties.items():
        if type(other) is not str or other not in manifest.leaves:
            raise InvalidManifest(f"{shorten(path)} is tied to {shorten(other)}, which is not a leaf", leaf=path)
        if path in manifest.leaves or path in manifest.values:
            raise InvalidManifest(f"{shorten(path)} is tied to another leaf, and is a leaf itself", leaf=path)
    tied = {path: manifest.leaves[other] for path, other in ties.items()}
    return replace(manifest, leaves={**manifest.leaves, **tied}, ties=ties) if ties else manifest


def _decode_mapping(document: dict[str, Any], key: str) -> Mapping[str, Any]:
    value = document[key]
    if type(value) is not dict:
        raise InvalidManifest(f"{key} is {shorten(value)}: expected an object")
    return value


def _decode_json_value(value: Any, what: str) -> Any:
    try:
        return unpack_json(value)
    except ValueError as error:
        raise InvalidManifest(f"{what} cannot be decoded: {error}") from None


def _decode_scalar(path: str, value: Any) -> Any:
    if type(value) is not str and isinstance(value := _decode_json_value(value, f"value {path!r}"), list | dict):
        raise InvalidManifest(f"value {path!r} is {shorten(value)}: expected a number, string, true, false or null")
    return value


def _decode_metric(name: str, value: Any) -> float:
    found = _decode_json_value(value, f"metric {name!r}")
    if type(found) is not float and (type(found) is not int or abs(found) >= LIMIT):
        raise InvalidManifest(f"metric {name!r} is {shorten(value)}: expected a number")
    return float(found)


def _decode_version(name: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidManifest(f"version {name!r} is {shorten(value)}: expected a string")
    return value


def _decode_time(value: Any) -> str:
    try:
        if datetime.fromisoformat(value).utcoffset() == timedelta(0):
            return cast(str, value)
    except (TypeError, ValueError):
        pass
    raise InvalidManifest(f"created is {shorten(value)}: expected a time in UTC")


def _decode_files(items: Any, integrity: str, *, compressed: bool) -> tuple[StoredFile, ...]:
    if type(items) is not list:
        raise InvalidManifest(f"files is {shorten(items)}: expected a list")
    digits = hasher_by_name(integrity).digits
    digest = re.compile(f"[0-9a-f]{{{digits}}}")
    files = tuple([_decode_file(item, f"file {i}", digest, compressed=compressed) for i, item in enumerate(items)])
    names = {file.name for file in files}
    if len(names) != len(files):
        raise InvalidManifest("two files have the same name")
    _decode_integer(sum(file.bytes for file in files), "the bytes of all files")
    return files


def _decode_file(item: Any, what: str, digest: re.Pattern[str], *, compressed: bool) -> StoredFile:
    packed = compressed and type(item) is dict and "zstd" in item
    check_keys(item, {"name", "bytes", "chunks", *(("zstd",) if packed else ())}, what)
    name = _decode_string(item["name"], f"the name of {what}", _NAME)
    size = _decode_integer(item["bytes"], f"the bytes of {what}")
    chunks = item["chunks"]
    if type(chunks) is not list:
        raise InvalidManifest(f"the chunks of {what} are {shorten(chunks)}: expected a list")
    lengths, digests = _decode_chunks(chunks, what, digest)
    if (longest := max(lengths, default=0)) > MOST_CHUNK:
        raise InvalidManifest(f"{what} has a chunk of {longest:,} bytes: expected at most {MOST_CHUNK:,}")
    ends = tuple(accumulate(lengths))
    if (ends[-1] if ends else 0) != size:
        raise InvalidManifest(
            f"the chunks of {what} end at byte {ends[-1] if ends else 0}: expected {size}, the size of the file"
        )
    stored = _decode_integers(item["zstd"], f"the frames of {what}", low=1) if packed else ()
    if packed and len(stored) != len(ends):
        raise InvalidManifest(f"{what} has {len(stored)} frames: expected {len(ends)}, one for each chunk")
    return StoredFile(name, size, ends, tuple(digests), tuple(accumulate(stored)))


def _decode_chunks(chunks: list[Any], what: str, digest: re.Pattern[str]) -> tuple[list[int], list[str]]:
    """Return the lengths and the digests of a file's chunks. It must be fast: there may be a million chunks."""
    if set(map(type, chunks)) <= {list} and set(map(len, chunks)) <= {2}:
        lengths, digests = [chunk[0] for chunk in chunks], [chunk[1] for chunk in chunks]
        typed = set(map(type, lengths)) <= {int} and set(map(type, digests)) <= {str}
        small = typed and min(lengths, default=1) >= 1 and max(lengths, default=1) < LIMIT
        if small and all(map(digest.fullmatch, digests)):
            return lengths, digests
    for chunk in chunks:
        if type(chunk) is not list or len(chunk) != 2 or type(chunk[1]) is not str or not digest.fullmatch(chunk[1]):
            raise InvalidManifest(f"a chunk of {what} is {shorten(chunk)}: expected [bytes, digest]")
        _decode_integer(chunk[0], f"the length of a chunk of {what}", low=1)
    raise AssertionError("one of the chunks is not sound")


def _decode_leaves(items: Any, files: int, *, extended: bool, world: int) -> dict[str, StoredLeaf]:
    if type(items) is not dict:
        raise InvalidManifest(f"leaves is {shorten(items)}: expected an object")
    left = MOST_SHARDS
    leaves = {}
    for path, item in items.items():
        try:
            leaves[path] = leaf = _decode_leaf(item, files, extended=extended)
            if leaf.per_rank and leaf.shape[:1] != (world,):
                raise InvalidManifest(f"its shape is {list(leaf.shape)}: expected {world} rows, one for each rank")
        except NewerManifest as newer:
            raise NewerManifest(f"has the leaf {shorten(path)}, and {newer}") from None
        except InvalidManifest as fault:
            raise InvalidManifest(f"leaf {shorten(path)}: {fault}", leaf=path) from None
        left -= sum([run.count for run in leaf.runs])
        if left < 0:
            raise InvalidManifest(f"it has too many shards: expected at most {MOST_SHARDS}")
    return leaves


def _decode_leaf(item: Any, files: int, *, extended: bool) -> StoredLeaf:
    kind = item.get("kind", "") if type(item) is dict else ""
    per_rank = extended and type(item) is dict and item.get("per_rank") is True
    more = {name for name, there in (("kind", kind), ("per_rank", per_rank)) if there}
    check_keys(item, _KEYS_OF_LEAF | more if more else _KEYS_OF_LEAF, "it")
    dtype = DTYPES.get(_decode_string(item["dtype"], "its dtype", _DTYPE))
    if dtype is None:
        raise NewerManifest(f"this allranks does not know its dtype {item['dtype']!r}")
    shape = _decode_integers(item["shape"], "its shape")
    if len(shape) > MOST_DIMENSIONS:
        raise InvalidManifest(f"it has {len(shape)} dimensions: expected at most {MOST_DIMENSIONS}")
    if math.prod(filter(None, shape)) * dtype.size >= LIMIT:
        raise InvalidManifest(f"its shape is {list(shape)}: expected less than 2**63 bytes")
    if type(item["shards"]) is not list:
        raise InvalidManifest("its shards: expected a list")
    runs = tuple([_decode_run(run, shape, dtype.size, files) for run in item["shards"]])
    kind = _decode_string(kind, "its kind", _KIND_EXTENDED if extended else _KIND) if kind else ""
    return StoredLeaf(shape, dtype.name, kind, runs, per_rank)


def _decode_run(item: Any, shape: tuple[int, ...], size: int, files: int) -> ShardRun:
    row = type(item) is dict and "count" in item
    check_keys(item, _KEYS_OF_ROW if row else _KEYS_OF_SHARD, "a shard")
    file, offset = _decode_integer(item["file"], "a shard's file"), _decode_integers(item["offset"], "an offset")
    many, place = _decode_integers(item["shape"], "a shard's shape"), _decode_integers(item["bytes"], "a shard's bytes")
    _check_inside(offset, many, shape)
    if len(place) != 2 or place[1] - place[0] != math.prod(many) * size:
        raise InvalidManifest(
            f"a shard of shape {list(many)} with {size} bytes an element has the bytes {shorten(item['bytes'])}"
        )
    if file >= files:
        raise InvalidManifest(f"a shard is in file {file}, of {files}")
    first = Shard(file, place[0], Extent(offset, many))
    return _decode_row(first, item, shape, files) if row else ShardRun(first)


def _decode_row(first: Shard, item: Any, shape: tuple[int, ...], files: int) -> ShardRun:
    step = item["step"]
    check_keys(step, _KEYS_OF_STEP, "a step")
    count = _decode_integer(item["count"], "a count", low=2)
    if count > MOST_SHARDS:
        raise InvalidManifest(f"a row has {count} shards: expected at most {MOST_SHARDS}")
    file_step, begin_step = (_decode_integer(step[key], "a step", low=-LIMIT) for key in ("file", "bytes"))
    offset_step = _decode_integers(step["offset"], "a step", low=-LIMIT)
    if len(offset_step) != len(shape):
        raise InvalidManifest(f"a step has {len(offset_step)} dimensions: expected {len(shape)}, as its leaf")
    extent, last = first.extent, count - 1
    _check_inside(
        tuple([at + last * by for at, by in zip(extent.offset, offset_step, strict=True)]), extent.shape, shape
    )
    if not 0 <= first.file + last * file_step < files:
        raise InvalidManifest(f"a shard is in file {first.file + last * file_step}, of {files}")
    if not 0 <= first.begin + last * begin_step < LIMIT - (item["bytes"][1] - first.begin):
        raise InvalidManifest("a row of shards exceeds its file")
    return ShardRun(first, count, file_step, begin_step, offset_step)


def _check_inside(offset: tuple[int, ...], many: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if not len(offset) == len(many) == len(shape):
        raise InvalidManifest(
            f"a shard has the offset {list(offset)} and the shape {list(many)}: expected {len(shape)} "
            "dimensions, as its leaf"
        )
    for at, length, limit in zip(offset, many, shape, strict=True):
        if at < 0 or at + length > limit:
            raise InvalidManifest(
                f"a shard at {list(offset)} of shape {list(many)} exceeds the leaf's shape {list(shape)}"
            )
