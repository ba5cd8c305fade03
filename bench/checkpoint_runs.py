"""What the checkpoint benches share: ways that take turns and may fail, medians of their figures, and goals."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import PROGRAMS, Ran, in_turns, median, run
from bench.page import duration, table

Told = tuple[Mapping[str, Any], ...]
LIMIT = 180.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to save: its row in the table, its name in programs/ckpt_methods.py, who made it."""

    label: str
    name: str
    framework: str
    family: str


OURS, DCP, ORBAX, OTHERS = "allranks", "DCP", "Orbax", "others"
BLOCKING = Way("allranks", "ours", "torch", OURS)
BLOCKING_JAX = Way("allranks, JAX arrays", "ours", "jax", OURS)
ASYNC = Way("allranks, async", "ours-async", "torch", OURS)
ASYNC_JAX = Way("allranks, async, JAX arrays", "ours-async", "jax", OURS)
NO_DIGESTS = Way("allranks without digests", "ours-no-digests", "torch", OURS)
DCP_SAVE = Way("DCP", "dcp", "torch", DCP)
DCP_THREADS = Way("DCP, 2 threads", "dcp-2-threads", "torch", DCP)
DCP_ASYNC = Way("DCP, async", "dcp-async", "torch", DCP)
TORCH_SAVE = Way("torch.save", "torch.save", "torch", OTHERS)
SAFETENSORS_TORCH = Way("safetensors.torch", "safetensors.torch", "torch", OTHERS)
SAFETENSORS_NUMPY = Way("safetensors.numpy", "safetensors.numpy", "numpy", OTHERS)
SNAPSHOT = Way("torchsnapshot, async", "torchsnapshot-async", "torch", OTHERS)
ORBAX_DEFAULT = Way("Orbax", "orbax", "jax", ORBAX)
ORBAX_PLAIN = Way("Orbax, no zstd", "orbax-no-zstd", "jax", ORBAX)
ORBAX_FILES = Way("Orbax, no OCDBT, no zstd", "orbax-no-ocdbt-no-zstd", "jax", ORBAX)
ORBAXES = (ORBAX_PLAIN, ORBAX_FILES)  # its best settings
NOT_QUICKLY = {DCP_THREADS, SAFETENSORS_TORCH, ORBAX_DEFAULT, ORBAX_FILES}


@dataclass(frozen=True, slots=True)
class Runs:
    """What the ranks of a way's jobs told, job by job, and how the jobs ended that failed."""

    told: tuple[Told, ...]
    failures: tuple[str, ...]

    def median(self, figure: Callable[[Told], float]) -> float:
        """The median of a figure over the jobs; nan where none succeeded."""
        return median(figure(job) for job in self.told) if self.told else math.nan


Results = Mapping[Way, Runs]


def tried(ways: Sequence[Way], *, quick: bool) -> list[Way]:
    """The ways to run, all of them or the few that show whether the bench works."""
    return [way for way in ways if not quick or way not in NOT_QUICKLY]


def jobs(ways: Sequence[Way], job: Callable[[Way], Ran], rounds: int) -> Results:
    """Run the ways' jobs in turns. A way whose first job fails is not tried again."""
    failures: dict[Way, list[str]] = {way: [] for way in ways}

    def told(way: Way) -> Told | None:
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


def alone(program: str, kind: str) -> Callable[[Way], Ran]:
    """A job of one process."""
    script = PROGRAMS / program
    return lambda way: run([sys.executable, script, way.name, way.framework, kind], limit=LIMIT)


def tabulated(headers: Sequence[str], results: Results, cells: Callable[[Runs], Iterable[object]]) -> str:
    """A row for each way, and below it how jobs failed."""
    rows = [(way.label, *cells(runs)) for way, runs in results.items() if runs.told]
    failures = [f"{way.label} failed: {runs.failures[-1]}" for way, runs in results.items() if runs.failures]
    return "\n\n".join([*([table(headers, rows)] if rows else []), *failures])


def best(results: Results, families: Container[str], figure: Callable[[Told], float]) -> float:
    """The least median among the ways of these families; nan where none succeeded."""
    found = [runs.median(figure) for way, runs in results.items() if way.family in families]
    return min((value for value in found if not math.isnan(value)), default=math.nan)


def peers(results: Results, figure: Callable[[Told], float], show: Callable[[float], str]) -> str:
    """What the other ways reach, in their best setting."""
    found = {family: best(results, [family], figure) for family in (DCP, ORBAX)}
    others = {way.label: runs.median(figure) for way, runs in results.items() if way.family == OTHERS}
    return ", ".join(f"{name} {show(value)}" for name, value in (found | others).items() if not math.isnan(value))


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
