"""Statements: the program run for four processes at once, without running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from allranks.check.interpret.acting import forgives
from allranks.check.interpret.asked import asks_for_others
from allranks.check.interpret.collected import through
from allranks.check.interpret.ending import Side, going_on, how_it_ends, stayed
from allranks.check.interpret.few import leave_world
from allranks.check.interpret.functions import Runner
from allranks.check.interpret.making import members
from allranks.check.interpret.naming import from_batch, is_sample
from allranks.check.interpret.rounds import Rounds, comes_late, count, how_often, set_apart
from allranks.check.interpret.sides import merged
from allranks.check.interpret.spread import enter, unpacked
from allranks.check.interpret.started import joins_as
from allranks.check.interpret.state import Called, Frame, in_turns, meets, meets_last, turn
from allranks.check.interpret.taken import taken_apart
from allranks.check.interpret.truth import FALSE, TRUE, UNKNOWN, certain, decides, negate, roles_where
from allranks.check.interpret.values import (
    ANYTHING,
    ASKED,
    MANY,
    OF_ONE,
    PROCESS,
    RANKS,
    STATE,
    Value,
    join,
    known,
    still_open,
)
from allranks.check.interpret.whole import where_whole
from allranks.check.summaries.render import condition, render
from allranks.check.summaries.summary import Node
from allranks.check.tables.evidence import WAIT
from allranks.check.tables.items import counts, may_hold_samples, yields_samples
from allranks.check.tables.passing import GRAPHLESS


class Interpreter(Runner):
    """Runs statements."""

    rounds: ClassVar[Rounds] = Rounds()

    def block(self, frame: Frame, statements: tuple[Node, ...]) -> bool:
        """Run statements; return whether none of the roles goes on after them."""
        for statement in statements:
            frame.line = statement[1]
            if self._STATEMENTS[statement[0]](self, frame, statement):
                return True
        return False

    def store(self, frame: Frame, target: Node, value: Value) -> None:
        tag = target[0]
        if tag == "name":
            name = target[1]
            if name in frame.shared:
                self.keep(f"@{frame.path}", name, value)
                known_so_far = self.module_frame(frame.path).env
                known_so_far[name] = join(known_so_far.get(name, value), value) if frame.arms else value
            frame.env[name] = value
        elif tag == "seq":
            for part, given in zip(target[1], taken_apart(value, target[1]), strict=True):
                self.store(frame, part, given)
        elif tag == "star":
            self.store(frame, target[1], value)
        elif tag == "attr":
            self.put(frame, target, self.value(frame, target[1]), value)
        elif tag == "sub":
            base, key = self.value(frame, target[1]), self.value(frame, target[2]).constant
            enter(frame, target[1], base, key, value)
            if (filled := still_open(base)) is not base and target[1][0] in ("name", "attr"):
                self.store(frame, target[1], filled)
            if isinstance(key, str) and value.ranked and value.truth.strip("D"):  # who it is, not what is his alone
                self.keep("*", key, value)

    def _expr(self, frame: Frame, node: Node) -> bool:
        self.value(frame, node[2])
        leave_world(frame, node[2])
        joins_as(frame, node[2])
        if how := how_it_ends(node[2], self.project.summaries[frame.path]):
            frame.exits += 1
            frame.nodes.append(("exit", how))
        return bool(how) or frame.nodes[-1:] == [("exit", "end")]

    def _assert(self, frame: Frame, node: Node) -> bool:
        """Who goes on has what is asserted: nobody else does, and what must be false is."""
        truth = self.value(frame, node[2]).true()
        frame.mask &= roles_where(truth, "TUPWD")
        frame.may &= roles_where(truth, "TUPWD")
        for part in node[2][1] if node[2][0] == "and" else (node[2],):
            denied: Node = part[1] if part[0] == "not" else part
            if part[0] == "not" and (denied[0] == "name" or (denied[0] == "attr" and denied[1][0] == "name")):
                frame.env[render(denied)] = known(False)
        return False

    def _assign(self, frame: Frame, node: Node) -> bool:
        value = from_batch(frame, node, self.names(frame, node, self.value(frame, node[3])))
        leave_world(frame, node)
        for target in node[2]:
            self.store(frame, target, self.by_name(target, value) if node[3][0] in ("call", "comp") else value)
            if target[0] == "name":
                frame.samples |= {target[1]} if node[3][0] == "call" and is_sample(frame, node[3]) else set()
                stored = frame.result.stored
                stored[target[1]] = node[3] if stored.get(target[1], node[3]) is node[3] else None
        return False

    def _return(self, frame: Frame, node: Node) -> bool:
        value = self.value(frame, node[2])
        frame.returned.append((value, frame.may, frame.implicit))
        frame.result.gives = node[2]
        frame.exits += 1
        frame.nodes.append(("exit", "return"))
        return True

    def _raise(self, frame: Frame, node: Node) -> bool:
        self.value(frame, node[2])
        frame.exits += 1
        frame.nodes.append(("exit", how_it_ends(node[2], self.project.summaries[frame.path]) or "raise"))
        return True

    def _jump(self, frame: Frame, node: Node) -> bool:
        frame.exits += 1
        frame.left.append(frame.env)
        frame.nodes.append(("exit", node[0]))
        return True

    def _if(self, frame: Frame, node: Node) -> bool:
        test = self.value(frame, node[2])
        many = asks_for_others(node, lambda guard: self.value(frame, guard).says_who) if not test.taint else None
        test = Value(constant=many, flags=MANY) if many is not None and test.true() == UNKNOWN else test
        truth = test.true()
        if truth in (TRUE, FALSE):
            frame.asked |= test.taint & ASKED
            if "is_initialized" in render(node[2]):
                self.before(frame, node[4] if truth == TRUE else node[3])
            return self.where(frame, test, lambda: self.block(frame, node[3] if truth == TRUE else node[4]))
        return self._branch(frame, test, node)

    def _branch(self, frame: Frame, test: Value, node: Node) -> bool:
        truth, before, may, exits = test.true(), frame.mask, frame.may, frame.exits
        env, nodes, implicit, guard, arms = frame.env, frame.nodes, frame.implicit, frame.guard, frame.arms
        parts = ((RANKS | OF_ONE if set(truth) & set("DWP") else PROCESS) | ASKED) & test.taint
        whole, unsharded = frame.whole, where_whole(node)
        ends: list[Side] = []
        for side, statements in ((truth, node[3]), (negate(truth), node[4])):
            frame.env, frame.nodes, frame.implicit = dict(env), [], implicit | parts
            frame.mask = before & roles_where(side, "TUP" if side == truth else certain(truth, ranked=test.ranked))
            frame.may = may & roles_where(side, "TUPWD")
            frame.guard = node[5] if test.ranked else guard
            frame.arms = (*arms, (node[5], statements is node[3]))
            frame.whole = whole + (statements is unsharded)
            ended = self.block(frame, statements)
            ends.append((ended, frame.mask, frame.may, frame.env, tuple(frame.nodes)))
        (left_then, _, _, env_then, then), (left_else, _, _, env_else, orelse) = ends
        frame.nodes, frame.implicit, frame.guard = nodes, implicit, guard
        frame.arms = (*arms, (node[5], left_else)) if left_then != left_else else arms
        gone = node[3] if left_then else node[4] if left_else else None
        frame.whole = whole + (unsharded is not None and gone is not None and gone is not unsharded)
        if then or orelse:
            open_still = test.text if node[2][0] in ("and", "or", "not") and test.text else condition(node[2])
            frame.nodes.append(("branch", truth, test.taint, then, orelse, node[5], render(node[2]), open_still))
        jumped = frame.exits != exits
        frame.turns = max(frame.turns + (0 if jumped else turn(truth, then, orelse)), 0)
        if not jumped:
            frame.mask, frame.may = before, may
        else:
            frame.mask, frame.may = going_on(truth, *ends)
            frame.implicit |= parts
            frame.guard = node[5] if test.ranked else guard  # who left early is not here any more
            frame.mask |= before & stayed(truth, then if left_then else orelse if left_else else (), flipped=left_then)
        if left_then or left_else:
            frame.env = env_else if left_then else env_then
        else:
            frame.env = merged(truth, env_then, env_else, test.taint | (STATE if test.taint & RANKS else 0))
            frame.apart.update(set_apart(frame, env) if test.ranked else ())
        return left_then and left_else

    def _for(self, frame: Frame, node: Node) -> bool:
        source = self.value(frame, node[3])
        known_names, variables = self.apis.ranks["environment"].exact, source.elements or ()
        if variables and all(isinstance(v.constant, str) and v.constant in known_names for v in variables):
            self.store(frame, node[2], variables[0])  # each launcher has one of its own for the same thing
        else:
            self.store(frame, node[2], through(frame, node[3], source) or unpacked(source, RANKS | PROCESS))
            count(frame, node[2], node[3], self.apis.ranks["name"].named)
        if not variables or not all(isinstance(v.constant, str) for v in variables):  # which are written there
            self._name_samples(frame, node[2], render(node[3]))
        often, taint = how_often(frame, node[3], source)
        before, may, truth = frame.mask, frame.may, source.truth
        if truth and decides(truth):  # on the other ranks there is nothing in it
            frame.mask, frame.may = before & roles_where(truth, "TUP"), may & roles_where(truth, "TUPWD")
        ended = self._loop(frame, node[4], node[5], (often, taint, node[6]))
        frame.mask, frame.may = before, may
        return ended

    def _name_samples(self, frame: Frame, target: Node, source: str) -> None:
        """Note which variables of a loop may be samples, and which what they are called."""
        if not may_hold_samples(source) or source.startswith("range("):
            return
        names = [target] if target[0] == "name" else target[1] if target[0] == "seq" else []
        for name in names:
            if name[0] == "seq":
                self._name_samples(frame, name, source)
            elif name[0] == "name":
                frame.samples.add(name[1])
                if yields_samples(source) and not counts(name[1], source):
                    self.store(frame, name, Value(flags=frozenset({"own"})))

    def _while(self, frame: Frame, node: Node) -> bool:
        test = self.value(frame, node[2])
        truth = test.true()
        if test.ranked and "F" in truth and truth != FALSE:  # some never come to it
            goes_round = ("often", node[1], node[3], (TRUE if set(truth) == {"T", "F"} else UNKNOWN, 0, node[5]))
            self._branch(frame, test, ("if", node[1], node[2], (goes_round,), (), node[5]))
            return self.block(frame, node[4])
        often = truth.replace("D", "U")  # what it changes itself
        return self._loop(frame, node[3] if truth != FALSE else (), node[4], (often, test.taint, node[5]))

    def _often(self, frame: Frame, node: Node) -> bool:
        return self._loop(frame, node[2], (), node[3])

    def _loop(self, frame: Frame, body: tuple[Node, ...], orelse: tuple[Node, ...], head: tuple[str, int, Any]) -> bool:
        """``head``: whether it goes round, on what that depends, and where that stands."""
        before, may, nodes, env = frame.mask, frame.may, frame.nodes, self.rounds.later(frame.env, body)
        so_far, left = frame.length(), frame.left
        frame.nodes, frame.env, frame.left = [], dict(env), []
        frame.loops += 1
        self.block(frame, body)
        ended = frame.env
        late = {name: join(value, ended[name]) for name, value in env.items() if comes_late(value, ended[name])}
        if late:  # what the later rounds do is what counts
            frame.cut(so_far)
            env = {**env, **late}
            frame.nodes, frame.env, frame.mask, frame.may, frame.left = [], dict(env), before, may, []
            self.block(frame, body)
        frame.loops -= 1
        for jumped in frame.left:
            frame.env = merged(UNKNOWN, frame.env, jumped, 0)
        frame.left = left
        inside = tuple(frame.nodes)
        frame.nodes, frame.mask, frame.may = nodes, before, may
        frame.env = merged(UNKNOWN, frame.env, env, 0)
        frame.nodes = []
        self.block(frame, orelse)
        ending, frame.nodes = tuple(frame.nodes), nodes
        if ending or any(meets(n) or n[0] == "exit" or n[0] == "branch" for n in inside):
            truth, taint, span = head
            frame.nodes.append(("loop", truth, taint, inside, span, ending))
        return False

    def _with(self, frame: Frame, node: Node) -> bool:
        turns, forgiving, graphless = frame.turns, frame.forgiving, frame.graphless
        around: list[Called] = []
        leaving: list[tuple[Value, Any]] = []
        for expression, target, span in node[2]:
            calls, nodes = len(frame.result.calls), len(frame.nodes)
            value = self.value(frame, expression)
            new = frame.result.calls[calls:]
            if new and new[-1].result.yields and expression[0] == "call":
                around.append(new[-1])
                value = new[-1].result.yielded
                frame.turns += new[-1].result.locks
                if new[-1].result.meets:
                    frame.turns += in_turns(new[-1].result.trace)
                    del frame.nodes[nodes:]
            elif "::" in value.instance:
                leaving.append((value, span))
                value = self._enter(frame, value, span)
            if value.flags & {"lock", "turn"}:
                frame.turns += 1
                frame.result.meetings += [WAIT] if "turn" in value.flags else []  # the others come in when it is out
            frame.graphless += expression[0] == "call" and render(expression[1]) in GRAPHLESS
            if expression[0] == "call" and render(expression[1]) in ("suppress", "contextlib.suppress"):
                frame.forgiving += any(
                    forgives(kind, self.value(frame, kind[1]) if kind[0] == "star" else ANYTHING)
                    for kind in expression[2]
                )
            if target is not None:
                self.store(frame, target, value)
        outer = frame.nodes
        frame.nodes = []
        ended = self.block(frame, node[3])
        inside = tuple(frame.nodes)
        for called in reversed(around):
            frame.result.meetings += [called] if meets_last(called.result.trace) else []
            inside = (("around", called, inside),) if called.result.meets else inside
        frame.nodes = [*outer, *inside]
        for value, span in reversed(leaving):
            self._special(frame, value, "__exit__", span)
        frame.turns, frame.forgiving, frame.graphless = turns, forgiving, graphless
        return ended

    def _enter(self, frame: Frame, value: Value, span: Any) -> Value:
        entered = self._special(frame, value, "__enter__", span)
        told = entered is not None and (entered.instance or entered.reference or (entered.ranked and entered.truth))
        return entered if entered is not None and told else value

    def _special(self, frame: Frame, value: Value, name: str, span: Any) -> Value | None:
        method = self.method(value.instance, name)
        return self.invoke(frame, Value(reference=method, receiver=value), span) if method is not None else None

    def _try(self, frame: Frame, node: Node) -> bool:
        before, may, nodes, env = frame.mask, frame.may, frame.nodes, frame.env
        frame.nodes, frame.env = [], dict(env)
        forgiving = any(forgives(kind, ANYTHING) for kind, _, _, _ in node[3])
        frame.forgiving += forgiving
        left = self.block(frame, node[2])
        frame.forgiving -= forgiving
        body, frame.nodes = tuple(frame.nodes), []
        if not left:
            left = self.block(frame, node[4])
        orelse, frame.nodes = tuple(frame.nodes), nodes
        mask_after, may_after = (0, 0) if left else (frame.mask, frame.may)
        raised = merged(UNKNOWN, frame.env, env, 0)
        ends = [] if left else [frame.env]
        handlers = []
        for _, name, statements, _ in node[3]:
            frame.mask, frame.may, frame.nodes, frame.env = before, may, [], dict(raised)
            if name:
                frame.env[name] = ANYTHING
            frame.forgiving += 1  # who failed takes away what it had begun
            gone = self.block(frame, statements)
            frame.forgiving -= 1
            handlers.append(tuple(frame.nodes))
            mask_after |= 0 if gone else frame.mask
            may_after |= 0 if gone else frame.may
            ends += [] if gone else [frame.env]
            left = left and gone
        frame.nodes, frame.env = nodes, ends.pop(0) if ends else raised
        for other in ends:
            frame.env = merged(UNKNOWN, frame.env, other, 0)
        if body or orelse or any(handlers):
            frame.nodes.append(("try", body, tuple(handlers), orelse))
        frame.mask, frame.may = (before, may) if left else (mask_after, may_after)
        ended = self.block(frame, node[5])
        frame.mask, frame.may = mask_after, may_after
        return left or ended

    def _def(self, frame: Frame, node: Node) -> bool:
        reference, top = f"{frame.path}::{node[3]}", frame.of_module
        if not top:
            self.scopes.setdefault(reference, (frame, frame.mask, frame.may))
        frame.env[node[2]] = self.function_value(reference, None if top else frame)
        return False

    def _class(self, frame: Frame, node: Node) -> bool:
        reference = f"{frame.path}::{node[3]}"
        frame.env[node[2]] = Value(reference=reference)
        if not frame.of_module:
            self.around.setdefault(reference, frame)
        inner = Frame(frame.path, frame.facts, frame.result, {}, parent=frame, mask=frame.mask, may=frame.may)
        self.block(inner, self.project.class_body(reference))
        for name, value in members(self.lineage(reference), inner.env).items():
            if self.says_much(value):
                self.keep(reference, name, still_open(value))
        return False

    def _import(self, frame: Frame, node: Node) -> bool:
        for name, dotted in node[2]:
            if name != "*":
                frame.env[name] = self.imported(dotted, frame.path)
                continue
            found = self.project.split(dotted.removesuffix("*").rstrip("."), frame.path)
            if found is not None and not found[1]:
                frame.env.update(self.module_frame(found[0]).env)
        return False

    def _global(self, frame: Frame, node: Node) -> bool:
        frame.shared.update(node[2])
        return False

    _STATEMENTS: ClassVar[dict[str, Callable[[Any, Frame, Node], bool]]] = {
        "expr": _expr,
        "assert": _assert,
        "assign": _assign,
        "return": _return,
        "raise": _raise,
        "break": _jump,
        "continue": _jump,
        "if": _if,
        "for": _for,
        "while": _while,
        "often": _often,
        "with": _with,
        "try": _try,
        "def": _def,
        "class": _class,
        "import": _import,
        "global": _global,
    }
