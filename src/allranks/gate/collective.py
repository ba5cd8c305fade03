"""Implement ``allranks.collective``: a block that a rank enters only if every rank enters the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from weakref import WeakKeyDictionary

from allranks.arrays.base import Leaf
from allranks.callsite import call_site
from allranks.gate.ticket import (
    CollectiveEntry,
    compare_entries,
    describe_leaves,
    digest_of_descriptions,
    leaf_mismatch,
)
from allranks.world.base import World
from allranks.world.codec import Value

# Each group of equal ranks sends its whole tree; where all ranks differ, so many groups are enough.
_MOST_GROUPS = 8

_entered: WeakKeyDictionary[World, Counter[str]] = WeakKeyDictionary()


@contextmanager
def collective(
    world: World,
    name: str,
    *,
    step: int | None = None,
    digest: str | Sequence[Leaf] = "",
    timeout: float | None = None,
) -> Iterator[None]:
    """Enter the block only if every rank enters the same one; **every rank must call**.

    These are compared: ``name``, how often this rank has entered that name, ``step``, and ``digest``. ``digest`` is a
    digest of whatever must be equal on all ranks, or the result of ``allranks.describe(tree)``: the shapes, dtypes and
    shardings of all leaves. If anything differs, every rank raises Mismatch, which names the ranks that differ. If
    leaves differ, it names the first of these leaves. ``timeout`` is in seconds (default: the world's).

    The ranks do not wait for each other at the end of the block. An exception that leaves the block carries a note with
    the name, the count and the step.
    """
    counts = _entered.setdefault(world, Counter())
    counts[name] += 1
    descriptions = {} if isinstance(digest, str) else describe_leaves(digest)
    digest_text = digest if isinstance(digest, str) else digest_of_descriptions(descriptions)
    entry = CollectiveEntry(counts[name], step, digest_text, not isinstance(digest, str), call_site())
    groups = world.exchange("collective", name, list(astuple(entry)), decide=_find_mismatch, timeout=timeout)
    if groups is not None:
        raise_leaf_mismatch(world, name, groups, descriptions=descriptions, timeout=timeout)
    try:
        yield
    except Exception as error:
        error.add_note(f"rank {world.rank}: inside collective {name!r}: {entry.describe(('sequence', 'step'))}")
        raise


def _find_mismatch(values: Sequence[Value]) -> Value:
    """Return None if all ranks have entered with the same values, else the groups whose leaves must be compared."""
    return compare_entries([CollectiveEntry(*value) for value in values])


def raise_leaf_mismatch(
    world: World,
    name: str,
    groups: Sequence[Sequence[int]],
    *,
    descriptions: Mapping[str, str],
    timeout: float | None = None,
) -> None:
    """Raise, on every rank, the Mismatch that names the first leaf whose description differs between groups of ranks.

    ``descriptions`` has one description per leaf path. **Every rank must call**; the first rank of each group sends its
    own descriptions.
    """
    compared = groups[:_MOST_GROUPS]
    leaders = [ranks[0] for ranks in compared]

    def decide(values: Sequence[Value]) -> Value:
        raise leaf_mismatch([(ranks, values[ranks[0]]) for ranks in compared])

    world.exchange(
        "collective leaves", name, descriptions if world.rank in leaders else None, decide=decide, timeout=timeout
    )
