"""Compare what all ranks are about to save, before a byte is written: step, tree, values and replicas.

The comparison is one exchange. Each rank sends two digests: of what it is about to save, and of the parts that other
ranks also hold. Only if digests differ do the ranks send more, so that the error can name the leaf.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allranks.arrays.base import DeclaredArray
from allranks.checkpoint.per_rank import advice_on_differing_leaves
from allranks.consistency.claim import StateClaim
from allranks.consistency.differences import groups_that_differ
from allranks.consistency.verify import raise_mismatch
from allranks.errors import (
    AllranksError,
    CannotStore,
    Damaged,
    DoesNotFit,
    Fenced,
    NewerFormat,
    NotThere,
    StepExists,
    StepRemoved,
    StorageError,
    UnknownFormat,
    Unsafe,
    name_ranks,
)
from allranks.failure import message_of
from allranks.gate.collective import raise_leaf_mismatch
from allranks.gate.ticket import CollectiveEntry, compare_entries, describe_array
from allranks.world.base import World

_KINDS: dict[str, type[AllranksError]] = {
    kind.__name__: kind
    for kind in (
        CannotStore,
        Damaged,
        Fenced,
        NewerFormat,
        NotThere,
        StepExists,
        StepRemoved,
        StorageError,
        UnknownFormat,
        Unsafe,
    )
}


def describe_arrays(declared_arrays: Sequence[DeclaredArray], tied_paths: Mapping[str, str]) -> dict[str, str]:
    """Return a text for each array, by path: its dtype, shape and sharding, e.g. ``float32[512, 64] in 4 x 1 pieces``.

    The text for an array that shares its memory with another leaf names that leaf.
    """
    describe = {
        one.path: describe_array(one.dtype, one.shape, one.split.cuts, kind=one.kind) for one in declared_arrays
    }
    return describe | {path: f"one memory with {other!r}" for path, other in tied_paths.items()}


def describe_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Return each JSON value as text, by path."""
    return {path: json.dumps(value, sort_keys=True) for path, value in values.items()}


def compare_save_over_ranks(
    world: World,
    entry: CollectiveEntry,
    *,
    error: Exception | None,
    describe_leaves: Callable[[], Mapping[str, str]],
    state_claim: StateClaim | None,
) -> bool:
    """Compare one save over all ranks, and return True when all ranks save the same. **Every rank must call.**

    Returns False on every rank if the ranks differ only in which rank holds which array. The caller must then call
    ``placement.agree_placement``, and compare again.

    ``entry``: the description of this call that the ranks compare; its digest is that of ``describe_leaves()``, a text
    for each leaf by path.
    ``error``: why this rank cannot save, or None. If it is set, this rank returns, and every other rank raises an error
    of the same kind that quotes it. If the ranks differ, raises Mismatch on every rank, which names the ranks and the
    leaf.
    """
    name = f"save of step {entry.step}"
    ticket = [entry.sequence, entry.step, entry.digest, True, entry.where]
    placed = state_claim.plan.placement if state_claim else ""
    said = [refusal_of(error), ticket, placed, state_claim.root_digests(rank=world.rank) if state_claim else {}]
    odd = world.exchange("checkpoint", name, said, decide=_find_disagreement)
    match odd:
        case "placement":
            return False
        case {"refused": refused}:
            if error is None:
                raise refusal_error(refused, operation=f"rank {world.rank}: {name}", step=entry.step)
        case {"trees": parties}:
            raise_leaf_mismatch(world, name, parties, descriptions=describe_leaves())
        case {"copies": groups}:
            assert state_claim is not None  # a rank that has none refuses
            raise_mismatch(world, name, state_claim, groups, step=entry.step, advice=advice_on_differing_leaves)
    return True


def _find_disagreement(values: Sequence[Any]) -> dict[str, Any] | str | None:
    """Return None if all ranks agree. If not, return which ranks cannot save and why, or what differs between ranks."""
    if refused := first_refusal([refusal for refusal, *_ in values]):
        return {"refused": refused}
    if (parties := compare_entries([CollectiveEntry(*ticket) for _, ticket, *_ in values])) is not None:
        return {"trees": parties}
    if len({placed for _, _, placed, _ in values}) > 1:
        return "placement"
    odd = groups_that_differ([roots for *_, roots in values])
    return {"copies": odd} if odd else None


def refusal_of(error: Exception | None) -> list[str] | None:
    """Return a rank's error as [class name, message], to be sent to the other ranks; None if there is no error."""
    return None if error is None else [type(error).__name__, message_of(error)]


def first_refusal(refusals: Sequence[Sequence[str] | None]) -> list[Any] | None:
    """Combine the errors of all ranks (``refusal_of``) into [ranks with an error, class name of the first, its
    message].

    Returns None if no rank has an error.
    """
    ranks = [rank for rank, refusal in enumerate(refusals) if refusal is not None]
    first = refusals[ranks[0]] if ranks else None
    return [ranks, *first] if first is not None else None


def refusal_error(first_refused: Sequence[Any], *, operation: str, step: int | None) -> AllranksError:
    """Return the error that a healthy rank raises because another rank cannot save: same class, quoting that rank's
    message.
    """
    ranks, kind, message = first_refused
    text = f"{operation}: {name_ranks(ranks)} cannot: {message}"
    if kind == DoesNotFit.__name__:
        return DoesNotFit(text, differences=(), step=step)
    error = _KINDS.get(kind, AllranksError)(text)
    error.ranks, error.step = tuple(ranks), step
    return error
