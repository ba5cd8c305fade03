"""Run conditions, loops, contexts and try statements.

Both sides of a condition that is not known are run, and the body of a loop again if it changes what it begins with.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame, Jumps, merge_variables, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    NONE,
    RANK,
    SHARE,
    ByRole,
    Either,
    Function,
    Items,
    Library,
    Made,
    Object,
    Truth,
    Unknown,
    Value,
    by_role,
    letters_of,
    of_role,
    roles_where,
    taint,
    truth,
)
from allranks.check.traces.nodes import Branch, Loop, Node, Span, Try

# Who catches these lives with another process having done it first.
_FORGIVEN = frozenset(["OSError", "FileNotFoundError", "FileExistsError", "IOError", "Exception", "EnvironmentError"])

# What one process may have by itself, while the others go on.
_OWN_FAILURES = frozenset(["Exception", "RuntimeError", "OutOfMemoryError", "ValueError", "OSError", "IOError"])

_FEW = 12  # so many objects of a list are run one after the other


class Flow:
    """Runs the statements that hold others. ``by_type``: which method runs which."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self._no_grad = simulator.knowledge.signs["no_grad"]
        self.by_type: Mapping[type[ast.AST], Callable[[Frame, Any], None]] = {
            ast.If: self._if,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.Match: self._match,
        }

    def _block(self, frame: Frame, statements: Sequence[ast.stmt]) -> None:
        self.simulator.statements.block(frame, statements)

    def _store(self, frame: Frame, target: ast.expr, value: Value) -> None:
        self.simulator.statements.store(frame, target, value)

    # Branches

    def _if(self, frame: Frame, node: ast.If) -> None:
        test = self.simulator.expressions.value(frame, node.test)
        self.branch(frame, test, node.test, node.body, node.orelse)

    def branch(
        self, frame: Frame, test: Value, at: ast.expr, then: Sequence[ast.stmt], orelse: Sequence[ast.stmt]
    ) -> None:
        """Run both sides of a condition, each for the roles for which it may hold, and merge what they leave."""
        letters = truth(test)
        here = frame.live
        inside = self._sides(letters, here)
        if not inside[1]:
            self._block(frame, then)
            return
        if not inside[0]:
            self._block(frame, orelse)
            return
        env, trace, under, heap = frame.env, frame.trace, frame.under, self.simulator.heap
        frame.under |= taint(test)
        ends: list[tuple[int, dict[str, Value], tuple[Node, ...], Any]] = []
        kept: list[int] = []  # who goes on, or returns: what they have stored is there
        for roles, statements in ((inside[0], then), (inside[1], orelse)):
            frame.live, frame.env, frame.trace, before = roles, dict(env), [], len(frame.returned)
            heap.push()
            self._narrow(frame, at, statements is then)
            self._block(frame, statements)
            ends.append((frame.live, frame.env, tuple(frame.trace), heap.pop()))
            kept.append(reduce(or_, (one for one, _, _ in frame.returned[before:]), frame.live))
        (live_then, env_then, trace_then, heap_then), (live_else, env_else, trace_else, heap_else) = ends
        lived = (live_then, live_else)
        frame.env = merge_variables(letters, lived, (env_then, env_else), taint(test))
        heap.merge(letters, (kept[0], kept[1]), (heap_then, heap_else), taint(test))
        frame.trace, frame.live = trace, live_then | live_else
        exits = lived != inside
        frame.under = frame.under if exits else under
        if trace_then or trace_else:
            text = self.simulator.expressions.source(at)
            trace.append(Branch(letters, taint(test), place_of(at), text, trace_then, trace_else, test))

    @staticmethod
    def _sides(letters: Truth, here: int) -> tuple[int, int]:
        return roles_where(letters, "TUD") & here, roles_where(letters, "FUD") & here

    def _narrow(self, frame: Frame, test: ast.expr, positive: bool) -> None:
        """Bind what a condition says of a variable: ``x is None``, ``isinstance(x, C)``."""
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            right = test.comparators[0]
            is_none = isinstance(right, ast.Constant) and right.value is None
            same = isinstance(test.ops[0], ast.Is | ast.Eq)
            if is_none and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                old = frame.env.get(test.left.id)
                if same == positive and isinstance(old, Unknown | Either):
                    frame.env[test.left.id] = NONE
                elif isinstance(old, Either):
                    rest = tuple(one for one in old.options if one != NONE)
                    frame.env[test.left.id] = rest[0] if len(rest) == 1 else Either(rest)
        if positive and isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            self._narrow_to(frame, test)

    def _narrow_to(self, frame: Frame, test: ast.Call) -> None:
        if len(test.args) != 2 or not isinstance(test.args[0], ast.Name):
            return
        kind, old = self.simulator.expressions.value(frame, test.args[1]), frame.env.get(test.args[0].id)
        if isinstance(kind, Library) and isinstance(old, Unknown) and "." in kind.name:
            frame.env[test.args[0].id] = Made(kind.name, old.taint)

    def _match(self, frame: Frame, node: ast.Match) -> None:
        self.simulator.expressions.value(frame, node.subject)
        rest: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = _as_condition(node.subject, case)
            made = ast.If(test, case.body, rest)
            ast.copy_location(made, case.body[0])
            ast.fix_missing_locations(made)
            rest = [made]
        self._block(frame, rest)

    # Loops

    def _for(self, frame: Frame, node: ast.For) -> None:
        iterated = self.simulator.expressions.value(frame, node.iter)
        if isinstance(iterated, Object) and isinstance(own := iterated.cls.find("__iter__"), Function):
            iterated = self.simulator.calls.invoke(frame, own.with_receiver(iterated), Given(node.iter))
        if (each := _objects_in_turn(iterated)) is not None:
            self._in_turn(frame, node, each)
            return
        element = self.simulator.expressions.element(iterated)
        method = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(element, Unknown) and isinstance(method, ast.Attribute) and method.attr == "items":
            element = Items((Unknown(element.taint & ~DATA), element))  # the names are alike where the values are not
        called = node.target.id if isinstance(node.target, ast.Name) else ""
        if iterated == ANYTHING and self.simulator.knowledge.classes["hook_parameters"].get(called) == "<rows>":
            element = Unknown(DATA)
        some = isinstance(iterated, Items) and iterated.items != ()  # of an empty list, others may have filled it
        often = truth(iterated) if some or isinstance(iterated, ByRole) else "UUUU"
        found = self.simulator.library.rounds(iterated)
        if isinstance(iterated, Made) and iterated.about == SHARE and "min(" not in ast.unparse(node.iter):
            found &= ~RANK  # from the rank's first to its last: as many for each
        self._loop(frame, node, node.iter, (often, found), lambda: self._store(frame, node.target, element))

    def _in_turn(self, frame: Frame, node: ast.For, each: Sequence[tuple[int, Value]]) -> None:
        """Run the body of a loop over a few objects (hooks, callbacks) for one after the other, each for its roles."""
        frame.jumps.append(Jumps())
        for roles, element in each:
            here = frame.live
            frame.live &= roles
            if not frame.live:
                frame.live = here
                continue
            trace, frame.trace = frame.trace, []
            self._store(frame, node.target, element)
            self._block(frame, node.body)
            inside, frame.trace = tuple(frame.trace), trace
            frame.live |= here & ~roles | frame.jumps[-1].continued
            frame.jumps[-1].continued = 0
            letters = letters_of(roles)
            if inside:
                text = self.simulator.expressions.source(node.iter)
                frame.trace.append(Branch(letters, 0, place_of(node.iter), text, inside, ()))
        frame.live |= frame.jumps.pop().broken
        self._block(frame, node.orelse)

    def _while(self, frame: Frame, node: ast.While) -> None:
        test = self.simulator.expressions.value(frame, node.test)
        letters = truth(test)
        self._loop(frame, node, node.test, (letters, taint(test)), lambda: None)

    def _loop(
        self, frame: Frame, node: Any, head: ast.expr, often: tuple[Truth, int], begin: Callable[[], None]
    ) -> None:
        letters, depends = often
        here, env, trace = frame.live, frame.env, frame.trace
        inside = roles_where(letters, "TUD") & here
        if not inside:
            self._block(frame, node.orelse)
            return
        heap = self.simulator.heap
        start = env
        for again in (False, True):
            frame.live, frame.env, frame.trace = inside, dict(start), []
            frame.jumps.append(Jumps())
            frame.loops += 1
            heap.push()
            begin()
            self._block(frame, node.body)
            frame.loops -= 1
            jumps, layer = frame.jumps.pop(), heap.pop()
            ends = [frame.env] if frame.live else []
            ends += jumps.variables
            later = start
            for one in ends:
                later = merge_variables("UUUU", (here, here), (later, one), depends)
            body = tuple(frame.trace)
            changed = any(later.get(name) != value for name, value in start.items()) or heap.differs(layer)
            heap.merge("UUUU", (here, here), ({}, layer), depends)
            if again or not changed:
                break
            start = later
        endless = isinstance(node, ast.While) and letters == "TTTT"
        ended = frame.live | jumps.continued | jumps.broken
        frame.live = jumps.broken if endless else here & ~(inside & ~ended if letters == "TTTT" else 0)
        frame.env, frame.trace = later, []
        self._block(frame, node.orelse)
        orelse, frame.trace = tuple(frame.trace), trace
        if body or orelse:
            text = self.simulator.expressions.source(head)
            counted = isinstance(node, ast.While) or text.startswith("range(")
            trace.append(Loop(letters, depends, place_of(head), text, body, orelse, counted))

    # Contexts and exceptions

    def _with(self, frame: Frame, node: ast.With) -> None:
        before = frame.ordered
        entered: list[tuple[Value, ast.expr]] = []
        for item in node.items:
            at = len(frame.trace)
            value = self.simulator.expressions.value(frame, item.context_expr)
            given = self.simulator.calls.enter(frame, value, item.context_expr)
            entered.append((value, item.context_expr))
            frame.ordered += self.simulator.library.orders(value, item.context_expr, frame.trace[at:])
            if item.optional_vars is not None:
                self._store(frame, item.optional_vars, given)
        quiet = sum(getattr(value, "cls", "") in self._no_grad or _is_no_sync(at) for value, at in entered)
        self.simulator.no_grad += quiet
        self._block(frame, node.body)
        self.simulator.no_grad -= quiet
        frame.ordered = before
        for context, where in reversed(entered if frame.live else []):
            self.simulator.calls.leave(frame, context, where)

    def _try(self, frame: Frame, node: ast.Try) -> None:
        here, env, trace, heap = frame.live, frame.env, frame.trace, self.simulator.heap
        forgives = sum(self._forgives(handler) for handler in node.handlers)
        frame.trace, frame.env = [], dict(env)
        frame.forgiven += forgives
        heap.push()
        self._block(frame, node.body)
        frame.forgiven -= forgives
        body, frame.trace = tuple(frame.trace), []
        if frame.live:
            self._block(frame, node.orelse)
        orelse, after, live, layer = tuple(frame.trace), frame.env, frame.live, heap.pop()
        if after is not env:
            caught = not all(map(_is_for_what_is_missing, node.handlers))
            heap.merge("UUUU", (here, live or here), ({}, layer), 0) if caught else heap.apply(layer)
        raised = merge_variables("UUUU", (here, here), (env, after), 0)
        handlers = []
        for handler in node.handlers:
            if _is_for_what_is_missing(handler):  # what is installed on the cluster, all ranks import
                continue
            frame.live, frame.env, frame.trace = here, dict(raised), []
            if handler.name:
                frame.env[handler.name] = ANYTHING
            frame.forgiven += 1  # who failed removes what it had begun
            heap.push()
            self._block(frame, handler.body)
            layer = heap.pop()
            frame.forgiven -= 1
            if frame.live:
                heap.merge("UUUU", (live, frame.live), ({}, layer), 0) if live else heap.apply(layer)
            handlers.append(tuple(frame.trace))
            if frame.live:
                after = merge_variables("UUUU", (live, frame.live), (after, frame.env), 0) if live else frame.env
                live |= frame.live
        frame.live, frame.env, frame.trace = here, after, []
        self._block(frame, node.finalbody)
        final, frame.trace = tuple(frame.trace), trace
        frame.live = live & frame.live
        if body or orelse or final or any(handlers):
            trace.append(Try(body, tuple(handlers), orelse, final, _swallows(node), place_of(node)))

    @staticmethod
    def _forgives(handler: ast.ExceptHandler) -> bool:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = [kind.id if isinstance(kind, ast.Name) else "Exception" if kind is None else "" for kind in kinds]
        return any(name in _FORGIVEN for name in names)


def _is_for_what_is_missing(handler: ast.ExceptHandler) -> bool:
    """Whether a handler is there for packages that are not installed."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(isinstance(one, ast.Name) and one.id in ("ImportError", "ModuleNotFoundError") for one in kinds)


def _swallows(node: ast.Try) -> tuple[Span, str] | None:
    """Return where and how a process goes on after an exception that it alone may have: a failed computation, or data
    that cannot be read. None if the exception goes on, or all processes have it."""
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        named = [ast.unparse(kind).rpartition(".")[2] if kind is not None else "Exception" for kind in kinds]
        leaves = handler.body[-1]
        if set(named) & _OWN_FAILURES and not any(isinstance(one, ast.Raise) for one in ast.walk(handler)):
            return place_of(leaves), f"except {', '.join(named)}"
    return None


def _is_no_sync(context: ast.expr) -> bool:
    """Return whether the passes of a wrapped model in a context call no collective, by the name of the context."""
    name = context.func if isinstance(context, ast.Call) else context
    return "no_sync" in (getattr(name, "attr", "") or getattr(name, "id", ""))


def _objects_in_turn(iterated: Value) -> Sequence[tuple[int, Value]] | None:
    """Return the elements of a list of a few objects or functions, each with the roles that have it; None for all
    other values."""
    lists = [of_role(iterated, role) for role in range(4)]
    known = [one.items for one in lists if isinstance(one, Items)]
    longest = max(map(len, known), default=0)
    callable_ = all(isinstance(item, Object | Function | Made) for items in known for item in items)
    if len(known) < 4 or not 0 < longest <= _FEW or not callable_:
        return None
    found = []
    for at in range(longest):
        roles = sum(1 << role for role, items in enumerate(known) if len(items) > at)
        filler = next(items[at] for items in known if len(items) > at)
        found.append((roles, by_role(items[at] if len(items) > at else filler for items in known)))
    return found


def _as_condition(subject: ast.expr, case: ast.match_case) -> ast.expr:
    """Return a case as a condition: a value is compared, all else is unknown."""
    pattern = case.pattern
    test: ast.expr
    if isinstance(pattern, ast.MatchValue):
        test = ast.Compare(subject, [ast.Eq()], [pattern.value])
    elif isinstance(pattern, ast.MatchSingleton):
        test = ast.Compare(subject, [ast.Is()], [ast.Constant(pattern.value)])
    elif isinstance(pattern, ast.MatchOr) and all(isinstance(one, ast.MatchValue) for one in pattern.patterns):
        values = [one.value for one in pattern.patterns if isinstance(one, ast.MatchValue)]
        test = ast.Compare(subject, [ast.In()], [ast.Tuple(values, ast.Load())])
    elif isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        test = ast.Constant(True)
    else:
        test = ast.Constant(...)
    if case.guard is not None:
        test = ast.BoolOp(ast.And(), [test, case.guard])
    ast.copy_location(test, subject)
    return ast.fix_missing_locations(test)
