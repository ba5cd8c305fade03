"""Run the command ``allranks``. Each sub-command has its own file, which is imported only when it is called."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from allranks.cli.command_parser import CommandParser
from allranks.errors import AllranksError

COMMANDS = {
    "check": "what goes wrong with several processes, from the code alone",
    "rehearse": "what would fail on a cluster, by running a script as N ranks here",
    "run": "run a script as N ranks on this machine",
    "submit": "start a job on several hosts: Slurm, SSH, Kubernetes, clouds, Ray",
    "jobs": "list, follow, await and cancel the jobs of submit",
    "preflight": "what can be checked on every rank before a program starts",
    "explain": "what the known messages in a log mean, and what to do",
    "doctor": "whether the machines of a job are fit; who waits for whom in a running one",
    "ckpt": "look at, verify, compare, export and clean up checkpoints",
    "completion": "what a shell needs to complete these words: bash, zsh, fish",
    "data": "look at data, at who would read what, and at whether a run has",
}


_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FOR_RANKS = (signal.SIGUSR1, signal.SIGUSR2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: of this process), and return its exit code."""
    from allranks.cli.process_setup import open_closed_streams
    from allranks.cli.visible_output import visible_output

    lost = open_closed_streams()
    with visible_output():
        if lost:
            print(f"allranks: {lost}", file=sys.stderr)
        try:
            return _run_command(list(sys.argv[1:] if argv is None else argv))
        except KeyboardInterrupt:
            return 130
        except AllranksError as error:
            print(f"allranks: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            return _report_os_error(error)


def _run_command(words: list[str]) -> int:
    from allranks.cli.process_setup import GONE, has_working_folder

    try:
        if not (words and words[0] in COMMANDS):
            from allranks.cli.choice import choose

            chosen = choose(_parser(), COMMANDS, words)
            if chosen is None:
                return 2
            words = chosen
        if not has_working_folder():
            raise AllranksError(GONE)
        with _line_at_signals() if words[0] == "run" else contextlib.nullcontext():
            return _run(words)
    finally:
        sys.stdout.flush()


def _run(words: Sequence[str]) -> int:
    return int(importlib.import_module(f"allranks.cli.{words[0]}").main(words[1:]))


def _report_os_error(error: OSError) -> int:
    """Print what the operating system refuses, and return the exit code. An error that may be a bug is raised again."""
    from allranks.cli.process_setup import OUTSIDE, describe_os_error, discard_output
    from allranks.cli.visible_output import raw_stream

    if error.errno not in OUTSIDE:
        raise error
    if not error.filename:
        discard_output(raw_stream(sys.stdout))
    if isinstance(error, BrokenPipeError):
        return 141  # the reader has closed it, as `| head` does
    with contextlib.suppress(OSError):
        print(f"allranks: {describe_os_error(error)}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def _line_at_signals() -> Iterator[None]:
    """Let SIGTERM, SIGHUP and SIGQUIT end this process with a line, and the exit code that a shell shows.

    SIGUSR1 and SIGUSR2, which are for ranks, only print the line.

    A job replaces these handlers while it runs: this is for the time before and after. Signals that are ignored, or
    that a program handles, are left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    replaced = [one for one in (*_ENDS, *_FOR_RANKS) if is_main and signal.getsignal(one) is signal.SIG_DFL]
    for signum in replaced:
        signal.signal(signum, _end)
    try:
        yield
    finally:
        for signum in replaced:
            signal.signal(signum, signal.SIG_DFL)


def _end(signum: int, _frame: object) -> None:
    os.write(2, f"allranks: {signal.Signals(signum).name} received: no rank runs.\n".encode())
    if signum in _ENDS:
        raise SystemExit(128 + signum)


def _parser() -> argparse.ArgumentParser:
    from importlib.metadata import version

    parser = CommandParser(
        prog="allranks",
        usage="allranks [-h] [--version] command ...",
        description="Multi-process training that is correct, and shows it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"allranks {version('allranks')}")
    return parser
