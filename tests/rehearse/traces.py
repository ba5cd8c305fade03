"""Traces by hand: what ranks did, a line for each event."""

from __future__ import annotations

from typing import Any

from allranks.rehearse.judge.base import Case
from allranks.rehearse.order import order_of
from allranks.rehearse.trace import Event, Frame, Trace, merged


class Script:
    """Events of several ranks, in the order in which they are added: one millisecond each."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.events: list[Event] = []
        self.steps = dict.fromkeys(range(ranks), 0)
        self._positions = dict.fromkeys(range(ranks), 0)
        self._syncs = 0

    def add(self, rank: int, kind: str, line: int = 1, **data: Any) -> Script:
        place = (Frame("/p/train.py", line, "<module>"),)
        when = len(self.events) / 1000
        self.events.append(
            Event(rank, kind, self._positions[rank], when, self.steps[rank], place, 100 + rank, 100 + rank, data)
        )
        return self

    def file(self, rank: int, operation: str, *paths: str, line: int = 1, existed: bool = True, **more: Any) -> Script:
        names = [f"/p/{path}" for path in paths]
        return self.add(rank, "file", line, operation=operation, paths=names, existed=existed, **more)

    def barrier(self, *ranks: int, way: str = "all", root: int | None = None) -> Script:
        """All of these ranks (default: all) enter, then all leave."""
        members = ranks or tuple(range(self.ranks))
        self._syncs += 1
        for kind in ("enter", "leave"):
            for rank in members:
                self.add(rank, kind, key=str(self._syncs), way=way, root=root, members=list(members))
                self._positions[rank] += 1
        return self

    def trace(self) -> Trace:
        return merged(self.ranks, self.events)

    def case(self) -> Case:
        trace = self.trace()
        return Case(trace, order_of(trace), root="/p")
