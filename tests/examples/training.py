"""The examples as jobs: started as their users start them, their losses brought back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import clean_environ

HERE = Path(__file__).parent
TINY = "--size 32 --layers 1 --heads 2 --seq-len 16 --batch-size 16 --steps 6 --lr 1e-2"
PATIENCE = 240.0  # seconds for what takes a tenth of that on a machine that does nothing else


def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python with ``words`` to its end; both streams together in ``stdout``."""
    return subprocess.run(
        [sys.executable, *words],
        env=clean_environ({"JAX_PLATFORMS": "cpu"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )


def losses_of(launcher: Sequence[str], example: str, out: Path, *runs: str, by: str = "trains.py") -> list[list[float]]:
    """Train with each of ``runs``, one after the other, in the processes that ``launcher`` starts; return all losses.

    ``launcher`` are words for Python: none of them for one process.
    """
    done = run([*launcher, str(HERE / by), example, str(out), *(f"{TINY} {flags}" for flags in runs)])
    assert done.returncode == 0, done.stdout
    found: list[list[float]] = json.loads(out.read_text())
    return found


def ends_of(
    example: str, *runs: str, out: Path, by: str = "cases.py", fails: str = ""
) -> tuple[list[list[tuple[str, Any]]], str]:
    """Run an example's programs, "name --flags", one after the other on four ranks; ``fails``, last, ends the job.

    Return how each rank ended each of the others (see cases.py), and all that was said.
    """
    last = [f"!{fails}"] if fails else []
    done = run(["-m", "allranks", "run", "-n", "4", str(HERE / by), example, str(out), *runs, *last])
    assert done.returncode == int(bool(fails)), done.stdout
    return [[(how, result) for how, result in ended] for ended in json.loads(out.read_text())], done.stdout
