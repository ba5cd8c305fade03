"""Open a run for writing: rank 0 becomes its owner, and all ranks check that they see the same folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allranks.arguments import expect
from allranks.checkpoint import fence
from allranks.checkpoint.items import check_names
from allranks.checkpoint.json_value import parse_json
from allranks.checkpoint.retention import RunRetention
from allranks.checkpoint.retention_policy import Keep, RetentionPolicy, combine_policies
from allranks.errors import BadArgument, StorageError, Unsafe, name_ranks
from allranks.storage.base import Storage
from allranks.world.base import World


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The policies of a run. ``policy`` decides on complete steps; ``items``, by item, on steps that keep only it."""

    policy: RetentionPolicy | Keep
    items: Mapping[str, Keep]


def retention_rules(
    policy: RetentionPolicy, keep: Keep | Iterable[Keep] | None, items: Mapping[str, Keep | Iterable[Keep]] | None
) -> RetentionRules:
    """Return the retention rules of a Checkpointer. Raises BadArgument for two policies, and for invalid items."""
    if keep is not None and policy != RetentionPolicy():
        raise BadArgument(
            "keep= cannot be combined with keep_last, keep_every and keep_best: pass either keep= or the other three."
        )
    items = {} if items is None else items
    expect(isinstance(items, Mapping), "items", items, "a policy for each item: {'params': keep_every(100)}")
    check_names(items)
    return RetentionRules(
        policy if keep is None else combine_policies(keep),
        {item: combine_policies(one, name=f"items[{item!r}]") for item, one in items.items()},
    )


@dataclass(frozen=True, slots=True)
class RunEntry:
    """This job's right to write into a run.

    ``nonce``: identifies it, equal on every rank. Other fields: on rank 0 only.
    """

    nonce: str
    fence_held: fence.Fence | None = None
    retention: RunRetention | None = None

    def release_run(self, storage: Storage) -> None:
        """Release the run, so that the next job may write into it."""
        if self.fence_held is not None:
            fence.release_fence(storage, self.fence_held)


def enter_run(storage: Storage, world: World, keep_rules: RetentionRules, *, take_over: bool) -> RunEntry:
    """Open a run for writing, as its only writer. **Every rank must call.**

    Raises Fenced, and StorageError if the ranks see different folders.
    """
    entered = RunEntry("")

    def acquire() -> list[str]:
        nonlocal entered
        mine = fence.acquire_fence(storage, fence.this_process(), take_over=take_over)
        retention = RunRetention(
            storage, keep_rules.policy, keep_rules.items, check_owner=lambda: fence.check_fence(storage, mine)
        )
        entered = RunEntry(mine.nonce, mine, retention)
        return [mine.path, mine.nonce]

    path, nonce = world.on_main(acquire)
    try:
        check_visible(storage, world, path, nonce=nonce)
    except StorageError:
        entered.release_run(storage)
        raise
    return RunEntry(nonce, entered.fence_held, entered.retention)


def check_visible(storage: Storage, world: World, path: str, *, nonce: str) -> None:
    """Raise StorageError on every rank unless all ranks see the fence with this nonce. **Every rank must call.**

    Rank 0 must have written the fence to ``path``.
    """
    seen = world.all_gather(_nonce_at(storage, path), name="fence")
    blind = [rank for rank, found in enumerate(seen) if found != nonce]
    if blind:
        hosts = ", ".join(sorted({world.hosts[rank] for rank in blind}))
        error = StorageError(
            f"rank {world.rank}: {name_ranks(blind)} (host {hosts}) cannot see the file that rank 0 (host "
            f"{world.hosts[0]}) wrote into {storage.url}: {seen[blind[0]].rstrip('.')}.",
            remedy="Use a directory that all hosts share, or an object store.",
        )
        error.ranks = tuple(blind)
        raise error


def _nonce_at(storage: Storage, path: str) -> str:
    """Return the nonce of the fence that this rank sees at ``path``, or a description of what it sees."""
    try:
        found: str = parse_json(storage.get(path, most=fence.LARGEST))["nonce"]
    except StorageError as error:
        return str(error)
    except (Unsafe, ValueError, LookupError, TypeError):
        return "the file there is not a fence"
    return found
