"""Select what is saved and restored of leaves that differ over the ranks on purpose: rank 0's, or each rank's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from allranks.arguments import expect, several
from allranks.checkpoint.manifest import Manifest, Run, Shard, StoredLeaf
from allranks.checkpoint.names import matches
from allranks.extent import Extent


@dataclass(frozen=True, slots=True)
class RankChoices:
    """Globs of the paths of which each rank's leaf (``per_rank``) or rank 0's (``from_main``) counts; ``.`` and ``/``
    are one.
    """

    per_rank: tuple[str, ...] = ()
    from_main: tuple[str, ...] = ()

    @property
    def as_json(self) -> dict[str, list[str]]:
        """The choices as JSON; equal on all ranks."""
        return {"per_rank": list(self.per_rank), "from_main": list(self.from_main)}

    def among(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the leaves that have a choice, with "main" or "rank"."""
        if not self.per_rank and not self.from_main:
            return {}
        return {path: choice for path in paths if (choice := self.of(path))}

    def of(self, path: str) -> Literal["", "main", "rank"]:
        """Return the choice for a leaf; "" if there is none."""
        if matches(path, self.per_rank):
            return "rank"
        return "main" if matches(path, self.from_main) else ""


def globs(given: str | Iterable[str], *, name: str) -> tuple[str, ...]:
    """Return an argument that is one glob or several as a tuple. Raises BadArgument."""
    if isinstance(given, str):
        return (given,)
    found = several(given)
    fits = found is not None and all(isinstance(one, str) for one in found)
    expect(fits, name, given, "a glob of paths, or a list of them: 'params/*'")
    return found or ()


def rows_of(manifest: Manifest, *, rank: int, size: int, choose: Callable[[str], str]) -> Manifest:
    """Return a manifest as one of ``size`` ranks reads it: of a leaf that each rank has saved, it has that rank's.

    If another number of ranks has saved, the choice decides: "main" reads rank 0's, "dealt" reads that of one of the
    ranks, and any other leaf is read as it is, with all ranks' rows. The leaves and values stay marked.
    """
    saved = manifest.world_size
    marked = [*(path for path, leaf in manifest.leaves.items() if leaf.per_rank), *manifest.rank_values]
    rows: dict[str, int] = {}
    for path in marked:
        choice = choose(path)
        if choice == "main":
            rows[path] = 0
        elif saved == size or choice == "dealt":
            rows[path] = rank % saved
    if not rows:
        return manifest
    leaves = {path: _row(manifest.leaves[path], row) for path, row in rows.items() if path in manifest.leaves}
    values = {path: manifest.values[path][row] for path, row in rows.items() if path in manifest.values}
    return replace(manifest, leaves={**manifest.leaves, **leaves}, values={**manifest.values, **values})


def _row(leaf: StoredLeaf, rank: int) -> StoredLeaf:
    shards = [shard for shard in leaf.shards if shard.extent.offset[0] == rank]
    runs = tuple(Run(Shard(one.file, one.begin, _inner(one.extent))) for one in shards)
    return StoredLeaf(leaf.shape[1:], leaf.dtype, leaf.kind, runs, per_rank=True)


def _inner(extent: Extent) -> Extent:
    return Extent(extent.offset[1:], extent.shape[1:])


def advice(paths: Sequence[str]) -> str:
    """Return what to write if leaves differ over the ranks on purpose."""
    told = "[" + ", ".join(map(repr, paths[:3])) + (", ..." if len(paths) > 3 else "") + "]"
    return (
        "If they differ on purpose, say so when you make the Checkpointer: "
        f"Checkpointer(..., from_main={told}) saves rank 0's, per_rank={told} each rank's."
    )
