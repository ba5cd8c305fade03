"""The ranks of this project's own tests are forked from one process that has imported all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LOOK = """
import importlib.util, os, sys
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location(path, path)
    spec.loader.exec_module(sys.modules.setdefault(path, importlib.util.module_from_spec(spec)))
    assert len(os.listdir("/proc/self/task")) == 1, f"{path} starts a thread when it is imported"
"""


@pytest.mark.soak
@pytest.mark.needs("jax", "torch", "equinox", "pyarrow")
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc, and forks are for Linux")
def test_no_file_of_tests_on_ranks_starts_a_thread() -> None:
    """It may not, at its import: each rank of every test would start an interpreter of its own, in minutes."""
    files = [
        path for path in sorted(TESTS.rglob("test_*.py")) if re.search(r"^@pytest.mark.world\(", path.read_text(), re.M)
    ]
    assert len(files) > 5
    places = [str(TESTS / "world"), *sorted({str(path.parent) for path in files})]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*places, *sys.path])}
    done = subprocess.run([sys.executable, "-c", LOOK, *map(str, files)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
