"""Four processes that save a sharded state, and three that restore it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.checkpoint_runs import (
    BLOCKING,
    BLOCKING_JAX,
    DCP,
    DCP_SAVE,
    DCP_THREADS,
    LIMIT,
    ORBAX,
    ORBAXES,
    Results,
    Way,
    best,
    peers,
    tried,
)
from bench.measure import PROGRAMS, Ran, allranks, run
from bench.runs import Goal, Part, Runs, Told, jobs, seconds, tabulated, x

WAYS = (BLOCKING, BLOCKING_JAX, DCP_SAVE, DCP_THREADS, *ORBAXES)
SCRIPT = PROGRAMS / "ckpt_ranks.py"


def save_of(number: int, told: Told) -> float:
    """From the first rank's call until all of it was durable."""
    return float(max(rank["end"][number] for rank in told) - min(rank["begin"][number] for rank in told))


def first(told: Told) -> float:
    return save_of(0, told)


def durable(told: Told) -> float:
    return save_of(1, told)


def of_raw(told: Told) -> float:
    return durable(told) / float(told[0]["raw"][1])


def blocking(told: Told) -> float:
    return float(max(rank["blocking"][1] for rank in told))


def read_of_needed(told: Told) -> float:
    """The worst rank's."""
    return float(max(rank["read"] / rank["needed"] for rank in told))


def took(told: Told) -> float:
    return float(max(rank["took"] for rank in told))


def _job(ranks: int, what: str, kind: str, home: Path, way: Way) -> Ran:
    folder = home / way.name / way.framework / "run"
    if what == "save":
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
    ran = run(allranks(ranks, SCRIPT, what, way.name, way.framework, kind, folder, devices=1), limit=LIMIT)
    if what == "restore" or ran.code != 0:
        shutil.rmtree(folder.parent)
    return ran


def _once(ways: Sequence[Way], kind: str, home: Path) -> tuple[Results, Results]:
    """Save and restore once each, one way after the other: the bytes read do not vary."""
    saved: dict[Way, Runs] = {}
    restored: dict[Way, Runs] = {}
    for way in ways:
        saved |= jobs([way], lambda way: _job(4, "save", kind, home, way), 1)
        if saved[way].told:
            restored |= jobs([way], lambda way: _job(3, "restore", kind, home, way), 1)
        else:
            restored[way] = saved[way]
    return saved, restored


def tables(*, quick: bool, rounds: int) -> Part:
    """Both tables."""
    kind, ways = "gpt2-tenth" if quick else "gpt2", tried(WAYS, quick=quick)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder)
        saved, restored = _once(ways, kind, home)

        def again(way: Way) -> Ran:
            try:
                return _job(4, "save", kind, home, way)
            finally:
                shutil.rmtree(home / way.name / way.framework, ignore_errors=True)

        more = jobs([way for way in ways if saved[way].told], again, rounds - 1)
    every = {
        way: Runs(saved[way].told + more[way].told, more[way].failures) if way in more else saved[way] for way in ways
    }
    return Part(f"{_saves(every)}\n\n{_restores(restored)}", _goals(every, restored))


def _saves(results: Results) -> str:
    headers = ("4 processes, rows sharded", "durable: first save", "then", "of raw write", "blocked")
    figures = ((first, seconds), (durable, seconds), (of_raw, x), (blocking, seconds))
    return tabulated(headers, results, lambda runs: (show(runs.median(figure)) for figure, show in figures))


def _restores(results: Results) -> str:
    headers = ("saved by 4, restored by 3", "bytes read of those needed", "seconds, cold")
    figures = ((read_of_needed, x), (took, seconds))
    return tabulated(headers, results, lambda runs: (show(runs.median(figure)) for figure, show in figures))


def _goals(saved: Results, restored: Results) -> tuple[Goal, ...]:
    theirs = {DCP: saved[DCP_SAVE].median(durable), ORBAX: best(saved, [ORBAX], durable)}
    ours = {DCP: saved[BLOCKING].median(durable), ORBAX: saved[BLOCKING_JAX].median(durable)}
    made = []
    for family, wanted in ((DCP, 3.5), (ORBAX, 2.5)):
        faster = theirs[family] / ours[family]
        setting = "DCP" if family == DCP else "Orbax's best setting"
        made.append(
            Goal(
                *("durable save, 4 processes", f">= {wanted} x faster than {setting}", f"{faster:.1f} x faster"),
                *(peers(saved, of_raw, lambda ratio: f"{ratio:.1f} x raw"), wanted / faster, 1),
            )
        )
    read = max(restored[way].median(read_of_needed) for way in (BLOCKING, BLOCKING_JAX))
    others = peers(restored, read_of_needed, x)
    return (*made, Goal("4 -> 3 ranks, bytes read of those needed", "<= 1.05 x", x(read), others, read, 1.05))
