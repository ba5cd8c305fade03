"""Show results of commands: rich tables for people, one JSON document for programs, progress bars.

Colours are used only on a terminal, and without NO_COLOR. An output that is no terminal has no width limit, so that
nothing is cut.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from allranks.checkpoint.json_value import pack_json
from allranks.cli.visible_output import raw_stream
from allranks.failure import one_line, visible

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_ENDLESS = 100_000


def show(*parts: RenderableType, style: str | None = None) -> None:
    """Print text and tables on stdout, without blanks at line ends."""
    width = None if sys.stdout.isatty() else _ENDLESS
    console = Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)
    with console.capture() as shown:
        for part in parts:
            if isinstance(part, str):
                console.print(visible(part), style=style, soft_wrap=True)
            else:
                console.print(part, style=style)
    print("\n".join(line.rstrip() for line in shown.get().splitlines()))


def show_json(document: dict[str, Any]) -> None:
    """Print one JSON document. Numbers that JSON does not have are written as in manifests: ``{"float": "nan"}``."""
    print(json.dumps(pack_json(_as_unicode(document), value_name="document"), indent=1))


def _as_unicode(value: Any) -> Any:
    """Return a document in which names of files that are no UTF-8 have escapes, as in the output for people."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(item) for key, item in value.items()}
    return [*map(_as_unicode, value)] if isinstance(value, list | tuple) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """Return a table. ``right`` names the columns of numbers. Long cells are folded, never cut."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        number = name in right
        shown.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(one_line(cell)) for cell in row))
    return shown


def size(nbytes: int) -> str:
    """Format a number of bytes for people, in powers of 1000, e.g. ``35.7 MB``."""
    amount, unit = float(nbytes), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}"


def count(number: int, noun: str, plural: str = "") -> str:
    """Format a number and its noun, e.g. ``1 leaf`` or ``2,345 leaves``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float | None) -> str:
    """Format a duration in seconds for people, e.g. ``5 s``, ``12 min``, ``3 h``, ``9 days``; ``unknown`` for None."""
    if seconds is None:
        return "unknown"
    for limit, length, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def time_of(created: str) -> str:
    """Format the creation time in a manifest for people, e.g. ``2026-11-21 18:52``."""
    return created[:16].replace("T", " ")


class Waiting:
    """A progress bar on stderr, if that is a terminal and the work takes longer than a second. Safe for threads."""

    def __init__(self, what: str, total: int) -> None:
        self._began = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=raw_stream(sys.stderr)),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(what, total=total)
        self._shown = False

    def advance(self, nbytes: int) -> None:
        self._bar.advance(self._task, nbytes)
        if not self._shown and time.monotonic() - self._began > 1:
            self._shown = True
            self._bar.start()

    def stop(self) -> None:
        if self._shown:
            self._bar.stop()


@contextmanager
def waiting(what: str, total: int) -> Iterator[Waiting]:
    """Show a progress bar while the ``with`` block runs. ``total`` is in bytes."""
    shown = Waiting(what, total)
    try:
        yield shown
    finally:
        shown.stop()
