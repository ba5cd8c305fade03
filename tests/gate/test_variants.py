"""The program of a call is known by its arguments: by as few of them as it takes, and by those that it takes."""

from __future__ import annotations

import pytest

from allranks.gate.lockstep.variants import KnownCall, find_key_arguments


def known(form: str, value: int, program: str, settings: str = "") -> KnownCall:
    """A call ``f(x, k)``: an array of a form, and a number that is 0 by its form alone."""
    return KnownCall({0: form, 1: "int", "set": settings}, {0: form, 1: value, "set": settings}, program)


@pytest.mark.parametrize(
    ("variants", "static", "sees_programs", "key_arguments"),
    [
        pytest.param([known("a", 1, "p")], (), True, {}, id="one program"),
        pytest.param([known("a", 1, "p"), known("b", 2, "q")], (), True, {0: False}, id="forms are enough"),
        pytest.param([known("a", 1, "p")], (1,), True, {1: True}, id="a static value always counts"),
        pytest.param([known("a", 1, "p"), known("a", 2, "q")], None, True, {1: True}, id="forms do not tell"),
        pytest.param([known("a", 1, "p"), known("a", 2, "p")], None, True, {}, id="values that do not matter"),
        pytest.param([known("a", 1, "p"), known("a", 1, "q", "x64")], None, True, {"set": False}, id="settings tell"),
        pytest.param([known("a", 1, "p")], (), False, {0: False, 1: False, "set": False}, id="unseen: all forms"),
        pytest.param(
            [known("a", 1, "p")], None, False, {0: True, 1: True, "set": True}, id="unseen, static unknown: all values"
        ),
    ],
)
def test_variants_are_told_apart(
    variants: list[KnownCall], static: tuple[int, ...] | None, sees_programs: bool, key_arguments: dict[int | str, bool]
) -> None:
    assert find_key_arguments(variants, static, sees_programs=sees_programs) == key_arguments
    programs = {known.signature_key(key_arguments): known.program for known in variants}
    assert all(programs[known.signature_key(key_arguments)] == known.program for known in variants)
