"""Statements and functions: the program run for four processes at once, without running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from allranks.check.apis import Apis
from allranks.check.calls import Caller, Given
from allranks.check.project import Project
from allranks.check.render import render
from allranks.check.state import Called, Frame, Result, Trace
from allranks.check.summary import FunctionFacts, Node, body_of
from allranks.check.tables.receivers import HOOK_PARAMETERS, HOOKS, RECEIVERS
from allranks.check.truth import EVERY, FALSE, TRUE, UNKNOWN, negate, roles_where
from allranks.check.values import ANYTHING, NO_CONSTANT, NONE, PROCESS, RANK, RANKS, STATE, Value, chosen

# Who catches these lives with another process having done it first.
_FORGIVEN = frozenset(
    ["OSError", "FileNotFoundError", "FileExistsError", "IOError", "Exception", "None", "EnvironmentError"]
)
DEEPEST, MOST_CONTEXTS = 24, 6
_BLANK = FunctionFacts("", "", (), (), ("", ""), (), (), (), (1, 0, 1, 0), (), (), b"")


class Interpreter(Caller):
    """Runs functions. ``interesting``: references whose effect, trace or value can matter; others are not run."""

    def __init__(self, project: Project, apis: Apis, interesting: frozenset[str]) -> None:
        super().__init__(project, apis)
        self.interesting = interesting
        self.results: dict[Any, Result] = {}
        self.contexts: dict[str, int] = {}
        self.running: list[str] = []
        self.entered: set[str] = set()
        self.decorated: dict[str, Value] = {}
        self.bodies: dict[str, tuple[Node, ...]] = {}
        self.scopes: dict[str, tuple[Frame, int, int]] = {}

    def again(self) -> None:
        """Forget what functions do, keep what attributes hold: a second run knows what the first one stored."""
        self.results.clear()
        self.contexts.clear()
        self.entered.clear()
        self.modules.clear()
        self.decorated.clear()
        self.scopes.clear()
        self.lineages.clear()

    # modules and functions

    def module_frame(self, path: str) -> Frame:
        if path in self.modules:
            return self.modules[path]
        facts = self.project.summaries[path].functions[""]
        frame = Frame(path, facts, Result(f"{path}::"), {})
        self.modules[path] = frame
        self.entered.add(f"{path}::")
        self.finish(frame)
        return frame

    def _body(self, frame: Frame) -> tuple[Node, ...]:
        reference = frame.result.reference
        if reference not in self.bodies:
            self.bodies[reference] = body_of(frame.facts)
        return self.bodies[reference]

    def finish(self, frame: Frame) -> None:
        """Run the body of a frame and settle its result."""
        ended = self.block(frame, self._body(frame))
        if frame.returned and not ended:
            frame.returned.append((NONE, frame.may, frame.implicit))
        result = frame.result
        result.trace = tuple(frame.nodes)
        result.meets = any(_meets(node) for node in result.trace)
        result.value = _returned(frame)

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
            value = self._decorate(frame, decorator, value)
        if scope is None:
            self.decorated[reference] = value
        return value

    def _decorate(self, frame: Frame, decorator: Node, value: Value) -> Value:
        name = decorator[1] if decorator[0] == "call" else decorator
        if name[0] not in ("name", "attr"):
            return value
        base = self.value(frame, name[1]) if name[0] == "attr" else ANYTHING
        found = self.value(frame, name) if name[0] == "name" or base.reference else ANYTHING
        last = name[1] if name[0] == "name" else name[2]
        table = self.apis.ranks["decorator"]
        query = table.named(found.reference) if "." in found.reference else None
        if "::" not in found.reference:
            query = query or table.tails.get(last)
        if query is not None:
            frame.result.evidence.add("rank")
            return replace(value, gate="DDDD" if query.last or not query.first else self.answer(frame, query).true())
        if "::" not in found.reference or decorator[0] == "call":
            return value
        quiet = Frame(frame.path, _BLANK, Result(frame.result.reference), {}, parent=frame)
        wrapped = self.called(quiet, found, Given((value,), (), ("call", name, (), (), (1, 0, 1, 0))))
        return wrapped if "::" in wrapped.reference and self.project.function(wrapped.reference) else value

    def run_call(self, frame: Frame, function: Value, given: Given) -> Value:
        if self.project.cls(function.reference) is not None:
            return self._instantiate(frame, function, given)
        gate = function.gate or TRUE
        if gate == FALSE:
            return ANYTHING
        result = self.run(function, given)
        if result is None:
            return ANYTHING
        mask, may = frame.mask & roles_where(gate, "TUP"), frame.may & roles_where(gate, "TUPWD")
        called = Called(given.span, result, mask, may, len(frame.result.meetings), frame.implicit, frame.guard)
        frame.result.calls.append(called)
        value = self._believed(frame, function.reference, result.value)
        if value.ranked:
            frame.result.evidence.add("rank")
        if result.meets:
            frame.result.meetings.append(called)
            node = ("call", called)
            frame.nodes.append(node if gate == TRUE else ("branch", gate, RANKS, (node,), (), given.span, f"@{gate}"))
        return value if gate == TRUE else chosen(gate, value, NONE, RANKS)

    def _believed(self, frame: Frame, reference: str, value: Value) -> Value:
        """A function called ``get_rank`` whose value is not understood returns a rank."""
        if value.ranked or value.constant not in (NO_CONSTANT, None) or value.instance:
            return value
        facts = self.project.function(reference)
        query = self.apis.ranks["call"].tails.get(facts.name) if facts is not None else None
        return self.answer(frame, query) if query is not None else value

    def _instantiate(self, frame: Frame, function: Value, given: Given) -> Value:
        made = Value(instance=function.reference)
        method = self.method(function.reference, "__init__")
        if method is not None:
            self.run_call(frame, Value(reference=method, receiver=made), given)
        for owner in self.lineage(function.reference)[1:]:
            entry = self.apis.collectives["call"].named(owner)
            if entry is not None:
                self._collective(frame, entry, owner, given)
        return made

    def run(self, function: Value, given: Given | None) -> Result | None:
        """Return what a function of the project does with these arguments; None if that cannot matter."""
        reference = function.reference
        facts = self.project.function(reference)
        if facts is None or reference not in self.interesting:
            return None
        self.entered.add(reference)
        path = reference.partition("::")[0]
        env = self._bound(self.module_frame(path), facts, function, given)
        key = (reference, id(function.scope), tuple(env.items()))
        found = self.results.get(key)
        if found is not None:
            return found
        if reference in self.running or len(self.running) >= DEEPEST:
            return None
        if self.contexts.get(reference, 0) >= MOST_CONTEXTS:
            env = self._bound(self.module_frame(path), facts, function, None)
            key = (reference, id(function.scope), tuple(env.items()))
            if key in self.results:
                return self.results[key]
        self.contexts[reference] = self.contexts.get(reference, 0) + 1
        frame = Frame(path, facts, Result(reference), env, parent=function.scope, owner=facts.owner)
        self.running.append(reference)
        self.finish(frame)
        self.running.pop()
        self.results[key] = frame.result
        return frame.result

    def _bound(self, module: Frame, facts: FunctionFacts, function: Value, given: Given | None) -> dict[str, Value]:
        """Return the parameters of a call; what is not given is its default, or unknown."""
        names = list(facts.positional)
        env: dict[str, Value] = {}
        if function.receiver is not None and names and facts.owner:
            env[names.pop(0)] = function.receiver.passed()
        values = (*function.bound, *(given.values if given else ()))
        env.update(zip(names, (v.passed() for v in values), strict=False))
        known_names = {*names, *facts.keyword_only}
        if given is not None:
            env.update((name, v.passed()) for name, v in given.keywords if name in known_names)
            for name, default in facts.defaults:
                if name not in env and default[0] in ("const", "attr", "name"):
                    env[name] = self.value(module, default)
        for name in (*names, *facts.keyword_only):
            if env.get(name, ANYTHING) == ANYTHING:
                env[name] = self._unknown(module, facts, name)
        return env

    def _unknown(self, module: Frame, facts: FunctionFacts, name: str) -> Value:
        query = self.apis.ranks["name"].named(name)
        if query is not None:
            return self.answer(module, query)
        for noted, annotation in facts.annotations:
            if noted == name and annotation[0] in ("name", "attr"):
                kind = self.value(module, annotation).reference
                if kind and kind[:1] != "@" and "." in kind:
                    return Value(instance=kind)
        if facts.name in HOOKS and name in HOOK_PARAMETERS:
            return Value(instance=HOOK_PARAMETERS[name])
        return Value(instance=RECEIVERS[name]) if name in RECEIVERS else ANYTHING

    # statements

    def block(self, frame: Frame, statements: tuple[Node, ...]) -> bool:
        """Run statements; return whether none of the roles goes on after them."""
        return any(self._STATEMENTS[statement[0]](self, frame, statement) for statement in statements)

    def store(self, frame: Frame, target: Node, value: Value) -> None:
        tag = target[0]
        if tag == "name":
            name = target[1]
            if name in frame.shared:
                self.keep(f"@{frame.path}", name, value)
                self.module_frame(frame.path).env[name] = value
            frame.env[name] = value
        elif tag == "seq":
            parts = value.elements if value.elements is not None and len(value.elements) == len(target[1]) else None
            for at, part in enumerate(target[1]):
                self.store(frame, part, parts[at] if parts else Value(value.taint))
        elif tag == "attr":
            base = self.value(frame, target[1])
            guarded = frame.may != EVERY or frame.implicit & RANKS
            plain = not (value.reference or value.instance or value.elements is not None)
            if guarded and plain and "::" in base.instance:
                value = replace(value, taint=value.taint | frame.implicit | STATE | RANK)
            if target[1][0] == "name":
                frame.env[f"{target[1][1]}.{target[2]}"] = value
            if "::" in base.instance:
                self.keep(self.family(base.instance), target[2], value)
            elif value.ranked and value.truth:
                self.keep("*", target[2], value)
        elif tag == "sub":
            self.value(frame, target[1])

    def _expr(self, frame: Frame, node: Node) -> bool:
        self.value(frame, node[2])
        return node[2][0] == "call" and self._leaves(frame, node[2])

    def _leaves(self, frame: Frame, call: Node) -> bool:
        if render(call[1]) not in ("sys.exit", "exit", "quit", "os._exit"):
            return False
        frame.exits += 1
        frame.nodes.append(("exit", "raise"))
        return True

    def _assign(self, frame: Frame, node: Node) -> bool:
        value = self.value(frame, node[3])
        for target in node[2]:
            self.store(frame, target, value)
        return False

    def _return(self, frame: Frame, node: Node) -> bool:
        value = self.value(frame, node[2])
        frame.returned.append((value, frame.may, frame.implicit))
        frame.exits += 1
        failed = isinstance(value.constant, int) and value.constant < 0  # the program ends
        frame.nodes.append(("exit", "raise" if failed else "return"))
        return True

    def _raise(self, frame: Frame, node: Node) -> bool:
        self.value(frame, node[2])
        frame.exits += 1
        frame.nodes.append(("exit", "raise"))
        return True

    def _jump(self, frame: Frame, node: Node) -> bool:
        frame.exits += 1
        frame.nodes.append(("exit", node[0]))
        return True

    def _if(self, frame: Frame, node: Node) -> bool:
        test = self.value(frame, node[2])
        truth = test.true()
        if truth in (TRUE, FALSE):
            return self.block(frame, node[3] if truth == TRUE else node[4])
        return self._branch(frame, test, node)

    def _branch(self, frame: Frame, test: Value, node: Node) -> bool:
        truth, before, may, exits = test.true(), frame.mask, frame.may, frame.exits
        env, nodes, implicit, guard = frame.env, frame.nodes, frame.implicit, frame.guard
        parts = (RANKS | PROCESS) & test.taint if set(truth) & set("DWP") else 0
        ends: list[tuple[bool, int, int, dict[str, Value], Trace]] = []
        for side, statements in ((truth, node[3]), (negate(truth), node[4])):
            weak = "U" if test.ranked and side != truth else ""
            frame.env, frame.nodes, frame.implicit = dict(env), [], implicit | parts
            frame.mask = before & roles_where(side, "TUP".replace(weak, "") if weak else "TUP")
            frame.may = may & roles_where(side, "TUPWD")
            frame.guard = node[5] if test.ranked else guard
            ended = self.block(frame, statements)
            ends.append((ended, frame.mask, frame.may, frame.env, tuple(frame.nodes)))
        (left_then, mask_then, may_then, env_then, then), (left_else, mask_else, may_else, env_else, orelse) = ends
        frame.nodes, frame.implicit, frame.guard = nodes, implicit, guard
        if then or orelse:
            frame.nodes.append(("branch", truth, test.taint, then, orelse, node[5], render(node[2])))
        jumped = frame.exits != exits
        if not jumped:
            frame.mask, frame.may = before, may
        else:
            frame.mask = (0 if left_then else mask_then) | (0 if left_else else mask_else)
            frame.may = (0 if left_then else may_then) | (0 if left_else else may_else)
            frame.implicit |= parts
        if left_then or left_else:
            frame.env = env_else if left_then else env_then
        else:
            frame.env = _merged(truth, env_then, env_else, test.taint | (STATE if test.taint & RANKS else 0))
        return left_then and left_else

    def _for(self, frame: Frame, node: Node) -> bool:
        source = self.value(frame, node[3])
        self.store(frame, node[2], Value(source.taint & (RANKS | PROCESS)))
        counted = node[3][0] == "call" and node[3][1] == ("name", "range")  # epochs: where a run resumed
        self._loop(frame, node[4], UNKNOWN, source.taint & ~PROCESS if counted else source.taint, node[6])
        self.block(frame, node[5])
        return False

    def _while(self, frame: Frame, node: Node) -> bool:
        test = self.value(frame, node[2])
        if test.true() != FALSE:
            self._loop(frame, node[3], test.true(), test.taint, node[5])
        self.block(frame, node[4])
        return False

    def _loop(self, frame: Frame, body: tuple[Node, ...], truth: str, taint: int, span: Any) -> None:
        before, may, nodes, env = frame.mask, frame.may, frame.nodes, frame.env
        frame.nodes, frame.env = [], dict(env)
        frame.loops += 1
        self.block(frame, body)
        frame.loops -= 1
        inside = tuple(frame.nodes)
        frame.nodes, frame.mask, frame.may = nodes, before, may
        frame.env = _merged(UNKNOWN, frame.env, env, 0)
        if any(_meets(n) or n[0] == "exit" or n[0] == "branch" for n in inside):
            frame.nodes.append(("loop", truth, taint, inside, span))

    def _with(self, frame: Frame, node: Node) -> bool:
        turns = frame.turns
        around: list[Called] = []
        leaving: list[tuple[Value, Any]] = []
        for expression, target, span in node[2]:
            calls, nodes = len(frame.result.calls), len(frame.nodes)
            value = self.value(frame, expression)
            new = frame.result.calls[calls:]
            if new and new[-1].result.yields and expression[0] == "call":
                around.append(new[-1])
                if new[-1].result.meets:
                    frame.turns += 1
                    del frame.nodes[nodes:]
            elif "::" in value.instance:
                value = self._enter(frame, value, span)
                leaving.append((value, span))
            if value.flags & {"lock", "turn"}:
                frame.turns += 1
            if target is not None:
                self.store(frame, target, value)
        outer = frame.nodes
        frame.nodes = []
        ended = self.block(frame, node[3])
        inside = tuple(frame.nodes)
        for called in reversed(around):
            inside = (("around", called, inside),) if called.result.meets else inside
        frame.nodes = [*outer, *inside]
        for value, span in reversed(leaving):
            self._special(frame, value, "__exit__", span)
        frame.turns = turns
        return ended

    def _enter(self, frame: Frame, value: Value, span: Any) -> Value:
        entered = self._special(frame, value, "__enter__", span)
        return value if entered is None or not (entered.instance or entered.reference) else entered

    def _special(self, frame: Frame, value: Value, name: str, span: Any) -> Value | None:
        method = self.method(value.instance, name)
        return self.invoke(frame, Value(reference=method, receiver=value), span) if method is not None else None

    def _try(self, frame: Frame, node: Node) -> bool:
        before, may, nodes = frame.mask, frame.may, frame.nodes
        frame.nodes = []
        forgiving = any(render(kind).rpartition(".")[2] in _FORGIVEN for kind, _, _, _ in node[3])
        frame.forgiving += forgiving
        left = self.block(frame, node[2])
        frame.forgiving -= forgiving
        if not left:
            left = self.block(frame, node[4])
        body, frame.nodes = tuple(frame.nodes), nodes
        mask_after, may_after = (0, 0) if left else (frame.mask, frame.may)
        handlers = []
        for _, name, statements, _ in node[3]:
            frame.mask, frame.may, frame.nodes = before, may, []
            if name:
                frame.env[name] = ANYTHING
            gone = self.block(frame, statements)
            handlers.append(tuple(frame.nodes))
            mask_after |= 0 if gone else frame.mask
            may_after |= 0 if gone else frame.may
            left = left and gone
        frame.nodes = nodes
        if body or any(handlers):
            frame.nodes.append(("try", body, tuple(handlers)))
        frame.mask, frame.may = (before, may) if left else (mask_after, may_after)
        ended = self.block(frame, node[5])
        frame.mask, frame.may = mask_after, may_after
        return left or ended

    def _match(self, frame: Frame, node: Node) -> bool:
        self.value(frame, node[2])
        for guard, body in node[3]:
            self.value(frame, guard)
            self._branch(frame, ANYTHING, ("if", node[1], node[2], body, (), (node[1], 0, node[1], 0)))
        return False

    def _def(self, frame: Frame, node: Node) -> bool:
        reference = f"{frame.path}::{node[3]}"
        top = frame.facts.name == "" and frame.result.reference.endswith("::")
        if not top:
            self.scopes.setdefault(reference, (frame, frame.mask, frame.may))
        frame.env[node[2]] = self.function_value(reference, None if top else frame)
        return False

    def _class(self, frame: Frame, node: Node) -> bool:
        reference = f"{frame.path}::{node[3]}"
        frame.env[node[2]] = Value(reference=reference)
        inner = Frame(frame.path, frame.facts, frame.result, {}, parent=frame, mask=frame.mask, may=frame.may)
        self.block(inner, self.class_body(reference))
        family = self.family(reference)
        for name, value in inner.env.items():
            self.keep(family, name, value)
        return False

    def _import(self, frame: Frame, node: Node) -> bool:
        for name, dotted in node[2]:
            if not name == "*":
                frame.env[name] = self.imported(dotted, frame.path)
                continue
            found = self.project.split(dotted.removesuffix("*").rstrip("."), frame.path)
            if found is not None and not found[1]:
                frame.env.update(self.module_frame(found[0]).env)
        return False

    def _global(self, frame: Frame, node: Node) -> bool:
        frame.shared.update(node[2])
        return False

    _STATEMENTS: dict[str, Callable[[Any, Frame, Node], bool]] = {
        "expr": _expr,
        "assign": _assign,
        "return": _return,
        "raise": _raise,
        "break": _jump,
        "continue": _jump,
        "if": _if,
        "for": _for,
        "while": _while,
        "with": _with,
        "try": _try,
        "match": _match,
        "def": _def,
        "class": _class,
        "import": _import,
        "global": _global,
    }


def _meets(node: tuple[Any, ...]) -> bool:
    tag = node[0]
    if tag in ("meet", "call", "around"):
        return True
    if tag == "branch":
        return any(map(_meets, (*node[3], *node[4])))
    if tag == "loop":
        return any(map(_meets, node[3]))
    if tag == "try":
        return any(map(_meets, (*node[1], *(n for handler in node[2] for n in handler))))
    return False


def _merged(truth: str, one: dict[str, Value], other: dict[str, Value], taint: int) -> dict[str, Value]:
    if one == other:
        return one
    merged = {}
    for name in {**one, **other}:
        a, b = one.get(name), other.get(name)
        if a is None or b is None:
            only = a if a is not None else b
            merged[name] = only if only is not None else ANYTHING
        else:
            merged[name] = a if a is b else chosen(truth, a, b, taint)
    return merged


def _returned(frame: Frame) -> Value:
    """Return what the function returns: for each role what it may return there."""
    outcomes = list(frame.returned)
    if not outcomes:
        return NONE
    value, roles, implicit = outcomes[0]
    reached = roles
    for other, may, more in outcomes[1:]:
        implicit |= more
        truth = "".join("T" if not may >> at & 1 else "F" if not reached >> at & 1 else "U" for at in range(4))
        if truth == TRUE and may == 0:
            continue
        ranked = "U" in truth and implicit & RANKS
        own = "U" in truth and implicit & PROCESS
        letter = "D" if ranked else "P" if own else "U"
        value = chosen(truth.replace("U", letter), value, other, implicit or (RANKS if set(truth) != {"U"} else 0))
        reached |= may
    return value
