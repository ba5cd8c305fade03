"""What preflight has to say: rows of one table, from all ranks. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from allranks.errors import name_ranks
from allranks.report import table

Verdict = Literal["ok", "note", "WRONG"]
_WIDTH, _FOUND = 118, 90


@dataclass(frozen=True, slots=True)
class Row:
    """One check: ``found`` is the evidence; ``remedy`` what to do, where it is not ok; ``ranks`` empty for all."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """All rows, the same on every rank. ``str()`` is the table, with what to do below it."""

    rows: tuple[Row, ...]

    @property
    def wrong(self) -> tuple[Row, ...]:
        """The rows that must be put right before the first step."""
        return tuple(row for row in self.rows if row.verdict == "WRONG")

    @property
    def problems(self) -> str:
        """What is wrong and what to do about it: a line for each row that is WRONG."""
        return "\n".join(f"{row.check}: {_found(row)}. {row.remedy}" for row in self.wrong)

    def __str__(self) -> str:
        cells = [cell for row in self.rows for cell in _cells(row)]
        lines = [table(("check", "", "found"), cells)]
        for row in self.rows:
            if row.remedy:
                lines.append(textwrap.fill(f"{row.check}: {row.remedy}", _WIDTH, subsequent_indent="  "))
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"ready": not self.wrong, "checks": [asdict(row) for row in self.rows]}


def ok(check: str, found: str) -> Row:
    return Row(check, "ok", found)


def note(check: str, found: str, remedy: str = "") -> Row:
    return Row(check, "note", found, remedy)


def wrong(check: str, found: str, remedy: str) -> Row:
    return Row(check, "WRONG", found, remedy)


def merged(rows: Iterable[tuple[int, Row]], fine: Mapping[str, int]) -> list[Row]:
    """Return the rows of all ranks, equal ones once with their ranks (none named where all say so).

    ``fine`` counts, by check, the ranks that found it ok and sent no row. Checks are in the order of their first row.
    """
    checks: dict[str, dict[Row, list[int]]] = {}
    for rank, row in rows:
        checks.setdefault(row.check, {}).setdefault(row, []).append(rank)
    found: list[Row] = []
    for check, groups in checks.items():
        bad = {row: tuple(ranks) for row, ranks in groups.items() if row.verdict != "ok"}
        if not bad:
            found.append(next(iter(groups)))
        unanimous = len(groups) == 1 and not fine.get(check)
        found += [replace(row, ranks=() if unanimous else ranks) for row, ranks in bad.items()]
    return found


def _cells(row: Row) -> Iterator[tuple[str, str, str]]:
    first, *rest = textwrap.wrap(_found(row), _FOUND) or [""]
    yield row.check, row.verdict, first
    yield from (("", "", line) for line in rest)


def _found(row: Row) -> str:
    return f"{name_ranks(row.ranks)}: {row.found}" if row.ranks else row.found
