"""Split a state into items, the keys at its top. Each item has its own files, and can be kept longer than the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from allranks.checkpoint import paths
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredLeaf
from allranks.errors import AllranksError


class CannotReduce(AllranksError):
    """Raised if a step cannot be reduced to the requested items, because their files also hold other arrays."""


def check_names(names: Iterable[object]) -> None:
    """Raise AllranksError if a name cannot be the name of an item."""
    if wrong := [name for name in names if not paths.is_item_name(name)]:
        raise AllranksError(
            f"items: {wrong[0]!r} cannot be the name of an item.",
            remedy="An item is a key at the top of the state, of at most 64 letters, digits, - and _.",
        )


def check_known(names: tuple[str, ...], items: Collection[str]) -> tuple[str, ...]:
    """Return ``names`` if all of them are in ``items``, the argument of the Checkpointer.

    Raises AllranksError otherwise.
    """
    if unknown := [name for name in names if name not in items]:
        raise AllranksError(
            f"close: {unknown[0]!r} is not an item of this Checkpointer: expected one of {', '.join(items) or 'none'}.",
            remedy="Items are named when it is made: Checkpointer(..., items={'params': keep_every(100)}).",
        )
    return names


def top_key(path: str) -> str:
    """Return the first key of a leaf's path."""
    return path.partition("/")[0]


def item_of(path: str, items: Collection[str]) -> str:
    """Return the item of a leaf; "" if it belongs to none of ``items``."""
    found = top_key(path)
    return found if found in items else ""


def items_in(manifest: Manifest) -> frozenset[str]:
    """Return the top-level keys of the state that a checkpoint holds."""
    return frozenset(map(top_key, (*manifest.leaves, *manifest.values)))


def reduce_manifest(manifest: Manifest, items: Collection[str]) -> Manifest:
    """Return a manifest with only these items of a checkpoint.

    Raises CannotReduce if a file that must be kept also holds arrays of another item.
    """
    leaves = {path: leaf for path, leaf in manifest.leaves.items() if top_key(path) in items}
    named = {file.name: said for file in manifest.files if (said := paths.parse_shard_file(file.name)) is not None}
    numbers = [n for n, file in enumerate(manifest.files) if file.name in named and named[file.name].item in items]
    places = {number: place for place, number in enumerate(numbers)}
    if not all(shard.file in places for leaf in leaves.values() for run in leaf.runs for shard in _first_and_last(run)):
        raise CannotReduce(
            f"step {manifest.step}: {', '.join(items)} cannot be kept without the rest: their arrays share files with "
            "other arrays.",
            step=manifest.step,
            remedy="Only items that were saved by Checkpointer(items=...) have files of their own.",
        )
    values = {path: value for path, value in manifest.values.items() if top_key(path) in items}
    return replace(
        manifest,
        files=tuple(manifest.files[number] for number in numbers),
        leaves={path: _renumber_files(leaf, places) for path, leaf in leaves.items()},
        values=values,
        ties={path: other for path, other in manifest.ties.items() if path in leaves},
        rank_values=manifest.rank_values & values.keys(),
    )


def _first_and_last(run: ShardRun) -> Iterable[Shard]:
    return run.first, replace(run.first, file=run.first.file + (run.count - 1) * run.file_step)


def _renumber_files(leaf: StoredLeaf, places: Mapping[int, int]) -> StoredLeaf:
    """Return a leaf whose file numbers are replaced by ``places[file number]``. An item's files must stay adjacent."""
    runs = tuple(replace(run, first=replace(run.first, file=places[run.first.file])) for run in leaf.runs)
    return replace(leaf, runs=runs)
