"""What some ranks hand over to others through files, with nothing between at which the ranks wait."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from allranks.check.simulate.arithmetic import shape_of
from allranks.check.simulate.values import EVERY, FILES, RANK, Value, of_role, taint
from allranks.check.sources.nodes import walk
from allranks.check.traces.nodes import Branch, Call, Enter, Loop, Node, Result, Try
from allranks.check.traces.walk import Step, sides_of

_FOLDERS = ("mkdir", "folder")
_MAKES = (*_FOLDERS, "checkpoint", "file", "append", "moved", "download", "fetched")
_WRITES = ("checkpoint", "file", "append")
_READS = ("load", "read", "local listing")
_WAITS = ("collective", "sign initialise", "sign wrap", "sign launch")


@dataclass(slots=True, eq=False)
class _Made:
    """What some roles have made since the ranks have waited for each other. ``parts``: each rank its own part."""

    call: Call
    roles: int
    shape: str
    parts: bool = False


@dataclass(slots=True, eq=False)
class Handover:
    """``read`` comes to what ``made`` may not have finished; ``chain``: the calls from the entry to ``read``.
    ``parts``: each rank made its part, and rank 0 reads all."""

    made: Call
    read: Call
    chain: tuple[Step, ...]
    parts: bool


@dataclass(slots=True, eq=False)
class _Way:
    """``certain``, ``may``: the roles that are here. ``open``: what was made and not waited for. ``asked``: a condition
    asks for files, or an exception is caught. ``waits``: the end of a context around waits."""

    certain: int
    may: int
    open: tuple[_Made, ...] = ()
    chain: tuple[Step, ...] = ()
    asked: bool = False
    waits: bool = False
    symbol: str = ""
    path: str = ""


class _Handovers:
    """Goes through the trace of an entry, with what is made and not waited for."""

    def __init__(self) -> None:
        self.found: list[Handover] = []
        self._known: dict[tuple[object, ...], tuple[_Made, ...]] = {}

    def go(self, nodes: Sequence[Node], way: _Way) -> None:
        """Go through nodes; ``way`` has what is left afterwards."""
        for node in nodes:
            if not way.may:
                return
            if isinstance(node, Call):
                self._call(node, way)
            elif isinstance(node, Enter):
                self._enter(node, way)
            elif isinstance(node, Branch):
                self._branch(node, way)
            elif isinstance(node, Loop):
                inside = replace(way, asked=way.asked or bool(node.taint & FILES and node.counted))
                self.go(node.body, inside)
                way.open = inside.open if not (inside.asked and not way.asked) else ()  # it waits until a file is there
                self.go(node.orelse, way)
            elif isinstance(node, Try):
                inside = replace(way, asked=way.asked or bool(node.handlers))
                self.go((*node.body, *node.orelse), inside)
                way.open, way.may, way.certain = inside.open, inside.may, inside.certain
                self.go(node.final, way)
            else:
                way.certain = way.may = 0

    def _enter(self, node: Enter, way: _Way) -> None:
        certain, may, result = way.certain & node.live, way.may & node.live, node.result
        key = (result, certain, may, way.asked, way.open)
        if key not in self._known:
            self._known[key] = way.open
            chain = (*way.chain, (way.symbol, way.path, node.span))
            inside = _Way(certain, may, way.open, chain, way.asked, way.waits, result.symbol, result.path)
            self.go(result.trace, inside)
            self._known[key] = inside.open
        # A folder is made at once: whoever has run a function meanwhile finds it.
        late = (one for one in self._known[key] if one.call.kind not in _FOLDERS or one not in way.open)
        way.open = () if node.starts else tuple(late)
        way.waits = way.waits or (result.yields and result.has_collective)

    def _branch(self, node: Branch, way: _Way) -> None:
        sides = []
        asked = way.asked or bool(node.taint & FILES)
        for nodes, may, certain in sides_of(node):
            side = replace(way, certain=way.certain & certain, may=way.may & may, asked=asked)
            comes = side.may
            self.go(nodes, side)
            sides += [side] if comes else []
        goes_on = [side for side in sides if side.may]
        kept = [made for made in way.open if all(made in side.open for side in goes_on or sides)]
        new = (made for side in goes_on or sides for made in side.open if made not in way.open)
        way.open = tuple(dict.fromkeys((*kept, *new)))
        gone = way.may
        way.may = reduce(or_, (side.may for side in goes_on), 0)
        way.certain &= ~(gone & ~way.may)

    def _call(self, call: Call, way: _Way) -> None:
        may, certain = way.may & call.live, way.certain & call.live
        if call.kind in _WAITS:
            way.open = ()
        elif may and not (call.ordered or way.waits):
            where = call.given.first if call.kind == "local listing" else call.where
            if call.kind in _READS or call.kind in _WRITES:
                self._use(call, way, certain, may, where)
            if call.kind in _MAKES:
                self._make(call, way, certain, may, where)

    def _make(self, call: Call, way: _Way, certain: int, may: int, where: Value | None) -> None:
        shape = _shape(where)
        if may in (0b0001, 0b0011):
            way.open = (*way.open, _Made(call, may, shape))
        elif certain == EVERY and where is not None and taint(where) & RANK:
            way.open = (*way.open, _Made(call, may, shape, parts=True))
        elif certain == EVERY:  # who makes it here finds it
            way.open = tuple(one for one in way.open if one.shape != shape or one.call.target != call.target)

    def _use(self, call: Call, way: _Way, certain: int, may: int, where: Value | None) -> None:
        own = where is not None and taint(where) & RANK
        for made in way.open:
            if made.parts:
                late = call.kind in _READS and may in (0b0001, 0b0011) and not own
            else:
                late = bool(certain & ~made.roles) and not way.asked
            if late and _is_same(made, call, _shape(where)):
                self.found.append(Handover(made.call, call, way.chain, made.parts))
                way.open = tuple(one for one in way.open if one is not made)
                return


def _shape(where: Value | None) -> str:
    """Return what is known of a path; of one that has the rank in it, as most ranks have it."""
    return shape_of(of_role(where, 3)) if where is not None else ""


def _is_same(made: _Made, call: Call, shape: str) -> bool:
    """Whether what is used is what was made, or is inside a folder that was made."""
    target, source = made.call.target, call.given.expression(0)
    near = made.call.symbol == call.symbol
    if call.kind in _WRITES:
        if made.call.kind not in _FOLDERS or (call.kind == "checkpoint" and call.name != "torch.save"):
            return False
        named = near and target != "" and any(ast.unparse(at) == target for at in walk(call.given.node))
        return named or (_is_known(made.shape) and shape.startswith(f"{made.shape.rstrip('/')}/"))
    if call.kind == "local listing" and made.parts:
        return _is_known(shape) and made.shape.startswith(shape.rstrip("/*"))
    if _is_known(shape):
        return made.shape == shape
    used = ast.unparse(source) if call.kind == "local listing" and source is not None else call.target
    setting = not target.isidentifier() and not target.startswith("self.")  # `args.out` is the same in any function
    return used == target != "" and made.shape == shape and (near or setting or "/" in shape)


def _is_known(shape: str) -> bool:
    return sum(map(str.isalnum, shape)) > 2


def handovers(root: Result) -> list[Handover]:
    """Return what an entry hands over without waiting, in order: the first use of each thing."""
    walked = _Handovers()
    walked.go(root.trace, _Way(EVERY, EVERY, symbol=root.symbol, path=root.path))
    return walked.found
