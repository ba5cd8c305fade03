"""What a loop changes: in later rounds, what it counts or sets is no longer what it was before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import BY_PROCESS, BY_RANK, UNKNOWN
from allranks.check.interpret.values import (
    ALONE,
    ANYTHING,
    COUNTER,
    DEALT,
    GROUP,
    NO_CONSTANT,
    PROCESS,
    RANKS,
    STATE,
    Value,
    replace,
    still_open,
)
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node, blocks, body_of, nodes_in
from allranks.check.tables.passing import FILLING

_ASKS = re.compile(r"(process_index|get_rank)\(\)")
_LAST = frozenset({"break", "return"})  # what is set before these, no later round finds


class Rounds:
    """Keeps, for each body of a loop, the variables that it assigns."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[tuple[Node, ...], tuple[str, ...]]] = {}

    def later(self, env: dict[str, Value], body: tuple[Node, ...]) -> dict[str, Value]:
        """Return the variables as any round finds them: a number that the body sets is not known, nor what is in a list
        that it fills."""
        kept = self.known.get(id(body))
        if kept is None:
            kept = self.known[id(body)] = (body, tuple(dict.fromkeys(assigned(body, last=_LAST))))
        found = {name: value for name in kept[1] if (value := env.get(name)) is not None}
        changed = {name: replace(v, constant=NO_CONSTANT) for name, v in found.items() if _is_plain(v)}
        changed |= {name: v for name, was in found.items() if (v := still_open(was)) is not was}
        return {**env, **changed} if changed else env


def comes_late(before: Value, after: Value) -> bool:
    """Whether only later rounds show what a variable is: it was None, or a truth that all ranks then set."""
    truth = isinstance(before.constant, bool) and not before.taint and not after.taint
    return (before.constant is None or truth) and before != after


def set_apart(frame: Frame, before: dict[str, Value]) -> Iterator[str]:
    """Yield the variables that differ between ranks behind a branch of this function, and did not ``before`` it."""
    for name, value in frame.env.items():
        if value.ranked and value.taint & STATE and (name not in before or not before[name].taint & STATE):
            yield name


def count(frame: Frame, target: Node, iterated: Node, ranks: Callable[[str], object]) -> None:
    """Note which variables of a loop are counters: those over a range and the places of an enumeration, and what is
    called a rank and goes through a list of them. What comes with an item is the rank it is called where the function
    says elsewhere that this process has that."""
    function = iterated[1] if iterated[0] == "call" else ()
    if function == ("name", "enumerate") and target[0] == "seq" and target[1][0][0] == "name" and len(iterated[2]) == 1:
        frame.env[target[1][0][1]] = COUNTER
    for name in _names(target):
        if target[0] == "seq" and not function and ranks(name) is not None and _is_also_asked(frame, name):
            continue
        if frame.env.get(name) == ANYTHING and (function == ("name", "range") or ranks(name) is not None):
            frame.env[name] = COUNTER


def _is_also_asked(frame: Frame, name: str) -> bool:
    """Whether the function asks for such a rank too, and calls it the same."""
    asked = (
        node for node in nodes_in(body_of(frame.facts)) if node[0] == "assign" and name in map(render, _parts(node))
    )
    return any(_ASKS.search(render(node[3])) for node in asked)


def _parts(node: Node) -> Iterator[Node]:
    """Yield what an assignment stores in, taken apart."""
    for target in node[2]:
        yield from target[1] if target[0] == "seq" else (target,)


def how_often(frame: Frame, iterated: Node, source: Value) -> tuple[str, int]:
    """Return whether a ``for`` loop over ``source`` goes round alike for all, and on what that depends."""
    counted = iterated[0] == "call" and iterated[1] == ("name", "range")  # epochs: where a run resumed
    taint = source.taint & ~PROCESS if counted else source.taint
    taint = taint if source.flags & DEALT else taint & ~RANKS
    if counted and (any(_told_apart(frame, bound) for bound in iterated[2]) or _kept_apart(frame, iterated[2], source)):
        return BY_RANK, taint
    return BY_PROCESS if counted and taint & ALONE else UNKNOWN, taint


def _told_apart(frame: Frame, bound: Node) -> bool:
    """Whether a variable, which says how often a loop goes round, was set by this function on some ranks alone: not by
    stage of a pipeline."""
    name = render(bound) if bound[0] == "name" or (bound[0] == "attr" and bound[1][0] == "name") else ""
    taint = frame.env[name].taint if name in frame.apart and name in frame.env else 0
    return bool(taint & STATE) and not taint & GROUP


def _kept_apart(frame: Frame, bounds: tuple[Node, ...], source: Value) -> bool:
    """Whether an attribute says how often a loop goes round that some ranks alone have set, in whatever function: there
    the others have the constant that it began with."""
    kept = [render(bound) for bound in bounds if bound[0] == "attr"]
    given = [name for name in map(render, bounds) if name not in kept and name in frame.env]
    elsewhere = any(frame.env[name].taint & STATE for name in (*given, *(k for k in kept if k in frame.env)))
    return bool(kept) and bool(source.taint & STATE) and not source.taint & GROUP and not elsewhere


def assigned(statements: tuple[Node, ...], *, last: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what statements assign, ``step`` or ``self.step``, or put something in, in those inside them too: not in
    functions, nor in a block after which nobody goes on, as it ends with one of ``last``."""
    for statement in statements:
        tag = statement[0]
        called: Node = statement[2][1] if tag == "expr" and statement[2][0] == "call" else ("",)
        if called[0] == "attr" and called[2] in FILLING:
            yield from _names(called[1])
        for target in statement[2] if tag == "assign" else (statement[2],) if tag == "for" else ():
            yield from _names(target)
        inner = last - {"break"} if tag in ("for", "while") else last
        for block in blocks(statement):
            if not block or block[-1][0] not in inner:
                yield from assigned(block, last=inner)


def _names(target: Node) -> Iterator[str]:
    if target[0] == "name":
        yield target[1]
    elif target[0] == "attr" and target[1][0] == "name":
        yield f"{target[1][1]}.{target[2]}"
    for part in target[1] if target[0] == "seq" else (target[1],) if target[0] == "star" else ():
        yield from _names(part)


def _is_plain(value: Value) -> bool:
    """Whether it is a number, or a text, that says nothing of ranks."""
    kind = type(value.constant)
    return kind in (int, float, str) and not value.taint and not value.flags


def is_even(node: Node) -> bool:
    """Whether it is cut into pieces of a size that is rounded down (``idx.split(len(idx) // n)``): what is over is in
    a piece more, which nobody takes."""
    cut = node[0] == "call" and node[1][0] == "attr" and node[1][2] == "split" and len(node[2]) == 1
    return bool(cut) and node[2][0][0] == "op" and node[2][0][3] == "//"
