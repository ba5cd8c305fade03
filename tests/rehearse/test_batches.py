"""How the batches of a loader end when a rehearsal has made its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from allranks.rehearse.probe.batches import Batches


def made(over: bool) -> Batches:
    return Batches(iter("abc"), lambda *_: None, lambda: over)


AROUND = (iter, enumerate, lambda one: zip(one, "xyz", strict=False), lambda one: (x for x in one))


@pytest.mark.parametrize("around", AROUND)
def test_a_loop_ends_and_the_program_goes_on(around: Callable[..., Iterable[object]]) -> None:
    counts = []
    for over in (False, True):
        counts.append(0)
        for _ in around(made(over)):
            counts[-1] += 1
    assert counts == [3, 0]


def test_a_program_that_needs_a_batch_is_ended() -> None:
    assert next(made(False)) == "a"
    with pytest.raises(SystemExit) as ended:
        next(iter(made(True)))
    assert ended.value.code == 0
