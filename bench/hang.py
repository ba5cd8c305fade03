"""From the moment when a rank stands still to the words that name it; and what the watch costs while all is well."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable

from allranks.errors import KeyTimeout
from allranks.hang.alarm import HangAlarm, RankSnapshot
from allranks.hang.heartbeat import Heartbeat
from allranks.launch.hang_limits import HangLimits
from allranks.world.base import World
from allranks.world.simulated import SimulatedWorld
from bench.measure import PROGRAMS, Ran, allranks, in_turns, median, must, run, torchrun
from bench.page import duration, table, times

FAULTS = {
    "lock": "waits for a lock that it holds",
    "stopped": "is stopped (SIGSTOP)",
    "gil": "holds Python's lock in C",
}
PATIENCE = 20.0
_SAYS = re.compile(r"HANG: (.*)")
_SECONDS = 20


def way(launcher: Callable[..., list[object]], framework: str, kind: str, what: str) -> Callable[[], Ran]:
    """A job; one that reports a hang is ended after it."""
    end = ("--on-hang", "end") if launcher is allranks else ()
    command = launcher(4, *end, PROGRAMS / "hang.py", framework, kind, what)
    return lambda: run(command, limit=PATIENCE, awaited=b"what to do:")


def told(ran: Ran) -> float:
    """Seconds from the stall to the report."""
    return ran.seen - float(ran.told[0]["when"])


def reports(framework: str, rounds: int) -> str:
    rows = []
    for fault, words in FAULTS.items():
        ours, bare = way(allranks, framework, "watched", fault), way(torchrun, framework, "bare", fault)
        results = in_turns({"ours": ours}, rounds)["ours"]
        (without,) = in_turns({"without": bare}, 1)["without"]
        said = _SAYS.search(results[-1].output)
        rows.append((words, "allranks", duration(median(map(told, results))), said[1] if said else "no rank"))
        rows.append((words, "torchrun", f"> {PATIENCE:.0f} s", "nothing" if without.code is None else "an error"))
    return table((f"4 {framework} ranks, rank 1", "under", "reported after", "report"), rows)


def costs(rounds: int) -> str:
    rows = []
    for framework in ("jax", "torch"):
        ways = {kind: way(allranks, framework, kind, "none") for kind in ("bare", "watched")}
        results = {kind: [must(ran) for ran in runs] for kind, runs in in_turns(ways, rounds).items()}
        step = {kind: median(float(ran.told[0]["step"]) for ran in runs) for kind, runs in results.items()}
        look, put = (median(float(ran.told[1][name]) for ran in results["watched"]) for name in ("look", "set"))
        steps = duration(step["bare"]), duration(step["watched"]), times(step["watched"], step["bare"])
        rows.append((framework, *steps, duration(look), duration(put), f"{100 * look:.3f} %"))
    heads = (
        "4 ranks",
        "a step, bare",
        "watched",
        "ratio",
        "CPU of a snapshot",
        "a heartbeat stored",
        "of one core, a rank",
    )
    return table(heads, rows)


class _Well:
    """The eyes of a simulated rank that goes through its steps."""

    def __init__(self, rank: int) -> None:
        self._beat = Heartbeat(rank, 0.0)

    def beat(self) -> Heartbeat:
        return self._beat

    def snapshot(self, *, threads: bool) -> RankSnapshot:
        del threads
        return RankSnapshot(self._beat, "", {}, {})


def simulated(size: int) -> tuple[object, ...]:
    def program(world: World) -> None:
        alarm = HangAlarm(world, _Well(world.rank), limits=HangLimits(240.0), report=lambda _: None)
        for _ in range(_SECONDS):
            with contextlib.suppress(KeyTimeout):
                world.store.wait(f"pause/{world.rank}", 1.0)
            alarm.tick()

    begin = time.monotonic()
    outcome = SimulatedWorld(size).run(program)
    outcome.values()
    beats = outcome.operations["set"] / size / _SECONDS
    reads = (outcome.operations["list"] + outcome.operations["claim"]) / size / _SECONDS
    return f"{size:,}", f"{beats:.2f}", f"{reads:.2f}", duration(time.monotonic() - begin)


def tables(*, quick: bool) -> str:
    """Return the tables."""
    rounds = 1 if quick else 3
    sizes = (10, 100) if quick else (10, 100, 1000, 10_000)
    heads = ("simulated ranks", "writes per rank and heartbeat", "reads", "real time to simulate 20 s")
    parts = [reports("jax", rounds), reports("torch", rounds), costs(rounds), table(heads, [*map(simulated, sizes)])]
    return "\n\n".join(parts)
