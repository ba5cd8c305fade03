"""Commands that belong together: ``allranks ckpt ...``, ``allranks data ...``; one file a command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """What ``allranks NAME`` can do: ``commands`` and what they are for; ``allranks/cli/NAME_COMMAND.py`` does it."""

    name: str
    description: str
    commands: Mapping[str, str]
    epilog: str


def run(group: Group, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    words = list(argv)
    if words and words[0] in group.commands:
        return _run(group.name, words[0], words[1:])
    commands = "\n".join(f"  {name:<8} {what}" for name, what in group.commands.items())
    parser = argparse.ArgumentParser(
        prog=f"allranks {group.name}",
        description=group.description,
        epilog=f"commands:\n{commands}\n\n{group.epilog}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=sorted(group.commands), help=argparse.SUPPRESS)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    parser.parse_args(words)
    return 0


def _run(group: str, name: str, words: list[str]) -> int:
    from allranks.errors import AllranksError, Damaged, DataChanged

    command = importlib.import_module(f"allranks.cli.{group}_{name}")
    parser = argparse.ArgumentParser(
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
