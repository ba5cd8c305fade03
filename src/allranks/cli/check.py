"""Implement ``allranks check``: find what goes wrong with several processes, by reading the code only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from allranks.cli.command_parser import CommandParser
from allranks.cli.local_path import local_path, local_text
from allranks.cli.process_setup import OUTSIDE

DESCRIPTION = """\
Read training code, run none of it, and find what goes wrong when several processes run it: files that every rank
writes, collectives that not all ranks reach, data that is not sharded, checkpoints that tear. Then say what was looked
at."""
EPILOG = """\
examples:
  allranks check                                   the project of this folder
  allranks check src --entry src/train.py          as this program runs it
  allranks check train.py --assume multi-host      would it survive several processes?
  allranks check --output-format html --output-file report.html
  allranks check --diff                            what --fix would change

The exit code is 0 if nothing was found, 1 if something was, 2 for a wrong command line or configuration.
What a code means: allranks explain AR101. All options, and [tool.allranks.check]: docs/check.md."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks check``."""
    p = CommandParser(
        prog="allranks check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "paths", nargs="*", type=local_path, metavar="PATH", help="files and folders (default: this folder), or -"
    )
    _about_what(p)
    _about_output(p)
    _about_fixes(p)
    return p


def _about_what(p: argparse.ArgumentParser) -> None:
    from allranks.check.config import CHOICES

    p.add_argument("--entry", action="append", metavar="FILE", help="a program that is started (may be repeated)")
    p.add_argument("--assume", choices=("auto", "multi-host"), help="multi-host: all code runs as several processes")
    p.add_argument(
        "--select", type=_codes, metavar="CODES", help="the rules that run: codes or their beginnings, with commas; ALL"
    )
    p.add_argument("--extend-select", type=_codes, metavar="CODES", help="rules that run too")
    p.add_argument("--ignore", type=_codes, metavar="CODES", help="rules that do not run; the longer beginning wins")
    p.add_argument("--confidence", choices=CHOICES["confidence"], help="low: also findings of low confidence")
    p.add_argument(
        "--precision",
        type=_part,
        metavar="PART",
        help="show only rules of whose findings this part, from 0 to 1, was right in unread code (default: 0)",
    )
    p.add_argument("--exclude", type=_list, metavar="GLOBS", help="what is left out, beside what .gitignore leaves out")
    p.add_argument("--no-cache", action="store_true", help="neither read nor write .allranks_cache")
    p.add_argument(
        "--stdin-filename", type=local_path, metavar="FILE", help="the file whose text comes on standard input"
    )
    p.add_argument("--show-files", action="store_true", help="print the files that would be read, and end")
    p.add_argument("--show-settings", action="store_true", help="print the settings, and end")


def _about_output(p: argparse.ArgumentParser) -> None:
    from allranks.check.config import CHOICES

    p.add_argument("--output-format", choices=CHOICES["output-format"], help="default: full")
    p.add_argument("--output-file", type=local_path, metavar="FILE", help="write the report there")
    p.add_argument("--statistics", action="store_true", help="count findings by rule instead of showing them")
    p.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever was found")
    p.add_argument("--fail-on", choices=CHOICES["fail-on"], help="exit with 1 from this severity on (default: warning)")
    p.add_argument("--baseline", type=local_text, metavar="FILE", help="do not show what this file knows")
    rehearsal = "say which findings a rehearsal has confirmed: what allranks rehearse --output-format json wrote"
    p.add_argument("--rehearsal", type=local_path, metavar="FILE", help=rehearsal)
    p.add_argument("--write-baseline", action="store_true", help="write what is found now to the baseline, and end")


def _about_fixes(p: argparse.ArgumentParser) -> None:
    p.add_argument("--fix", action="store_true", help="make the fixes that are safe")
    p.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: also those to be looked at")
    p.add_argument("--diff", action="store_true", help="show what --fix would change, and write nothing")


def main(argv: Sequence[str]) -> int:
    """Run ``allranks check`` with these arguments; return its exit code."""
    p = parser()
    arguments = p.parse_args(argv)
    piped = arguments.paths == [Path("-")]
    if piped and arguments.stdin_filename is None:
        arguments.stdin_filename = Path("stdin.py")
    if arguments.stdin_filename is not None and arguments.paths not in ([], [Path("-")]):
        p.error("--stdin-filename goes with - as the only PATH")
    from allranks.cli.check_run import run
    from allranks.errors import AllranksError

    try:
        return run(arguments)
    except AllranksError as error:
        print(f"allranks check: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # 1 would say that something is wrong with the code that was read
        from traceback import print_exc

        if isinstance(error, OSError) and error.errno in OUTSIDE:
            raise

        print_exc()
        print("allranks check: this is a bug of allranks, not a fault of the checked code.", file=sys.stderr)
        return 2


def _list(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text!r}")
    return part


def _codes(text: str) -> tuple[str, ...]:
    return tuple(word.upper() for word in _list(text))
