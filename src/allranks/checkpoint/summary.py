"""Describe a manifest as text for people: sizes, dtypes and shardings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, StoredLeaf, expand_runs


def leaf_bytes(leaf: StoredLeaf) -> int:
    """Return the size of a leaf in bytes."""
    return math.prod(leaf.shape) * DTYPES[leaf.dtype].size


def checkpoint_bytes(manifest: Manifest) -> int:
    """Return the size of all files of a checkpoint, in bytes."""
    return sum(file.size for file in manifest.files)


def describe_leaf(leaf: StoredLeaf) -> str:
    """Describe a leaf as text, e.g. ``float32[512, 64]``. For PRNG keys the text includes their kind."""
    kind = f" {leaf.kind}" if leaf.kind else ""
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]{kind}"


def describe_sharding(leaf: StoredLeaf) -> str:
    """Describe as text how a leaf is sharded: ``4 x 1``, ``whole``, or ``7 parts`` if the shards form no grid."""
    shards = expand_runs(leaf.runs, len(leaf.shape))
    count = len(shards.file)
    if count < 2:
        return "whole"
    cuts = [len(np.unique(column)) for column in shards.offset.T]
    return " x ".join(map(str, cuts)) if math.prod(cuts) == count else f"{count} parts"


def count_files(leaf: StoredLeaf) -> int:
    """Return the number of files that hold bytes of a leaf."""
    return len(np.unique(expand_runs(leaf.runs, len(leaf.shape)).file))


def flatten_json(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every scalar and every empty container in a JSON value."""
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from flatten_json(item, f"{path}/{key}")
        case list() if value:
            for index, item in enumerate(value):
                yield from flatten_json(item, f"{path}/{index}")
        case _:
            yield path, value
