"""Which GPU a process is on when it uses one: what a function does about it is marked while it is interpreted, and
what comes first on a program's way is found afterwards.

A process that was told nothing is on GPU 0, whatever its rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from allranks.check.interpret.below import deepest_first
from allranks.check.interpret.few import is_world_of_one
from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Arms, Called, Frame, Mark, Result, Span
from allranks.check.interpret.truth import ROLES
from allranks.check.interpret.values import NO_CONSTANT, Value
from allranks.check.program import Astray, Step
from allranks.check.summaries.project import Project, mentioned
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.devices import BINDERS, BINDING_PACKAGES, BINDS, CONTEXTS, JOINS, MEETS, VISIBLE
from allranks.findings import Place

# The flags of a device that says "cuda" and no number, and of the CPU.
CURRENT, HOST = frozenset({"gpu"}), frozenset({"host"})
MOST, DEEPEST, TWICE = 400, 25, 2
# What tells where in the source a place in a function is.
Tell: TypeAlias = Callable[[Result, Span], Step]
# A module that holds no tensor: `nn.KLDivLoss()`, but for one with weights.
_EMPTY = re.compile(r"^(torch\.)?nn\.\w*Loss\((?!.*weight)[^()]*\)$")
_BARRIER = "torch.distributed.barrier"
_BINDING = ("bind", "context")
_OTHERS = sum(1 << at for at, role in enumerate(ROLES) if role != "first")


def called(frame: Frame, name: str, given: Given) -> Value | None:
    """Mark what a call of an outside function does to or with the current GPU. Return the device that it makes."""
    if name == "torch.device":
        one = given.values[0] if len(given.values) == 1 and not given.keywords else None
        if one is None or not (is_current(one) or one.constant in ("cpu", "mps")):
            return None
        return Value(flags=CURRENT if is_current(one) else HOST)
    kind = _kind(name, given)
    if kind:
        mark(frame, kind, name, given.span)
    return None


def called_method(frame: Frame, name: str, given: Given) -> None:
    """As `called`, for a method of whatever is not the project's."""
    if name == "cpu":
        mark(frame, "cpu", name, given.span)
        return
    if name == "cuda":
        uses = not given.values and all(key == "non_blocking" for key, _ in given.keywords)
        uses = uses and not (given.owner is not None and _EMPTY.search(render(given.owner)))
    elif name == "to":
        device = given.argument("device", 0)
        uses = device is not None and is_current(device) and _is_plain(given.expression("device", 0))
    else:
        if _binds(name):
            mark(frame, "bind", name, given.span)
        return
    if uses:
        mark(frame, "use", f".{name}({given.text(0, 'device')})", given.span)


def stored(frame: Frame, target: Node, value: Value, span: Span) -> None:
    """Mark that a process is shown a GPU of its own by what is stored for it, unless that shows it none, or several."""
    if target[0] == "sub" and target[2][0] == "const" and target[2][1] in VISIBLE:
        told = value.constant
        if not isinstance(told, str) or (told not in ("", "-1") and "," not in told):
            mark(frame, "bind", target[2][1], span)


def _kind(name: str, given: Given) -> str:
    if name in JOINS:
        device, backend = given.argument("device_id"), given.argument("backend", "dist_backend", 0)
        if is_world_of_one(given):
            return ""
        if device is not None and device.constant is NO_CONSTANT:
            return "bind"
        told = backend.constant if backend is not None else NO_CONSTANT
        return "" if told in ("gloo", "mpi", "ccl", "hccl", "xla") else "nccl" if told == "nccl" else "join"
    if name in MEETS:
        return "meet" if not {"device_ids", "device", "group"} & {key for key, _ in given.keywords} else ""
    last = name.rpartition(".")[2]
    if name in CONTEXTS:
        return "context"
    if name in BINDERS or (_binds(last) and not name.startswith("torch.")):
        return "bind"
    if name.startswith(("torch.", "torchvision.")) and not name.startswith("torch.distributed"):
        device = given.argument("device")
        return "use" if device is not None and is_current(device) and _is_plain(given.expression("device")) else ""
    return ""


@lru_cache(10_000)
def _binds(name: str) -> bool:
    return BINDS.search(name) is not None


def _is_plain(node: Node | None) -> bool:
    """Whether a device is told here: what a config says may have been changed since."""
    return node is not None and (node[0] != "attr" or node[1] == ("name", "self"))


def is_current(device: Value) -> bool:
    """Whether a device is the current GPU, whichever that is."""
    return device.constant == "cuda" or bool(device.flags & CURRENT)


def mark(frame: Frame, kind: str, name: str, span: Span) -> None:
    if frame.may & _OTHERS:
        frame.result.marks.append(Mark(kind, name, span, frame.arms))


@dataclass(frozen=True, slots=True)
class _Met:
    """A mark on a program's way: ``way``: the calls to it, and in which branch of its function each of them stands."""

    mark: Mark
    result: Result
    way: tuple[tuple[Result, Called], ...]
    order: tuple[int, ...] = ()


def excludes(one: _Met, other: _Met) -> bool:
    """Whether two marks stand in two branches of one condition, so that no process comes to both."""
    ours = [*((result, call.span, call.arms) for result, call in one.way), (one.result, one.mark.span, one.mark.arms)]
    its = [
        *((result, call.span, call.arms) for result, call in other.way),
        (other.result, other.mark.span, other.mark.arms),
    ]
    for (result, span, arms), (other_result, other_span, other_arms) in zip(ours, its, strict=False):
        if result is not other_result:
            return False
        if _parted(arms, other_arms):
            return True
        if span != other_span:
            return False
    return False


def _parted(one: Arms, other: Arms) -> bool:
    sides = dict(one)
    return any(sides.get(span, side) != side for span, side in other)


def astray(
    roots: Iterable[Result], project: Project, active: Set[str], tell: Tell, bound: set[Place] | None = None
) -> Iterator[Astray]:
    """Yield what uses a GPU on the way from each of ``roots`` before the process has one of its own. ``active``: which
    of them several processes run. ``bound`` is given the places where processes are joined that are bound on the way.

    Processes that are started on the way have a way of their own.
    """
    for root in roots:
        walk = _Walk(tell, set() if bound is None else bound)
        found = list(walk.first_use(root) if root.reference in active else ())
        if root.reference not in active:
            walk.find_started(root, set())
        for called_one in walk.started:
            found += walk.first_use(called_one.result)
        found = [] if found and _is_ray_s(project, root) else found
        yield from (one for one in found if one.bound is not None or not _may_bind(project, one.root))


def offloading(results: Iterable[Result]) -> frozenset[str]:
    """Return the functions that bring something to the CPU and save with torch."""
    return frozenset(
        one.reference
        for one in results
        if any(m.kind == "cpu" for m in one.marks) and any(seen.name == "torch.save" for seen in one.seen)
    )


def _may_bind(project: Project, path: str) -> bool:
    """Whether a program has anything in it that may give its processes a GPU each."""
    below = project.reach(path)
    if any("parallel_apply" in facts.words for one in below for facts in project.summaries[one].functions.values()):
        return True  # a process that runs its model on all GPUs of its host has the first for its own
    packages, words = mentioned(project, below)
    return bool(packages & BINDING_PACKAGES) or any(map(BINDS.search, words))


def _is_ray_s(project: Project, root: Result) -> bool:
    """Whether an entry is how Ray calls objects of a class that it makes in processes with a GPU each."""
    functions = project.summaries[root.path].functions.values() if root.reference.endswith(".__call__") else ()
    return any("map_batches" in facts.words for facts in functions)


class _Walk:
    def __init__(self, tell: Tell, bound: set[Place]) -> None:
        self.tell = tell
        self.bound = bound
        self.started: list[Called] = []
        self.marked: dict[int, list[Called] | None] = {}

    def first_use(self, root: Result) -> Iterator[Astray]:
        met: list[_Met] = []
        for one in self.marks(root, (), 0):
            met.append(one)
            if len(met) >= MOST:
                return  # more than can be told
        joins = [at for at, one in enumerate(met) if one.mark.kind in ("join", "nccl")]
        for join in (met[at] for at in joins):
            if any(one.mark.kind == "bind" and not excludes(one, join) for one in met):
                self.bound.add(self.tell(join.result, join.mark.span).place)
        for at, one in enumerate(met):
            if one.mark.kind not in ("use", "meet"):
                continue
            together = [j for j in joins if not excludes(met[j], one)]
            if one.mark.kind == "meet":
                together = [j for j in together if j < at]
            bound = [b for b, other in enumerate(met) if other.mark.kind in _BINDING and not excludes(other, one)]
            binds = [b for b in bound if met[b].mark.kind == "bind"]
            if not together or any(b < at for b in bound) or (one.mark.name == _BARRIER and not binds):
                continue  # a barrier guesses the GPU by the rank; when another is bound later, there are two
            if not binds and any(other.mark.kind in _BINDING for other in met):
                continue  # in another branch: who knows
            yield self._astray(root, one, met[together[0]], met[binds[0]] if binds else None)
            return

    def _astray(self, root: Result, one: _Met, join: _Met, bind: _Met | None) -> Astray:
        steps = [self.tell(result, call.span) for result, call in one.way]
        here, joined = self.tell(one.result, one.mark.span), self.tell(join.result, join.mark.span)
        if one.mark.kind == "meet":  # shown in the function that joins the processes, or in the one that calls it
            level = sum(1 for ours, its in zip(one.way, join.way, strict=False) if ours == its)
            steps.append(here)
            here = steps.pop(level)
        bound = self.tell(bind.result, bind.mark.span).place if bind is not None else None
        nccl = join.mark.kind == "nccl"
        return Astray(
            one.mark.name, one.mark.kind, here.place, here.symbol, joined, nccl, bound, tuple(steps), root.path
        )

    def marks(self, result: Result, way: tuple[tuple[Result, Called], ...], depth: int) -> Iterator[_Met]:
        """Yield the marks on the way through ``result``, in the order of the source."""
        if depth > DEEPEST:
            return
        items: list[tuple[Span, Mark | Called]] = [(m.span, m) for m in result.marks if m.kind != "cpu"]
        items += [(c.span, c) for c in self._marked(result) or ()]
        seen: dict[int, int] = {}
        for _, item in sorted(items, key=lambda pair: pair[0][:2]):
            if isinstance(item, Mark):
                yield _Met(item, result, way)
                continue
            if item.started:
                self.started.append(item)
                continue
            seen[id(item.result)] = seen.get(id(item.result), 0) + 1
            if item.may & _OTHERS and seen[id(item.result)] <= TWICE and all(r is not item.result for r, _ in way):
                yield from self.marks(item.result, (*way, (result, item)), depth + 1)

    def find_started(self, start: Result, visited: set[int]) -> None:
        """Find the processes that are started below ``start``, each once."""
        waiting = [start]
        while waiting:
            result = waiting.pop()
            if id(result) in visited:
                continue
            visited.add(id(result))
            marked = self._marked(result) or ()
            self.started += [called for called in marked if called.started]
            waiting += [called.result for called in marked if not called.started and called.may & _OTHERS]

    def _marked(self, start: Result) -> list[Called] | None:
        """Return the calls below which anything is marked; None where nothing is, here and below."""
        for result in deepest_first(start, self.marked):
            below = [called for called in result.calls if self._is_marked(called.result)]
            self.marked[id(result)] = below if below or _has_marks(result) else None
        return self.marked[id(start)]

    def _is_marked(self, result: Result) -> bool:
        if id(result) in self.marked:
            return self.marked[id(result)] is not None
        return _has_marks(result)  # a circle of calls


def _has_marks(result: Result) -> bool:
    return any(mark.kind != "cpu" for mark in result.marks)
