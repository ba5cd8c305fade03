"""How the batches of a loader end when a rehearsal has made its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from allranks.rehearse.probe.batches import Batches


def made(over: bool) -> Batches:
    return Batches(iter("abc"), lambda *_: None, lambda: over)


AROUND = (iter, enumerate, lambda one: zip(one, "xyz", strict=False), lambda one: (x for x in one))


@pytest.mark.parametrize("around", AROUND)
def test_a_loop_ends_after_one_batch_and_the_program_goes_on(around: Callable[..., Iterable[object]]) -> None:
    counts = []
    for over in (False, True):
        counts.append(0)
        for _ in around(made(over)):
            counts[-1] += 1
    assert counts == [3, 1]


@pytest.mark.needs("torch")
def test_each_loader_has_a_number_of_its_own_also_when_others_are_gone() -> None:
    """A program may make its loaders anew in each epoch."""
    torch_probe = pytest.importorskip("allranks.rehearse.probe.torch")
    written: list[int] = []
    recorder = SimpleNamespace(write=lambda _, **data: written.append(data["loader"]))
    probe = torch_probe.TorchProbe(recorder, 0)
    loader = type("Loader", (), {"__iter__": lambda _: iter("ab")})
    probe.watch_loaders(SimpleNamespace(DataLoader=loader))
    for _ in range(2):
        iter(loader())
    kept = loader()
    iter(kept), iter(kept)
    assert written == [0, 1, 2, 2]


def test_a_program_that_needs_a_batch_is_ended() -> None:
    assert next(made(False)) == "a"
    with pytest.raises(SystemExit) as ended:
        next(iter(made(True)))
    assert ended.value.code == 0
