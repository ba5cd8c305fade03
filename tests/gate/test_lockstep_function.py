"""A wrapped function of JAX knows which of its programs a call runs, and from which line."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allranks.gate.lockstep.calls import GroupCall
from allranks.gate.lockstep.jax import CompiledProgram, LockstepFunction, ProgramMonitor
from allranks.gate.lockstep.predictor import CallPredictor
from allranks.world.progress import PYTHON, progress


class CallSequence:
    """A sequence of which all ranks agree at once; it keeps what was asked, and what was called."""

    def __init__(self) -> None:
        self.predictor: CallPredictor[GroupCall] = CallPredictor()
        self.inside = False
        self.merge_queries: list[str] = []
        self.steps = SimpleNamespace(due=-1)
        self.calls: dict[str, GroupCall] = {}

    def canonical_call(self, call: GroupCall) -> GroupCall:
        return self.calls.setdefault(call.digest, call)

    def enter_call(self, call: GroupCall, timeout: float | None, *, is_inside: bool, values: Any) -> None:
        del values
        assert (timeout, is_inside) == (5.0, True)
        self.inside = is_inside
        if self.predictor.expected is call:
            self.predictor.count_predicted_call()
            return
        self.merge_queries.append(f"{call.what} {call.lines}")
        self.predictor.count_agreed_call(call)

    def agree_on_call(self, call: GroupCall, timeout: float | None, *, values: Any) -> None:
        assert values == []
        assert timeout == 5.0
        self.merge_queries.append(f"new {call.lines}")

    @property
    def last_call(self) -> GroupCall | None:
        return self.predictor.stored_call(self.predictor.count)


class Compiled(ProgramMonitor):
    """Stands for JAX: a function's program is seen when it runs for the first time with a cache."""

    def __init__(self) -> None:
        self.current_function, self.sees_programs, self.thread = None, True, threading.get_ident()
        self.monitor: Any = SimpleNamespace(raise_cause=lambda _: None)
        self.sequence: Any = CallSequence()
        self.cache: Any = None
        self.seen: set[tuple[Any, str]] = set()
        self._agreed = set()

    def switch(self, number: Any) -> Any:  # type: ignore[override]
        before, self.cache = self.cache, number
        return before

    def step(self, x: Any, *, scale: float = 1.0) -> Any:
        del scale
        if isinstance(x, str):
            raise ValueError(x)
        program = CompiledProgram(self.sequence, "jit(step)", (str(x.shape),), "")
        if (self.cache, str(x.shape)) not in self.seen:
            self._compare_run(program, list)
        self.seen.add((self.cache, str(x.shape)))
        assert progress.mark[0] in ("collective", "compile")
        assert self.sequence.inside
        return x


@pytest.fixture
def compiled() -> Compiled:
    return Compiled()


@pytest.fixture
def step(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> LockstepFunction:
    monkeypatch.setattr(progress, "mark", (PYTHON, "", 0.0))  # whatever other tests' ranks are still in
    return LockstepFunction(lambda: compiled, compiled.step, same_lines=True, timeout=5.0)


SMALL, LARGE = np.ones((2, 4)), np.ones((8, 4))


def test_a_loop_is_asked_for_twice(step: LockstepFunction, compiled: Compiled) -> None:
    """The first call and the second, which is as well the first to come after another."""
    before = progress.mark[:2]
    for _ in range(10):
        assert step(SMALL) is SMALL
    assert len(compiled.sequence.merge_queries) == 2
    assert compiled.sequence.predictor.count == 10
    assert (progress.mark[:2], compiled.sequence.inside, compiled.current_function) == (before, False, None)


def test_a_new_program_is_compared_within_the_call_and_told_apart_from_then_on(
    step: LockstepFunction, compiled: Compiled
) -> None:
    """By the argument in which it differs: a call of the one is never taken for the other again."""
    predictor = compiled.sequence.predictor
    for batch in (SMALL, SMALL, SMALL, LARGE):
        step(batch, scale=2.0)
    assert compiled.sequence.merge_queries[-1] == "new ('(8, 4)',)"
    for batch in (SMALL, LARGE, LARGE, SMALL):
        step(batch, scale=2.0)
        assert predictor.stored_call(predictor.count).lines == (str(batch.shape),)


def test_lines_are_different_calls(step: LockstepFunction, compiled: Compiled) -> None:
    for _ in range(3):
        step(SMALL)
        step(SMALL)
    assert len(compiled.sequence.calls) == 2
    assert all("test_lockstep_function.py:" in call.where for call in compiled.sequence.calls.values())


@pytest.mark.usefixtures("step")
def test_lines_do_not_count_if_they_are_not_to(compiled: Compiled) -> None:
    loose = LockstepFunction(lambda: compiled, compiled.step, same_lines=False, timeout=5.0)
    for _ in range(3):
        loose(SMALL)
        loose(SMALL)
    assert len(compiled.sequence.calls) == 1


def test_a_call_that_raises_was_not_made(step: LockstepFunction, compiled: Compiled) -> None:
    """And nothing is left of it: the next one is asked for."""
    for _ in range(4):
        step(SMALL)
    with pytest.raises(ValueError, match="bad row"):
        step("bad row")
    assert (compiled.sequence.predictor.count, compiled.sequence.inside, compiled.current_function) == (4, False, None)
    merge_queries = len(compiled.sequence.merge_queries)
    step(SMALL)
    assert len(compiled.sequence.merge_queries) == merge_queries + 1


def test_it_passes_for_the_function(step: LockstepFunction) -> None:
    """Its name, its attributes, and as a method."""
    assert step.__name__ == "step"
    assert step.__self__ is not None

    class Trainer:
        run = step

    with pytest.raises(TypeError):
        Trainer().run(SMALL, SMALL)
