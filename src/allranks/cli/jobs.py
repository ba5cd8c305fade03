"""Implement ``allranks jobs``: list, follow, await and cancel the jobs that ``allranks submit`` has started."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.choice import choose
from allranks.cli.command_parser import CommandParser
from allranks.cli.group import Group

if TYPE_CHECKING:
    from allranks.engines.base import Engine, JobRow

GROUP = Group(
    "jobs",
    "Follow the jobs that `allranks submit` has started. The engine (Slurm, ...) keeps their state.",
    {
        "ls": "list the jobs of every profile, or of one",
        "logs": "show the output of a job",
        "wait": "wait for the end of a job; the exit code is that of the job",
        "cancel": "end a job: its ranks get SIGTERM, then they are killed",
        "attach": "show the output of a job until its end, and exit with its exit code; Ctrl-C leaves the job running",
    },
    "ID is what `allranks submit` has printed, e.g. slurm:4711.",
)


def parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of ``allranks jobs NAME``."""
    p = CommandParser(prog=f"allranks jobs {name}", description=GROUP.commands[name].capitalize() + ".")
    if name != "ls":
        p.add_argument("id", metavar="ID", help="the job, as `allranks submit` has printed it (slurm:4711)")
    on = "the profile with which the job was submitted; needed where the profile says how the engine is reached"
    p.add_argument("--on", metavar="NAME", help=on if name != "ls" else "the profile, or the kind")
    if name == "ls":
        p.add_argument("--json", action="store_true", help="one JSON document instead of text")
    if name == "logs":
        p.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
        p.add_argument("--rank", type=int, metavar="R", help="only the lines of this rank")
    return p


def main(argv: Sequence[str]) -> int:
    """Run ``allranks jobs`` with these arguments; return its exit code."""
    from allranks.errors import AllranksError

    p = CommandParser(
        prog="allranks jobs", usage="allranks jobs [-h] command ...", description=GROUP.description, epilog=GROUP.epilog
    )
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    words = choose(p, GROUP.commands, argv)
    if words is None:
        return 2
    arguments = parser(words[0]).parse_args(words[1:])
    try:
        return _COMMANDS[words[0]](arguments)
    except AllranksError as error:
        print(f"allranks jobs {words[0]}: {error}", file=sys.stderr)
        if words[0] != "ls" and not arguments.on and (note := _profile_note(arguments.id.partition(":")[0])):
            print(f"allranks jobs {words[0]}: {note}", file=sys.stderr)
        return 2


def _profile_note(kind: str) -> str:
    """Return a line that says which profiles may be needed to reach a job of this kind, or "" for none."""
    from allranks.cli.engine_profile import tables

    found = {name: table for name, (_, table) in tables(Path.cwd()).items() if isinstance(table, dict)}
    names = sorted(name for name, table in found.items() if name != kind and table.get("kind") == kind)
    if not names:
        return ""
    return f"no profile was used: if the job was submitted with one, add --on NAME. Of kind {kind}: {', '.join(names)}."


def _ls(arguments: argparse.Namespace) -> int:
    from allranks.cli.engine_profile import profile_of, tables
    from allranks.engines.base import EngineFailed

    names = [arguments.on] if arguments.on else sorted(tables(Path.cwd()))
    if not names:
        raise EngineFailed("no profile of an engine was found.", remedy="Name a kind: allranks jobs ls --on slurm.")
    found: list[JobRow] = []
    failures = []
    for name in names:
        try:
            found += profile_of(name, Path.cwd(), complete=False).client().jobs()
        except EngineFailed as error:
            failures.append(f"allranks jobs ls: profile {name!r}: {error}")
    _print_rows(sorted(set(found), key=lambda row: row.id), as_json=arguments.json)
    for line in failures:
        print(line, file=sys.stderr)
    return 2 if failures else 0


def _print_rows(rows: Sequence[JobRow], *, as_json: bool) -> None:
    import json
    from dataclasses import asdict, astuple

    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = [("id", "name", "state", "hosts"), *(astuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _client(arguments: argparse.Namespace) -> tuple[Engine, str]:
    """Return the client of a job and the job's reference. Raises ConfigWrong for what is no id."""
    from allranks.cli.engine_profile import profile_of
    from allranks.engines.kind import KINDS
    from allranks.settings import ConfigWrong

    kind, separator, reference = arguments.id.partition(":")
    if not separator or not reference or kind not in KINDS:
        raise ConfigWrong(
            f"{arguments.id!r} is no id of a job: expected KIND:..., with a kind of {', '.join(KINDS)}.",
            remedy="`allranks submit` prints the id; `allranks jobs ls` lists the ids.",
        )
    profile = profile_of(arguments.on or kind, Path.cwd(), complete=False)
    if profile.kind.name != kind:
        raise ConfigWrong(f"--on {arguments.on}: expected a profile of kind {kind}, found kind {profile.kind.name}.")
    return profile.client(), reference


def _logs(arguments: argparse.Namespace) -> int:
    client, reference = _client(arguments)
    show(client, reference, follow=arguments.follow, rank=arguments.rank)
    return 0


def _wait(arguments: argparse.Namespace) -> int:
    client, reference = _client(arguments)
    return client.wait(reference)


def _cancel(arguments: argparse.Namespace) -> int:
    client, reference = _client(arguments)
    client.cancel(reference)
    return 0


def _attach(arguments: argparse.Namespace) -> int:
    client, _ = _client(arguments)
    return attach(client, arguments.id)


def attach(client: Engine, job: str) -> int:
    """Show the output of the job with this id until its end, and return its exit code.

    Ctrl-C leaves the job running; then the exit code is 130.
    """
    reference = job.partition(":")[2]
    try:
        show(client, reference, follow=True, split=True)
        return client.wait(reference)
    except KeyboardInterrupt:
        print(f"allranks: the job goes on. To end it: allranks jobs cancel {job}", file=sys.stderr)
        return 130


def show(client: Engine, reference: str, *, follow: bool, rank: int | None = None, split: bool = False) -> None:
    """Print the lines of a job, or of one rank. With ``split``, only what ranks wrote on stdout goes to stdout."""
    from allranks.engines.frames import has_rank, is_stdout

    for line in client.logs(reference, follow=follow):
        if rank is None or has_rank(line, rank):
            print(line, file=sys.stderr if split and not is_stdout(line) else sys.stdout, flush=follow)


_COMMANDS = {"ls": _ls, "logs": _logs, "wait": _wait, "cancel": _cancel, "attach": _attach}
