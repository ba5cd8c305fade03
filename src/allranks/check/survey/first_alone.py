"""What the first process of a node does before it starts the others, which then find it done. Pure.

Lightning's Trainer starts the other processes of its node where it begins to fit, unless a launcher has started all of
them at once. They do the same from the top, but later: what is there by then is not made or fetched by two. So it is
with what a file does when it is imported, in a program that starts its processes by ``mp.spawn``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from allranks.check.program import Event
from allranks.check.summaries.project import Project
from allranks.check.survey.launches import Launches
from allranks.check.survey.parted import symbol
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


def on_import(
    events: Collection[Event], spawned: Iterable[str], project: Project, launches: Launches
) -> frozenset[Place]:
    """Return the places of effects that an import has, where all who join processes were ``spawned`` by the one that
    has imported the file before."""
    begins = frozenset(map(symbol, spawned))
    joining = [e for e in events if e.active and e.op in JOINED]
    if not begins or not joining or any(begins.isdisjoint(event.symbols) for event in joining):
        return frozenset()
    top = [event for event in events if event.is_effect and event.from_the_top]
    files = {event.start.place.path for event in top}
    read = {path for path in files if project.importers(path) and not project.is_program(path)}
    return frozenset(
        event.place
        for event in top
        if event.start.place.path in read and launches.together.isdisjoint(project.users(event.start.place.path))
    )


def _is_made_before(event: Event, lineage: Callable[[str], tuple[str, ...]]) -> bool:
    """Whether the way to it begins where something is made that a program makes before it fits."""
    owner, _, method = event.start.symbol.rpartition(".")
    kinds = lineage(f"{event.start.place.path}::{owner.rpartition('.')[2]}") if method in _CONSTRUCTORS else ()
    return not _MADE_BEFORE.isdisjoint(kinds)
