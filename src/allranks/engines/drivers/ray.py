"""Run a job of several hosts on a Ray cluster: the driver, ``python -m allranks.engines.drivers.ray PLAN``.

A placement group has a bundle on each host, and an actor in each bundle starts ``allranks run``. The launcher ends when
its actor does: its standard input is a pipe from the actor.
"""

from __future__ import annotations

import json
import queue
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import ray
from ray.util import get_node_ip_address, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from allranks.engines.frames import with_host
from allranks.engines.host_script import common_exit_code

_BATCH_SECONDS = 0.5


class Host:
    """The launcher of one host, and the lines that it has printed."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._launcher: subprocess.Popen[str] | None = None

    def address(self) -> str:
        """Return the address of this host, and a port that is free."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{get_node_ip_address()}:{free.getsockname()[1]}"

    def start(self, argv: list[str]) -> None:
        """Start the launcher with this command."""
        self._launcher = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        threading.Thread(target=self._read, args=(self._launcher,), daemon=True).start()

    def _read(self, launcher: subprocess.Popen[str]) -> None:
        assert launcher.stdout is not None
        for line in launcher.stdout:
            self._lines.put(line.rstrip("\n"))
        launcher.wait()
        self._lines.put(None)

    def take(self) -> tuple[list[str], int | None]:
        """Return new lines, and the exit code once the launcher has ended and all lines were taken."""
        assert self._launcher is not None
        lines = []
        try:
            line = self._lines.get(timeout=_BATCH_SECONDS)
            while line is not None:
                lines.append(line)
                line = self._lines.get_nowait()
        except queue.Empty:
            return lines, None
        return lines, self._launcher.returncode

    def stop(self) -> None:
        """Send SIGTERM to the launcher."""
        if self._launcher is not None:
            self._launcher.terminate()


def main(plan: dict[str, Any]) -> int:
    """Run the job, print the lines of all hosts, and return its exit code."""
    ray.init(log_to_driver=False)
    hosts = _start(plan)
    signal.signal(signal.SIGTERM, lambda *_: _stop(hosts))
    pending = {host.take.remote(): rank for rank, host in enumerate(hosts)}
    codes = []
    while pending:
        (ready, *_), _ = ray.wait(list(pending))
        rank = pending.pop(ready)
        lines, code = ray.get(ready)
        for line in lines:
            print(with_host(f"host-{rank}", line, of=len(hosts)), flush=True)
        if code is None:
            pending[hosts[rank].take.remote()] = rank
        else:
            codes.append(128 - code if code < 0 else code)  # of a launcher that a signal has ended
    return common_exit_code(codes)


def _start(plan: dict[str, Any]) -> list[Any]:
    """Return the actors of all hosts, whose launchers have been started."""
    number = plan["hosts"]
    print(f"allranks: waiting for {number} hosts with {plan['bundle']} each", flush=True)
    group = placement_group([plan["bundle"]] * number, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    bundle = dict(plan["bundle"])
    options = {"num_cpus": bundle.pop("CPU", 0), "num_gpus": bundle.pop("GPU", 0), "resources": bundle}
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank) for rank in range(number)]
    hosts = [ray.remote(Host).options(scheduling_strategy=place, **options).remote() for place in places]
    coordinator = ray.get(hosts[0].address.remote())
    for rank, host in enumerate(hosts):
        place = ["--hosts", str(number), "--host-rank", str(rank), "--coordinator", coordinator]
        ray.get(host.start.remote([*plan["launcher"], "run", *place, "--end-on-stdin-close", *plan["arguments"]]))
    return hosts


def _stop(hosts: list[Any]) -> None:
    for host in hosts:
        host.stop.remote()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
