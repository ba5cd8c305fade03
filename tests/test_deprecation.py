"""Attributes that were renamed: the old name returns the new one's value, and warns."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.consistency.verdict import Difference, Elements, LeafCoverage, Verdict
from allranks.consistency.vote import CopyGroup
from allranks.deprecation import renamed_attribute


class Renamed:
    new = 3

    def __getattr__(self, name: str) -> Any:
        return renamed_attribute(self, name, {"old": "new"})


def test_an_old_name_works_and_warns_where_it_is_used() -> None:
    """The warning names both, and the line of the program."""
    with pytest.warns(DeprecationWarning, match=r"Renamed\.old is now called Renamed\.new") as warned:
        assert Renamed().old == 3
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match="'Renamed' object has no attribute 'other'"):
        _ = Renamed().other


def test_old_names_of_a_verdict() -> None:
    """For one release: docs/glossary.md."""
    group = CopyGroup((1,))
    elements = Elements(group, 1, False, None, ())
    difference = Difference("w", "float32[2]", "", (group,), True, elements=(elements,))
    verdict = Verdict(None, 1, 8, 1, (difference,), (LeafCoverage("w", 1, 1),), None, 0.0)
    for one, old, new in ((elements, "camp", group), (difference, "camps", (group,)), (verdict, "alone", ("w",))):
        with pytest.warns(DeprecationWarning, match=f"{old} is now called"):
            assert getattr(one, old) == new
