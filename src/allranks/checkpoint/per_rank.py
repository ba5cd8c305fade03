"""Select which rank's value is saved and restored for leaves that differ between ranks on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from allranks.arguments import expect, several
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredLeaf
from allranks.checkpoint.names import first_matching_glob
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
        """The choices as a JSON object, which must be equal on all ranks."""
        return {"per_rank": list(self.per_rank), "from_main": list(self.from_main)}

    def choices_for_paths(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the choice, "main" or "rank", for each of these paths that has one."""
        if not self.per_rank and not self.from_main:
            return {}
        return {path: choice for path in paths if (choice := self.choice_for_path(path))}

    def choice_for_path(self, path: str) -> Literal["", "main", "rank"]:
        """Return the choice for a path; "" if there is none."""
        if first_matching_glob(path, self.per_rank):
            return "rank"
        return "main" if first_matching_glob(path, self.from_main) else ""


def glob_tuple(globs: str | Iterable[str], *, name: str) -> tuple[str, ...]:
    """Return one glob or several globs as a tuple. Raises BadArgument, with ``name``, if they are not text."""
    if isinstance(globs, str):
        return (globs,)
    found = several(globs)
    fits = found is not None and all(isinstance(one, str) for one in found)
    expect(fits, name, globs, "a glob of paths, or a list of them: 'params/*'")
    return found or ()


def manifest_for_rank(manifest: Manifest, *, rank: int, size: int, choice_of: Callable[[str], str]) -> Manifest:
    """Return the manifest that one rank reads: each leaf that every rank saved for itself has only one rank's part.

    If ``choice_of(path)`` is "main", that is rank 0's part. Otherwise, if the number of ranks is unchanged, it is the
    part of this rank. If the number has changed, it is the part of one of the ranks for "dealt"; any other leaf keeps
    the parts of all ranks. The leaves and values stay marked as saved by each rank.
    """
    saved = manifest.world_size
    marked = [*(path for path, leaf in manifest.leaves.items() if leaf.per_rank), *manifest.rank_values]
    rows: dict[str, int] = {}
    for path in marked:
        choice = choice_of(path)
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
    runs = tuple(ShardRun(Shard(one.file, one.begin, _without_rank_dimension(one.extent))) for one in shards)
    return StoredLeaf(leaf.shape[1:], leaf.dtype, leaf.kind, runs, per_rank=True)


def _without_rank_dimension(extent: Extent) -> Extent:
    return Extent(extent.offset[1:], extent.shape[1:])


def advice_on_differing_leaves(paths: Sequence[str]) -> str:
    """Return advice for the user if leaves differ over the ranks on purpose: the arguments of Checkpointer to write."""
    told = "[" + ", ".join(map(repr, paths[:3])) + (", ..." if len(paths) > 3 else "") + "]"
    return (
        "If they differ on purpose, say so when you make the Checkpointer: "
        f"Checkpointer(..., from_main={told}) saves rank 0's, per_rank={told} each rank's."
    )
