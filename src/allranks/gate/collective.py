"""The door before a collective: nobody passes until every rank is at the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from weakref import WeakKeyDictionary

from allranks.callsite import call_site
from allranks.gate.ticket import Entry, Leaf, Shapes, compare, leaf_mismatch
from allranks.world.base import World
from allranks.world.codec import Value

_entered: WeakKeyDictionary[World, Counter[str]] = WeakKeyDictionary()


@contextmanager
def collective(
    world: World,
    name: str,
    *,
    step: int | None = None,
    digest: str | Shapes = "",
    timeout: float | None = None,
) -> Iterator[None]:
    """Enter the block only if every rank enters the same one; **every rank must call**.

    The ticket is ``name``, how often this rank has entered that name, ``step`` and ``digest``: a digest of whatever
    must be alike on all ranks, or the ``shapes(tree)`` themselves. Where tickets differ, every rank raises Mismatch
    saying who is where; with ``Shapes`` it names the leaf. ``timeout`` in seconds, default: the world's own.

    There is no second meeting at the end of the block. An exception that leaves it carries a note of the ticket.
    """
    counts = _entered.setdefault(world, Counter())
    counts[name] += 1
    tree = digest if isinstance(digest, Shapes) else None
    entry = Entry(counts[name], step, tree.digest if tree else str(digest), tree is not None, call_site())
    groups = world.exchange("collective", name, list(astuple(entry)), decide=_decide, timeout=timeout)
    if groups is not None and tree is not None:
        _name_the_leaf(world, name, groups, tree=tree, timeout=timeout)
    try:
        yield
    except Exception as error:
        error.add_note(f"rank {world.rank}: inside collective {name!r}: {entry.tell(('sequence', 'step'))}")
        raise


def _decide(values: Sequence[Value]) -> Value:
    """Return None if all ranks hold the same ticket, else the groups whose leaves must be compared."""
    return compare([Entry(*value) for value in values])


def _name_the_leaf(
    world: World, name: str, groups: Sequence[Sequence[int]], *, tree: Shapes, timeout: float | None
) -> None:
    """Raise, on every rank, the Mismatch that names the first differing leaf; one rank of each group sends its own."""
    leaders = [ranks[0] for ranks in groups]
    leaves = [list(astuple(leaf)) for leaf in tree.leaves] if world.rank in leaders else None

    def decide(values: Sequence[Value]) -> Value:
        trees = [[Leaf(path, tuple(shape), dtype) for path, shape, dtype in values[leader]] for leader in leaders]
        raise leaf_mismatch(list(zip(groups, trees, strict=True)))

    world.exchange("collective shapes", name, leaves, decide=decide, timeout=timeout)
