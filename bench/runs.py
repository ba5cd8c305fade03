"""What the benches against peers share: ways that take turns and may fail, medians of their figures, and goals."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bench.measure import Ran, in_turns, median
from bench.page import duration, table

Told = tuple[Mapping[str, Any], ...]


class Labelled(Protocol):
    """A way to do what is measured; ``label`` is its row in the table."""

    @property
    def label(self) -> str: ...


W = TypeVar("W", bound=Labelled)


@dataclass(frozen=True, slots=True)
class Runs:
    """What the ranks of a way's jobs told, job by job, and how the jobs ended that failed."""

    told: tuple[Told, ...]
    failures: tuple[str, ...]

    def median(self, figure: Callable[[Told], float]) -> float:
        """The median of a figure over the jobs; nan where none succeeded."""
        return median(figure(job) for job in self.told) if self.told else math.nan


def jobs(ways: Sequence[W], job: Callable[[W], Ran], rounds: int) -> Mapping[W, Runs]:
    """Run the ways' jobs in turns. A way whose first job fails is not tried again."""
    failures: dict[W, list[str]] = {way: [] for way in ways}

    def told(way: W) -> Told | None:
        if failures[way]:
            return None
        ran = job(way)
        if ran.code == 0:
            return ran.told
        failures[way].append(how(ran))
        print(f"  {way.label} failed: {failures[way][-1]}", file=sys.stderr)
        return None

    results = in_turns({way.label: lambda way=way: told(way) for way in ways}, rounds)
    return {
        way: Runs(tuple(job for job in results[way.label] if job is not None), tuple(failures[way])) for way in ways
    }


def how(ran: Ran) -> str:
    """The end of a job that failed, in a line."""
    if ran.code is None:
        return f"was still running after {ran.seconds:.0f} s"
    errors = re.findall(r"(?:[a-z_]\w*\.)*[A-Z]\w+: .+", ran.output)  # as tracebacks end
    return f"exit code {ran.code}" + (f", {errors[-1].strip()[:160]}" if errors else "")


def tabulated(headers: Sequence[str], results: Mapping[W, Runs], cells: Callable[[Runs], Iterable[object]]) -> str:
    """A row for each way, and below it how jobs failed."""
    rows = [(way.label, *cells(runs)) for way, runs in results.items() if runs.told]
    failures = [f"{way.label} failed: {runs.failures[-1]}" for way, runs in results.items() if runs.failures]
    return "\n\n".join([*([table(headers, rows)] if rows else []), *failures])


@dataclass(frozen=True, slots=True)
class Goal:
    """A line of the table of goals: fulfilled where ``reached``, nan if not measured, is at most ``limit``."""

    what: str
    goal: str
    ours: str
    peers: str
    reached: float
    limit: float

    def row(self) -> tuple[str, ...]:
        if math.isnan(self.reached):
            return self.what, self.goal, "not measured", self.peers, ""
        return self.what, self.goal, self.ours, self.peers, "yes" if self.reached <= self.limit else "**no**"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bench: its tables, and what it says to the goals."""

    text: str
    goals: tuple[Goal, ...]


def x(figure: float) -> str:
    return "-" if math.isnan(figure) else f"{figure:.2f} x" if figure < 10 else f"{figure:.0f} x"


def seconds(figure: float) -> str:
    return "-" if math.isnan(figure) else "-" * (figure < 0) + duration(abs(figure))


def megabytes(figure: float) -> str:
    return "-" if math.isnan(figure) else f"{figure / 1e6:,.0f} MB"
