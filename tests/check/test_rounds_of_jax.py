"""Loops over a process' own part of the files, each round of which is a step of all devices of all hosts."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

STEP = """\
import functools
import glob
import jax
import numpy as np
from flax import jax_utils


@functools.partial(jax.pmap, axis_name="d")
def step(x):
    return {reduced}


files = sorted(glob.glob("/data/*.npy"))
part = files[jax.process_index() :: jax.process_count()]{cut}
total = 0
for name in {over}:
    x = np.load(name).reshape(jax.local_device_count(), -1)
    total += step(x)[0]
    {ends}
"""


def found(text: str) -> list[int]:
    findings = check({"train.py": text.encode()}, Settings(select=("AR304",))).findings
    return [finding.place.line for finding in findings]


@pytest.mark.parametrize(
    "how",
    [
        {"reduced": "x.sum()"},  # no step of all
        {"cut": "[:8]", "over": "zip(range(8), part)"},
        {"cut": "[: len(files) // jax.process_count()]"},
        {"ends": "break"},
    ],
)
def test_rounds_that_are_even_or_meet_nobody_are_left_alone(how: dict[str, str]) -> None:
    """What is cut, counted or left, and a step that no other device has a part in."""
    plain = {"reduced": "jax.lax.psum(x.sum(), 'd')", "cut": "", "ends": "pass", "over": "part"}
    assert found(STEP.format(**{**plain, **how})) == []
