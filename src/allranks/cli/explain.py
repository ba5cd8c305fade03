"""Implement ``allranks explain``: explain the known messages in a log, or a rule of ``allranks check``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from allranks.cli.command_parser import CommandParser
from allranks.failure import one_line

if TYPE_CHECKING:
    from allranks.launch.log_scan import LogMatch, LogScanner

DESCRIPTION = """\
Find the messages in logs that are known: of XLA, JAX's coordination service, Gloo, NCCL, torch and its DataLoader,
torchrun, CUDA, Slurm and the kernel; say what each means, what to do, and which timeout governs it. Any job's logs will
do, also of jobs that never used allranks. What is wrong comes first, consequences come last.

Or say what a rule of `allranks check` is about: give its code, its name, or --all."""
EPILOG = """\
examples:
  allranks explain slurm-4711.out
  allranks explain logs/rank-*.log
  kubectl logs trainer-0 | allranks explain -
  allranks explain AR101

The exit code is 0 if a message was found, 1 if none was, 2 if a file cannot be read or a rule does not exist.
All messages that are known: docs/explain.md. All rules: docs/rules."""
BLOCK, LONGEST_LINE = 1 << 22, 1 << 25
RULE = re.compile(r"[Aa][Rr]\d{1,3}(,[Aa][Rr]\d{1,3})*|[a-z0-9]+(-[a-z0-9]+)+")


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks explain``."""
    p = CommandParser(
        prog="allranks explain",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("logs", nargs="*", metavar="LOGFILE", help="a log, - for standard input, or a rule's code or name")
    p.add_argument(
        "--all", action="store_true", help="name all rules of `allranks check` (with --json: all of them whole)"
    )
    p.add_argument("--json", action="store_true", help="one JSON document instead of text")
    return p


def main(argv: Sequence[str]) -> int:
    """Run ``allranks explain`` with these arguments; return its exit code."""
    p = parser()
    arguments = p.parse_args(argv)
    if arguments.all or (arguments.logs and all(map(_is_rule, arguments.logs))):
        from allranks.cli.explain_rule import explain

        return explain(arguments.logs, as_json=arguments.json)
    if not arguments.logs:
        p.error("give a log, a rule, or --all")
    from allranks.launch.log_scan import LogScanner

    finder = LogScanner()
    try:
        for name in arguments.logs:
            if name == "-":
                _read(finder, "standard input", sys.stdin.buffer)
                continue
            with open(name, "rb") as log:
                _read(finder, name, log)
    except OSError as error:
        text = f"{error.filename}: neither a rule nor a readable log: {error.strerror}."
        print(f"allranks explain: {one_line(text)}", file=sys.stderr)
        return 2
    found = finder.found()
    print(_json(found) if arguments.json else _text(found, len(arguments.logs)))
    return 0 if found else 1


def _is_rule(word: str) -> bool:
    """Return whether a word is a rule's code, a prefix of codes, or a rule's name. An existing file is never a rule."""
    return bool(RULE.fullmatch(word)) and not os.path.exists(word)


def _read(finder: LogScanner, name: str, log: BinaryIO) -> None:
    for first, block in _blocks(log):
        finder.read(name, first, block)


def _blocks(log: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of complete lines of a log, each with the number of its first line, from 1.

    A line of more than ``LONGEST_LINE`` bytes comes in pieces: it may have no end.
    """
    number, rest = 1, b""
    while data := log.read(BLOCK):
        whole, newline, rest = (rest + data).rpartition(b"\n")
        if not newline and len(rest) > LONGEST_LINE:
            whole, rest = rest, b""
        if newline or whole:
            yield number, whole
            number += whole.count(b"\n") + len(newline)
    if rest:
        yield number, rest


def _text(found: Sequence[LogMatch], logs: int) -> str:
    from allranks.launch.log_scan import describe

    if not found:
        return "No known message was found. If the job hangs: allranks doctor job, or the stacks of every rank."
    return "\n\n".join(describe(one, name_log=logs > 1) for one in found)


def _json(found: Sequence[LogMatch]) -> str:
    return json.dumps([one.document() for one in found], indent=1)
