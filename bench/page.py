"""The results as Markdown, and their place in a page of docs/."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

_UNITS = (("µs", 1e6), ("ms", 1e3), ("s", 1.0))
_NUMBER = re.compile(r"(> )?[-+]?\d[\d,.]*( ?(ms|µs|s|MB|x|%))?|-")


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; columns of figures stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    rule = ["---:" if all(_NUMBER.fullmatch(cell) for cell in column) else "---" for column in zip(*cells, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headers, rule, *cells))


def duration(seconds: float) -> str:
    """Return two or three digits, in the unit that fits."""
    unit, scale = next((unit, scale) for unit, scale in _UNITS if seconds < 1000 / scale)
    figure = seconds * scale
    return f"{figure:.{2 if figure < 10 else 1 if figure < 100 else 0}f} {unit}"


def times(figure: float, base: float) -> str:
    """Return how many times ``base`` a figure is."""
    return f"{figure / base:.2f} x" if figure < 10 * base else f"{figure / base:.0f} x"


def setting(command: str) -> str:
    """Return where and how the figures were taken."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "torch"))
    cores = len(os.sched_getaffinity(0))
    return (
        f"<sub>`{command}`; {cores} cores of {_processor()}, Python {platform.python_version()}, {versions}; "
        f"load at the start {os.getloadavg()[0]:.1f}</sub>"
    )


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def placed(page: str, name: str, text: str) -> str:
    """Return the page with ``text`` between the markers of a bench. Raises ValueError where it has none."""
    begin, end = f"<!-- bench: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no place for the bench {name!r}: {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page, count=1)
