"""Restore a step on one rank: the implementation of ``Checkpointer.restore``.

Rank 0 decides which step is restored. Every rank reads what it needs, and verifies it while reading. An error on one
rank is raised on every rank. At the end the replicas are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from allranks.arrays.base import OpenTree
from allranks.arrays.detect import open_tree
from allranks.arrays.rank_choice import is_below_any
from allranks.arrays.saved_tree import notes_on_settings
from allranks.checkpoint import agree, holds, inventory, items, match, paths, template_fill
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.compare import are_known_equal
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.memory.tier import MemoryTierMethods
from allranks.checkpoint.names import first_matching_glob
from allranks.checkpoint.per_rank import RankChoices, manifest_for_rank
from allranks.checkpoint.template_fill import DecodedObjects, Read
from allranks.consistency import verify
from allranks.consistency.placement import open_world_tree
from allranks.errors import (
    AllranksError,
    Damaged,
    DoesNotFit,
    NewerFormat,
    NotThere,
    StepRemoved,
    StorageError,
    name_ranks,
)
from allranks.failure import one_line
from allranks.gate.log import log
from allranks.storage.base import Storage
from allranks.world.base import World

T = TypeVar("T")
# How often the newest step may be removed while it is read. From the second attempt on, rank 0 holds it.
_MOST_ATTEMPTS = 10
_HOLD_MINUTES = 60.0


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """The choices for leaves that differ over the ranks, the allowed differences, and the run's in-memory tier."""

    choices: RankChoices
    options: match.RestoreOptions
    memory: MemoryTierMethods


class Restored(tuple[T, int], Generic[T]):
    """The result of a restore: the tuple ``(state, step)``, with attributes ``extra`` and ``metrics`` as they were
    saved.

    ``notes``: which leaves the checkpoint lacked and keep the program's values, and what could not be restored.
    ``source``: ``storage``, or ``memory`` of the hosts (``memory_every``).
    ``on_storage``: whether the step is in the storage, too.
    """

    extra: Any
    metrics: Mapping[str, float]
    notes: tuple[str, ...]
    source: Literal["storage", "memory"]
    on_storage: bool

    def __new__(cls, state: T, manifest: Manifest, notes: tuple[str, ...]) -> Restored[T]:
        self = super().__new__(cls, (state, manifest.step))
        self.extra, self.metrics, self.notes = manifest.extra, manifest.metrics, notes
        self.source, self.on_storage = "storage", True
        return self

    @property
    def state(self) -> T:
        return self[0]

    @property
    def step(self) -> int:
        return self[1]


def restore(
    storage: Storage, world: World, like: T, *, step: int | None, fallback: bool, settings: RestoreSettings
) -> Restored[T] | None:
    """Return the state of a step, by default of the newest; None if there is none. **Every rank must call.**

    A step in memory is preferred. If it cannot be restored, that is logged, and the newest step of the storage is
    restored. With ``fallback``, a damaged checkpoint is logged, and the step before it is tried.
    """
    restored, lost = _from_memory(world, like, step, settings)
    if restored is None:
        restored = _from_storage(storage, world, like, step=step, fallback=fallback, settings=settings)
        if restored is not None:
            log("allranks: step %d is restored from %s", restored.step, storage.url, level=20)
    if lost:
        instead = "the storage has no step, so nothing is restored"
        if restored is not None:
            instead = f"step {restored.step} of the storage is restored instead"
            restored.notes = (*restored.notes, lost)
        log("allranks: %s\nallranks: %s.", lost, instead, level=30)
    return restored


def _from_memory(world: World, like: T, step: int | None, settings: RestoreSettings) -> tuple[Restored[T] | None, str]:
    """Return the state restored from the hosts' memory, or None; and a text on a step that was lost there, or ""."""
    found = settings.memory.find_step(step)
    if found is None:
        return None, ""
    if found.storage is not None and found.step is not None:
        # What fails now is raised: ``like`` may be half filled, and an older step need not fill all of it.
        restored = _restore_step(found.storage, world, like, found.step, settings)
        restored.source, restored.on_storage = "memory", found.on_disk
        restored.notes = (*restored.notes, *found.notes)
        text = f"allranks: step {found.step} is restored from the memory of the hosts"
        log("; ".join([text, *found.notes]), level=30)
        return restored, ""
    return None, f"{'a step' if found.step is None else f'step {found.step}'} in memory is lost: {found.why_lost}"


def _from_storage(
    storage: Storage, world: World, like: T, *, step: int | None, fallback: bool, settings: RestoreSettings
) -> Restored[T] | None:
    path = None
    try:
        for attempt in range(_MOST_ATTEMPTS):
            there = _candidate_steps(storage, world, step)
            if attempt and there and world.is_main:
                holds.release_hold(storage, path) if path else None
                path = _hold_if_possible(storage, there[0])
            try:
                return _restore_undamaged(storage, world, like, there, fallback=fallback, settings=settings)
            except StepRemoved as error:
                if step is not None or attempt == _MOST_ATTEMPTS - 1:
                    raise
                log("%s\nallranks: the run is listed again.", error, level=20)
    finally:
        if path is not None:
            holds.release_hold(storage, path)
    raise AssertionError("the last attempt returns or raises")


def _hold_if_possible(storage: Storage, step: int) -> str | None:
    """Hold a step, and return the hold's path. Returns None if that fails: a reader may have no right to write."""
    try:
        return holds.take_hold(storage, step, minutes=_HOLD_MINUTES)
    except StorageError:
        return None


def _restore_undamaged(
    storage: Storage, world: World, like: T, there: Sequence[int], *, fallback: bool, settings: RestoreSettings
) -> Restored[T] | None:
    """Return the state of the first of these steps; with ``fallback``, of the first step that is not damaged."""
    for number, one in enumerate(there):
        try:
            with template_fill.pause_gc():
                return _restore_step(storage, world, like, one, settings)
        except Damaged as error:
            older = there[number + 1] if number + 1 < len(there) else None
            if not fallback or older is None:
                raise _with_advice(error, older) from error
            log("%s\nallranks: falling back to step %d.", error, older, level=30)
    return None


def _candidate_steps(storage: Storage, world: World, step: int | None) -> list[int]:
    """Return the steps to try, in order, as rank 0 sees them. Every rank must call. Raises NotThere."""
    found: list[int] = world.on_main(lambda: list(reversed(inventory.complete_steps(storage))))
    if not found and world.on_main(lambda: storage.size(paths.MANIFEST) is not None):
        raise NotThere(
            f"rank {world.rank}: {storage.url} is the folder of one checkpoint: expected a run.",
            path=paths.MANIFEST,
            remedy="Pass the folder above, which is the run, or load this folder with allranks.load.",
        )
    if step is None:
        return found
    if step not in found:
        told = ", ".join(map(str, found)) or "none"
        raise NotThere(
            f"rank {world.rank}: {storage.url} has no step {step}: expected one of {told}.",
            path=paths.step_folder(step),
            remedy="Restore another step. Without step=, restore() restores the newest step.",
        )
    return [one for one in found if one <= step]


def _with_advice(error: Damaged, older: int | None) -> Damaged:
    advice = "There is no older step to restore."
    if older is not None:
        advice = (
            f"restore(step={older}) restores the step before; fallback=True restores the newest step that is not "
            "damaged."
        )
    return Damaged(str(error), path=error.path, leaf=error.leaf, where=error.where, step=error.step, remedy=advice)


@dataclass(frozen=True, slots=True)
class _RestorePlan:
    """What to read of a step.

    ``names``: the names of the arrays to read, by their numbers. ``tied``: arrays that share the memory of another
    array.
    """

    manifest: Manifest
    tree: OpenTree
    names: Mapping[int, str]
    tied: Mapping[int, int]
    fill: Read
    notes: tuple[str, ...]

    def decode_objects(self, who: str) -> DecodedObjects:
        """Make the objects of registered types. Raises DoesNotFit, Damaged, StorageError, and then changes nothing."""
        return DecodedObjects(
            self.tree, self.names, twins=self.tied, read=self.fill, values=self.manifest.values, who=who
        )

    def read_state(self, decoded: DecodedObjects) -> object:
        """Fill everything that ``decoded`` has not filled, and return the state. Raises Damaged, StorageError."""
        left = [number for number, name in self.names.items() if number not in self.tied and name not in decoded.filled]
        self.fill([(self.names[number], target) for number in left for target in self.tree.targets_of_array(number)])
        for number in self.tied:
            self.tree.targets_of_array(number)  # what has no memory yet gets that of the other
        return self.tree.rebuild_tree(self.manifest.values)


def _restore_step(storage: Storage, world: World, like: T, step: int, settings: RestoreSettings) -> Restored[T]:
    """Restore one step. If a rank cannot, the error of the first such rank is raised on every rank."""
    who = f"rank {world.rank}: restore of {storage.url}/{paths.step_folder(step)}"
    manifest = plan = state = None
    error: Exception | None = None
    try:
        manifest = inventory.load_manifest(storage, step)
        plan = _make_plan(storage, world, like, manifest, settings)
    except Exception as found:  # whatever it is: the others must not wait for this rank
        error = _removal_error(found, storage, step, manifest, who) or found
    _raise_on_all(world, "look", step, error, said=manifest.nonce if manifest else "")
    assert plan is not None
    decoded = None
    try:
        decoded = plan.decode_objects(who)
    except Exception as found:
        error = _removal_error(found, storage, step, manifest, who) or found
    try:
        _raise_on_all(world, "decode", step, error, said="")
    except AllranksError:
        decoded.restore_previous_values() if decoded is not None else None
        raise
    assert decoded is not None
    try:
        state = plan.read_state(decoded)
    except Exception as found:
        error = _removal_error(found, storage, step, manifest, who) or found
    _raise_on_all(world, "read", step, error, said="")
    leaves, choices = plan.manifest.leaves, settings.choices
    marked = [*(path for path, leaf in leaves.items() if leaf.per_rank), *plan.manifest.rank_values]
    own = {path: "rank" for path in marked if choices.choice_for_path(path) != "main"}
    verify.require_equal_copies(
        open_world_tree(state, world, choose=lambda _: own), world, name=f"restore of step {step}"
    )
    if plan.notes:
        log("restore of step %d: %s.", step, "; ".join(plan.notes))
    return Restored(state, plan.manifest, plan.notes)  # type: ignore[arg-type]


def _make_plan(
    storage: Storage, world: World, like: object, manifest: Manifest, settings: RestoreSettings
) -> _RestorePlan:
    """Return what to read. Raises DoesNotFit. Changes nothing."""
    options, step = settings.options, manifest.step
    manifest = manifest_for_rank(manifest, rank=world.rank, size=world.size, choice_of=settings.choices.choice_for_path)
    saved = match.saved_tree(manifest, options.rename)
    tree = open_tree(like, rank=world.rank, size=world.size, for_restore=True, saved=saved)
    declared = tree.declared_arrays
    manifest = match.rename_manifest(manifest, [*(one.path for one in declared), *tree.values], options.rename)
    if tree.rank_local_paths and manifest.world_size != world.size:
        local, every = tree.rank_local_paths, (*manifest.leaves, *manifest.values)
        dealt = {path: "dealt" for path in every if is_below_any(path, local)}
        manifest = manifest_for_rank(
            manifest, rank=world.rank, size=world.size, choice_of=lambda path: dealt.get(path, "")
        )
    there = {number: one.path for number, one in enumerate(declared) if one.path in manifest.leaves}
    pairs = template_fill.arrays_with_shared_memory(tree, there)
    covered = {declared[number].path for number in pairs if number not in there} | _tied_to(manifest, there.values())
    differences = [one for one in match.find_differences(declared, tree.values, manifest) if one.path not in covered]
    allowed = [one for one in differences if options.allows(one, manifest)]
    wrong = tuple(one for one in differences if one not in allowed)
    fill = ChunkReader(storage, manifest, cast=options.cast).fill_targets
    both = {number: other for number, other in pairs.items() if number in there}
    if not wrong:
        conflicts = template_fill.find_conflicting_ties(tree, there, both, fill, partial(are_known_equal, manifest))
        wrong = match.find_tied_differences(
            conflicts | template_fill.find_conflicting_overlaps(tree, there, fill), declared
        )
        wrong = tuple(one for one in wrong if not first_matching_glob(one.path, options.allow_missing))
    if not wrong:
        wrong = _missing_values(tree, allowed)
    if wrong:
        who = one_line(f"rank {world.rank}: restore of {storage.url}/{paths.step_folder(step)}")
        remedy = "If a difference is intended, allow it: rename=, allow_missing=, allow_unexpected=, cast=True."
        remedy = _remedy_for_items(storage, manifest, [*(one.path for one in declared), *tree.values]) or remedy
        report = match.report_differences(wrong, declared, manifest)
        raise DoesNotFit(f"{who}: {report}", differences=wrong, step=step, remedy=remedy)
    return _RestorePlan(
        manifest, tree, there, pairs, fill, (*notes_on_settings(tree.kept_settings), *match.describe_allowed(allowed))
    )


def _remedy_for_items(storage: Storage, manifest: Manifest, wanted: Sequence[str]) -> str:
    """Return a text that says which step to restore, if this step lacks items of the template; "" if it lacks none."""
    tops = {*map(items.top_key, wanted)}
    lacking = tops - items.items_in(manifest)
    if not lacking:
        return ""
    for step in reversed(inventory.complete_steps(storage)):
        try:
            if tops <= items.items_in(inventory.load_manifest(storage, step)):
                told = ", ".join(map(repr, sorted(lacking)))
                newest = f"The newest step with all of the template is {step}: restore(like, step={step})."
                return f"Step {manifest.step} has no {told}. {newest}"
        except (NotThere, Damaged, NewerFormat):
            continue
    return ""


def _tied_to(manifest: Manifest, paths: Iterable[str]) -> set[str]:
    """Return the leaves of a checkpoint that shared memory with one of these, and are restored with it."""
    saved_ties = manifest.ties
    if not saved_ties:
        return set()
    taken = {saved_ties.get(path, path) for path in paths}
    return {path for path in manifest.leaves if saved_ties.get(path, path) in taken}


def _missing_values(tree: OpenTree, allowed: Sequence[match.LeafDifference]) -> tuple[match.LeafDifference, ...]:
    """Return the allowed missing leaves for which the template has no value, only a description."""
    missing = {one.path: one for one in allowed if one.kind == "missing"}
    numbers = [number for number, one in enumerate(tree.declared_arrays) if one.path in missing]
    return tuple(missing[tree.declared_arrays[number].path] for number in numbers if not tree.copies_of_array(number))


def _removal_error(
    found: Exception, storage: Storage, step: int, manifest: Manifest | None, who: str
) -> StepRemoved | None:
    """Return StepRemoved if a step was removed, or saved again, since its manifest was read; None otherwise."""
    if not isinstance(found if manifest is None else found.__cause__, NotThere):
        return None
    try:
        if manifest is not None and inventory.is_current(storage, manifest):
            return None
    except (NotThere, Damaged, NewerFormat):
        pass
    except StorageError:  # so it is not known
        return None
    return StepRemoved(
        f"{who}: step {step} was removed while it was read, by the job that owns the run or by `allranks ckpt gc`.",
        path=paths.step_folder(step),
        remedy="Restore another step. Checkpointer.hold(step) keeps a step while it is read.",
    )


def _raise_on_all(world: World, doing: str, step: int, error: Exception | None, *, said: str) -> None:
    """Raise an error of the same class on every rank if one rank has an error, or if ``said`` differs between ranks.

    ``said``: a text that must be equal on all ranks. Every rank must call.
    """
    name = f"{doing} at step {step}"
    refused = world.exchange("restore", name, [agree.refusal_of(error), said], decide=_decide_restore)
    if refused is None:
        return
    if error is not None and type(error).__name__ == refused[1]:
        raise error
    raise agree.refusal_error(refused, operation=f"rank {world.rank}: restore: {name}", step=step) from error


def _decide_restore(values: Sequence[Any]) -> list[Any] | None:
    if refused := agree.first_refusal([refusal for refusal, _ in values]):
        return refused
    if len({said for _, said in values}) > 1:
        ranks = [rank for rank, (_, said) in enumerate(values) if said != values[0][1]]
        what = f"{name_ranks(ranks)} see another checkpoint of this step than rank 0 sees"
        return [ranks, StorageError.__name__, f"{what}. Is the directory shared by all hosts?"]
    return None
