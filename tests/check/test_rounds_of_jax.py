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
HANDED = """\
import jax
import numpy as np
from flax import jax_utils


def own(files):
    return files[jax.process_index() :: jax.process_count()]


def batches(files, size):
    for name in files:
        x = np.load(name)
        for at in range(0, len(x) - size + 1, size):
            yield x[at : at + size]



def total({name}, state, files):
    right = 0
    for x in batches(own(files), 8){more}:
        right += int({taken}({name}(state, x)))
    return right
"""


def found(text: str) -> list[int]:
    findings = check({"train.py": text.encode()}, Settings(select=("AR304",))).findings
    return [finding.place.line for finding in findings]


def test_a_loop_over_what_may_be_uneven_takes_uneven_steps() -> None:
    """Decorated, by the names of the part, and with what stands around the loop's source."""
    how = {"reduced": "jax.lax.psum(x.sum(), 'd')", "cut": "", "ends": "pass"}
    for over in ("part", "sorted(part)", "tqdm(part)", "files[jax.process_index() :: jax.process_count()]"):
        assert found(STEP.format(over=over, **how)) in ([14], [16], [14, 16])


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


def test_a_step_that_is_handed_over_is_known_by_its_name_and_its_copies() -> None:
    """``p_eval`` whose result is the same on all devices has asked all of them."""
    assert found(HANDED.format(name="p_eval", more="", taken="jax_utils.unreplicate")) == [7]
    assert found(HANDED.format(name="p_eval", more="", taken="np.sum")) == []
    assert found(HANDED.format(name="score", more="", taken="jax_utils.unreplicate")) == []
