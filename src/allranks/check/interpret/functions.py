"""Functions: decorators, parameters, and what a call of the project's own code does.

Statements are left to the class above.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any

from allranks.check.interpret.binding import Binder
from allranks.check.interpret.ending import ended
from allranks.check.interpret.few import is_left_alone
from allranks.check.interpret.given import Given
from allranks.check.interpret.held import guarded, hands_over, lends
from allranks.check.interpret.interest import stored_elsewhere
from allranks.check.interpret.making import left_out, outcome, roles_of, storing
from allranks.check.interpret.spread import streamed
from allranks.check.interpret.state import Called, Frame, Result, meets
from allranks.check.interpret.strangers import unknown
from allranks.check.interpret.truth import EVERY, FALSE, TRUE, roles_where
from allranks.check.interpret.values import (
    AGREED,
    ANYTHING,
    NO_CONSTANT,
    NONE,
    OF_ONE,
    RANKS,
    Value,
    also,
    barely,
    chosen,
    known,
    plainly,
    replace,
    roughly,
)
from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render, under_main
from allranks.check.summaries.summary import FunctionFacts, Node, body_of, gives_itself
from allranks.check.tables.apis import Apis
from allranks.check.tables.passing import GRAPHLESS

# So many calls of a function are told apart by all that they are given, so many by the little of it that counts, and so
# many by what of it is None.
DEEPEST, MOST_CONTEXTS, MOST_ROUGHLY, MOST_BARELY = 20, 4, 10, 16
SMALL = 300  # bytes of a body: a line or two
_GIVES_RANK = re.compile(r"^_?((try|safe|maybe)_)?get_((global|world|dist|mpi|process)_)?rank(_|$)(?!of|in_|for|group)")
_BLANK = FunctionFacts("", "", (), (), ("", ""), (), (), (), (1, 0, 1, 0), (), (), b"")


class Runner(Binder):
    """Runs functions. ``interesting``: references whose effect, trace or value can matter; others are not run."""

    def __init__(self, project: Project, apis: Apis, interesting: frozenset[str]) -> None:
        super().__init__(project, apis)
        self.interesting = interesting
        self.stored_elsewhere = stored_elsewhere(project, interesting)
        self.results: dict[Any, Result] = {}
        self.contexts: dict[str, int] = {}
        self.graphless = False  # whether what is called is called in a context without gradients
        self.running: list[str] = []
        self.entered: set[str] = set()
        self.callees: set[str] = set()
        self.decorated: dict[str, Value] = {}
        self.bodies: dict[str, tuple[Node, ...]] = {}
        self.scopes: dict[str, tuple[Frame, int, int]] = {}
        self.around: dict[str, Frame] = {}  # what a class sees that is defined in a function
        self.lent: set[str] = set()  # classes whose objects are given functions that they may call
        self.gaps: dict[str, str | Exception] = {}  # functions that were not followed to their end, and why

    def again(self) -> None:
        """Forget what functions do, keep what attributes hold: a second run knows what the first one stored."""
        known = (self.results, self.contexts, self.gaps, self.modules, self.decorated, self.scopes, self.lineages)
        for found in (*known, self.around, self.related, self.entered, self.callees):
            found.clear()

    # modules and functions

    def module_frame(self, path: str) -> Frame:
        if path in self.modules:
            return self.modules[path]
        facts = self.project.summaries[path].functions[""]
        frame = Frame(path, facts, Result(f"{path}::"), {})
        self.modules[path] = frame
        self.entered.add(f"{path}::")
        outer, self.running = self.running, []  # to ask for it in the middle of a call makes it no part of that call
        try:
            self._finish_or_tell(frame, self._body(frame))
        finally:
            self.running = outer
        return frame

    def program(self, path: str) -> Result:
        """Return what a file does that is run: its body, and, when all that it imports is known, its ``__main__``."""
        frame = self.module_frame(path)
        self._finish_or_tell(frame, tuple(s for s in body_of(frame.facts) if under_main(s)))
        return frame.result

    def imported_body(self, path: str) -> Result:
        """Return what the body of a module does where it is imported: not what stands under ``__main__``."""
        facts = self.project.summaries[path].functions[""]
        frame = Frame(path, facts, Result(f"{path}::"), {"__name__": known(path)})
        self._finish_or_tell(frame, self._body(frame))
        return frame.result

    def _body(self, frame: Frame) -> tuple[Node, ...]:
        reference = frame.result.reference
        if reference not in self.bodies:
            body = body_of(frame.facts)
            module = reference.endswith("::")
            self.bodies[reference] = tuple(s for s in body if not under_main(s)) if module else body
        return self.bodies[reference]

    def finish(self, frame: Frame, statements: tuple[Node, ...]) -> None:
        """Run statements of a frame and settle its result."""
        if not self.block(frame, statements) and frame.returned:
            frame.returned.append((NONE, frame.may, frame.implicit))
        result = frame.result
        result.trace = tuple(frame.nodes)
        result.meets = any(meets(node) for node in result.trace)
        result.ended = ended(result.trace)
        result.yielded = outcome(frame.yielded)
        result.few = frame.few
        result.value = also(_returned(frame), frame.asked)

    def _finish_or_tell(self, frame: Frame, statements: tuple[Node, ...]) -> None:
        """As `finish`; code that is nested too deeply is told of, and what was understood of it stands."""
        try:
            self.finish(frame, statements)
        except RecursionError:
            self.gaps[frame.result.reference] = "its statements and the calls in them are nested too deeply"
            frame.result.trace = tuple(frame.nodes)
        except Exception as error:  # a fault of ours must not hide what is wrong elsewhere: it is told by AR903
            self.gaps[frame.result.reference] = error
            frame.result.trace = tuple(frame.nodes)

    def function_value(self, reference: str, scope: Frame | None) -> Value:
        """Return a function with its decorators applied."""
        if scope is None and reference in self.decorated:
            return self.decorated[reference]
        facts = self.project.function(reference)
        value = Value(reference=reference, scope=scope)
        if scope is None:
            self.decorated[reference] = value
        frame = scope or self.module_frame(reference.partition("::")[0])
        for decorator in reversed(facts.decorators if facts else ()):
            value = self._decorate(frame, decorator, value, facts.owner if facts else "")
        if scope is None:
            self.decorated[reference] = value
        return value

    def _decorate(self, frame: Frame, decorator: Node, value: Value, owner: str) -> Value:
        name = decorator[1] if decorator[0] == "call" else decorator
        if name[0] not in ("name", "attr"):
            return value
        if (made := self.decorated_by(frame, decorator, value)) is not None:
            return made
        base = self.value(frame, name[1]) if name[0] == "attr" else ANYTHING
        found = self.value(frame, name) if name[0] == "name" or base.reference else ANYTHING
        if name[0] == "name" and owner and (beside := self.project.methods(f"{frame.path}::{owner}").get(name[1])):
            found = Value(reference=beside)  # a function of the class body decorates what stands below it
        last = name[1] if name[0] == "name" else name[2]
        table = self.apis.ranks["decorator"]
        query = table.named(found.reference) if "." in found.reference else None
        if "::" not in found.reference or self.project.cls(found.reference) is not None:
            query = query or table.tail(last)
        if query is not None:
            return self.behind(frame, query, value, f"@{render(decorator)}")
        if "::" not in found.reference + found.instance:
            return value
        quiet = Frame(frame.path, _BLANK, Result(frame.result.reference), {}, parent=frame)
        if decorator[0] == "call":  # it makes the decorator: a function, or an object that is called
            found = self.called(quiet, found, self._given(quiet, decorator))
            if "::" not in found.reference + found.instance:
                return value
        wrapped = self.called(quiet, found, Given((value,), (), ("call", name, (), (), (1, 0, 1, 0))))
        return wrapped if "::" in wrapped.reference and self.project.function(wrapped.reference) else value

    def run_call(self, frame: Frame, function: Value, given: Given) -> Value:
        gate = function.gate or TRUE
        if gate == FALSE:
            return ANYTHING
        if self.project.cls(function.reference) is not None:
            mask, may = frame.mask, frame.may
            frame.mask, frame.may = mask & roles_where(gate, "TUP"), may & roles_where(gate, "TUPWD")
            made = self._instantiate(frame, function, given)
            frame.mask, frame.may = mask, may
            return replace(made, gate=function.gate)
        self._named(frame, given)
        if gate == TRUE and (others := self.overriding(function)):
            return self.among(frame, others, given, certain=len(others) == 1)
        facts = self.project.function(function.reference)
        around, self.graphless = self.graphless, frame.graphless > 0
        result = self.run(function, given, roles_of(frame, facts), storing(frame, facts))
        self.graphless = around
        if result is None:
            itself = function.receiver if facts is not None and gives_itself(facts) else None
            return itself or self._believed(frame, function.reference, unknown(given))
        mask, may = frame.mask & roles_where(gate, "TUP"), frame.may & roles_where(gate, "TUPWD")
        alone = self._without_others(function, given) or result.stays_alone
        met, turns = len(frame.result.meetings), bool(frame.turns)
        called = Called(
            *(given.span, result, mask, may, turns, met, frame.implicit, frame.guard, alone),
            arms=frame.arms,
            node=given.node,
            guess=frame.guess,
        )
        frame.result.calls.append(called)
        if result.reference != frame.result.reference:
            self.callees.add(result.reference)
        made = unknown(given) if result.value == ANYTHING else result.value
        value = self._believed(frame, function.reference, made)
        if value.ranked and (value.number or value.truth) and "rank" in result.evidence:
            frame.result.evidence.add("rank")
        if (result.meets or result.meetings) and not frame.are_few:
            frame.result.meetings.append(called)
        if result.meets and value == ANYTHING and any(one.taint & OF_ONE for one in given.all()):
            value = AGREED  # what a process alone knows goes in, and the same comes out for all
        if result.meets and not frame.are_few:
            node = ("call", called)
            gated = ("branch", gate, RANKS, (node,), (), given.span, function.text or "a decorator", "")
            frame.nodes.append(node if gate == TRUE else gated)
        frame.few |= result.few
        return value if gate == TRUE else chosen(gate, value, NONE, RANKS)

    def _without_others(self, function: Value, given: Given) -> bool:
        """Whether a function is told as a constant what its rank is: a program that starts no others."""
        facts = self.project.function(function.reference)
        ranks = self.apis.ranks["name"].named
        if facts is None:
            return False
        if is_left_alone(facts, given, ranks):
            return True
        names = facts.positional[1 if function.receiver is not None and facts.owner else 0 :]
        firsts = given.values[:1] or tuple(value for name, value in given.keywords if name in names[:1])
        told = ((ranks(name), value) for name, value in zip(names, given.values, strict=False))
        spawned = function.reference in self.spawned and any(map(plainly, firsts))  # as in each that is spawned
        return spawned or any(q is not None and q.kind == "global" and not q.first and plainly(v) for q, v in told)

    def _believed(self, frame: Frame, reference: str, value: Value) -> Value:
        """A function called ``get_rank`` whose value is not understood returns a rank; others what they say. So does
        one that returns a constant: it stands in for another where a process is alone."""
        facts = self.project.function(reference)
        if value.ranked or value.instance or facts is None:
            return value
        table = self.apis.ranks["call"].tail
        query = table(facts.name) or table("get_rank" if _GIVES_RANK.search(facts.name) else "")
        if value.constant not in (NO_CONSTANT, None):
            evidence = set(frame.result.evidence)
            stands_in = query is not None and query.kind in ("global", "local") and isinstance(value.constant, int)
            made = self.answer(frame, query) if query is not None and stands_in else value
            frame.result.evidence &= evidence
            return made
        if query is None and value == ANYTHING:
            return self.noted(self.module_frame(reference.partition("::")[0]), facts, "return")
        return self.answer(frame, query) if query is not None else value

    def _instantiate(self, frame: Frame, function: Value, given: Given) -> Value:
        made = Value(instance=function.reference)
        frame.result.made.append((function.reference, frame.mask))
        given = guarded(frame, given)
        if (method := self.method(function.reference, "__init__")) is not None:
            if (facts := self.project.function(method)) is not None:
                given = left_out(frame, facts.positional[1:], facts.defaults, given)
            self.run_call(frame, Value(reference=method, receiver=made), given)
        else:
            fields = self.fields(function.reference)
            given = left_out(frame, tuple(fields), fields.items(), given)
            for name, value in (*zip(fields, given.values, strict=False), *given.keywords):
                self.keep(function.reference, name, value)
                if value.says_who and not value.number:  # kept in a configuration, it is asked for by its name
                    self.keep("*", name, value)
            if (method := self.method(function.reference, "__post_init__")) is not None:  # of a dataclass
                self.invoke(frame, Value(reference=method, receiver=made), given.span)
        for owner in self.lineage(function.reference)[1:]:
            if (entry := self.apis.collectives["call"].named(owner)) is not None:
                self._collective(frame, entry, owner, given)
        return made

    def run(
        self,
        function: Value,
        given: Given | None,
        roles: tuple[int, int] = (EVERY, EVERY),
        callers: tuple[int, int] = (EVERY, EVERY),
    ) -> Result | None:
        """Return what a function of the project does with these arguments, for these roles (for certain, and perhaps),
        if these ``callers`` have what it stores; None if that cannot matter."""
        reference = function.reference
        facts = self.project.function(reference)
        matters = reference in self.interesting or hands_over(given) or self._holds(function.scope)
        of_class = f"{reference.partition('::')[0]}::{facts.owner}" if facts is not None and facts.owner else ""
        if of_class and given is not None and lends(given.all()):
            self.lent.add(of_class)
        matters = matters or of_class in self.lent
        if facts is None or not (matters or _names(function, facts, given)):
            return None
        self.entered.add(reference)
        path = reference.partition("::")[0]
        env = self.parameters(self.module_frame(path), facts, function, given)
        key = (reference, id(function.scope), tuple(env.items()), roles, callers, self.graphless)
        found = self.results.get(key)
        if found is not None:
            return found
        if (here := f"{reference} {id(function.scope)}" if function.scope else reference) in self.running:
            return None
        if len(self.running) >= DEEPEST:
            self.gaps.setdefault(reference, f"it is called at the end of {DEEPEST} calls that lead into each other")
            return None
        kind = f"{reference} {id(function.scope)}" if function.receiver is not None and not facts.owner else reference
        if self.contexts.get(kind, 0) >= MOST_CONTEXTS:
            owner = Value(instance=f"{path}::{facts.owner}") if facts.owner and function.receiver else None
            plain = self.parameters(self.module_frame(path), facts, replace(function, receiver=owner, bound=()), None)
            ranks = self.apis.ranks["name"].named  # what is given for a rank counts all the same, and a function
            count = self.contexts[kind]
            less = roughly if count < MOST_ROUGHLY else barely if count < MOST_BARELY else _nothing
            told = {
                name: v if ranks(name) or "::" in v.reference else less(v) for name, v in env.items() if name in plain
            }
            env = plain | {name: v for name, v in told.items() if v != ANYTHING}
            key = (reference, id(function.scope), tuple(env.items()), roles, callers, self.graphless)
            if key in self.results:
                return self.results[key]
        self.contexts[kind] = self.contexts.get(kind, 0) + 1
        parent = function.scope or self.around.get(of_class)
        frame = Frame(path, facts, Result(reference), env, parent=parent, owner=facts.owner)
        frame.mask, frame.may, frame.callers = *roles, callers
        frame.graphless = self.graphless + sum(
            render(d[1] if d[0] == "call" else d) in GRAPHLESS for d in facts.decorators
        )
        self.running.append(here)
        try:
            self._finish_or_tell(frame, self._body(frame))
        finally:
            self.running.pop()
        self.results[key] = frame.result
        return frame.result

    def _holds(self, scope: Frame | None) -> bool:
        """Whether a nested function sees one that matters, which was given to the function around it: a decorator's."""
        given = (scope.env.get(name, ANYTHING) for name in scope.facts.positional) if scope is not None else ()
        return any(value.reference in self.interesting for value in given)

    def before(self, frame: Frame, statements: tuple[Node, ...]) -> None:
        """Run what a process does while it is not joined with the others, for what it does about its GPU alone."""
        env, nodes, exits, evidence = frame.env, frame.nodes, frame.exits, set(frame.result.evidence)
        so_far, mask, may = frame.length(), frame.mask, frame.may
        frame.env, frame.nodes = dict(env), []
        self.block(frame, statements)
        frame.cut(so_far)
        frame.env, frame.nodes, frame.exits, frame.mask, frame.may = env, nodes, exits, mask, may
        frame.result.evidence = evidence

    def block(self, frame: Frame, statements: tuple[Node, ...]) -> bool:
        raise NotImplementedError


def _nothing(_: Value) -> Value:
    return ANYTHING


def _names(function: Value, facts: FunctionFacts, given: Given | None) -> bool:
    """Whether a few words may make a name of this process' own from what is given, or from the object itself."""
    if given is None or len(facts.body) > SMALL:
        return False
    values = (*given.values, *(value for _, value in given.keywords))
    return any(value.private for value in values) or (function.receiver is not None and not values)


def _returned(frame: Frame) -> Value:
    """Return what the function returns: for each role what it may return there."""
    if frame.yielded:
        return streamed(frame.result.yielded, reduce(or_, (may for _, may, _ in frame.yielded)))
    return outcome(frame.returned)
