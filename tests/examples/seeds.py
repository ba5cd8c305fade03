"""The seeds as jobs: one start of N ranks makes several runs, each of which ends with losses or an error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import clean_environ

from allranks.check.engine import Settings, check

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
PATIENCE = 300.0  # seconds for what takes a tenth of that on a machine that does nothing else

Done = subprocess.CompletedProcess[str]


def job(example: str, launcher: Sequence[str], flags: str, **environ: str) -> Done:
    """Run the program of an example under ``allranks run LAUNCHER`` to its end; both streams together in ``stdout``."""
    return _run([*launcher, str(EXAMPLES / example / "train.py"), *flags.split()], environ)


def outcomes(
    example: str, launcher: Sequence[str], out: Path, runs: Sequence[str], **environ: str
) -> tuple[list[list[dict[str, Any]]], Done]:
    """Make ``runs`` one after the other in the same ranks; return what each rank says of each of them, and the job.

    They say ``losses``, or ``error`` (its kind) and ``says``. A run that ends the job says nothing, and comes last.
    What one run has compiled is there for the next.
    """
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(out.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    environ = {**(cache if len(runs) > 1 else {}), **environ}
    done = _run([*launcher, str(HERE / "outcomes.py"), example, str(out), *runs], environ)
    assert out.exists(), done.stdout
    return json.loads(out.read_text()), done


def found_by_reading(example: str) -> set[str]:
    """Return the codes that ``allranks check`` finds in an example's bugs, without the comments that keep it quiet."""
    lines = (EXAMPLES / example / "broken.py").read_text().splitlines()
    bare = "\n".join(line for line in lines if "allranks: ignore" not in line)
    return {finding.code for finding in check({"broken.py": bare.encode()}, Settings()).findings}


def headline(done: Done) -> str:
    """Return the launcher's line about the first failure."""
    found = [line for line in done.stdout.splitlines() if line.startswith("first failure: ")]
    assert found, done.stdout
    return found[0]


def _run(words: Sequence[str], environ: dict[str, str]) -> Done:
    in_half_the_time = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # as far as compilation goes
    return subprocess.run(
        [sys.executable, "-m", "allranks", "run", *words],
        env=clean_environ({**in_half_the_time, **environ}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
