"""A training that is killed a hundred times and goes on with another number of ranks: the torture of tests/data."""

from __future__ import annotations

import os
import re
import sys
import tempfile

from bench.data_place import Place
from bench.measure import ROOT, must, run
from bench.runs import Goal, Part

TORTURE = ROOT / "tests" / "data" / "programs" / "torture.py"
HARNESS = ("src", ".", "tests/world", "tests/checkpoint/programs", "tests/data")


def tables(place: Place, *, quick: bool, rounds: int) -> Part:
    """It judges by what the ranks wrote down, and fails where a sample was taken twice or never."""
    del place, rounds
    epochs, kills = (2, 3) if quick else (20, 100)
    env = {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in HARNESS)}
    with tempfile.TemporaryDirectory() as folder:
        words = [TORTURE, folder, "plain", epochs, 1, f"random:{kills}"]
        ran = must(run([sys.executable, *words], limit=900, env=env))
    told = ran.output.strip().splitlines()[-1]
    found = re.search(r"(\d+) kills", told)
    assert found, told
    goal = Goal("20 epochs, restarts by SIGKILL on random world sizes", "0 twice, 0 lost", told, "", 0, 0)
    return Part(f"1 to 6 real processes train, and are killed at any moment. Their samples: {told}.", (goal,))
