"""``import allranks`` is light, and brings in no framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST, MOST_ALONE = 180, 60
# What a program needs before its first step; `import allranks` alone imports nothing of it yet.
USED = "from allranks import World, SimulatedWorld, collective, global_batch, init, log, main_rank"
HEAVY = ("jax", "jaxlib", "torch", "numpy")


def modules(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted(sys.modules)))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def modules_after(statement: str) -> set[str]:
    """The top-level ones of them."""
    return {module.split(".")[0] for module in modules(statement)}


def test_import_brings_in_no_framework() -> None:
    assert modules_after(USED).isdisjoint(HEAVY)


@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch")])
def test_the_look_at_the_modules_can_fail(framework: str) -> None:
    """With a framework imported next to it, the test above would have failed."""
    assert not modules_after(f"{USED}; import {framework}").isdisjoint(HEAVY)


def test_the_import_stays_light() -> None:
    """What is used brings in some 140 modules beyond the interpreter's own; what is heavy is counted in hundreds."""
    assert len(modules(USED) - modules("pass")) < MOST


def test_the_package_alone_is_nothing() -> None:
    """`allranks check` starts in a tenth of a second."""
    assert len(modules("import allranks") - modules("pass")) < MOST_ALONE


@pytest.mark.needs("numpy")
def test_the_count_of_modules_can_fail() -> None:
    assert len(modules(f"{USED}; import numpy") - modules("pass")) >= MOST
