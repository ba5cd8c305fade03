"""``import allranks`` is light, and brings in no framework."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("jax", "jaxlib", "torch", "numpy")


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return {module.split(".")[0] for module in out.split()}


def import_seconds(statement: str, bytecode: Path) -> float:
    """The best of five CPU times of a statement in a fresh interpreter: others that want the cores change little.

    Modules are compiled once, into ``bytecode``, as they are where a package is installed.
    """
    code = f"import time\nstart = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(bytecode)

    def once() -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, check=True, env=env, capture_output=True, text=True).stdout)

    return min(once() for _ in range(5))


def test_import_brings_in_no_framework() -> None:
    assert modules_after("import allranks").isdisjoint(HEAVY)


@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")])
def test_the_look_at_the_modules_can_fail(framework: str) -> None:
    """With a framework imported next to it, the test above would have failed."""
    assert not modules_after(f"import allranks, {framework}").isdisjoint(HEAVY)


def test_import_takes_less_than_100_ms(tmp_path: Path) -> None:
    assert import_seconds("import allranks", tmp_path) < 0.100


def test_the_clock_on_the_import_can_fail(tmp_path: Path) -> None:
    """A tenth of a second of work more in the import is seen."""
    work = "import allranks\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    assert import_seconds(work, tmp_path) >= 0.100
