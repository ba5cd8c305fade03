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


_ENDS = (signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: of this process), and return its exit code."""
    from allranks.cli.visible_output import visible_output

    with visible_output():
        return _run_command(list(sys.argv[1:] if argv is None else argv))


def _run_command(words: list[str]) -> int:
    if not (words and words[0] in COMMANDS):
        from allranks.cli.choice import choose

        chosen = choose(_parser(), COMMANDS, words)
        if chosen is None:
            return 2
        words = chosen
    with _line_at_signals() if words[0] == "run" else contextlib.nullcontext():
        return _run(words)


def _run(words: Sequence[str]) -> int:
    try:
        command = importlib.import_module(f"allranks.cli.{words[0]}")
        code = int(command.main(words[1:]))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        sys.stdout = None  # the reader has closed it: nothing must be flushed
        return 141
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def _line_at_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process with a line, and the exit code that a shell shows.

    A job replaces these handlers while it runs: this is for the time before and after. Signals that are ignored, or
    that a program handles, are left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    replaced = [one for one in _ENDS if is_main and signal.getsignal(one) is signal.SIG_DFL]
    for signum in replaced:
        signal.signal(signum, _end)
    try:
        yield
    finally:
        for signum in replaced:
            signal.signal(signum, signal.SIG_DFL)


def _end(signum: int, _frame: object) -> None:
    os.write(2, f"allranks: {signal.Signals(signum).name} received: no rank runs.\n".encode())
    raise SystemExit(128 + signum)


def _parser() -> argparse.ArgumentParser:
    from importlib.metadata import version

    parser = argparse.ArgumentParser(
        prog="allranks",
        usage="allranks [-h] [--version] command ...",
        description="Multi-process training that is correct, and shows it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"allranks {version('allranks')}")
    return parser
