"""The limits of the hang watch for each stage of a training: from the program, the variables, and the options."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from allranks.launch.hang_limits import HangLimits, read_limits


@pytest.mark.parametrize(
    ("program", "environ", "expected"),
    [
        (240.0, {}, HangLimits(240.0)),
        (0, {}, None),
        (240, {"ALLRANKS_HANG_AFTER": "0"}, None),
        (0, {"ALLRANKS_HANG_AFTER": "7"}, HangLimits(7.0)),
        ({"evaluation": 600}, {}, HangLimits(240.0, (("evaluation", 600.0),))),
        ({"step": 60, "checkpoint": 0}, {}, HangLimits(60.0, (("checkpoint", math.inf),))),
        (60, {"ALLRANKS_HANG_FIRST_STEP": "1800"}, HangLimits(60.0, (("first_step", 1800.0),))),
        ({"evaluation": 600}, {"ALLRANKS_HANG_EVALUATION": "9"}, HangLimits(240.0, (("evaluation", 9.0),))),
    ],
)
def test_a_variable_overrides_the_program(
    program: float | Mapping[str, float], environ: Mapping[str, str], expected: HangLimits | None
) -> None:
    assert read_limits(program, environ) == expected


@pytest.mark.parametrize("value", [-1, "soon", math.nan, math.inf, {"evaluation": -1}, {"validation": 600}])
def test_what_is_no_limit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        read_limits(value, {})  # type: ignore[arg-type]


def test_the_shortest_limit_sets_the_pace() -> None:
    assert HangLimits(60.0, (("evaluation", math.inf), ("checkpoint", 20.0))).shortest == 20
    assert HangLimits(60.0, (("evaluation", 600.0),)).shortest == 60
