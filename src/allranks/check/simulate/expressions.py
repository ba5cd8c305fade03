"""Evaluate expressions. Calls are left to `calls`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from allranks.check.simulate import arithmetic
from allranks.check.simulate.joining import both, either, join_all, select
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame, around, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    DIFFERS,
    EVERY,
    NONE,
    ORDER,
    RANK,
    ByRole,
    Class,
    Const,
    Either,
    Function,
    Items,
    Library,
    Made,
    Object,
    Table,
    Text,
    Truth,
    Unknown,
    Value,
    by_role,
    letters_of,
    lift,
    negate,
    roles_where,
    taint,
    truth,
    unknown,
)
from allranks.check.traces.nodes import Branch, Loop

_LONGEST = 64
_FEW = 12
_MOST_CHOSEN = 32  # so many functions or classes a table may offer


class Expressions:
    """Evaluates the expressions of a frame. What they call is put on the frame's trace."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self._by_type: dict[type[ast.AST], Callable[[Frame, Any], Value]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.BoolOp: self._bool,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compare,
            ast.IfExp: self._if,
            ast.JoinedStr: self._joined,
            ast.FormattedValue: self._formatted,
            ast.Tuple: self._items,
            ast.List: self._items,
            ast.Set: self._items,
            ast.Dict: self._dict,
            ast.Subscript: self._subscript,
            ast.Lambda: self._lambda,
            ast.NamedExpr: self._named,
            ast.Starred: self._starred,
            ast.Await: self._inner,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Slice: self._slice,
        }

    def value(self, frame: Frame, node: ast.expr | None) -> Value:
        """Return what is known of an expression; None is the constant None."""
        if node is None:
            return NONE
        evaluate = self._by_type.get(type(node))
        return evaluate(frame, node) if evaluate is not None else ANYTHING

    def values(self, frame: Frame, nodes: list[ast.expr]) -> list[Value]:
        """Return the values of expressions; a starred one gives its elements, or one unknown value."""
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inside = self.value(frame, node.value)
                found += inside.items if isinstance(inside, Items) else [unknown(inside)]
            else:
                found.append(self.value(frame, node))
        return found

    def under(self, frame: Frame, letters: Truth, test: Value, node: ast.expr, do: Callable[[], Value]) -> Value:
        """Evaluate something where a condition holds: for the roles for which it may, with what is called there on a
        branch of the trace."""
        roles = roles_where(letters, "TUD") & frame.live
        if not roles:
            return ANYTHING
        live, before = frame.live, frame.under
        frame.live, frame.under = roles, before | taint(test)
        value = self.on_branch(frame, Branch(letters, taint(test), place_of(node), "", (), (), test), node, do)
        frame.live, frame.under = live, before
        return value

    def on_branch(self, frame: Frame, branch: Branch, node: ast.AST, do: Callable[[], Value]) -> Value:
        """Evaluate something, with what is called there on this branch of the trace. ``node``: its condition."""
        trace, frame.trace = frame.trace, []
        value = do()
        inside, frame.trace = tuple(frame.trace), trace
        if inside:
            trace.append(replace(branch, text=self.source(node), then=inside))
        return value

    def source(self, node: ast.AST) -> str:
        """Return the source of a node, shortened."""
        written = ast.unparse(node)
        return written if len(written) <= _LONGEST * 2 else f"{written[: _LONGEST * 2]}..."

    def lookup(self, frame: Frame, name: str) -> Value | None:
        """Return a variable: of the function, of those around it, of the module; None if there is none."""
        scope: Frame | None = frame
        while scope is not None:
            if name not in scope.globals and (found := scope.env.get(name)) is not None:
                return found
            scope = scope.parent
        return self.simulator.variable(frame.module, name)

    def _constant(self, _: Frame, node: ast.Constant) -> Value:
        return ANYTHING if node.value is ... else Const(node.value)

    def _name(self, frame: Frame, node: ast.Name) -> Value:
        found = self.lookup(frame, node.id)
        if found is not None:
            return found
        if node.id in self.simulator.builtins:
            return Library(node.id)
        return self.simulator.members.called(node.id) or Unknown(name=node.id)

    def _attribute(self, frame: Frame, node: ast.Attribute) -> Value:
        base = self.value(frame, node.value)
        return self.simulator.members.attribute(frame, base, node.attr, node)

    def _call(self, frame: Frame, node: ast.Call) -> Value:
        return self.simulator.calls.call(frame, node)

    def _inner(self, frame: Frame, node: ast.Await) -> Value:
        return self.value(frame, node.value)

    def _starred(self, frame: Frame, node: ast.Starred) -> Value:
        return unknown(self.value(frame, node.value))

    def _slice(self, frame: Frame, node: ast.Slice) -> Value:
        part = unknown(*(self.value(frame, one) for one in (node.lower, node.upper, node.step) if one is not None))
        return Unknown(part.taint & ~RANK | DATA) if part.taint & RANK else part  # the rank's share of the data

    def _named(self, frame: Frame, node: ast.NamedExpr) -> Value:
        value = self.value(frame, node.value)
        self.simulator.statements.store(frame, node.target, value)
        return value

    def _lambda(self, frame: Frame, node: ast.Lambda) -> Value:
        return Function(node, frame.module, around(frame))

    def _unary(self, frame: Frame, node: ast.UnaryOp) -> Value:
        value = self.value(frame, node.operand)
        if not isinstance(node.op, ast.Not):
            return arithmetic.unary(node.op, value)

        def opposite(one: Value) -> Value:
            letter = truth(one)[0]
            return Const(letter == "F") if letter in "TF" else Unknown(taint(one))

        return lift(opposite, value)

    def _binary(self, frame: Frame, node: ast.BinOp) -> Value:
        return arithmetic.binary(node.op, self.value(frame, node.left), self.value(frame, node.right))

    def _compare(self, frame: Frame, node: ast.Compare) -> Value:
        left = self.value(frame, node.left)
        result: Value | None = None
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(frame, part)
            one = self._in_environment(op, left, right) or arithmetic.compare(op, left, right)
            result = one if result is None else lift(both, result, one)
            left = right
        return result if result is not None else ANYTHING

    def _in_environment(self, op: ast.cmpop, left: Value, right: Value) -> Value | None:
        """Return whether a variable with a rank or a size is set: the launcher sets it."""
        if right not in (Library("os.environ"), Made("os.environ.keys")) or not isinstance(op, ast.In | ast.NotIn):
            return None
        return Const(isinstance(op, ast.In)) if self.simulator.library.environment(left) is not None else None

    def _bool(self, frame: Frame, node: ast.BoolOp) -> Value:
        conjunction = isinstance(node.op, ast.And)
        result = self.value(frame, node.values[0])
        for at, part in enumerate(node.values[1:], 1):
            letters = truth(result) if conjunction else negate(truth(result))
            asked = node.values[0] if at == 1 else ast.BoolOp(node.op, node.values[:at])
            ast.copy_location(asked, node)
            right = self.under(frame, letters, result, asked, lambda part=part: self.value(frame, part))  # type: ignore[misc]
            result = lift(both if conjunction else either, result, right)
        return result

    def _if(self, frame: Frame, node: ast.IfExp) -> Value:
        test = self.value(frame, node.test)
        letters = truth(test)
        then = self.under(frame, letters, test, node.test, lambda: self.value(frame, node.body))
        orelse = self.under(frame, negate(letters), test, node.test, lambda: self.value(frame, node.orelse))
        return select(letters, then, orelse, taint(test))

    def _joined(self, frame: Frame, node: ast.JoinedStr) -> Value:
        return lift(arithmetic.text, *(self.value(frame, part) for part in node.values)) if node.values else Const("")

    def _formatted(self, frame: Frame, node: ast.FormattedValue) -> Value:
        value, form = self.value(frame, node.value), ast.unparse(node.format_spec)[-2:-1] if node.format_spec else ""
        seen = ~DATA if form in ("e", "f", "g") else ~0  # a score in a path makes nobody's own path
        return lift(lambda one: one if isinstance(one, Const | Text | Made) else Text("{}", taint(one) & seen), value)

    def _items(self, frame: Frame, node: ast.Tuple | ast.List | ast.Set) -> Value:
        values = self.values(frame, node.elts)
        if len(values) > _LONGEST:
            return unknown(*values)
        return Items(tuple(values), type(node).__name__.lower())

    def _dict(self, frame: Frame, node: ast.Dict) -> Value:
        found: dict[object, Value] = {}
        opened = False
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.value(frame, part)
            name = self.value(frame, key) if key is not None else None
            if isinstance(name, Const) and len(found) < _LONGEST:
                found[name.value] = value
            elif name is None and isinstance(value, Table):
                found.update(value.items)
                opened |= value.open
            else:
                opened = True
        return Table(tuple(found.items()), opened)

    def _subscript(self, frame: Frame, node: ast.Subscript) -> Value:
        base, key = self.value(frame, node.value), self.value(frame, node.slice)
        if isinstance(base, Library):
            if base.name == "os.environ":
                found = self.simulator.library.environment(key)
                if found is not None:  # without it a program fails: a launcher sets it
                    self.simulator.recording.sign(frame, "rank", "os.environ", node)
                return found or ANYTHING
            return base  # Generic[int]
        return lift(lambda one, at: self.item(one, at), base, key)

    def item(self, base: Value, key: Value) -> Value:
        """Return ``base[key]``."""
        if isinstance(base, Either):
            return join_all(self.item(option, key) for option in base.options) or ANYTHING
        if isinstance(base, Items) and isinstance(key, Const) and isinstance(key.value, int):
            at = key.value
            return base.items[at] if -len(base.items) <= at < len(base.items) else ANYTHING
        if isinstance(base, Items) and base.items and isinstance(key, Unknown):
            found = join_all(base.items)
            return found if found is not None and not taint(key) else unknown(found, key)
        if isinstance(base, Table) and isinstance(key, Const):
            found_item = base.get(key.value)
            if found_item is None and base.open and isinstance(key.value, str):
                return self.simulator.members.called(key.value) or ANYTHING
            return found_item if found_item is not None else ANYTHING
        if isinstance(base, Made) and base.cls in ("generator", "<dict>") and base.about is not None:
            return base.about
        if isinstance(base, Unknown | Made) and isinstance(key, Const) and isinstance(key.value, str):
            return self.simulator.members.called(key.value) or Unknown(taint(base), name=key.value)
        if isinstance(base, Table) and base.items:
            every = tuple(dict.fromkeys(value for _, value in base.items))
            known = all(isinstance(value, Function | Class | Object | Items) for value in every)
            chosen = known and len(every) <= _MOST_CHOSEN
            return Either(every) if chosen and not taint(key) & DIFFERS else unknown(*every, key)
        return unknown(base, key)

    def element(self, iterated: Value) -> Value:
        """Return what a loop over a value gives to its variable."""
        if isinstance(iterated, ByRole):
            return lift(self.element, iterated)
        if isinstance(iterated, Either):
            return unknown(iterated) if taint(iterated) else self.element(iterated.options[0])
        if isinstance(iterated, Items):
            found = join_all(iterated.items)
            if found is None:
                return ANYTHING
            return Unknown(taint(found) | ORDER) if iterated.kind == "set" and isinstance(found, Unknown) else found
        if isinstance(iterated, Made):
            if iterated.cls == "enumerate" and iterated.about is not None:
                return Items((ANYTHING, self.element(iterated.about)))
            if iterated.cls == "zip" and isinstance(iterated.about, Items):
                return Items(tuple(self.element(one) for one in iterated.about.items))
            if iterated.cls == "range":
                return Unknown(iterated.taint) if iterated.taint else ANYTHING
            if iterated.cls in ("generator", "<values>") and iterated.about is not None:
                return iterated.about
            if iterated.cls == "accelerate.PreparedModel":  # perhaps a loader
                return Unknown(DATA)
            if self.simulator.library.loads(iterated.cls):
                return Unknown(kind="alike") if _gives_all(iterated) else Unknown(DATA)
        if isinstance(iterated, Unknown) and self.simulator.knowledge.named("rows", iterated.name):
            return Unknown(iterated.taint | DATA)
        if isinstance(iterated, Unknown):
            return Unknown(iterated.taint) if iterated.taint else ANYTHING
        return unknown(iterated)

    def _comprehension(self, frame: Frame, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        few = self._each_of_few(frame, node)
        if few is not None:
            return few
        env, trace, live = frame.env, frame.trace, frame.live
        frame.env, frame.trace = dict(env), []
        found, roles = 0, EVERY
        counted: Value = ANYTHING
        for generator in node.generators:
            counted = self.value(frame, generator.iter)
            found |= taint(counted)
            self.simulator.statements.store(frame, generator.target, self.element(counted))
            for condition in generator.ifs:
                test = self.value(frame, condition)
                found |= taint(test) & DIFFERS
                roles &= roles_where(truth(test), "TUD")
            frame.live = live & roles
        element: Value
        if isinstance(node, ast.DictComp):
            self.value(frame, node.key)
            element = self.value(frame, node.value)
        else:
            element = self.value(frame, node.elt)
        inside, frame.env, frame.trace, frame.live = tuple(frame.trace), env, trace, live
        if inside:
            often = letters_of(roles, "U")
            text = self.source(node.generators[0].iter)
            frame.trace.append(Loop(often, found, place_of(node), text, inside, counted=text.startswith("range(")))
        made: Value = Unknown(found | taint(element))
        if isinstance(node, ast.GeneratorExp | ast.ListComp) and not isinstance(element, Unknown | Const | Text):
            made = Made("generator", found, element)
        elif isinstance(node, ast.DictComp) and isinstance(element, Function | Class | Object | Made):
            made = Made("<dict>", found, element)
        return by_role(made if roles >> role & 1 else Items(()) for role in range(4))

    def _each_of_few(
        self, frame: Frame, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Value | None:
        """Return the elements of a comprehension over a few known elements; None for all others."""
        first, *others = node.generators
        element = None if isinstance(node, ast.DictComp) else node.elt
        plain = isinstance(first.iter, ast.Tuple | ast.List | ast.Name | ast.Call)
        if others or first.ifs or element is None or not plain:
            return None
        rows = _rows(self.value(frame, first.iter))
        if rows is None or len(rows) > _FEW:
            return None
        env, found = frame.env, []
        for row in rows:
            frame.env = dict(env)
            self.simulator.statements.store(frame, first.target, row)
            found.append(self.value(frame, element))
        frame.env = env
        return Items(tuple(found), "list")

    def _yield(self, frame: Frame, node: ast.Yield | ast.YieldFrom) -> Value:
        value = self.value(frame, node.value)
        frame.yields = True
        given = self.element(value) if isinstance(node, ast.YieldFrom) else value
        frame.yielded.append((frame.live, given, frame.under))
        return ANYTHING


def _gives_all(loader: Made) -> bool:
    """Whether a loader gives all ranks the same batches: nobody deals its data out, or shuffles it."""
    given = dict(loader.arguments)
    return not given.keys() & {"sampler", "batch_sampler", "shuffle", "**"} and not loader.taint


def _rows(iterated: Value) -> tuple[Value, ...] | None:
    """Return the elements of a sequence that is known; of several sequences in step, tuples. None for all others."""
    if isinstance(iterated, Items) and iterated.kind != "set":
        return iterated.items
    if isinstance(iterated, Made) and iterated.cls == "zip" and isinstance(iterated.about, Items):
        parts = [_rows(part) for part in iterated.about.items]
        known = [part for part in parts if part is not None]
        return tuple(Items(row) for row in zip(*known, strict=False)) if len(known) == len(parts) else None
    return None
