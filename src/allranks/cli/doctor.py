"""Implement ``allranks doctor``: check the machines of a job, or query a running job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from allranks.cli.command_parser import CommandParser
from allranks.cli.local_path import local_text
from allranks.cli.option_values import seconds_above_0

if TYPE_CHECKING:
    from allranks.findings import Row
    from allranks.world.base import World

DESCRIPTION = """\
Look at the machine: versions, devices, cores, memory and limits, network, file systems, variables that nothing reads.
Started as several ranks it looks at all hosts side by side, and at what is between them: clocks, who reaches whom,
which folders are shared. With JOB it asks a running job which of its ranks do what, and who waits for whom."""
EPILOG = """\
examples:
  allranks doctor                                      this machine
  srun -N 16 allranks doctor --path /scratch/runs      all hosts of an allocation, and a folder
  allranks run -n 4 -- allranks doctor                 as four ranks of this machine
  allranks doctor job                                  the only job that runs here; its name, where there are several

Every verdict has its evidence. "not seen": there is no such thing here; "not determined": it could not be found out.
Nothing is waited for longer than --timeout; what does not answer is a finding.

Of a job, the ranks of this machine answer themselves, by their user, whatever launcher started them; those of other
machines are shown by their last heartbeats. A rank that does not answer is looked at from outside.

Exit codes: 0 no error (of a job: all is well), 1 an error (a rank stands still, is mute or has ended),
2 a wrong command line (no such job here). Of several ranks, rank 0 prints the table and has the exit code.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks doctor``."""
    p = CommandParser(
        prog="allranks doctor",
        usage="allranks doctor [--path DIR] [--size MB] [--timeout S] [--backend NAME] [--json]\n"
        "       allranks doctor JOB [--stacks] [--watch] [--json]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--json", action="store_true", help="one JSON document instead of text")
    machine = p.add_argument_group("the machine")
    where = "a folder of checkpoints, data or caches to try out; may be given again (default: the current one)"
    machine.add_argument("--path", action="append", type=local_text, metavar="DIR", help=where)
    machine.add_argument("--size", type=_megabytes, default=64, metavar="MB", help="how much is written there (64)")
    patience = "how long other ranks, frameworks and file systems may take to answer (60)"
    machine.add_argument("--timeout", type=seconds_above_0, default=60.0, metavar="S", help=patience)
    machine.add_argument("--backend", choices=("jax", "torch"), help="what carries several ranks (as allranks.init)")
    job = p.add_argument_group("a running job")
    job.add_argument("job", nargs="?", metavar="JOB", help="its name, or the beginning; `job` for the only one")
    job.add_argument("--stacks", action="store_true", help="also the stacks of all threads of the ranks here")
    job.add_argument("--watch", action="store_true", help="look again every second, until Ctrl-C")
    return p


def _megabytes(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"expected a number of megabytes, 1 to 100000, found {text!r}")
    return int(text)


def main(argv: Sequence[str]) -> int:
    """Run ``allranks doctor`` with these arguments; return its exit code."""
    arguments = parser().parse_args(argv)
    if arguments.job or arguments.stacks or arguments.watch:
        from allranks.cli import doctor_job

        return doctor_job.main(arguments)
    from allranks.cli.verdicts import show_readiness
    from allranks.doctor import together
    from allranks.doctor.host import DoctorRequest
    from allranks.errors import AllranksError

    world, launcher, launched = _join(arguments)
    folders = tuple(dict.fromkeys(arguments.path or ["."]))
    request = DoctorRequest(folders, arguments.size * 1_000_000, arguments.timeout, launched)
    try:
        found = together.examine_all_hosts(world, request, launcher)
    except AllranksError as error:  # a rank has died, or did not join
        print(f"allranks: {error}", file=sys.stderr)
        return 1
    if not world.is_main:
        return 0  # otherwise a launcher would end the job before rank 0 has printed the table
    show_readiness(found, "allranks doctor", as_json=arguments.json)
    return 1 if found.errors else 0


def _join(arguments: argparse.Namespace) -> tuple[World, Row, bool]:
    """Join the other ranks. Return the world, the row of the report about joining, and whether a launcher started us.

    If the others cannot be joined, return a world of one rank.
    """
    from allranks.doctor import host, ranks
    from allranks.doctor.await_ranks import await_ranks
    from allranks.errors import AllranksError, ContradictingSigns
    from allranks.world.detect import decide_without_joining, init, single_world

    at_hand = host.launchers_here()
    try:
        decision = decide_without_joining(arguments.backend)
    except ContradictingSigns as error:
        return single_world(), ranks.contradiction_row(error), False
    if decision.size == 1:
        launched = bool(decision.launcher)
        return single_world(), ranks.single_process_row(decision.evidence, at_hand), launched
    try:
        if decision.backend == "jax" and decision.launcher != "allranks":
            await_ranks(decision, timeout_seconds=arguments.timeout)
        world = init(arguments.backend, timeout=arguments.timeout)
    except AllranksError as error:
        return single_world(), ranks.unjoined_row(error), True
    return world, ranks.joined_row(decision.evidence, world.backend, decision.address), True
