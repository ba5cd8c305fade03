"""The garbage collector rests while a checkpoint is taken apart, and is as it was before."""

from __future__ import annotations

import gc

import pytest

from allranks.checkpoint import template_fill


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was_on(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_rests_and_is_as_before(was_on):
    with template_fill.pause_gc():
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def test_it_is_as_before_after_an_error(was_on):
    with pytest.raises(ZeroDivisionError), template_fill.pause_gc():
        _ = 1 / 0
    assert gc.isenabled() is was_on
