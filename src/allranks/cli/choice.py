"""Choose a command from the command line: handle ``help``, list the commands, suggest a name for a misspelled one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches


def choose(parser: argparse.ArgumentParser, commands: Mapping[str, str], arguments: Sequence[str]) -> list[str] | None:
    """Return the command's name and its arguments, or None if the help was shown; the exit code is then 2.

    ``help COMMAND ...`` becomes ``COMMAND ... --help``. Ends the process if ``parser`` does. For a command that does
    not exist, ends the process with a suggestion and exit code 2.
    """
    first, *rest = arguments or [""]
    if first == "help" and rest:
        return choose(parser, commands, [*rest, "--help"])
    if first in commands:
        return list(arguments)
    width = max(map(len, commands))
    listed = "\n".join(f"  {name:<{width}}  {what}" for name, what in commands.items())
    parser.epilog = "\n\n".join(filter(None, [f"commands:\n{listed}", parser.epilog]))
    if first.startswith("-"):
        parser.parse_args(arguments)
    if arguments and first != "help":
        parser.error(f"no command {first!r}: {_suggestion(parser.prog, commands, first, rest)}")
    parser.print_help(None if arguments else sys.stderr)
    if arguments:
        parser.exit()
    return None


def _suggestion(program: str, commands: Mapping[str, str], word: str, rest: Sequence[str]) -> str:
    if near := get_close_matches(word, commands, n=1):
        return f"did you mean `{' '.join([program, near[0], *rest])}`?"
    if word.endswith(".py") and "run" in commands:
        return f"to run a script as 4 ranks, write `{' '.join([program, 'run -n 4', word, *rest])}`"
    return f"there are {', '.join(sorted(commands))}"
