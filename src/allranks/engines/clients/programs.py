"""Run the client program of an engine (``sbatch``, ``ssh``, ``gcloud``), and report in full why it failed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence

from allranks.engines.base import EngineFailed


def need(program: str, *, kind: str, install: str) -> None:
    """Raise EngineFailed if a program is not in PATH; ``install`` says what to do then."""
    if shutil.which(program) is None:
        raise EngineFailed(f"{kind}: the program {program!r} is not in PATH.", remedy=install)


def output(argv: Sequence[str], *, kind: str, install: str, given: str = "") -> str:
    """Run a program, and return what it prints. ``given`` is its standard input.

    Raises EngineFailed with the program's own words if its exit code is not 0.
    """
    need(argv[0], kind=kind, install=install)
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise EngineFailed(f"{kind}: {argv[0]} failed: {words.rstrip('.')}.")
    return done.stdout


def shown(argv: Sequence[str]) -> str:
    """Return a command as a line for a shell."""
    return shlex.join(argv)
