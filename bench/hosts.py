"""A job on four hosts: from the command to the first collective; from a failure, a cut cable, a kill to its end."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import PROGRAMS, ROOT, median
from bench.page import duration, table

sys.path[:0] = [str(ROOT / "tests" / "clusters"), str(ROOT / "tests" / "world")]
import network_hosts  # noqa: E402 - the hosts of the tests

SCRIPT = str(PROGRAMS / "first_of_hosts.py")
PYTHON = sys.executable
RUN = [str(Path(PYTHON).with_name("allranks")), "run", "-n", "1"]
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
ENVIRON = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
LIMIT = 120.0
Launch = Callable[[network_hosts.Hosts, Sequence[str]], list[list[str]]]


def by_hand(_hosts: network_hosts.Hosts, words: Sequence[str]) -> list[list[str]]:
    place = ["--hosts", "4", "--coordinator", "h0:29400"]
    return [[*RUN, *place, "--host-rank", str(number), SCRIPT, *words] for number in range(4)]


def by_torchrun(_hosts: network_hosts.Hosts, words: Sequence[str]) -> list[list[str]]:
    place = ["--nnodes", "4", "--rdzv-endpoint", "h0:29401", "--rdzv-id", "bench"]
    return [[*TORCHRUN, *place, SCRIPT, *words] for _ in range(4)]


def by_ssh(hosts: network_hosts.Hosts, words: Sequence[str]) -> list[list[str]]:
    return [[*hosts.ssh, f"h{number}", *command] for number, command in enumerate(by_hand(hosts, words))]


def by_slurm(_hosts: network_hosts.Hosts, words: Sequence[str]) -> list[list[str]]:
    return [["srun", "-N4", "--ntasks-per-node=1", *RUN, SCRIPT, *words]]


def by_bare_slurm(_hosts: network_hosts.Hosts, words: Sequence[str]) -> list[list[str]]:
    return [["srun", "-N4", "--ntasks-per-node=1", PYTHON, SCRIPT, *words]]


class Started:
    """A job that runs on the hosts. ``begin`` is when it was started, in Unix seconds."""

    def __init__(self, hosts: network_hosts.Hosts, folder: Path, launch: Launch, words: Sequence[str]) -> None:
        self.begin = time.time()
        self.launchers: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        at_home = launch in (by_slurm, by_bare_slurm, by_ssh)  # these are all started on host 0
        for number, command in enumerate(launch(hosts, words)):
            log = folder / f"{number}.log"
            self.logs.append(log)
            host = "h0" if at_home else f"h{number}"
            with log.open("wb") as out:
                self.launchers.append(
                    hosts.on(host, command, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
                )

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def wait_for(self, pattern: str, count: int) -> list[str]:
        """Return the first groups of the pattern in the output, when there are so many."""
        deadline = time.monotonic() + LIMIT
        while len(found := re.findall(pattern, self.text())) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern!r}:\n{self.text()}")
            time.sleep(0.02)
        return found

    def end(self, launchers: Sequence[int] = ()) -> float:
        """Wait for these launchers, or for all; return when the last one ended, or infinity if it did not."""
        chosen = [self.launchers[number] for number in launchers] if launchers else self.launchers
        deadline = time.monotonic() + LIMIT
        while any(one.poll() is None for one in chosen):
            if time.monotonic() > deadline:
                return float("inf")
            time.sleep(0.01)
        return time.time()


@contextmanager
def job(hosts: network_hosts.Hosts, launch: Launch, *words: str) -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        started = Started(hosts, Path(folder), launch, words)
        try:
            yield started
        finally:
            for launcher in started.launchers:
                launcher.kill()
                launcher.wait()
            hosts.clean()


def first_collective(hosts: network_hosts.Hosts, launch: Launch, framework: str) -> float:
    with job(hosts, launch, framework, "none") as started:
        found = max(map(float, started.wait_for(r"first collective: ([\d.]+)", 4))) - started.begin
        started.end()
    return found


def from_failure_to_end(hosts: network_hosts.Hosts, launch: Launch, framework: str) -> float:
    with job(hosts, launch, framework, "raises") as started:
        (event,) = started.wait_for(r"event: ([\d.]+)", 1)
        return started.end() - float(event)


def from_cut_to_name(hosts: network_hosts.Hosts) -> float:
    """With the default --host-timeout."""
    with job(hosts, by_hand, "torch", "wait") as started:
        started.wait_for(r"first collective: ([\d.]+)", 4)
        cut = time.time()
        hosts.cut("h2")
        started.end([0, 1, 3])
        started.wait_for(r"first failure: rank 2 \(host h2\) failed: (host h2 is lost)", 3)
        return time.time() - cut


def from_kill_to_last_rank(hosts: network_hosts.Hosts) -> float:
    """From SIGKILL of the launcher of host 0 to the end of the last rank on any host."""
    with job(hosts, by_hand, "torch", "wait") as started:
        started.wait_for(r"first collective: ([\d.]+)", 4)
        killed = time.time()
        hosts.run("h0", ["pkill", "-KILL", "-f", "--", "--host-rank"])
        while any(hosts.run(name, ["pgrep", "-f", SCRIPT]).stdout for name in hosts.names):
            if time.time() > killed + LIMIT:
                return float("inf")
        return time.time() - killed


def _shown(seconds: Sequence[float]) -> tuple[str, str, int]:
    worst = max(seconds)
    return (
        duration(median(seconds)) if worst < float("inf") else f"> {LIMIT:.0f} s",
        duration(worst) if worst < float("inf") else f"> {LIMIT:.0f} s",
        len(seconds),
    )


def tables(*, quick: bool) -> str:
    """Return the tables."""
    starts: dict[str, tuple[Launch, str]] = {
        "JAX, `srun allranks run`": (by_slurm, "jax"),
        "JAX, `srun python`": (by_bare_slurm, "jax"),
        "JAX, `ssh HOST allranks run`": (by_ssh, "jax"),
        "torch, `allranks run` on each host": (by_hand, "torch"),
        "torch, `torchrun` on each host": (by_torchrun, "torch"),
    }
    failures: dict[str, tuple[Launch, str]] = {
        "JAX, `srun allranks run`": (by_slurm, "jax"),
        "torch, `allranks run` on each host": (by_hand, "torch"),
        "torch, `torchrun` on each host": (by_torchrun, "torch"),
    }
    rounds, many = (1, 2) if quick else (5, 20)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, network_hosts.running(Path(folder)) as hosts:
        began: dict[str, list[float]] = {name: [] for name in starts}
        for _ in range(rounds):
            for name, (launch, framework) in starts.items():
                began[name].append(first_collective(hosts, launch, framework))
        ended: dict[str, list[float]] = {name: [] for name in failures}
        for turn in range(many):
            for name, (launch, framework) in failures.items():
                if launch is not by_torchrun or turn < rounds:
                    ended[name].append(from_failure_to_end(hosts, launch, framework))
        others: dict[str, Any] = {
            "a cable is cut: all other hosts have named it": [from_cut_to_name(hosts) for _ in range(rounds)],
            "host 0's launcher is killed: no rank is left": [from_kill_to_last_rank(hosts) for _ in range(rounds)],
        }
    rows = [(f"first collective: {name}", *_shown(seconds)) for name, seconds in began.items()]
    rows += [(f"a rank raises, all launchers have ended: {name}", *_shown(seconds)) for name, seconds in ended.items()]
    rows += [(name, *_shown(seconds)) for name, seconds in others.items()]
    return table(("4 hosts, 1 rank each", "median", "longest", "runs"), rows)
