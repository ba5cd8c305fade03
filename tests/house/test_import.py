"""``import allranks`` is light, and brings in no framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jax", "jaxlib", "torch", "numpy")


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return {module.split(".")[0] for module in out.split()}


def import_seconds(statement: str) -> float:
    """The best of five times of a statement in a fresh interpreter: what it costs when nothing else wants the cores."""
    code = f"import time\nstart = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def test_import_brings_in_no_framework() -> None:
    assert modules_after("import allranks").isdisjoint(HEAVY)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_look_at_the_modules_can_fail(framework: str) -> None:
    """With a framework imported next to it, the test above would have failed."""
    pytest.importorskip(framework)
    assert not modules_after(f"import allranks, {framework}").isdisjoint(HEAVY)


def test_import_takes_less_than_100_ms() -> None:
    assert import_seconds("import allranks") < 0.100


def test_the_clock_on_the_import_can_fail() -> None:
    """A tenth of a second more in the import is seen."""
    assert import_seconds("import allranks, time; time.sleep(0.1)") >= 0.100
