"""Implement ``allranks submit``: give a job of several hosts to Slurm, SSH hosts, Kubernetes, a cloud or Ray."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.command_parser import CommandParser
from allranks.cli.option_values import at_least_one, takes_value
from allranks.program import PREEMPTED

if TYPE_CHECKING:
    from allranks.cli.engine_profile import NamedProfile
    from allranks.engines.base import Submission
    from allranks.engines.kind import Kind

DESCRIPTION = """\
Start a job on several hosts: the engine starts `allranks run` on each of them, once. The options of `allranks run`
go before the script, and are passed on."""
_EPILOG = """\
NAME is a table [tool.allranks.engines.NAME] of pyproject.toml, or [NAME] of ~/.config/allranks/engines.toml, with the
option kind; or a kind without options. `allranks submit --on NAME --help` lists the options of a kind.

kinds:
{kinds}

examples:
  allranks submit --on slurm --hosts 4 -n 8 train.py --steps 1000
  allranks submit --on lab --hosts a,b -n auto --log-dir logs train.py
  allranks submit --on gke --dry-run --hosts 4 -n 8 train.py

It prints the id of the job; see `allranks jobs`. With ssh it stays with the job, and has its exit code.
The exit code is 0 if the engine has the job, 2 if it was refused, or that of the job where submit waits for it."""
# Options of `allranks run` that differ from host to host.
_NEW_KEY = "a new secret of each job"  # what --dry-run shows in its place
_OF_EACH_HOST = ("host_rank", "coordinator", "master_addr", "master_port")


def parser(epilog: str = "") -> argparse.ArgumentParser:
    """Return the parser of the options that are not those of ``allranks run``."""
    p = CommandParser(
        prog="allranks submit",
        usage="allranks submit --on NAME --hosts H -n N [options] (script.py | -m module | -- command) [arguments ...]",
        description=DESCRIPTION,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--on", metavar="NAME", required=True, help="the engine: a profile, or a kind")
    hosts = "the number of hosts; 2:4: as many as there are, at least 2; with ssh also their names (a,b)"
    p.add_argument("--hosts", metavar="H", help=hosts)
    p.add_argument("--dry-run", action="store_true", help="print what would be run or applied, and run nothing")
    p.add_argument("--name", help="the name of the job (default: that of the script)")
    env = "set a variable on every host (may be repeated); NAME alone: with its value here"
    p.add_argument("--env", metavar="NAME[=VALUE]", action="append", default=[], help=env)
    p.add_argument("--attach", action="store_true", help="show the output of the job, and exit with its exit code")
    return p


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The parts of a command line: the options of submit, those of ``allranks run``, and the command."""

    submit: tuple[str, ...]
    run: tuple[str, ...]
    command: tuple[str, ...]


def split(argv: Sequence[str], submit: Mapping[str, bool], run: Mapping[str, bool]) -> CommandLine:
    """Split a command line. ``submit`` and ``run`` have the options of both; True for those that take a value."""
    ours: list[str] = []
    theirs: list[str] = []
    place = 0
    while place < len(argv) and argv[place].startswith("-") and argv[place] not in ("--", "-m"):
        name, separator, _ = argv[place].partition("=")
        known, into = (submit, ours) if name in submit else (run, theirs)
        length = 2 if known.get(_complete(name, known)) and not separator else 1
        into += argv[place : place + length]
        place += length
    return CommandLine(tuple(ours), tuple(theirs), tuple(argv[place:]))


def _complete(name: str, known: Mapping[str, bool]) -> str:
    """Return the option that a word names: argparse also takes the beginning of an option."""
    if name in known or not name.startswith("--"):
        return name
    return next((option for option in known if option.startswith(name)), name)


def main(argv: Sequence[str]) -> int:
    """Run ``allranks submit`` with these arguments; return its exit code."""
    from allranks.cli import run
    from allranks.errors import AllranksError

    p, passed_on = parser(), run.parser()
    passed_on.prog, passed_on.usage = p.prog, p.usage
    for one in passed_on._actions:
        if one.dest == "ranks":
            one.type, one.required = _ranks, False  # "auto" counts the accelerators of the hosts, not those of this one
    line = split(argv, takes_value(p), takes_value(passed_on))
    try:
        if {"-h", "--help"} & {*line.submit, *line.run}:
            print(_help(line.submit), end="")
            return 0
        arguments = p.parse_args(line.submit)
        return _submit(p, arguments, line, passed_on)
    except AllranksError as error:
        print(f"allranks submit: {error}", file=sys.stderr)
        return 2


def _ranks(text: str) -> int:
    """Convert the text of ``-n`` to a number of ranks; 0 for ``auto``."""
    return 0 if text in ("auto", "gpu") else at_least_one(text)


def _submit(
    p: argparse.ArgumentParser, arguments: argparse.Namespace, line: CommandLine, passed_on: argparse.ArgumentParser
) -> int:
    from allranks.cli.engine_profile import profile_of
    from allranks.cli.jobs import attach
    from allranks.launch.hosts.place import JOB_KEY

    options = passed_on.parse_args([*line.run, *line.command])
    command = [word for word in line.command if word not in ("--", "-m")]
    if not command:
        p.error("nothing to run: name a script (train.py), a module (-m package.train), or a command (-- command)")
    if options.ranks is None:
        p.error("the following arguments are required: -n/--ranks")
    if set_here := [name for name in _OF_EACH_HOST if getattr(options, name, None) is not None]:
        p.error(f"--{set_here[0].replace('_', '-')}: leave it out: submit sets it on each host")
    of_run = getattr(options, "hosts", None)  # --nnodes, as torchrun has it
    hosts = hosts_of(arguments.hosts or (of_run and ":".join(map(str, of_run))), profile_of(arguments.on, Path.cwd()))
    kind = hosts.profile.kind
    if kind.shares_folder and command[0].endswith(".py") and not Path(command[0]).is_file():
        p.error(f"no such script: {command[0]} (in {Path.cwd()})")
    job = _job(arguments, line, options, hosts)
    client = hosts.profile.client()
    if arguments.dry_run:
        print(client.preview(replace(job, environment={JOB_KEY: _NEW_KEY, **job.environment})))
        return 0
    ids = []

    def report(reference: str) -> None:
        ids.append(f"{kind.name}:{reference}")
        print(ids[-1], flush=True)

    code = client.submit(replace(job, environment={JOB_KEY: secrets.token_hex(16), **job.environment}), report)
    if code is None:
        return attach(client, ids[-1]) if arguments.attach else 0
    return code


def _job(arguments: argparse.Namespace, line: CommandLine, options: argparse.Namespace, hosts: Hosts) -> Submission:
    """Return the job. ``options`` are the parsed options of ``allranks run``."""
    from allranks.engines.base import Submission, is_label, label_of
    from allranks.settings import ConfigWrong

    if arguments.name and not is_label(arguments.name):
        raise ConfigWrong(
            f"--name: expected lower-case letters, digits and '-', at most 63, found {arguments.name!r}.",
            remedy=f"Write --name {label_of(arguments.name)}.",
        )
    name = label_of(_program(line.command)) + (f"-{secrets.token_hex(3)}" if hosts.profile.kind.keeps_names else "")
    return Submission(
        name=arguments.name or name,
        ranks=options.ranks or None,
        hosts=hosts.most,
        least=hosts.least,
        options=line.run,
        command=line.command,
        folder=os.getcwd(),
        environment=dict(map(_variable, arguments.env)),
        grace=options.grace,
        preempt_code=getattr(options, "exit_code_on_preempt", None) or PREEMPTED,
    )


def _program(command: Sequence[str]) -> str:
    """Return the name of the script, module or program in a command."""
    names = [word for word in command if word not in ("--", "-m")]
    script = next((word for word in names if word.endswith(".py")), names[0])
    return Path(script).stem if "/" in script or script.endswith(".py") else script.rpartition(".")[2]


def _variable(text: str) -> tuple[str, str]:
    from allranks.settings import ConfigWrong

    name, separator, value = text.partition("=")
    if not name.isidentifier():
        raise ConfigWrong(f"--env: expected NAME or NAME=VALUE, found {text!r}.")
    if not separator and name not in os.environ:
        raise ConfigWrong(f"--env {name}: this variable is not set here.", remedy=f"Write --env {name}=VALUE.")
    return name, value if separator else os.environ[name]


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of a job: ``least`` to ``most`` of them, and the profile, which may have their names."""

    least: int
    most: int
    profile: NamedProfile


def hosts_of(text: str | None, profile: NamedProfile) -> Hosts:
    """Read ``--hosts``: a number, a range (``2:4``), or names where the kind connects to hosts by name.

    Raises ConfigWrong for anything else, and for more hosts than the profile names.
    """
    from allranks.settings import ConfigWrong

    names = getattr(profile.options, "hosts", ())
    takes_names = hasattr(profile.options, "hosts")
    least, most = (int(one) if one.isdecimal() else 0 for one in _ends(text or ""))
    if text is None:
        least = most = len(names) or 1
    elif takes_names and not least and not most:
        names = tuple(one for one in text.split(",") if one)
        least = most = len(names)
    if not 1 <= least <= most:
        expected = "a number (4), a range (2:4)" + (" or names (a,b)" if takes_names else "")
        raise ConfigWrong(f"--hosts: expected {expected}, found {text!r}.")
    if takes_names and most > len(names):
        known = f"the profile {profile.name!r} names {len(names)}" if names else "no host is named"
        raise ConfigWrong(f"--hosts {most}: {known}.", remedy='Write --hosts a,b or hosts = ["a", "b"] in the profile.')
    if takes_names:
        profile = replace(profile, options=replace(profile.options, hosts=names[:most]))
    return Hosts(least, most, profile)


def _ends(text: str) -> tuple[str, str]:
    first, separator, last = text.partition(":")
    return first, last if separator else first


def _help(argv: Sequence[str]) -> str:
    """Return the help: of all kinds, or of the kind of the profile after ``--on``."""
    from allranks.cli.engine_profile import profile_of
    from allranks.engines.kind import KINDS

    name = next((after for word, after in pairwise(argv) if word == "--on"), "")
    name = name or next((word.partition("=")[2] for word in argv if word.startswith("--on=")), "")
    if name:
        return _help_of(profile_of(name, Path.cwd(), complete=False).kind)
    width = max(map(len, KINDS))
    kinds = "\n".join(f"  {kind.name:<{width}}  {kind.tested} ({kind.on})" for kind in KINDS.values())
    return parser(_EPILOG.format(kinds=kinds)).format_help()


def _help_of(kind: Kind) -> str:
    from allranks.engines.profile import described

    rows = described(kind.profile)
    width = max(len(name) for name, _ in rows)
    options = "\n".join(f"  {name:<{width}}  {what}" for name, what in rows)
    about = f"{kind.name}: {kind.tested} ({kind.on}).\n  started by  {kind.starts}\n  SIGTERM     {kind.stop}"
    return parser(f"{about}\n  output      {kind.output}\n\noptions of a profile:\n{options}").format_help()
