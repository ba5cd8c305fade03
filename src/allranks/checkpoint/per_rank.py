"""Select what is saved and restored of leaves that differ over the ranks on purpose: rank 0's leaf, or each rank's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from allranks.arguments import expect, several
from allranks.checkpoint.manifest import Manifest, Run, Shard, StoredLeaf
from allranks.checkpoint.names import first_match
from allranks.extent import Extent


@dataclass(frozen=True, slots=True)
class RankChoices:
    """The user's choices for leaves that differ over the ranks: globs of paths, where ``.`` equals ``/``.

    ``per_rank``: each rank's leaf is saved. ``from_main``: rank 0's leaf is saved.
    """

    per_rank: tuple[str, ...] = ()
    from_main: tuple[str, ...] = ()

    @property
    def as_json(self) -> dict[str, list[str]]:
        """The choices as a JSON object, which all ranks must agree on."""
        return {"per_rank": list(self.per_rank), "from_main": list(self.from_main)}

    def among(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the choice, "main" or "rank", for each of these paths that has one."""
        if not self.per_rank and not self.from_main:
            return {}
        return {path: choice for path in paths if (choice := self.of(path))}

    def of(self, path: str) -> Literal["", "main", "rank"]:
        """Return the choice for a path; "" if there is none."""
        if first_match(path, self.per_rank):
            return "rank"
        return "main" if first_match(path, self.from_main) else ""


def globs_of(given: str | Iterable[str], *, name: str) -> tuple[str, ...]:
    """Return an argument, one glob or several, as a tuple. Raises BadArgument, which names the argument."""
    if isinstance(given, str):
        return (given,)
    found = several(given)
    fits = found is not None and all(isinstance(one, str) for one in found)
    expect(fits, name, given, "a glob of paths, or a list of them: 'params/*'")
    return found or ()


def rows_of(manifest: Manifest, *, rank: int, size: int, choose: Callable[[str], str]) -> Manifest:
    """Return a manifest as one rank reads it: of a leaf that each rank has saved, it has the part of one rank.

    If ``choose(path)`` is "main", that is rank 0's part. Otherwise it is the rank's own part, if the number of ranks is
    unchanged. If the number has changed, it is the part of one of the ranks for "dealt"; any other leaf is read as it
    is, with the parts of all ranks. The leaves and values stay marked as saved by each rank.
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
    leaves = {path: _leaf_of_rank(manifest.leaves[path], row) for path, row in rows.items() if path in manifest.leaves}
    values = {path: manifest.values[path][row] for path, row in rows.items() if path in manifest.values}
    return replace(manifest, leaves={**manifest.leaves, **leaves}, values={**manifest.values, **values})


def _leaf_of_rank(leaf: StoredLeaf, rank: int) -> StoredLeaf:
    shards = [shard for shard in leaf.shards if shard.extent.offset[0] == rank]
    runs = tuple(Run(Shard(one.file, one.begin, _without_rank_dimension(one.extent))) for one in shards)
    return StoredLeaf(leaf.shape[1:], leaf.dtype, leaf.kind, runs, per_rank=True)


def _without_rank_dimension(extent: Extent) -> Extent:
    return Extent(extent.offset[1:], extent.shape[1:])


def advice_on_differing(paths: Sequence[str]) -> str:
    """Return advice for the user if leaves differ over the ranks on purpose: the arguments of Checkpointer to write."""
    told = "[" + ", ".join(map(repr, paths[:3])) + (", ..." if len(paths) > 3 else "") + "]"
    return (
        "If they differ on purpose, say so when you make the Checkpointer: "
        f"Checkpointer(..., from_main={told}) saves rank 0's, per_rank={told} each rank's."
    )
