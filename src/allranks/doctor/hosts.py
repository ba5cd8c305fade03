"""Merge the rows of many hosts into one row, and format hosts, sizes and times as text. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from allranks.findings import VERDICTS, Row, notes

_MOST_GROUPS, _MOST_HOSTS = 4, 6


def merge_rows_of_hosts(rows: Sequence[tuple[str, Row]], hosts: int) -> Row:
    """Return one report row for several hosts' rows on one topic: the worst verdict, and the hosts that report it.

    ``rows`` are (host, row) pairs, at least one; ``hosts`` is the number of hosts. If all rows are ok but their texts
    differ, the row with the smallest margin is shown.
    """
    worst = min((row.verdict for _, row in rows), key=VERDICTS.index)
    chosen = [(host, row) for host, row in rows if row.verdict == worst]
    if worst in ("ok", "not seen"):
        return _the_least(chosen, hosts)
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, row in chosen:
        groups.setdefault(row.texts, []).append(host)
    evidence: list[str] = []
    for said, there in list(groups.items())[:_MOST_GROUPS]:
        first, *rest = said
        evidence += [first if len(there) == hosts else f"{name_hosts(there)}: {first}", *rest]
    if len(groups) > _MOST_GROUPS:
        evidence.append(f"and {len(groups) - _MOST_GROUPS} more")
    if len(chosen) < hosts:
        evidence.append(f"not so on {hosts - len(chosen)} of {hosts} hosts")
    row = min((row for _, row in chosen), key=lambda row: row.margin)
    return replace(row, evidence=notes(*evidence))


def _the_least(rows: Sequence[tuple[str, Row]], hosts: int) -> Row:
    host, row = min(rows, key=lambda said: said[1].margin)
    if len(rows) == hosts and len({row.texts for _, row in rows}) == 1:
        return row
    first, *rest = row.texts
    least = f", the least of {len(rows)} hosts" if len(rows) > 1 and not math.isinf(row.margin) else ""
    of_all = f"all {hosts}" if len(rows) == hosts else f"{len(rows)} of {hosts}"
    others = f"; {row.verdict} on {of_all} hosts" if not least or len(rows) < hosts else ""
    return replace(row, evidence=notes(f"{first} (host {host}{least}{others})", *rest))


def name_hosts(hosts: Sequence[str]) -> str:
    """Return the names of hosts as text, e.g. ``host a``, or ``hosts a, b and 7 more``."""
    shown = ", ".join(hosts[:_MOST_HOSTS])
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    return f"host{'' if len(hosts) == 1 else 's'} {shown}{more}"


def format_bytes(nbytes: float) -> str:
    """Format a number of bytes for people, in powers of 1000, e.g. ``35.7 MB``."""
    amount, units = float(nbytes), ["B", "kB", "MB", "GB", "TB", "PB"]
    while amount >= 999.5 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds for people, e.g. ``0.21 ms`` or ``4.1 s``."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds:.2g} s"
