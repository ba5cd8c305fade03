"""Render lines of source, with marks under the spans that matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allranks.failure import visible
from allranks.findings import Place
from allranks.report.base import Source
from allranks.report.columns import display_width
from allranks.report.ink import Ink

AROUND, TALL, WIDE = 1, 4, 110
WHOLE = 1 << 30


@dataclass(frozen=True, slots=True)
class Mark:
    """A span to mark under a source line. ``primary``: it is the fault, marked with carets.

    Other spans explain the fault, and are marked with dashes and a label.
    """

    place: Place
    label: str = ""
    style: str = "blue"
    primary: bool = False


def marked_excerpt(source: Source, marks: Sequence[Mark], number_width: int, paint: Ink) -> list[str]:
    """Return the marked lines and one line around each, with ``...`` in place of omitted lines.

    ``number_width`` is the width of the line numbers.
    """
    wanted = sorted({line for mark in marks for line in _lines_about(mark.place, source)})
    bar = paint(" " * number_width + " |", "blue")
    shown, last = [bar], None
    for line in wanted:
        cell = source.cell(line)
        if last is not None and line > last + 1:
            shown.append(paint("...", "blue"))
        last = line
        number = line - cell.first + 1 if cell else line
        shown += _marked_line(
            source.line(line),
            paint(f"{number:>{number_width}} |", "blue"),
            bar,
            list(_marks_on_line(marks, line)),
            paint,
        )
    return [*shown, bar]


def _lines_about(place: Place, source: Source) -> list[int]:
    return source.around(place.line, min(place.end_line, place.line + TALL - 1), AROUND)


def _marks_on_line(marks: Sequence[Mark], line: int) -> Iterator[tuple[Mark, int, int, str]]:
    """Yield the marks on a line, the fault first: mark, start and end column (from 0, end excluded), and label.

    The label is given only on the last line of a mark.
    """
    for mark in sorted(marks, key=lambda mark: (not mark.primary, mark.place)):
        place = mark.place
        last = min(place.end_line, place.line + TALL - 1)
        if place.line <= line <= last:
            start = place.column - 1 if line == place.line else 0
            end = place.end_column - 1 if line == place.end_line else WHOLE
            yield mark, start, end, mark.label if line == last else ""


def _marked_line(
    text: str, head: str, bar: str, marks: Sequence[tuple[Mark, int, int, str]], paint: Ink
) -> Iterator[str]:
    text = text.rstrip()
    offset = _omitted_characters(marks[0][1], len(text)) if marks else 0
    window = text[offset : offset + WIDE]
    before, after = "..." if offset else "", "..." if offset + WIDE < len(text) else ""
    yield f"{head} {before}{_printable_text(window)}{after}".rstrip()
    for mark, start, end, label in marks:
        first = max((start or len(text) - len(text.lstrip())) - offset, 0)
        stop = max(min(end, len(text)) - offset, first + 1)
        blanks = " " * (len(before) + display_width(_printable_text(window[:first])))
        strokes = ("^" if mark.primary else "-") * (display_width(_printable_text(window[first:stop])) or 1)
        yield f"{bar} {blanks}{paint(f'{strokes} {visible(label)}'.rstrip(), mark.style)}"


def _omitted_characters(column: int, length: int) -> int:
    """Return how many characters to omit at the start of a long line, so that the column is visible."""
    return 0 if length <= WIDE or column < WIDE * 2 // 3 else min(column - WIDE // 3, length - WIDE)


def _printable_text(text: str) -> str:
    return visible(text.replace("\t", "    "))
