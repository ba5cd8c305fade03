"""A job on several hosts: the launchers of ``allranks run``, for the tests of this folder."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import harness
from network_hosts import Hosts

PROGRAM = Path(__file__).with_name("plain_rank.py")
RUN = [Path(sys.executable).with_name("allranks"), "run"]


class Job:
    """The launchers of a job, one on each host, with what they printed."""

    def __init__(
        self, hosts: Hosts, folder: Path, options: Sequence[object], names: Sequence[str], env: Mapping[str, str]
    ) -> None:
        self.hosts, self.names, self.env = hosts, names, env
        self.logs = {name: folder / f"{name}.log" for name in names}
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}
        for number, name in enumerate(names):
            place = ["--hosts", str(len(names)), "--host-rank", str(number), "--coordinator", f"{names[0]}:29400"]
            self.start(name, [*place, *map(str, options)])

    def start(self, name: str, options: Sequence[str]) -> None:
        with self.logs[name].open("ab") as log:
            self.launchers[name] = self.hosts.on(
                name,
                [*map(str, RUN), *options],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self, name: str) -> str:
        return self.logs[name].read_text(errors="replace")

    def await_text(self, pattern: str | re.Pattern[str], names: Sequence[str] = ()) -> None:
        """Wait until the launchers have printed the pattern."""
        deadline = time.monotonic() + harness.PATIENCE
        while not all(re.search(pattern, self.text(name)) for name in names or self.names):
            assert time.monotonic() < deadline, self.all_text()
            time.sleep(0.05)

    def codes(self, names: Sequence[str] = ()) -> dict[str, int]:
        return {name: self.launchers[name].wait(harness.PATIENCE) for name in names or self.names}

    def kill(self) -> None:
        """Kill the launchers, if they still run."""
        for launcher in self.launchers.values():
            launcher.kill()
            launcher.wait()

    def all_text(self) -> str:
        return "\n".join(f"== {name}\n{self.text(name)}" for name in self.names)

    def first_failures(self, names: Sequence[str] = ()) -> set[str]:
        return {
            line for name in names or self.names for line in re.findall("^first failure: .*", self.text(name), re.M)
        }


def no_rank_is_left(hosts: Hosts, names: Sequence[str]) -> None:
    for name in names:
        assert hosts.run(name, ["pgrep", "-f", "plain_rank.py"]).stdout == "", name


def signal_launcher(hosts: Hosts, name: str, what: str) -> None:
    hosts.run(name, ["pkill", f"-{what}", "-f", "--", "--host-rank"])
