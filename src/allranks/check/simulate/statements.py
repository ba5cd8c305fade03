"""Run statements: names, definitions, imports, and what leaves a function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from allranks.check.simulate.decorators import decorate
from allranks.check.simulate.flow import Flow
from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Gap, Simulation
from allranks.check.simulate.state import Frame, around, holder, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    RANK,
    Class,
    Const,
    Either,
    Function,
    Items,
    Library,
    Made,
    ModuleObject,
    Object,
    Table,
    Text,
    Unknown,
    Value,
    roles_where,
    taint,
    truth,
    unknown,
)
from allranks.check.traces.nodes import Enter, Exit

_ENDS = frozenset(["sys.exit", "exit", "quit", "os._exit", "SystemExit"])


class Statements:
    """Runs the statements of a frame."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self._by_type: dict[type[ast.AST], Callable[[Frame, Any], None]] = {
            ast.Expr: self._expression,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.Return: self._return,
            ast.Raise: self._raise,
            ast.Assert: self._assert,
            ast.Break: self._jump,
            ast.Continue: self._jump,
            ast.FunctionDef: self._define,
            ast.AsyncFunctionDef: self._define,
            ast.ClassDef: self._class,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.Global: self._global,
            ast.Nonlocal: self._nonlocal,
            **Flow(simulator).by_type,
        }

    def block(self, frame: Frame, statements: Sequence[ast.stmt]) -> None:
        """Run statements while a role is live."""
        for statement in statements:
            if not frame.live:
                return
            self.simulator.step()
            run = self._by_type.get(type(statement))
            if run is not None:
                self._run(run, frame, statement)

    def _run(self, run: Callable[[Frame, Any], None], frame: Frame, statement: ast.stmt) -> None:
        """Run a statement. What fails in it, by a fault of ours or for too many calls in each other, is noted, and the
        next one is run."""
        trace, live, under = frame.trace, frame.live, frame.under
        try:
            run(frame, statement)
        except Exception as error:
            frame.trace, frame.live, frame.under = trace, live, under
            fault = None if isinstance(error, RecursionError) else error
            why = "its expressions, or the calls in it, are nested too deeply"
            self.simulator.gaps.append(Gap(frame.path, place_of(statement), frame.symbol, why, fault))

    # Names

    def store(self, frame: Frame, target: ast.expr, value: Value) -> None:
        """Bind a target: a name, an attribute, an item, or several."""
        if isinstance(target, ast.Name | ast.Attribute) and isinstance(value, Unknown) and not value.name:
            name = target.id if isinstance(target, ast.Name) else target.attr
            agreed = value.taint & DATA and self.simulator.knowledge.named("agreed", name)
            found = value.taint & ~DATA if agreed else value.taint
            value = Unknown(found, value.true, name, value.kind)
        if isinstance(target, ast.Name):
            self.bind(frame, target.id, value)
        elif isinstance(target, ast.Attribute):
            base = self.simulator.expressions.value(frame, target.value)
            self.simulator.library.stored(frame, base, target, value)
            for one in base.options if isinstance(base, Either) else (base,):
                if isinstance(one, Object | Class):
                    self.simulator.heap.set(one, target.attr, value, frame.live)
                    if isinstance(one, Class):
                        one.members.setdefault(target.attr, value)
                elif (settings := self.simulator.members.settings(one, target)) is not None:
                    self._store_setting(frame, settings, target.attr, value)
                elif isinstance(one, Unknown) and one.name and taint(value) & RANK:
                    self.simulator.heap.set(Library(f"<{one.name}>"), target.attr, value, frame.live)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(frame, target.elts, value)
        elif isinstance(target, ast.Subscript):
            self._store_item(frame, target, value)
        elif isinstance(target, ast.Starred):
            self.store(frame, target.value, unknown(value))

    def _store_setting(self, frame: Frame, settings: Library, name: str, value: Value) -> None:
        """Bind an attribute of the settings, unless its name says more of it than the value."""
        known = bool(taint(value)) or not isinstance(value, Unknown)
        if known and (taint(value) & RANK or self.simulator.members.called(name) is None):
            self.simulator.heap.set(settings, name, value, frame.live)

    def change(self, frame: Frame, target: ast.expr, value: Value) -> None:
        """Give a list or a table its new content: in the scope that has the variable, not in this one."""
        if not isinstance(target, ast.Name):
            self.store(frame, target, value)
            return
        scope = holder(frame, target.id)
        if scope is not None:
            scope.env[target.id] = value
        else:
            self.simulator.heap.set(frame.module, target.id, value, frame.live)

    def bind(self, frame: Frame, name: str, value: Value) -> None:
        """Bind a name in the scope that it belongs to, for the roles that are here."""
        if name in frame.nonlocals:
            (holder(frame.parent, name) or frame).env[name] = value
        elif name in frame.globals or (frame.function is None and frame.parent is None):
            self.simulator.heap.set(frame.module, name, value)
        else:
            frame.env[name] = value

    def _unpack(self, frame: Frame, targets: list[ast.expr], value: Value) -> None:
        items = value.items if isinstance(value, Items) else ()
        star = next((at for at, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
        starred = star is not None
        for at, target in enumerate(targets):
            behind = len(items) - len(targets) + at
            if len(items) == len(targets) and not starred:
                self.store(frame, target, items[at])
            elif star is not None and len(items) >= len(targets) - 1 and at != star:
                self.store(frame, target, items[at if at < star else behind])
            else:
                part = self.simulator.expressions.item(value, Const(at)) if not starred else unknown(value)
                self.store(frame, target, Unknown(taint(part)) if isinstance(part, Unknown) else part)

    def _store_item(self, frame: Frame, target: ast.Subscript, value: Value) -> None:
        base = self.simulator.expressions.value(frame, target.value)
        key = self.simulator.expressions.value(frame, target.slice)
        if base == Library("os.environ"):
            self.simulator.recording.note(frame, "os.environ", "environment", Given(target, (key, value)))
            return
        plain = isinstance(base, Unknown) and not (base.taint or base.true) and isinstance(target.value, ast.Name)
        if isinstance(base, Table) and isinstance(key, Const):
            items = {**dict(base.items), key.value: value}
            self.change(frame, target.value, Table(tuple(items.items()), base.open))
        elif plain and isinstance(key, Const) and isinstance(key.value, str):
            self.change(frame, target.value, Table(((key.value, value),), open=True))
        elif isinstance(target.value, ast.Name | ast.Attribute) and isinstance(base, Unknown | Items | Table):
            found = taint(base) | taint(value) | taint(key)
            agreed = isinstance(base, Unknown) and base.kind == "agreed"  # a rank puts its part where it is already
            if found != taint(base) and not agreed:
                self.change(frame, target.value, Unknown(found))

    # Simple statements

    def _expression(self, frame: Frame, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.simulator.expressions.value(frame, node.value)

    def _assign(self, frame: Frame, node: ast.Assign) -> None:
        value = self.simulator.expressions.value(frame, node.value)
        for target in node.targets:
            self.store(frame, target, value)
            self._take_at_its_word(frame, target)

    def _take_at_its_word(self, frame: Frame, target: ast.expr) -> None:
        """Give a variable that is called as ranks are, and of which nothing is known, the value that its name says."""
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._take_at_its_word(frame, one)
        if isinstance(target, ast.Name):
            value = self.simulator.expressions.value(frame, target)
            if isinstance(value, Unknown) and not (value.taint or value.true or value.kind):
                said = self.simulator.members.called(target.id)
                if said is not None:
                    self.bind(frame, target.id, said)

    def _annotated(self, frame: Frame, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(frame, node.target, self.simulator.expressions.value(frame, node.value))

    def _augmented(self, frame: Frame, node: ast.AugAssign) -> None:
        left = ast.BinOp(node.target, node.op, node.value)
        ast.copy_location(left, node)
        self.store(frame, node.target, self.simulator.expressions.value(frame, left))

    def _return(self, frame: Frame, node: ast.Return) -> None:
        value = self.simulator.expressions.value(frame, node.value)
        frame.returned.append((frame.live, value, frame.under))
        self._leave(frame, "return", node)

    def _raise(self, frame: Frame, node: ast.Raise) -> None:
        value = self.simulator.expressions.value(frame, node.exc)
        name = value.cls if isinstance(value, Made) else value.name if isinstance(value, Library) else ""
        if name in _ENDS:
            self.end(frame, node, value.about if isinstance(value, Made) else None)
        else:
            self._leave(frame, "raise", node)

    def _leave(self, frame: Frame, kind: str, node: ast.AST) -> None:
        frame.trace.append(Exit(kind, place_of(node)))
        frame.live = 0

    def end(self, frame: Frame, node: ast.AST, code: Value | None) -> None:
        """Note that the process ends here, with an exit code: one that is not 0 ends the job, as an exception does."""
        failed = isinstance(code, Text) or (isinstance(code, Const) and code.value not in (None, 0))
        self._leave(frame, "raise" if failed else "end", node)

    def _jump(self, frame: Frame, node: ast.Break | ast.Continue) -> None:
        breaks = isinstance(node, ast.Break)
        if frame.jumps:
            jumps = frame.jumps[-1]
            jumps.variables.append(dict(frame.env))
            jumps.broken |= frame.live if breaks else 0
            jumps.continued |= 0 if breaks else frame.live
        self._leave(frame, "break" if breaks else "continue", node)

    def _assert(self, frame: Frame, node: ast.Assert) -> None:
        holds = roles_where(truth(self.simulator.expressions.value(frame, node.test)), "TUD") & frame.live
        if not holds:
            self._leave(frame, "raise", node)
        frame.live = holds

    def _global(self, frame: Frame, node: ast.Global) -> None:
        frame.globals.update(node.names)

    def _nonlocal(self, frame: Frame, node: ast.Nonlocal) -> None:
        frame.nonlocals.update(node.names)

    def _import(self, frame: Frame, node: ast.Import) -> None:
        for alias in node.names:
            module = self.simulator.import_module(alias.name, frame.module)
            first, *others = alias.name.split(".")
            if others:
                module = self.simulator.import_module(first, frame.module)
            self._enter_module(frame, module, node)
            for part in others if alias.asname is not None else ():  # import a.b as m: m is the attribute b of a
                module = self.simulator.members.attribute(frame, module, part, node)
            self.bind(frame, alias.asname or first, module)

    def _import_from(self, frame: Frame, node: ast.ImportFrom) -> None:
        dotted = "." * node.level + (node.module or "")
        if node.module:
            self._enter_module(frame, self.simulator.import_module(dotted, frame.module), node)
        for alias in node.names:
            if alias.name == "*":
                for name, value in self.simulator.star(dotted, frame.module):
                    self.bind(frame, name, value)
            else:
                value = self.simulator.import_name(dotted, alias.name, frame.module)
                self._enter_module(frame, value, node)
                self.bind(frame, alias.asname or alias.name, value)

    def _enter_module(self, frame: Frame, module: Value, node: ast.AST) -> None:
        """Note what a module does when it is imported, and the packages that it is in."""
        if isinstance(module, ModuleObject) and frame.function is None:
            result = self.simulator.result_of_module(module.path)
            if result.trace:
                frame.trace.append(Enter(result, place_of(node), frame.live))

    # Definitions

    def _define(self, frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        value: Value = Function(node, frame.module, around(frame))
        for decorator in reversed(node.decorator_list):
            value = decorate(self.simulator, frame, value, decorator)
        self.bind(frame, node.name, value)

    def _class(self, frame: Frame, node: ast.ClassDef) -> None:
        bases = tuple(self.simulator.expressions.value(frame, base) for base in node.bases)
        cls = Class(node, frame.module, around(frame), bases)
        inner = Frame(frame.module, f"{frame.symbol}.{node.name}", {}, parent=frame)
        self.block(inner, node.body)
        frame.trace.extend(inner.trace)
        for name, value in inner.env.items():
            cls.members[name] = _owned(value, cls)
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                cls.members.setdefault(statement.target.id, self._typed(frame, statement.annotation))
        made: Value = cls
        self.bind(frame, node.name, cls)
        for decorator in reversed(node.decorator_list):  # it may be put into a table of classes
            made = decorate(self.simulator, frame, made, decorator)
        self.bind(frame, node.name, made)

    def _typed(self, frame: Frame, annotation: ast.expr) -> Value:
        return self.simulator.calls.annotated(frame, annotation) or ANYTHING


def _owned(value: Value, cls: Class) -> Value:
    """Return a member of a class: a function knows whose it is."""
    if isinstance(value, Function) and value.owner is None:
        value.owner = cls
    if isinstance(value, Made) and isinstance(value.about, Function):
        _owned(value.about, cls)
    return value
