"""A row of the doctor's table: what was looked at, the verdict, its evidence; rows of many hosts as one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from allranks.findings import Verdict

# The worst first. What was not seen on one host, and is good on another, is told as good.
ORDER: tuple[Verdict, ...] = ("bad", "warning", "not determined", "good", "not seen")
_MOST_GROUPS, _MOST_HOSTS = 4, 6


@dataclass(frozen=True, slots=True)
class Row:
    """``evidence`` are sentences, at least one: there is no verdict without. ``remedy`` is what to do.

    ``room`` is how far this is from being wrong, in any unit: of many hosts that are well, the one with the least is
    shown.
    """

    topic: str
    verdict: Verdict
    evidence: tuple[str, ...]
    remedy: str = ""
    room: float = math.inf

    def __post_init__(self) -> None:
        if not any(self.evidence):
            raise ValueError(f"{self.topic}: {self.verdict!r} without evidence")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "room": None if math.isinf(self.room) else self.room}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Row:
        room = math.inf if said["room"] is None else said["room"]
        return cls(said["topic"], said["verdict"], tuple(said["evidence"]), said["remedy"], room)


@dataclass(frozen=True, slots=True)
class Table:
    """All rows, the same on every rank; ``hosts`` are their names, in the order of their first ranks."""

    rows: tuple[Row, ...]
    hosts: tuple[str, ...]
    ranks: int

    @property
    def bad(self) -> bool:
        """Whether something must be put right before a job can run."""
        return any(row.verdict == "bad" for row in self.rows)


def good(topic: str, *evidence: str, room: float = math.inf) -> Row:
    return Row(topic, "good", evidence, room=room)


def warning(topic: str, *evidence: str, remedy: str, room: float = math.inf) -> Row:
    return Row(topic, "warning", evidence, remedy, room)


def bad(topic: str, *evidence: str, remedy: str) -> Row:
    return Row(topic, "bad", evidence, remedy, -math.inf)


def unseen(topic: str, *evidence: str) -> Row:
    return Row(topic, "not seen", evidence)


def undetermined(topic: str, *evidence: str, remedy: str = "") -> Row:
    return Row(topic, "not determined", evidence, remedy)


def merged(rows: Sequence[tuple[str, Row]], hosts: int) -> Row:
    """Return what ``hosts`` hosts say of one topic as one row: the worst verdict, and which of them say so.

    ``rows`` are (host, row), at least one. Of hosts that are well, but with other words, the one with the least room.
    """
    worst = min((row.verdict for _, row in rows), key=ORDER.index)
    chosen = [(host, row) for host, row in rows if row.verdict == worst]
    if worst in ("good", "not seen"):
        return _the_least(chosen, hosts)
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, row in chosen:
        groups.setdefault(row.evidence, []).append(host)
    evidence: list[str] = []
    for said, there in list(groups.items())[:_MOST_GROUPS]:
        first, *rest = said
        evidence += [first if len(there) == hosts else f"{name_hosts(there)}: {first}", *rest]
    if len(groups) > _MOST_GROUPS:
        evidence.append(f"and {len(groups) - _MOST_GROUPS} more")
    if len(chosen) < hosts:
        evidence.append(f"not so on {hosts - len(chosen)} of {hosts} hosts")
    row = min((row for _, row in chosen), key=lambda row: row.room)
    return replace(row, evidence=tuple(evidence))


def _the_least(rows: Sequence[tuple[str, Row]], hosts: int) -> Row:
    host, row = min(rows, key=lambda said: said[1].room)
    if len(rows) == hosts and len({row.evidence for _, row in rows}) == 1:
        return row
    first, *rest = row.evidence
    least = f", the least of {len(rows)} hosts" if len(rows) > 1 and not math.isinf(row.room) else ""
    of_all = f"all {hosts}" if len(rows) == hosts else f"{len(rows)} of {hosts}"
    others = f"; {row.verdict} on {of_all} hosts" if not least or len(rows) < hosts else ""
    return replace(row, evidence=(f"{first} (host {host}{least}{others})", *rest))


def name_hosts(hosts: Sequence[str]) -> str:
    """Return ``host a``, ``hosts a, b and 7 more``."""
    shown = ", ".join(hosts[:_MOST_HOSTS])
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    return f"host{'' if len(hosts) == 1 else 's'} {shown}{more}"


def size(nbytes: float) -> str:
    """Return ``35.7 MB``, in powers of 1000."""
    amount, units = float(nbytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while amount >= 999.5 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}"


def short(seconds: float) -> str:
    """Return ``0.21 ms``, ``4.1 s``."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds:.2g} s"
