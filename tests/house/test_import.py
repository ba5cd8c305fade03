"""``import allranks`` is light, and brings in no framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_AT_FIRST, MOST = 30, 180
HEAVY = ("jax", "jaxlib", "torch", "numpy")


def modules(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted(sys.modules)))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def modules_after(statement: str) -> set[str]:
    """The top-level ones of them."""
    return {module.split(".")[0] for module in modules(statement)}


def test_import_brings_in_no_framework() -> None:
    assert modules_after("import allranks").isdisjoint(HEAVY)


@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")])
def test_the_look_at_the_modules_can_fail(framework: str) -> None:
    """With a framework imported next to it, the test above would have failed."""
    assert not modules_after(f"import allranks, {framework}").isdisjoint(HEAVY)


def added(statement: str) -> int:
    return len(modules(statement) - modules("pass"))


def test_the_import_stays_light() -> None:
    """Some modules of the standard library; and with what most ranks ask for, some 140 modules."""
    assert added("import allranks") < MOST_AT_FIRST
    assert MOST_AT_FIRST < added("import allranks; allranks.init") < MOST


@pytest.mark.needs("numpy")
def test_the_count_of_modules_can_fail() -> None:
    assert added("import numpy, allranks; allranks.init") >= MOST
