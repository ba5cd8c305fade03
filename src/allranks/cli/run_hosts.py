"""Define the options of ``allranks run`` about hosts, with torchrun's names for them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from allranks.cli.option_values import integer, seconds, seconds_above_0
from allranks.errors import ContradictingSigns

if TYPE_CHECKING:
    from allranks.cli.run_screen import RunScreen
    from allranks.launch.hosts.limits import HostLimits
    from allranks.launch.hosts.place import HostPlace
    from allranks.launch.job import Job
    from allranks.launch.result import JobResult

_TITLE = "a job on several hosts"
_TEXT = (
    "Start allranks run once on each host. Where Slurm, MPI, Kubeflow, SkyPilot or a TPU VM says which host this is, "
    "leave these options out; --hosts 1 then runs on this host alone. torchrun's --nnodes, --nproc-per-node, "
    "--node-rank, --rdzv-endpoint, --rdzv-id, --master-addr, --master-port, --max-restarts, --role, --log_dir and "
    "--tee work as well."
)


def add_options(p: argparse.ArgumentParser, *, ranks: Callable[[str], int]) -> None:
    """Add the options about hosts to the parser of ``allranks run``. ``ranks`` converts a number of ranks."""
    group = p.add_argument_group(_TITLE, _TEXT)
    group.add_argument("--hosts", type=host_count, metavar="H", help="number of hosts; MIN:MAX: at least MIN will do")
    group.add_argument("--host-rank", type=integer, metavar="R", help="number of this host, from 0")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="name or address of host 0, and a free port there")
    silent = "a host that is silent for S seconds is lost (15)"
    group.add_argument("--host-timeout", type=seconds_above_0, default=15.0, metavar="S", help=silent)
    wait = "wait S seconds for the other hosts (600)"
    group.add_argument("--join-timeout", type=seconds_above_0, default=600.0, metavar="S", help=wait)
    close = "end the job when standard input ends: the connection of ssh that started it is gone"
    group.add_argument("--end-on-stdin-close", action="store_true", help=close)
    cloud = "end the job, as SIGTERM does, at a notice of this cloud that it takes the machine away (gce on a TPU VM)"
    group.add_argument("--notices", choices=("gce", "aws", "none"), help=cloud)
    _add(p, "--nproc-per-node", dest="ranks", type=ranks)
    _add(p, "--max-restarts", dest="restarts", type=integer)
    _add(p, "--nnodes", dest="hosts", type=host_count)
    _add(p, "--node-rank", dest="host_rank", type=integer)
    _add(p, "--rdzv-endpoint", dest="coordinator")
    _add(p, "--master-addr")
    _add(p, "--master-port")
    _add(p, "--rdzv-id", default="")
    _add(p, "--rdzv-backend", choices=["c10d", "static"])
    _add(p, "--standalone", dest="hosts", action="store_const", const=(1, 1))
    _add(p, "--role", default="", metavar="NAME")
    _add(p, "--tee", "-t")
    _add(p, "--monitor-interval", type=seconds)  # without effect: the end of a rank is an event


def _add(p: argparse.ArgumentParser, name: str, *others: str, **settings: object) -> None:
    """Add an option of torchrun, which is not in the help. It is written with dashes or with underscores."""
    names = dict.fromkeys([name, "--" + name[2:].replace("-", "_"), *others])
    p.add_argument(*names, help=argparse.SUPPRESS, **settings)  # type: ignore[arg-type]


def host_count(text: str) -> tuple[int, int]:
    """Convert ``4`` or ``2:4`` to the fewest and the most hosts. Raises ArgumentTypeError for any other text."""
    fewest, _, most = text.partition(":")
    if not (fewest.isdecimal() and (most or fewest).isdecimal() and 1 <= int(fewest) <= int(most or fewest)):
        raise argparse.ArgumentTypeError(f"expected a number of hosts such as 4, or 2:4, found {text!r}")
    return int(fewest), int(most or fewest)


def place_from(p: argparse.ArgumentParser, arguments: argparse.Namespace) -> HostPlace | None:
    """Return which host of which job this is, or None for one host. Ends the process where that is unclear."""
    from allranks.launch.hosts.place import HostOptions, place_of

    coordinator = arguments.coordinator
    if coordinator is None and arguments.master_addr is not None:
        address = f"[{arguments.master_addr}]" if ":" in arguments.master_addr else arguments.master_addr
        coordinator = ":".join(filter(None, [address, arguments.master_port]))
    if arguments.tee not in (None, "0") and arguments.log_dir is None:
        p.error("--tee: give --log-dir DIR, too: it keeps the output of each rank in a file, and all of it is shown.")
    options = HostOptions(arguments.hosts, arguments.host_rank, coordinator, job=arguments.rdzv_id)
    try:
        place = place_of(options, os.environ)
    except ContradictingSigns as error:
        p.error(str(error))
    if place is not None and arguments.style not in ("default", "torchrun"):
        p.error(f"--as {arguments.style} is for one host: leave it out, or give --hosts 1")
    return place


def watch_for_end(arguments: argparse.Namespace) -> None:
    """Start what ends the job, as SIGTERM does, for another reason than a signal: see the options."""
    if arguments.end_on_stdin_close:
        _end_with_stdin()
    if arguments.notices or "TPU_WORKER_ID" in os.environ:
        from allranks.launch.cloud_notices import end_at_notice, source_of

        if (source := source_of(arguments.notices, os.environ)) is not None:
            end_at_notice(source, is_required=arguments.notices is not None)


def _end_with_stdin() -> None:
    """End the job, as SIGTERM does, when standard input ends."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="allranks-stdin", daemon=True).start()


def _limits(arguments: argparse.Namespace) -> HostLimits:
    """Return how long the launchers of the hosts wait for each other."""
    from allranks.launch.hosts.limits import HostLimits

    silence = arguments.host_timeout
    return HostLimits(
        ping=min(1.0, silence / 5), doubt=min(3.0, silence / 2), silence=silence, joining=arguments.join_timeout
    )


def run(job: Job, place: HostPlace, screen: RunScreen, arguments: argparse.Namespace) -> JobResult:
    """Run a job together with the launchers of the other hosts. Ends the process if nothing is started."""
    from allranks.launch.hosts.session import run as run_together
    from allranks.launch.restarts import NotStarted

    try:
        return run_together(job, place, screen, _limits(arguments))
    except NotStarted as error:
        screen.print_line(f"allranks: {error}")
        sys.exit(error.exit_code)
