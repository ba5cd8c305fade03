"""What it costs to read, merge and print the ranks' lines: ours alone, then against torchrun on the same program.

``python -m bench.log_path`` prints Markdown. Every figure is a median; ours and torchrun's runs take turns.
"""

from __future__ import annotations

import argparse
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from allranks.launch.console import Console

CHUNK = 1 << 16  # bytes read at once
LINE = "step {step:07} loss 2.345678 tokens/s 123456 grad norm 0.9876 on {who}\n"

# Writes lines in blocks, as fast as the pipe takes them: argv is who writes, and how many.
WRITER = f"""
import sys
who, count, line = sys.argv[1], int(sys.argv[2]), {LINE!r}
for start in range(0, count, 500):
    sys.stdout.write("".join(line.format(step=step, who=who) for step in range(start, min(start + 500, count))))
"""
# A rank of a job: prints line by line, as training code does.
RANK = """
import os, sys
rank = int(os.environ["RANK"])
for step in range(int(sys.argv[1])):
    print(f"step {step:07} loss 2.345678 tokens/s 123456 grad norm 0.9876 on", rank if step % 2 else "all ranks")
"""


@dataclass(frozen=True, slots=True)
class Cost:
    wall: float  # seconds
    cpu: float  # seconds


def pump(commands: list[list[str]], console: Console) -> Cost:
    """Run the commands as ranks and show what they print; return what that cost this process."""
    selector, children = selectors.DefaultSelector(), []
    for rank, command in enumerate(commands):
        environ = {**os.environ, "RANK": str(rank), "PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
        children.append(child)
        for stream, pipe in (("out", child.stdout), ("err", child.stderr)):
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


def launched(command: list[str]) -> Cost:
    """Run a launcher to its end with its output in a pipe that is read; CPU includes its ranks.

    The ranks' Python is unbuffered under either launcher: a person wants to see a line when it is printed.
    """
    begin, environ = time.monotonic(), {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ) as launcher:
        assert launcher.stdout
        while launcher.stdout.read1(CHUNK):  # type: ignore[attr-defined]
            pass
        _, status, usage = os.wait4(launcher.pid, 0)
        launcher.returncode = os.waitstatus_to_exitcode(status)
    assert launcher.returncode == 0, command
    return Cost(time.monotonic() - begin, usage.ru_utime + usage.ru_stime)


def against_torchrun(ranks: int, count: int, runs: int, torchrun: str) -> None:
    """Print the costs of ``ranks`` processes that print ``count`` lines each, and those of no line at all."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "rank.py"
        script.write_text(RANK)
        launchers = {
            "allranks": [sys.executable, __file__, "--drive", str(ranks), f"{folder}/ours", str(script)],
            "torchrun --tee 3": [
                *(torchrun, "--nproc-per-node", str(ranks), "--tee", "3", "--log-dir", f"{folder}/theirs"),
                str(script),
            ],
        }
        costs: dict[tuple[str, int], list[Cost]] = {}
        for _ in range(runs):
            for name, command in launchers.items():
                for lines in (0, count):
                    costs.setdefault((name, lines), []).append(launched([*command, str(lines)]))
    print(f"\n| {ranks} ranks x {count:,} lines, with log files | wall | CPU, ranks too | no lines: wall | lines/s |")
    print("|---|---|---|---|---|")
    for name in launchers:
        full, empty = costs[name, count], costs[name, 0]
        wall, idle = (statistics.median(cost.wall for cost in some) for some in (full, empty))
        cpu = statistics.median(cost.cpu for cost in full)
        print(f"| {name} | {wall:.1f} s | {cpu:.1f} s | {idle:.1f} s | {ranks * count / (wall - idle):,.0f} |")


def drive(ranks: int, folder: str, script: str, lines: str) -> None:
    """The launcher's output side alone: N processes, one console."""
    console = Console(ranks, out=sys.stdout, color=False, live=False, log_dir=Path(folder))
    pump([[sys.executable, script, lines]] * ranks, console)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--lines", type=int, default=100_000, help="lines of each rank")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--torchrun", default=str(Path(sys.executable).with_name("torchrun")))
    arguments.add_argument("--drive", nargs=4, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.drive:
        ranks, *rest = chosen.drive
        drive(int(ranks), *rest)
        return
    ways = {
        "8 ranks, same lines": ["all"] * 8,
        "8 ranks, different lines": [f"rank {rank}" for rank in range(8)],
        "8 ranks, one prints": ["rank 0", *[""] * 7],
    }
    print("| ours, to /dev/null | lines/s | CPU per line | CPU used |\n|---|---|---|---|")
    for name, who in ways.items():
        total = chosen.lines * len(who)
        costs = [alone(who, total // sum(map(bool, who))) for _ in range(chosen.runs)]
        wall, cpu = (statistics.median(getattr(cost, what) for cost in costs) for what in ("wall", "cpu"))
        print(f"| {name} | {total / wall:,.0f} | {cpu / total * 1e6:.2f} us | {cpu / wall:.0%} of a core |")
    against_torchrun(4, chosen.lines, chosen.runs, chosen.torchrun)


if __name__ == "__main__":
    main()
