"""One rank's restore: what ``Checkpointer.restore`` does.

Rank 0 says which step; every rank reads what it needs, and verifies it while reading. What one rank finds wrong, every
rank raises. In the end the replicas vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from allranks.arrays.detect import open_tree
from allranks.arrays.saved import told
from allranks.checkpoint import agree, audit, garbage, holds, match, paths
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.reader import read
from allranks.consistency import verify
from allranks.consistency.placement import open_placed
from allranks.errors import Damaged, DoesNotFit, NewerFormat, NotThere, StepRemoved, StorageError, name_ranks
from allranks.gate.log import log
from allranks.storage.base import Storage
from allranks.world.base import World

T = TypeVar("T")
# How often the newest step may be removed while it is read; the second time, rank 0 holds it.
_MOST_ATTEMPTS = 10
_HOLD_MINUTES = 60.0


class Restored(tuple[T, int], Generic[T]):
    """``(state, step)``, with what else was saved: ``extra`` and ``metrics``.

    ``notes`` say what the checkpoint lacked and stays as the program has it.
    """

    extra: Any
    metrics: Mapping[str, float]
    notes: tuple[str, ...]

    def __new__(cls, state: T, manifest: Manifest, notes: tuple[str, ...]) -> Restored[T]:
        self = super().__new__(cls, (state, manifest.step))
        self.extra, self.metrics, self.notes = manifest.extra, manifest.metrics, notes
        return self


def restore(storage: Storage, world: World, like: T, *, step: int | None, fallback: bool) -> Restored[T] | None:
    """Return the state of a step, by default the newest; None if there is none. **Every rank must call.**

    With ``fallback``, a damaged checkpoint is passed over, loudly, for the one before.
    """
    path = None
    try:
        for attempt in range(_MOST_ATTEMPTS):
            there = _candidates(storage, world, step)
            if attempt and there and world.is_main:
                holds.release(storage, path) if path else None
                path = _held(storage, there[0])
            try:
                return _newest_sound(storage, world, like, there, fallback=fallback)
            except StepRemoved as error:
                if step is not None or attempt == _MOST_ATTEMPTS - 1:
                    raise
                log("%s\nallranks: the run is listed again.", error, level=20)
    finally:
        if path is not None:
            holds.release(storage, path)
    raise AssertionError("the last attempt returns or raises")


def _held(storage: Storage, step: int) -> str | None:
    """Hold a step; None where that cannot be: a reader may have no right to write."""
    try:
        return holds.take(storage, step, minutes=_HOLD_MINUTES)
    except StorageError:
        return None


def _newest_sound(
    storage: Storage, world: World, like: T, there: Sequence[int], *, fallback: bool
) -> Restored[T] | None:
    """Return the state of the first of these steps; with ``fallback``, of the first that is whole."""
    for number, one in enumerate(there):
        try:
            with garbage.left_alone():
                return _restore(storage, world, like, one)
        except Damaged as error:
            older = there[number + 1] if number + 1 < len(there) else None
            if not fallback or older is None:
                raise _with_advice(error, older) from error
            log("%s\nallranks: falling back to step %d.", error, older, level=30)
    return None


def _candidates(storage: Storage, world: World, step: int | None) -> list[int]:
    """Return the steps to try, the first one first, as rank 0 sees them."""
    found: list[int] = world.on_main(lambda: list(reversed(audit.steps(storage))))
    if not found and world.on_main(lambda: storage.size(paths.MANIFEST) is not None):
        raise NotThere(
            f"rank {world.rank}: {storage.url} is the folder of one checkpoint, and no run.",
            path=paths.MANIFEST,
            remedy="Name the run, which is the folder above; or allranks.load reads the folder as it is.",
        )
    if step is None:
        return found
    if step not in found:
        told = ", ".join(map(str, found)) or "none"
        raise NotThere(
            f"rank {world.rank}: {storage.url} has no step {step}; it has {told}.", path=paths.step_folder(step)
        )
    return [one for one in found if one <= step]


def _with_advice(error: Damaged, older: int | None) -> Damaged:
    advice = "There is no older one."
    if older is not None:
        advice = f"restore(step={older}) takes the one before; fallback=True the newest that is whole."
    return Damaged(str(error), path=error.path, leaf=error.leaf, where=error.where, step=error.step, remedy=advice)


def _restore(storage: Storage, world: World, like: T, step: int) -> Restored[T]:
    """Restore one step, or raise on every rank what the first rank that could not says."""
    who = f"rank {world.rank}: restore of {storage.url}/{paths.step_folder(step)}"
    manifest = tree = state = None
    error: Exception | None = None
    try:
        manifest = audit.load(storage, step)
        tree = open_tree(like, rank=world.rank, size=world.size, restoring=True, saved=match.saved(manifest))
        differences = match.differences(tree.declared, tree.values, manifest)
        if differences:
            raise DoesNotFit(
                f"{who}: {match.report(differences, tree.declared, manifest)}", differences=differences, step=step
            )
    except Exception as found:  # whatever it is: the others must not wait for this rank
        error = (_removed(storage, step, manifest, who) if isinstance(found, NotThere) else None) or found
    _all_or_none(world, "look", step, error, said=manifest.nonce if manifest else "")
    assert manifest is not None
    assert tree is not None
    try:
        read(storage, manifest, tree)
        state = tree.rebuild(manifest.values)
    except Exception as found:
        error = found
        if isinstance(found, Damaged) and isinstance(found.__cause__, NotThere):
            error = _removed(storage, step, manifest, who) or found
    _all_or_none(world, "read", step, error, said="")
    verify.agree(open_placed(state, world), world, name=f"restore of step {step}")
    notes = told(tree.kept)
    if notes:
        log("restore of step %d: %s.", step, "; ".join(notes))
    return Restored(state, manifest, notes)  # type: ignore[arg-type]


def _removed(storage: Storage, step: int, manifest: Manifest | None, who: str) -> StepRemoved | None:
    """Return the error for a step that was removed, or saved over, since its manifest was read; None if it was not."""
    try:
        if manifest is not None and audit.load(storage, step).nonce == manifest.nonce:
            return None
    except (NotThere, Damaged, NewerFormat):
        pass
    except StorageError:  # so it is not known
        return None
    return StepRemoved(
        f"{who}: step {step} was removed meanwhile, by the job that owns the run or by `allranks ckpt gc`.",
        path=paths.step_folder(step),
        remedy="Restore another step; Checkpointer.hold(step) keeps one while it is read.",
    )


def _all_or_none(world: World, doing: str, step: int, error: Exception | None, *, said: str) -> None:
    """Raise on every rank if one has an error, or if the ranks do not say the same: an error of one kind on all."""
    name = f"{doing} at step {step}"
    refused = world.exchange("restore", name, [agree.refusal(error), said], decide=_decide)
    if refused is None:
        return
    if error is not None and type(error).__name__ == refused[1]:
        raise error
    raise agree.quoted(refused, who=f"rank {world.rank}: restore: {name}", step=step) from error


def _decide(values: Sequence[Any]) -> list[Any] | None:
    if refused := agree.first_refusal([refusal for refusal, _ in values]):
        return refused
    if len({said for _, said in values}) > 1:
        ranks = [rank for rank, (_, said) in enumerate(values) if said != values[0][1]]
        what = f"{name_ranks(ranks)} see another checkpoint of this step than rank 0"
        return [ranks, StorageError.__name__, f"{what}. Is the directory shared by all hosts?"]
    return None
