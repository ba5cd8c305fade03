"""What it costs to read, merge and print the ranks' lines: whole programs against torchrun, then our console alone."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from allranks.launch.console import Console
from bench.measure import PROGRAMS, Ran, allranks, in_turns, median, must, plain, run, torchrun
from bench.page import duration, table, times

CHUNK = 1 << 16  # bytes read at once
# Writes lines in blocks, as fast as the pipe takes them. argv: who writes, and how many.
WRITER = """
import sys
who, count = sys.argv[1], int(sys.argv[2])
line = "step {:07} loss 2.345678 tokens/s 123456 grad norm 0.9876 on " + who + "\\n"
for start in range(0, count, 500):
    sys.stdout.write("".join(map(line.format, range(start, min(start + 500, count)))))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the clock, and of this process."""

    wall: float
    cpu: float


def whole(
    launcher: Callable[..., list[object]], flags: tuple[str, ...] | None, lines: int, kind: str
) -> Callable[[], Ran]:
    """Four ranks that print ``lines`` each, with a log file of each rank and all of it in one pipe."""

    def job() -> Ran:
        with tempfile.TemporaryDirectory(prefix="bench-") as logs:
            own = [] if flags is None else [*flags, "--log-dir", logs]
            return must(run(launcher(4, *own, PROGRAMS / "lines.py", lines, kind), awaited=b"grad norm"))

    return job


def whole_programs(lines: int, rounds: int) -> str:
    launchers = {
        "allranks run --log-dir": (allranks, ()),
        "torchrun --tee 3 --log-dir": (torchrun, ("--tee", "3")),
        "bare processes, no log files": (plain, None),
    }
    rows = []
    for kind in ("different", "same"):
        ways = {
            (name, count): whole(launcher, flags, count, kind)
            for name, (launcher, flags) in launchers.items()
            for count in (0, lines)
        }
        results = in_turns({f"{name}, {count} lines": way for (name, count), way in ways.items()}, rounds)
        base = None
        for name in launchers:
            full, empty = results[f"{name}, {lines} lines"], results[f"{name}, 0 lines"]
            wall = median(ran.seen - min(rank["begin"] for rank in ran.told) for ran in full)
            cpu = median(ran.cpu for ran in full) - median(ran.cpu for ran in empty)
            base = base or wall
            rate = f"{4 * lines / wall:,.0f}"
            rows.append(
                (f"{kind} lines, {name}", duration(wall), times(wall, base), rate, f"{cpu / 4 / lines * 1e6:.1f} µs")
            )
    headers = (f"4 ranks x {lines:,} lines", "first to last line", "ratio", "lines/s", "CPU of all a line")
    return table(headers, rows)


def pump(commands: list[list[str]], console: Console) -> Cost:
    """Run the commands as ranks and show what they print; return what that cost this process."""
    selector, children = selectors.DefaultSelector(), []
    for rank, command in enumerate(commands):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        children.append(child)
        for stream, pipe in (("out", child.stdout), ("err", child.stderr)):
            assert pipe
            selector.register(pipe, selectors.EVENT_READ, (rank, stream))
    begin, begin_cpu = time.monotonic(), time.process_time()
    while selector.get_map():
        due = console.flush_due(time.monotonic())
        for key, _ in selector.select(None if due is None else max(0.0, due - time.monotonic())):
            data = os.read(key.fd, CHUNK)
            if data:
                rank, stream = key.data
                console.feed(rank, stream, data, time.monotonic())
            else:
                selector.unregister(key.fileobj)
    console.close()
    cost = Cost(time.monotonic() - begin, time.process_time() - begin_cpu)
    for child in children:
        child.communicate()
    return cost


def alone(who: list[str], count: int) -> Cost:
    """Show ranks that name themselves as ``who`` says and print ``count`` lines each; nameless ones are silent."""
    commands = [[sys.executable, "-c", WRITER, name, str(count if name else 0)] for name in who]
    with open(os.devnull, "wb") as out:
        return pump(commands, Console(len(who), out=out, color=False, live=False))


def console_alone(lines: int, rounds: int) -> str:
    ways = {
        "8 ranks, different lines": [f"rank {rank}" for rank in range(8)],
        "8 ranks, same lines": ["all"] * 8,
        "8 ranks, one prints": ["rank 0", *[""] * 7],
    }
    results = in_turns(
        {name: partial(alone, who, 8 * lines // sum(map(bool, who))) for name, who in ways.items()}, rounds
    )
    rows = []
    for name, costs in results.items():
        wall, cpu = median(cost.wall for cost in costs), median(cost.cpu for cost in costs)
        rows.append((name, f"{8 * lines / wall:,.0f}", f"{cpu / 8 / lines * 1e6:.2f} µs", f"{8 * lines / cpu:,.0f}"))
    headers = ("our console only, to /dev/null", "lines/s", "its CPU per line", "lines per second of its CPU")
    return table(headers, rows)


def tables(*, quick: bool) -> str:
    """Return the tables."""
    lines, rounds = (20_000, 1) if quick else (100_000, 3)
    return f"{whole_programs(lines, rounds)}\n\n{console_alone(lines, rounds)}"
