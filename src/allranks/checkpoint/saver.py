"""Save into a run on one rank, one save at a time.

First, in the program's thread, the ranks compare what they save, and bytes that the program may change are copied. Then
a background thread writes, without collectives. When all ranks have written, rank 0 writes the manifest, as the commit
protocol decides.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from allranks import agent
from allranks.arrays.base import OpenTree
from allranks.callsite import call_site
from allranks.checkpoint import agree
from allranks.checkpoint.commit_events import SaveId
from allranks.checkpoint.commit_protocol import CommitProtocol
from allranks.checkpoint.planner import PreparedSave, SavePlanner
from allranks.checkpoint.retention_policy import Saved
from allranks.checkpoint.save_operation import (
    SaveContent,
    SaveOperation,
    check_storable,
    count_blocks_to_copy,
    open_shard_file,
)
from allranks.checkpoint.save_request import (
    CommittedSave,
    SaveHandle,
    SaveOrder,
    SaveSettings,
    convert_metrics,
    resolve_gatherables,
)
from allranks.checkpoint.stage import BlockPool
from allranks.checkpoint.unsaved_generators import UnsavedGenerators
from allranks.consistency.differences import claim_of_state
from allranks.consistency.placement import agree_placement, open_world_tree
from allranks.digest import digest, show
from allranks.errors import AllranksError, Mismatch
from allranks.failure import text_of
from allranks.gate.ticket import CollectiveEntry
from allranks.storage.base import BLOCK, Storage
from allranks.world.base import World
from allranks.world.progress import progress

_LOG = logging.getLogger("allranks.checkpoint")
# Seconds between two checks whether a save can still be committed.
_CHECK_INTERVAL = 1.0


class CommitHooks(Protocol):
    """What rank 0 calls before a manifest is written, and after a save is committed."""

    def before_commit(self) -> None: ...

    def after_commit(self, saved: Saved, *, replaced: bool) -> None: ...


class RunSaver:
    """Saves into ``storage``, one save at a time, on one rank.

    ``nonce``: equal on every rank. ``hooks``: on rank 0 only.
    """

    def __init__(
        self,
        storage: Storage,
        world: World,
        settings: SaveSettings,
        *,
        nonce: str,
        hooks: CommitHooks | None,
    ) -> None:
        self._storage, self._world, self._settings = storage, world, settings
        self._nonce, self._hooks = nonce, hooks
        self._commit_protocol = CommitProtocol(world.store, world.clock, rank=world.rank, size=world.size)
        self._planner = SavePlanner(world.rank, world.size, settings.items)
        self._renew_pools()
        self._count = 0
        self._last: SaveHandle | None = None
        self._generators = UnsavedGenerators() if world.is_main and settings.durable else None
        self.committed: int | None = None  # the last committed step

    def start_save(self, order: SaveOrder, state: object) -> SaveHandle:
        """Save, and return when the program may change the state. **Every rank must call.**

        Raises the error of the save before.
        """
        began = time.monotonic()
        self.wait_for_save()
        self._count += 1
        order = self._gather_extra(convert_metrics(order))
        operation = self._open_and_compare(order, state)
        said = order.step, self._world.rank
        _LOG.debug("save of step %d on rank %d: agreed (step, tree and bytes are the same on all ranks)", *said)
        handle = self._last = SaveHandle(order.step)
        work = (operation, order, handle, began)
        if order.wait:
            self._write_and_commit(*work)
            self.wait_for_save()
            return handle
        threading.Thread(target=self._write_and_commit, args=work, name=f"allranks-save-{order.step}").start()
        for file in operation.files:
            file.copy_mutable_blocks(self._settings.copy_threads)
        _LOG.debug("save of step %d on rank %d: copied (the training continues)", *said)
        handle.blocked = time.monotonic() - began
        return handle

    def note_step(self, step: int) -> None:
        """Note that the training has done ``step`` steps."""
        if self._generators is not None:
            self._generators.note_step(step)

    def allocate_copies(self, state: object) -> None:
        """Allocate the memory for copies of a state in the background, because that would delay the first save."""
        try:
            tree = open_world_tree(state, self._world, choose=self._settings.choices.choices_for_paths)
            many = sum(count_blocks_to_copy(tree, planned) for planned in self._planner.prepare_save(tree).files)
        except Exception:  # any error of the state's own code: the save reports it
            return
        threading.Thread(target=self._pools[1].allocate_blocks, args=(many,), name="allranks-memory").start()

    def stop_allocation(self) -> None:
        """Stop allocating memory for copies in the background."""
        self._pools[1].stop_allocation()

    def rewind(self, resumed: int) -> None:
        """Forget commits after step ``resumed``, because the training continues from there."""
        if self.committed is not None and self.committed > resumed:
            self.committed = None

    def wait_for_save(self) -> None:
        """Wait for the running save, if there is one. Raises its error, but only once."""
        last, self._last = self._last, None
        if last is not None:
            last.wait()

    def _gather_extra(self, order: SaveOrder) -> SaveOrder:
        """Replace the GatherableValues in ``extra``. Every rank must call, even if it will refuse the save."""
        try:
            return replace(order, extra=resolve_gatherables(order.extra))
        except AllranksError:  # of the exchange: all ranks have it
            raise
        except Exception as error:  # of this rank only
            refused = AllranksError(f"extra: a value's gathered() failed: {text_of(error)}")
            return replace(order, extra=None, refused=order.refused or refused)

    def _open_and_compare(self, order: SaveOrder, state: object) -> SaveOperation:
        """Prepare a save of the state, and check that all ranks save the same. The arrays to write are kept alive.

        Every rank must call. Raises Mismatch, or the error of the first rank that cannot save.
        """
        world = self._world
        error: Exception | None = order.refused
        tree = operation = None
        agreed = False
        while not agreed:
            try:
                if error is None:
                    tree = (
                        open_world_tree(state, world, choose=self._settings.choices.choices_for_paths)
                        if tree is None
                        else tree
                    )
                    values = {**tree.values, **tree.main_values, **tree.rank_values}
                    check_storable(values, order.extra, rank=world.rank)
                    operation = self._make_operation(order, tree, self._planner.prepare_save(tree))
            except Exception as refused:  # any error: the other ranks must not wait for this rank
                error = refused
            try:
                agreed = world.size == 1 or self._agree_on_save(order, tree, operation, error)
            except Mismatch as odd:  # the other ranks are at this save, and this rank could not gather
                raise (error or odd) from odd
            if error is not None:
                raise error
            assert tree is not None
            if not agreed:
                tree = agree_placement(tree, world, name=f"save of step {order.step}")
        assert operation is not None
        assert tree is not None
        if self._generators is not None:
            self._generators.note_save(order.step, tree, order.extra)
        return operation

    def _agree_on_save(
        self, order: SaveOrder, tree: OpenTree | None, operation: SaveOperation | None, error: Exception | None
    ) -> bool:
        prepared = operation.prepared if operation else None
        values = agree.describe_values({**tree.values, "(extra)": order.extra}) if tree and operation else {}
        values |= dict.fromkeys(tree.rank_values, "a value of each rank") if tree and operation else {}
        said = show(digest(prepared.digest if prepared else "", json.dumps(values)))
        return agree.compare_save_over_ranks(
            self._world,
            CollectiveEntry(self._count, order.step, said, True, call_site()),
            error=error,
            describe_leaves=partial(_describe_leaves, prepared, values),
            state_claim=claim_of_state(tree, self._world, name="save") if tree and operation else None,
        )

    def _make_operation(self, order: SaveOrder, tree: OpenTree, prepared: PreparedSave) -> SaveOperation:
        rank, size = self._world.rank, self._world.size
        identity = SaveId(self._count, order.step, show(digest(self._nonce, str(self._count), str(order.step))))
        integrity = self._settings.integrity
        make = partial(
            open_shard_file,
            tree,
            save_information={"step": order.step, "nonce": identity.nonce, "rank": rank},
            integrity=integrity,
            pools=self._pools,
            is_blocking=order.wait,
            check_abort=self._abort_check(identity),
        )
        files = tuple(map(make, prepared.files))
        content = SaveContent({**tree.values, **tree.main_values}, tree.rank_values, order.extra, order.metrics)
        how = (order.replace, self._settings.compresses)
        return SaveOperation(self._storage, identity, rank, size, integrity, prepared, content, files, *how)

    def _abort_check(self, identity: SaveId) -> Callable[[], None]:
        """Return a function that raises if the save can no longer be committed. It is called before every block."""
        next_check = time.monotonic() + _CHECK_INTERVAL

        def check_abort() -> None:
            nonlocal next_check
            if time.monotonic() > next_check:
                next_check = time.monotonic() + _CHECK_INTERVAL
                if self._commit_protocol.is_hopeless(identity):
                    raise AllranksError(
                        f"save of step {identity.step}: the save was aborted, and no checkpoint was published.",
                        step=identity.step,
                    )

        return check_abort

    def _write_and_commit(self, operation: SaveOperation, order: SaveOrder, handle: SaveHandle, began: float) -> None:
        """Write and commit. The save's background thread runs this."""

        def publish(acks: Sequence[Any]) -> None:
            assert self._hooks is not None
            self._hooks.before_commit()
            operation.write_manifest(acks)

        try:
            self._commit_protocol.run_save(
                operation.identity,
                write_part=operation.write_files,
                publish_manifest=publish,
                is_published=operation.is_published,
                discard_part=operation.remove_files,
                timeout=self._settings.timeout,
            )
        except BaseException as error:
            self._renew_pools()
            handle.set_result(error)
            return
        self.committed = order.step
        seconds, copied = time.monotonic() - began, self._pools[1].allocated_bytes
        result = CommittedSave(order.step, operation.folder, operation.prepared.nbytes, seconds, handle.blocked, copied)
        try:
            if self._hooks is not None:
                saved = Saved(order.step, order.metrics, operation.item_names if self._settings.items else frozenset())
                self._hooks.after_commit(saved, replaced=order.replace)
        finally:  # in any case, the save is committed for all ranks
            handle.set_result(result)
            progress.saved = order.step if self._settings.durable else progress.saved
            if self._world.is_main and self._settings.durable:
                agent.load().report("saved", step=order.step)

    def _renew_pools(self) -> None:
        """Replace the memory pools by new ones, because an aborted save has not returned all of its blocks."""
        memory = self._settings.memory
        self._pools = BlockPool(), BlockPool(None if memory is None else max(memory // BLOCK, 1))


def _describe_leaves(prepared: PreparedSave | None, values: Mapping[str, str]) -> dict[str, str]:
    """Return a description of every leaf and value, by path, for the comparison of all ranks."""
    arrays = agree.describe_arrays(prepared.declared, prepared.ties) if prepared else {}
    return {**arrays, **values}
