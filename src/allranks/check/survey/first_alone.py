"""What the first process of a node does before it starts the others, which then find it done. Pure.

Lightning's Trainer starts the other processes of its node where it begins to fit, unless a launcher has started all of
them at once. They do the same from the top, but later: what is there by then is not made or fetched by two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from allranks.check.program import Event
from allranks.check.tables.evidence import JOINED
from allranks.findings import Place

_PACKAGES = frozenset(["lightning", "pytorch_lightning"])
_STARTS = frozenset(["fit", "validate", "test", "predict"])
_CONSTRUCTORS = ("__init__", "__post_init__")
# What a program has made before it fits; a data set may as well be made by a hook, in all processes.
_MADE_BEFORE = frozenset(
    [
        *("lightning.pytorch.LightningModule", "lightning.pytorch.LightningDataModule", "torch.nn.Module"),
        *("lightning.pytorch.Callback", "lightning.pytorch.loggers.Logger"),
    ]
)


def starts_by_trainer(packages: frozenset[str], events: Iterable[Event]) -> bool:
    """Whether nothing but Lightning's Trainer joins processes in a project that uses it."""
    return bool(packages & _PACKAGES) and not any(e.active and e.op in JOINED - _STARTS for e in events)


def first_alone(events: Iterable[Event], lineage: Callable[[str], tuple[str, ...]]) -> frozenset[Place]:
    """Return the places of effects that come before the Trainer begins to fit. ``lineage``: a class and its bases."""

    def is_before(event: Event) -> bool:
        if event.earlier & (JOINED | _STARTS):
            return False
        return event.from_the_top or "fit" in event.later or _is_made_before(event, lineage)

    return frozenset(event.place for event in events if event.is_effect and is_before(event))


def _is_made_before(event: Event, lineage: Callable[[str], tuple[str, ...]]) -> bool:
    """Whether the way to it begins where something is made that a program makes before it fits."""
    owner, _, method = event.start.symbol.rpartition(".")
    kinds = lineage(f"{event.start.place.path}::{owner.rpartition('.')[2]}") if method in _CONSTRUCTORS else ()
    return not _MADE_BEFORE.isdisjoint(kinds)
