"""Run groups of commands, ``allranks ckpt ...`` and ``allranks data ...``. Each command has its own file."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allranks.cli.choice import choose
from allranks.cli.command_parser import CommandParser


@dataclass(frozen=True, slots=True)
class Group:
    """The group ``allranks NAME``. ``commands`` has each command and its purpose.

    The file ``allranks/cli/NAME_COMMAND.py`` runs a command.
    """

    name: str
    description: str
    commands: Mapping[str, str]
    epilog: str


def run(group: Group, argv: Sequence[str]) -> int:
    """Run the command of the group that ``argv`` names, and return its exit code."""
    parser = CommandParser(
        prog=f"allranks {group.name}",
        usage=f"allranks {group.name} [-h] command ...",
        description=group.description,
        epilog=group.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = choose(parser, group.commands, argv)
    return 2 if words is None else _run(group.name, words[0], words[1:])


def _run(group: str, name: str, words: list[str]) -> int:
    from allranks.errors import AllranksError, Damaged, DataChanged

    command = importlib.import_module(f"allranks.cli.{group}_{name}")
    parser = CommandParser(
        prog=f"allranks {group} {name}",
        description=command.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    arguments = parser.parse_args(words)
    try:
        return int(command.run(arguments))
    except AllranksError as error:
        print(f"allranks: {error}", file=sys.stderr)
        return 1 if isinstance(error, Damaged | DataChanged) else 2
