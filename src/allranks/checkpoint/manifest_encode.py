"""Write a manifest as JSON, as docs/format.md describes it. ``manifest_decode`` reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.json_value import pack_json
from allranks.checkpoint.manifest import Manifest, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.manifest_document import BY_RANK, COMPRESSED, EXTENDED, FORMAT, PLAIN
from allranks.digest import hasher_by_name


def encode_manifest(manifest: Manifest, *, leaves: str | None = None) -> bytes:
    """Return a valid manifest as the bytes of its file, one leaf on each line. Raises NotJsonable.

    ``leaves``: the result of ``encode_leaves`` for its leaves without tied paths, if it was computed at an earlier
    save.
    """
    if leaves is None:
        leaves = encode_leaves({path: leaf for path, leaf in manifest.leaves.items() if path not in manifest.ties})
    return _with_digest(",\n".join(_document_sections(manifest, leaves)).encode("ascii") + b"\n}\n", manifest.integrity)


def remove_leaves(data: bytes, leaves: str, *, integrity: str) -> bytes:
    """Return the bytes of a manifest without its leaves. ``data``: the result of ``encode_manifest``."""
    before, opening, rest = data.partition(b'"leaves":{' + leaves.encode("ascii"))
    rest = re.sub(rb'\A\},\n"ties":[^\n]*', b'},\n"ties":{},', rest)
    return _with_digest(before.partition(b"\n")[2] + opening[: len('"leaves":{')] + rest, integrity)


def _with_digest(body: bytes, integrity: str) -> bytes:
    return b'{"digest":"' + hasher_by_name(integrity)(body).encode() + b'",\n' + body


def encode_leaves(leaves: Mapping[str, StoredLeaf]) -> str:
    """Return the lines of a manifest that describe these leaves."""
    return _joined_lines(f"{quoted(path)}:{_leaf_text(leaf)}" for path, leaf in leaves.items())


def _document_sections(m: Manifest, leaves: str) -> Iterator[str]:
    version = _needed_version(m)
    yield f'"format":{quoted(FORMAT)},"version":{version}'
    yield f'"step":{m.step},"nonce":{quoted(m.nonce)},"created":{quoted(m.created)}'
    yield f'"world":{m.world_size},"integrity":{quoted(m.integrity)}'
    yield f'"files":[{_joined_lines(map(_file_text, m.files))}]'
    yield f'"leaves":{{{leaves}}}'
    if version >= EXTENDED:
        yield f'"ties":{_json_text(dict(m.ties))}'
    if version >= BY_RANK:
        rank_values = {path: m.values[path] for path in sorted(m.rank_values)}
        yield f'"rank_values":{_json_text(_pack_values(rank_values, "value"))}'
    values = _pack_values({path: value for path, value in m.values.items() if path not in m.rank_values}, "value")
    yield f'"values":{{{_joined_lines(f"{quoted(path)}:{_json_text(value)}" for path, value in values.items())}}}'
    yield f'"extra":{_json_text(pack_json(m.extra, value_name="extra"))}'
    yield f'"metrics":{_json_text(_pack_values(m.metrics, "metric"))}'
    yield f'"versions":{_json_text(_pack_values(m.versions, "version"))}'


def _needed_version(m: Manifest) -> int:
    """Return the lowest version of the format that can express the manifest."""
    if any(file.stored for file in m.files):
        return COMPRESSED
    if m.rank_values:
        return BY_RANK
    extended = bool(m.ties) or any(leaf.per_rank or leaf.kind.startswith("torch.") for leaf in m.leaves.values())
    return EXTENDED if extended else PLAIN


def _pack_values(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the mapping with each value converted by ``pack_json``.

    Its keys stay as they are, also ``float`` and ``dict``.
    """
    return {name: pack_json(value, value_name=f"{what} {name!r}") for name, value in values.items()}


def _joined_lines(items: Iterator[str]) -> str:
    text = ",\n".join(items)
    return f"\n{text}\n" if text else ""


def _json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _number_list(values: Sequence[int]) -> str:
    return f"[{','.join(map(str, values))}]"


def _file_text(file: StoredFile) -> str:
    lengths = map(int.__sub__, file.ends, (0, *file.ends))
    chunks = ",".join([f'[{length},"{digest}"]' for length, digest in zip(lengths, file.digests, strict=True)])
    stored = f',"zstd":{_number_list([*map(int.__sub__, file.stored, (0, *file.stored))])}' if file.stored else ""
    return f'{{"name":{quoted(file.name)},"bytes":{file.bytes},"chunks":[{chunks}]{stored}}}'


def _leaf_text(leaf: StoredLeaf) -> str:
    item = DTYPES[leaf.dtype].size
    kind = f'"kind":{quoted(leaf.kind)},' if leaf.kind else ""
    kind += '"per_rank":true,' if leaf.per_rank else ""
    shards = ",".join([_run_text(run, item) for run in leaf.runs])
    return f'{{"dtype":"{leaf.dtype}","shape":{_number_list(leaf.shape)},{kind}"shards":[{shards}]}}'


def _run_text(run: ShardRun, item: int) -> str:
    first, extent = run.first, run.first.extent
    text = (
        f'{{"file":{first.file},"offset":{_number_list(extent.offset)},"shape":{_number_list(extent.shape)},'
        f'"bytes":[{first.begin},{first.begin + extent.size * item}]'
    )
    if run.count == 1:
        return text + "}"
    offset = _number_list(run.offset_step)
    return f'{text},"count":{run.count},"step":{{"file":{run.file_step},"bytes":{run.begin_step},"offset":{offset}}}}}'
