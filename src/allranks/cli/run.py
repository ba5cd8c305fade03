"""Implement ``allranks run``: run one job of N ranks on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli import run_hosts
from allranks.cli.command_parser import CommandParser
from allranks.cli.leftovers import remove_leftovers
from allranks.cli.local_path import local_path
from allranks.cli.option_values import at_least_one, integer, seconds, takes_value
from allranks.cli.other_launchers import answer
from allranks.cli.run_capacity import must_fit
from allranks.launch.hang_limits import OTHER_STAGES
from allranks.launch.job import STYLES
from allranks.program import PREEMPTED

if TYPE_CHECKING:
    from allranks.cli.run_screen import RunScreen
    from allranks.launch.job import Job, Target
    from allranks.launch.result import JobResult

DESCRIPTION = (
    "Run a script (or any command) as N ranks on this machine, or on each of several hosts, as one job: the ranks "
    "start, and end, together."
)
EPILOG = """\
examples:
  allranks run -n 4 train.py --steps 100        a script
  allranks run -n 4 -d 2 -m package.train       a module, two devices per rank
  allranks run -n 4 -- uv run train.py          any command that ends in Python
  srun --ntasks-per-node=1 allranks run -n 8 train.py          eight ranks on each host of a Slurm job
  allranks run --hosts 4 --host-rank 2 --coordinator node0:29400 -n 8 train.py     by hand, on the third of four

Options of the launcher come before the script; everything behind it belongs to the script.
A line is shown once, after the ranks that wrote it: [0-3] on stdout, (0-3) on stderr. Reports and
the table at the end go to stderr, too. One rank has your standard input (breakpoint() works there); several have none.
The exit code is that of the rank that failed first (128 + n for signal n), 130 after Ctrl-C, 124 after --timeout,
75 after a hang that --on-hang end has ended, 2 for a wrong command line. After SIGTERM it is 143 if nothing is lost,
137 if a Checkpointer could not save before the end of the grace, or that of the rank that failed before it could.
"""


_WRONG_COMMAND_LINE = 2
NEEDS_LINUX = (
    "allranks run needs Linux, and this is {platform}: only its kernel ends every process of a job, whatever happens "
    "(prctl, pidfd). What is lost without: merged output, the first failure, hang reports, --guard. Start the ranks by "
    "torchrun, where allranks.init() joins them, or run in a container or WSL. `allranks check` works here."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks run``."""
    p = CommandParser(
        prog="allranks run",
        usage="allranks run -n N [options] (script.py | -m module | -- command) [arguments ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ranks = "number of ranks (processes) on this host; auto: one for each GPU, or one on a TPU host"
    p.add_argument("-n", "--ranks", type=_ranks, metavar="N", help=ranks)
    p.add_argument("-d", "--devices", type=at_least_one, metavar="M", help="virtual CPU devices per rank")
    p.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    p.add_argument("--timeout", type=seconds, metavar="S", help="end the job after S seconds (exit code 124)")
    grace = "between SIGTERM (the ranks save and leave) or Ctrl-C (they end) and SIGKILL (default 30)"
    p.add_argument("--grace", type=seconds, default=30.0, metavar="S", help=grace)
    p.add_argument(
        "--rendezvous-timeout",
        type=seconds,
        metavar="S",
        help="end a collective that waits S seconds for other ranks or devices: sets XLA's flags, those that the "
        "installed jaxlib knows, and torch's default timeout, before any of them starts",
    )
    quiet = "of allranks itself, print only why the job failed or hangs: no notices, no table at the end"
    p.add_argument("-q", "--quiet", action="store_true", help=quiet)
    logs = "also keep the output of each rank in a file"
    p.add_argument("--log-dir", "--log_dir", type=local_path, metavar="DIR", help=logs)
    p.add_argument("--hang-after", type=seconds, metavar="S", help="report who hangs after S seconds (240; 0: never)")
    for stage in OTHER_STAGES:
        same = f"the same in {stage.title} (default: --hang-after)"
        p.add_argument(stage.option, type=seconds, metavar="S", help=same)
    guard = "compare the collectives and the replicas of all ranks, of a script that need not import allranks"
    p.add_argument("--guard", action="store_true", help=guard)
    any_line = "--guard, and ranks may start one collective from different lines"
    p.add_argument("--guard-any-line", action="store_true", help=any_line)
    p.add_argument("--on-hang", choices=("warn", "end"), help="after that report: go on waiting, or end the job (75)")
    p.add_argument(
        "--restarts", type=integer, default=0, metavar="N", help="start again after a failure, at most N times"
    )
    alike = "give up after N starts in a row that failed alike and saved no new step (3)"
    p.add_argument("--max-no-progress", type=at_least_one, default=3, metavar="N", help=alike)
    p.add_argument(
        "--as",
        dest="style",
        choices=STYLES,
        default="default",
        help="set the variables of another launcher, for scripts that read them",
    )
    p.add_argument(
        "--no-zygote",
        dest="zygote",
        action="store_false",
        help="start a fresh interpreter for each rank, instead of forking one that has imported the frameworks "
        "(slower; the ranks then do not share the secret of hash(str), see PYTHONHASHSEED)",
    )
    preempt = "exit with N in the place of 143, when SIGTERM ended the job and nothing is lost"
    p.add_argument("--exit-code-on-preempt", type=integer, metavar="N", help=preempt)
    run_hosts.add_options(p, ranks=_ranks)
    p.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def _ranks(text: str) -> int:
    """Convert the text of ``-n`` to a number of ranks. ``auto``, and torchrun's ``gpu``, count the accelerators."""
    if text not in ("auto", "gpu"):
        return at_least_one(text)
    from allranks.launch.accelerators import count_accelerators

    if (count := count_accelerators(os.environ)) == 0:
        raise argparse.ArgumentTypeError("auto: this host has no accelerator (or none is visible); give a number")
    return count


def main(argv: Sequence[str]) -> int:
    """Run ``allranks run`` with these arguments; return its exit code."""
    p = parser()
    arguments = _read(p, argv)
    words = [word for i, word in enumerate(arguments.command) if i or word != "--"]
    target = target_from(p, words, module=arguments.module)
    must_fit(p, arguments.ranks, target, with_logs=arguments.log_dir is not None, zygote=arguments.zygote)
    place = run_hosts.place_from(p, arguments)
    from allranks.cli.run_screen import RunScreen
    from allranks.launch.capacity import needed_descriptors
    from allranks.launch.console import OutputClosed
    from allranks.launch.rank_pipes import raised_descriptor_limit

    needed = needed_descriptors(arguments.ranks, with_logs=arguments.log_dir is not None)
    remove_leftovers()
    job = _job(arguments, target)
    run_hosts.watch_for_end(arguments)
    try:
        with raised_descriptor_limit(needed), RunScreen(arguments) as screen:
            if unread := _unread(target):
                screen.note(f"allranks: {unread}")
            result = _run_here(job, screen) if place is None else run_hosts.run(job, place, screen, arguments)
            if result.exit_code == PREEMPTED and arguments.exit_code_on_preempt is not None:
                result = replace(result, exit_code=arguments.exit_code_on_preempt)
            leads = place is None or (len(result.ranks) > 0 and result.ranks[0].rank == 0)
            for line in (*screen.summary(result, leads=leads), *_options_behind(p, words, result.exit_code)):
                screen.print_line(line)
    except OutputClosed as error:
        if not isinstance(error.__cause__, BrokenPipeError):  # that is how `| head` ends it
            with contextlib.suppress(OSError):
                print(f"allranks: {error}", file=sys.stderr)
        return 141
    return result.exit_code


def _run_here(job: Job, screen: RunScreen) -> JobResult:
    """Run a job on this host alone."""
    from allranks.launch import restarts
    from allranks.launch.engines import local
    from allranks.launch.hosts.place import note_of
    from allranks.launch.placement import Placement

    if note := note_of(os.environ):
        screen.note(f"allranks: {note}")
    console = screen.console(Placement((socket.gethostname(),), (job.ranks,)))

    def start(job: Job) -> JobResult:
        console.lift_limit()
        return local.run(job, console, show=screen.locate)

    return restarts.run(job, start, report=screen.print_line)


def _job(arguments: argparse.Namespace, target: Target) -> Job:
    from allranks.launch.job import Job

    return Job(
        target,
        arguments.ranks,
        devices=arguments.devices,
        timeout=arguments.timeout,
        style=arguments.style,
        role=arguments.role,
        zygote=arguments.zygote,
        grace=arguments.grace,
        rendezvous_timeout=arguments.rendezvous_timeout,
        xla_flags=_xla_flags(arguments.rendezvous_timeout),
        guard=arguments.guard or arguments.guard_any_line,
        guard_any_line=arguments.guard_any_line,
        hang_after=arguments.hang_after,
        hang_limits={
            one.name: seconds for one in OTHER_STAGES if (seconds := getattr(arguments, f"hang_{one.name}")) is not None
        },
        on_hang=arguments.on_hang,
        restarts=arguments.restarts,
        max_no_progress=arguments.max_no_progress,
    )


def _options_behind(p: argparse.ArgumentParser, words: Sequence[str], exit_code: int) -> Iterator[str]:
    """Yield a line about options of ``allranks run`` after the script, if the program refused its command line."""
    ours = {option for one in p._actions for option in one.option_strings} - {"-h", "--help"}
    behind = [word for word in words[1:] if word.partition("=")[0] in ours]
    if behind and exit_code == _WRONG_COMMAND_LINE:
        yield f"allranks: {words[0]} was given {', '.join(behind)}: options of allranks run stand before the script"


def _read(p: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments. Ends the process for options of other launchers, and on systems other than Linux."""
    if said := answer(argv, takes_value(p)):
        p.error(said)
    arguments = p.parse_args(argv)
    if arguments.ranks is None:
        p.error("the following arguments are required: -n/--ranks")
    if sys.platform != "linux":
        p.error(NEEDS_LINUX.format(platform=sys.platform))
    return arguments


def _xla_flags(rendezvous_timeout: float | None) -> tuple[str, ...]:
    """Return the XLA flags for this timeout that the installed jaxlib knows. An unknown flag would end each process."""
    if rendezvous_timeout is None:
        return ()
    from allranks.launch.environment import rendezvous_flags
    from allranks.readiness.detect import has_jaxlib
    from allranks.readiness.flags import known_flags

    return known_flags(rendezvous_flags(rendezvous_timeout)) if has_jaxlib() else ()


def _unread(target: Target) -> str:
    """Return a line about environment variables that neither a library nor the program reads; "" for none."""
    from allranks.launch.job import Command, Script
    from allranks.readiness.variables import unread_row

    def is_read(name: str) -> bool:
        from allranks.readiness.code import files_under
        from allranks.readiness.name_search import contains_name

        return contains_name(name, files_under(Path(target.path if isinstance(target, Script) else ".")))

    if isinstance(target, Command):
        return ""  # whatever that reads
    row = unread_row(os.environ, is_read)
    return "" if row.verdict == "ok" else f"{row.texts[0]} ({row.remedy.removesuffix('.')})"


def target_from(p: argparse.ArgumentParser, command: list[str], *, module: bool) -> Target:
    from allranks.launch.job import Command, Module, Script, target_of

    if not command:
        p.error("nothing to run: name a script (train.py), a module (-m package.train), or a command (-- command)")
    if module:
        return Module(command[0], tuple(command[1:]))
    target = target_of(command, pythons=_pythons())
    if isinstance(target, Script) and not os.path.isfile(target.path):
        p.error(f"no such script: {target.path} (in {os.getcwd()})")
    if isinstance(target, Command) and shutil.which(command[0]) is None:
        p.error(f"no such command: {command[0]} (a script's name ends in .py)")
    return target


def _pythons() -> list[str]:
    """Return the names under which the interpreter that runs this process can be called."""
    names = ("python", "python3", f"python3.{sys.version_info.minor}")
    here = os.path.realpath(sys.executable)
    found = [name for name in names if (path := shutil.which(name)) and _same(path, here)]
    return [sys.executable, *found]


def _same(path: str, executable: str) -> bool:
    """Return whether a path is our interpreter: the same file, and in the same environment.

    For a venv, the path must be in the same folder.
    """
    return os.path.realpath(path) == executable and os.path.dirname(path) == os.path.dirname(sys.executable)
