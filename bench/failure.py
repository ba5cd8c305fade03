"""From what happens to one rank to the end of the whole job: how long, which exit code, and who is blamed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from bench.measure import PROGRAMS, Ran, allranks, in_turns, median, run, torchrun
from bench.page import duration, table

EVENTS = {
    "raises": "rank 1 raises ValueError",
    "killed": "rank 1 is killed (SIGKILL)",
    "leaves": "rank 1 calls sys.exit(0)",
}
LAUNCHERS: dict[str, Callable[..., list[object]]] = {"allranks run": allranks, "torchrun": torchrun}
# A job that hangs is given up after this time, of which a few seconds are its start; it would take 300 s and more.
PATIENCE = 30.0
_BLAME = re.compile(r"^first failure: rank (?P<rank>\d+) .*?(?P<why>(failed|left).*)$", re.MULTILINE)
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank +: (?P<rank>\d+).*?traceback : (?P<why>[^\n]*)", re.DOTALL)


def way(launcher: Callable[..., list[object]], framework: str, event: str) -> Callable[[], Ran]:
    script = PROGRAMS / f"fail_{framework}.py"
    return lambda: run(launcher(4, script, event), limit=PATIENCE)


def took(ran: Ran) -> float:
    """Seconds from the event to the end of the launcher."""
    (told,) = ran.told or ({"when": ran.begin},)
    return ran.end - float(told["when"])


def blamed(ran: Ran) -> str:
    """What the summary at the end says was the cause."""
    if ran.code is None:
        return "no rank: the bench gave it up"
    found = _BLAME.search(ran.output) or _ROOT_CAUSE.search(ran.output)
    return f"rank {found['rank']}: {found['why'].removeprefix('failed: ').strip()}" if found else "no rank"


def row(event: str, name: str, runs: list[Ran]) -> tuple[Any, ...]:
    last = runs[-1]
    time = f"> {took(last):.0f} s" if last.code is None else duration(median(map(took, runs)))
    return EVENTS[event], name, time, "-" if last.code is None else last.code, blamed(last)


def four_ranks(framework: str, what: str, rounds: int) -> str:
    rows = []
    for event in EVENTS:
        ways = {name: way(launcher, framework, event) for name, launcher in LAUNCHERS.items()}
        results = in_turns(ways, 1)
        again = {name: ways[name] for name, (first,) in results.items() if first.code is not None}  # one hang will do
        for name, runs in in_turns(again, rounds - 1).items():
            results[name] += runs
        rows += [row(event, name, runs) for name, runs in results.items()]
    return table((what, "under", "job ended after", "exit code", "what the summary reports"), rows)


def tables(*, quick: bool) -> str:
    """Return the tables."""
    rounds = 1 if quick else 2
    parts = [four_ranks("jax", "4 JAX ranks", rounds), four_ranks("torch", "4 torch DDP ranks", rounds)]
    return "\n\n".join(parts)
