"""Fail a rank of a job on four hosts again and again, and count the jobs that end as they should.

    python -m bench.host_failures --runs 100

Each job has two ranks on each of four hosts (as of the tests: tests/clusters). A rank raises, exits, or is killed. A
job is right if all launchers end within five seconds after that, print the same first failure, which names the rank,
and have the same exit code, and no process is left. The exit code is 1 if a job was not right.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.hosts import RUN
from bench.measure import PROGRAMS, ROOT, median

sys.path[:0] = [str(ROOT / "tests" / "clusters"), str(ROOT / "tests" / "world")]
import network_hosts  # noqa: E402 - the hosts of the tests

PROGRAM = PROGRAMS / "fails_on_a_host.py"
CODES = {"raise": 1, "exit": 7, "kill": 137}
LIMIT, PATIENCE = 5.0, 60.0


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=100)
    p.add_argument("--seed", type=int, default=0)
    arguments = p.parse_args()
    chance, times, right = random.Random(arguments.seed), [], 0
    with tempfile.TemporaryDirectory() as name, network_hosts.running(Path(name)) as hosts:
        for run in range(arguments.runs):
            victim, what = chance.randrange(8), chance.choice([*CODES])
            seconds, fault = one_job(hosts, Path(name) / f"run{run}", victim, what)
            times.append(seconds)
            right += not fault
            if fault:
                print(f"run {run}: rank {victim} {what}: {fault}", flush=True)
    print(f"{right} of {arguments.runs} jobs ended as they should")
    print(f"from the failure to the end of the last launcher: median {median(times):.2f} s, longest {max(times):.2f} s")
    return int(right != arguments.runs)


def one_job(hosts: network_hosts.Hosts, folder: Path, victim: int, what: str) -> tuple[float, str]:
    """Run a job; return the seconds from the failure to the end of the last launcher, and what was wrong, or ""."""
    folder.mkdir()
    launchers, logs = [], [folder / name for name in hosts.names]
    for number, host in enumerate(hosts.names):
        place = ["--hosts", "4", "--coordinator", "h0:29400", "--host-rank", str(number), "-n", "2"]
        with logs[number].open("wb") as log:
            command = [*RUN, *place, str(PROGRAM), str(victim), what, str(folder / "failed")]
            launchers.append(hosts.on(host, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        codes = {one.wait(PATIENCE) for one in launchers}
    except subprocess.TimeoutExpired:
        codes = set()
        for one in launchers:
            one.kill()
            one.wait()
    seconds = time.time() - float((folder / "failed").read_text() or "nan")
    texts = [log.read_text(errors="replace") for log in logs]
    first = {line for text in texts for line in re.findall(r"^first failure: .*", text, re.M)}
    left = [host for host in hosts.names if hosts.run(host, ["pgrep", "-f", PROGRAM.name]).stdout]
    faults = {
        f"exit codes {codes}": codes != {CODES[what]},
        f"{seconds:.1f} s": not seconds <= LIMIT,
        f"first failures {first}": len(first) != 1 or f"rank {victim} (host h{victim // 2}) failed" not in str(first),
        f"processes left on {left}": bool(left),
    }
    return seconds, "; ".join(text for text, is_so in faults.items() if is_so)


if __name__ == "__main__":
    sys.exit(main())
