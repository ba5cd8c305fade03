"""The door before a collective: nobody passes until every rank is at the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from weakref import WeakKeyDictionary

from allranks.arrays.base import Leaf
from allranks.callsite import call_site
from allranks.gate.ticket import Entry, compare, digest_of, in_words, leaf_mismatch
from allranks.world.base import World
from allranks.world.codec import Value

# Whole trees travel, one for each group of ranks that agree: where nobody agrees with anybody, some are enough.
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

    The ticket is ``name``, how often this rank has entered that name, ``step`` and ``digest``: a digest of whatever
    must be alike on all ranks, or what ``allranks.describe(tree)`` returned: shapes, dtypes and splits of all leaves.
    Where tickets differ, every rank raises Mismatch saying who is where; where leaves do, it names the first.
    ``timeout`` is in seconds, default: the world's own.

    There is no second meeting at the end of the block. An exception that leaves it carries a note of the ticket.
    """
    counts = _entered.setdefault(world, Counter())
    counts[name] += 1
    words = {} if isinstance(digest, str) else in_words(digest)
    said = digest if isinstance(digest, str) else digest_of(words)
    entry = Entry(counts[name], step, said, not isinstance(digest, str), call_site())
    groups = world.exchange("collective", name, list(astuple(entry)), decide=_decide, timeout=timeout)
    if groups is not None:
        name_the_leaf(world, name, groups, words=words, timeout=timeout)
    try:
        yield
    except Exception as error:
        error.add_note(f"rank {world.rank}: inside collective {name!r}: {entry.tell(('sequence', 'step'))}")
        raise


def _decide(values: Sequence[Value]) -> Value:
    """Return None if all ranks hold the same ticket, else the groups whose leaves must be compared."""
    return compare([Entry(*value) for value in values])


def name_the_leaf(
    world: World,
    name: str,
    groups: Sequence[Sequence[int]],
    *,
    words: Mapping[str, str],
    timeout: float | None = None,
) -> None:
    """Raise, on every rank, the Mismatch that names the first leaf of which groups of ranks say different ``words``.

    **Every rank must call**; the first rank of each group sends its own words.
    """
    told = groups[:_MOST_GROUPS]
    leaders = [ranks[0] for ranks in told]

    def decide(values: Sequence[Value]) -> Value:
        raise leaf_mismatch([(ranks, values[ranks[0]]) for ranks in told])

    world.exchange("collective leaves", name, words if world.rank in leaders else None, decide=decide, timeout=timeout)
