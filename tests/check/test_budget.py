"""A budget of processor time ends its body, wherever Python is when the time is over."""

import sys
import weakref

import pytest

from allranks.check.budget import Exhausted, limited_to


class Referent:
    pass


def spin(*_: object) -> None:
    while True:
        pass


def test_the_budget_ends_the_body_after_python_has_ignored_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    with pytest.raises(Exhausted), limited_to(0.05):  # noqa: PT012 - the budget ends in the middle of it
        referent = Referent()
        reference = weakref.ref(referent, spin)
        del referent  # Exhausted is raised in the callback, and Python ignores it
        assert reference() is None
        spin()
    assert shown == []
    assert sys.unraisablehook == shown.append


def test_other_exceptions_that_python_ignores_are_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    with limited_to(5.0):
        referent = Referent()
        reference = weakref.ref(referent, lambda _: 1 / 0)
        del referent
        assert reference() is None
    assert [ignored.exc_type for ignored in shown] == [ZeroDivisionError]
