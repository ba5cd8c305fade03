"""What functions do: run once, and used again where what a result depends on is the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from allranks.check.simulate.joining import is_of_several, join
from allranks.check.simulate.parts import Gap, Simulation
from allranks.check.simulate.state import Frame, Recording, Slot, place_of
from allranks.check.simulate.values import ANYTHING, NONE, Const, Function, Value, by_role, of_role
from allranks.check.traces.nodes import Branch, Exit, Result

_MOST_VARIANTS = 8  # results kept of one function; what is called in more ways gets the last
_DEEPEST = 40


@dataclass(slots=True, eq=False)
class Kept:
    """A result of a function, with what it depends on and what it wrote."""

    env: dict[str, Value]
    live: int
    result: Result
    recording: Recording = field(default_factory=Recording)
    wrote: dict[Slot, Value | None] = field(default_factory=dict)


class Results:
    """Runs functions, and keeps what they do."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self._kept: dict[tuple[Any, ...], list[Kept]] = {}
        self._stack: list[Any] = []
        self.by_node: dict[Any, list[Result]] = {}

    def result(self, function: Function, env: dict[str, Value], live: int) -> Result | None:
        """Return what a function does with these variables; None if it is under way already, or too deep."""
        key = (function.node, function.scope, function.owner, self.simulator.no_grad > 0)
        every = self._kept.setdefault(key, [])
        for kept in every:
            if kept.live == live and kept.env == env and self.simulator.heap.holds(kept.recording):
                return self._again(kept)
        if key in self._stack or len(self._stack) > _DEEPEST:
            if len(self._stack) > _DEEPEST:
                symbol, path = self.simulator.symbol(function), function.module.path
                gap = Gap(path, place_of(function.node), symbol, f"more than {_DEEPEST} calls lead into each other")
                self.simulator.gaps.append(gap)
            return None
        if len(every) >= _MOST_VARIANTS or self.simulator.spent:
            same = [kept for kept in every if kept.live == live] or every
            return self._again(same[-1]) if same else None
        self._stack.append(key)
        kept = Kept(dict(env), live, Result("", "", 0, ANYTHING))
        heap = self.simulator.heap
        kept.recording = heap.record()
        heap.push()
        try:
            kept.result = self._run(function, env, live)
        finally:
            kept.wrote = heap.pop()
            heap.end(kept.recording)
            self._stack.pop()
        heap.apply(kept.wrote)
        every.append(kept)
        self.by_node.setdefault(function.node, []).append(kept.result)
        return kept.result

    def _again(self, kept: Kept) -> Result:
        self.simulator.heap.touch(kept.recording)
        self.simulator.heap.apply(kept.wrote)
        return kept.result

    def _run(self, function: Function, env: dict[str, Value], live: int) -> Result:
        node = function.node
        symbol = self.simulator.symbol(function)
        frame = Frame(function.module, symbol, env, function.scope, function, live)
        if isinstance(node, ast.Lambda):
            value = self.simulator.expressions.value(frame, node.body)
            return Result(symbol, frame.path, node.lineno, value, tuple(frame.trace))
        self.simulator.statements.block(frame, node.body)
        value = _returned(frame)
        yielded = _for_roles(frame.yielded) if frame.yields else None
        return Result(symbol, frame.path, node.lineno, value, tuple(frame.trace), frame.yields, yielded)


def _returned(frame: Frame) -> Value:
    """Return what a function returns: for each role the values of the returns that it may reach."""
    return _for_roles((*frame.returned, (frame.live, NONE, frame.under)))


def _for_roles(every: Iterable[tuple[int, Value, int]]) -> Value:
    """Join values, each for its roles. With each comes the taint of the conditions around it."""
    found: list[Value | None] = [None] * 4
    every = list(every)
    ranked = {roles for roles, value, _ in every if is_of_several(value)}
    for roles, value, under in every:
        if roles in ranked and isinstance(value, Const) and value != NONE:  # what is for one process
            continue
        for role in range(4):
            if roles >> role & 1:
                old, new = found[role], of_role(value, role)
                found[role] = new if old is None else join(old, new, under)
    some = next((one for one in found if one is not None), NONE)  # for roles that do not come here
    return by_role(some if one is None else one for one in found)


def ends(result: Result, live: int) -> int:
    """Return the roles whose process certainly ends in a function (``sys.exit``)."""
    for node in result.trace:
        if isinstance(node, Exit):
            return live if node.kind == "end" else 0
        if isinstance(node, Branch):
            gone = 0
            for letter, side in (("T", node.then), ("F", node.orelse)):
                if side and isinstance(side[-1], Exit) and side[-1].kind == "end":
                    gone |= sum(1 << at for at, one in enumerate(node.letters) if one == letter)
            if gone:
                return gone & live
    return 0
