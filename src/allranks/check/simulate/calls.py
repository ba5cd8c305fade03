"""Call functions and classes of the project."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from allranks.check.knowledge.tables import RankQuery
from allranks.check.simulate.compiled import run_compiled
from allranks.check.simulate.decorators import commands_of
from allranks.check.simulate.given import Given
from allranks.check.simulate.joining import join_all
from allranks.check.simulate.parts import Gap, Simulation
from allranks.check.simulate.results import ends
from allranks.check.simulate.state import Frame, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    EVERY,
    NONE,
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
    Unknown,
    Value,
    by_role,
    letters_of,
    of_role,
    roles_where,
    taint,
    unknown,
)
from allranks.check.traces.nodes import Branch, Enter

_LONG = 40


class Calls:
    """Calls what the project defines."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self._objects: dict[tuple[Any, ...], Object] = {}
        self._by_class: dict[Class, list[Object]] = {}
        self._by_name: dict[str, dict[Class, Object]] = {}
        self.makers: dict[Object, dict[str, int]] = {}  # by program, the roles that make it
        self.registered: set[ast.AST] = set()  # functions and classes that were given to a registry

    def call(self, frame: Frame, node: ast.Call) -> Value:
        """Evaluate a call."""
        if isinstance(node.func, ast.Attribute):
            base = self.simulator.expressions.value(frame, node.func.value)
            given = self.given(frame, node)
            name = node.func.attr
            return self.each(frame, base, node, lambda one: self._method(frame, name, replace(given, receiver=one)))
        callee = self.simulator.expressions.value(frame, node.func)
        given = self.given(frame, node)
        commands = self.simulator.heap.get(commands_of(node.func), "all")
        for command in commands.items if isinstance(commands, Items) else ():
            asked = ast.Compare(ast.Name("command"), [ast.Eq()], [ast.Constant(getattr(command, "name", ""))])
            one_of = Branch("UUUU", 0, place_of(node), "", (), ())
            self.simulator.expressions.on_branch(frame, one_of, asked, partial(self.apply, frame, command, Given(node)))
        for one in given.arguments:
            if isinstance(one, Function | Class) and "regist" in ast.unparse(node.func).lower():
                self.registered.add(one.node)
        return self.each(frame, callee, node, lambda one: self.apply(frame, one, given))

    def given(self, frame: Frame, node: ast.Call) -> Given:
        """Return the arguments of a call."""
        arguments = tuple(self.simulator.expressions.values(frame, node.args))
        keywords: list[tuple[str, Value]] = []
        for keyword in node.keywords:
            value = self.simulator.expressions.value(frame, keyword.value)
            if keyword.arg is not None:
                keywords.append((keyword.arg, value))
            elif isinstance(value, Table):
                keywords += [(name, item) for name, item in value.items if isinstance(name, str)]
            else:
                keywords.append(("**", value))
        return Given(node, arguments, tuple(keywords))

    def each(self, frame: Frame, value: Value, node: ast.AST, do: Callable[[Value], Value]) -> Value:
        """Do something with each value that one may be: for the roles that have it, or on a branch."""
        if isinstance(value, ByRole):
            return self._for_roles(frame, value, node, do)
        if isinstance(value, Either):
            one_of = Branch("UUUU", 0, place_of(node), "", (), ())
            on_branch = self.simulator.expressions.on_branch
            every = (on_branch(frame, one_of, node, partial(do, option)) for option in value.options)
            return join_all(every) or ANYTHING
        return do(value)

    def _for_roles(self, frame: Frame, value: ByRole, node: ast.AST, do: Callable[[Value], Value]) -> Value:
        made: list[Value | None] = [None] * 4
        live = frame.live
        for one in dict.fromkeys(value.roles):
            letters = "".join("T" if other == one else "F" for other in value.roles)
            roles = roles_where(letters, "T") & live
            if not roles:
                continue
            frame.live = roles
            branch = Branch(letters, taint(value), place_of(node), "", (), ())
            result = self.simulator.expressions.on_branch(frame, branch, node, partial(do, one))
            for role in range(4):
                if letters[role] == "T":
                    made[role] = of_role(result, role)
        frame.live = live
        some = next((one for one in made if one is not None), NONE)
        return by_role(some if one is None else one for one in made)

    def _method(self, frame: Frame, name: str, given: Given) -> Value:
        base = given.receiver if given.receiver is not None else ANYTHING
        found = self.simulator.members.find(base, name)
        if isinstance(found, Made) and found.cls == "property":
            found = self.simulator.members.attribute(frame, base, name, given.node)
        if found is None or isinstance(found, Unknown):
            return self.simulator.library.method(frame, name, given)
        return self.each(frame, found, given.node, lambda one: self.apply(frame, one, replace(given, receiver=None)))

    def apply(self, frame: Frame, callee: Value, given: Given) -> Value:
        """Call a value."""
        if isinstance(callee, Function):
            return self.invoke(frame, callee, given)
        if isinstance(callee, Class):
            return self.construct(frame, callee, given)
        if isinstance(callee, Library):
            return self.simulator.library.call(frame, callee.name, given)
        if isinstance(callee, Made) and callee.cls.startswith("<compiled"):
            computed = run_compiled(self.simulator, frame, callee, given)
            return computed if computed is not None else unknown(*given.every)
        if isinstance(callee, Object):
            wrapped = self.simulator.heap.get(callee, "<wrapped>")
            if isinstance(wrapped, Made):
                return self.simulator.library.method(frame, "__call__", replace(given, receiver=wrapped))
        if isinstance(callee, Object | Made):
            for name in ("__call__", "forward") if isinstance(callee, Object) else ():
                if isinstance(method := callee.cls.find(name), Function):
                    return self.invoke(frame, method.with_receiver(callee), given)
            return self.simulator.library.method(frame, "__call__", replace(given, receiver=callee))
        if isinstance(callee, Unknown) and frame.path == self.simulator.program and frame.function is None:
            self._note_gap(frame, given)
        if isinstance(callee, Unknown) and callee.name:
            return self.simulator.library.call_unknown(frame, callee.name, given)
        return unknown(callee, *given.every)

    def _note_gap(self, frame: Frame, given: Given) -> None:
        """Note that a call on the top level of a program leads nowhere, if nobody keeps what it gives."""
        called = given.node.func if isinstance(given.node, ast.Call) else None
        text = ast.unparse(called) if called is not None else ""
        computed = isinstance(called, ast.Subscript) or text.startswith("getattr(")
        if computed or re.fullmatch(r"(\w+\.)*_?(main|run|train|cli|app)\w*", text):
            why = f"{text}() could not be followed: what it stands for was not found"
            self.simulator.gaps.append(Gap(frame.path, place_of(given.node), frame.symbol, why))

    def enter(self, frame: Frame, value: Value, node: ast.AST) -> Value:
        """Return what a context gives to its ``as``; ``__enter__`` of the project is called."""
        if isinstance(value, Object) and isinstance(method := value.cls.find("__enter__"), Function):
            entered = self.invoke(frame, method.with_receiver(value), Given(node))
            return value if isinstance(entered, Unknown) else entered
        if isinstance(value, Made) and value.cls == "generator" and value.about is not None:
            return value.about
        return value

    def leave(self, frame: Frame, value: Value, node: ast.AST) -> None:
        """Call ``__exit__`` of a context of the project."""
        if isinstance(value, Object) and isinstance(method := value.cls.find("__exit__"), Function):
            self.invoke(frame, method.with_receiver(value), Given(node, (NONE, NONE, NONE)))

    def annotated(self, frame: Frame, annotation: ast.expr | None) -> Value | None:
        """Return a value of which only the type is known; None if the annotation says nothing that matters."""
        if annotation is None:
            return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return None
        if isinstance(annotation, ast.BinOp):
            return self.annotated(frame, annotation.left) or self.annotated(frame, annotation.right)
        if isinstance(annotation, ast.Subscript):
            name = ast.unparse(annotation.value).rpartition(".")[2]
            return self.annotated(frame, annotation.slice) if name in ("Optional", "Union", "Annotated") else None
        kind = self.simulator.expressions.value(frame, annotation)
        if isinstance(kind, Class):
            return self.object(kind, frame.path, annotation)
        if isinstance(kind, Library) and "." in kind.name:
            return Made(self.simulator.knowledge.documented(kind.name), about=ANYTHING)
        return None

    def object(self, cls: Class, path: str, node: ast.AST) -> Object:
        """Return the object of a class that one place makes."""
        key = (cls, path, place_of(node))
        if key not in self._objects:
            self._objects[key] = Object(cls, path, getattr(node, "lineno", 1))
            self._by_class.setdefault(cls, []).append(self._objects[key])
            self._by_name.setdefault(cls.name.lower(), {})[cls] = self._objects[key]
        return self._objects[key]

    def objects_of(self, cls: Class) -> list[Object]:
        """Return the objects that were made of a class, in order."""
        return self._by_class.get(cls, [])

    def named(self, name: str) -> Object | None:
        """Return the object that a variable called so mostly is: ``runner`` that of the only class ``Runner``."""
        found = self._by_name.get(name.replace("_", ""), {})
        return next(iter(found.values())) if len(found) == 1 else None

    def construct(self, frame: Frame, cls: Class, given: Given) -> Value:
        """Make an object of a class of the project."""
        made = self.object(cls, frame.path, given.node)
        makers = self.makers.setdefault(made, {})
        makers[self.simulator.program] = makers.get(self.simulator.program, 0) | frame.live
        if isinstance(init := cls.find("__init__"), Function):
            self.invoke(frame, init.with_receiver(made), given)
            return made
        for name, value in (*zip(_fields(cls), given.arguments, strict=False), *given.keywords):
            self.simulator.heap.set(made, name, value, frame.live)
        if isinstance(after := cls.find("__post_init__"), Function):
            self.invoke(frame, after.with_receiver(made), Given(given.node))
        self.simulator.library.inherit(frame, cls.library_bases(), given)
        return made

    def invoke(self, frame: Frame, function: Function, given: Given) -> Value:
        """Call a function of the project: run it, or use what it did before."""
        live = frame.live & function.only
        if not live:
            return NONE
        if self.simulator.knowledge.declared:
            declared = self.simulator.knowledge.declared_as(self.simulator.symbol(function))
            if isinstance(declared, RankQuery):
                return self.simulator.members.rank(declared)
            if declared is not None:
                return self.simulator.recording.record_collective(frame, declared, given)
        if function.compiled:
            computed = run_compiled(self.simulator, frame, function, given)
            if computed is not None:
                return computed
        env = self.bind(function, given)
        self.simulator.no_grad += function.no_grad
        kept = self.simulator.results.result(function, env, live)
        self.simulator.no_grad -= function.no_grad
        if kept is None:
            return ANYTHING
        if kept.trace:
            frame.trace.append(
                self.entered(function, Enter(kept, place_of(given.node), live, ordered=frame.ordered > 0))
            )
            frame.live &= ~ends(kept, live)
        if kept.yields:
            return Made("generator", taint(kept.yielded), kept.yielded, path=kept.path, line=kept.line)
        if function.only == EVERY:
            return kept.value
        return by_role(of_role(kept.value, role) if live >> role & 1 else NONE for role in range(4))

    def entered(self, function: Function, enter: Enter) -> Enter | Branch:
        """Return a call of a function as a node: on a branch where a decorator lets some ranks run it."""
        if function.only == EVERY:
            return enter
        decorators = getattr(function.node, "decorator_list", [])
        text = ", ".join(f"@{self.simulator.expressions.source(one)}" for one in decorators)
        return Branch(letters_of(function.only), RANK, enter.span, text, (enter,), ())

    def start(self, frame: Frame, function: Function, given: Given) -> Value:
        """Call a function in processes that are started here. An unknown number that is called so is its rank."""
        spec, known = function.node.args, list(given.arguments)
        for at, one in enumerate((*spec.posonlyargs, *spec.args)[: len(known)]):
            if isinstance(known[at], Unknown) and not taint(known[at]):
                known[at] = self.simulator.members.called(one.arg) or known[at]
        given = replace(given, arguments=tuple(known))
        before = len(frame.trace)
        value = self.invoke(frame, function, given)
        for node in frame.trace[before:]:
            if isinstance(node, Enter):
                node.starts = True
        return value

    def bind(self, function: Function, given: Given, *, anyhow: bool = False) -> dict[str, Value]:
        """Return the variables with which a function begins. ``anyhow``: nobody is known to call it, so that its
        defaults say nothing."""
        spec = function.node.args
        anyhow = anyhow or any(name == "**" for name, _ in given.keywords)
        positional = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        names = {*positional, *(one.arg for one in spec.kwonlyargs)}
        values = [*function.bound, *given.arguments]
        if function.receiver is not None:
            values.insert(0, function.receiver)
        env: dict[str, Value] = dict(zip(positional, values, strict=False))
        extra: dict[object, Value] = {}
        for name, value in (*function.named, *given.keywords):
            if name in names:
                env.setdefault(name, value)
            else:
                extra[name] = value
        for name in env:
            env[name] = _passed(name, env[name])
        if spec.vararg is not None:
            env[spec.vararg.arg] = Items(tuple(values[len(positional) :]))
        if spec.kwarg is not None:
            env[spec.kwarg.arg] = Table(tuple(extra.items()), open=True)
        self._default(function, env, anyhow=anyhow)
        return env

    def _default(self, function: Function, env: dict[str, Value], *, anyhow: bool) -> None:
        """Bind the parameters that nobody gives."""
        home, spec = self.simulator.home(function), function.node.args
        every = [*spec.posonlyargs, *spec.args]
        defaults = [*zip(reversed(every), reversed(spec.defaults), strict=False)]
        defaults += [(one, d) for one, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None]
        for one, default in defaults:
            if one.arg not in env:
                value = self.simulator.expressions.value(home, default)
                env[one.arg] = self.parameter(function, one, home) if anyhow and isinstance(value, Const) else value
        for one in (*every, *spec.kwonlyargs):
            if one.arg not in env:
                env[one.arg] = self.parameter(function, one, home)

    def parameter(self, function: Function, argument: ast.arg, home: Frame) -> Value:
        """Return what is known of a parameter that nobody gives: by its annotation, or by its name."""
        if function.owner is not None and function.receiver is None and argument is _first(function.node):
            return self.object(function.owner, function.module.path, function.owner.node)
        hooks = self.simulator.knowledge.classes["hook_parameters"] if function.owner is not None else {}
        hooked: str | None = hooks.get(argument.arg)
        if hooked == "<rows>":  # of this process
            return Unknown(DATA, name=argument.arg)
        typed = self.annotated(home, argument.annotation)
        if typed is not None or hooked is not None:
            return typed or self.named(argument.arg) or Made(str(hooked))
        return self.simulator.members.called(argument.arg) or Unknown(name=argument.arg)


def _fields(cls: Class) -> list[str]:
    """Return the names of the fields of a dataclass, those of its bases first."""
    return [
        statement.target.id
        for one in reversed(list(cls.lineage()))
        for statement in one.node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def _first(node: ast.AST) -> ast.arg | None:
    spec = getattr(node, "args", None)
    if not isinstance(spec, ast.arguments):
        return None
    every = [*spec.posonlyargs, *spec.args]
    return every[0] if every else None


def _passed(name: str, value: Value) -> Value:
    """Return a value as a parameter sees it: without what distinguishes one call from another and matters to none."""
    if isinstance(value, Unknown) and value.name != name:
        return Unknown(value.taint, value.true, name, value.kind)
    if isinstance(value, Const) and isinstance(value.value, str) and (len(value.value) > _LONG or " " in value.value):
        return Unknown(true=True, name=name)
    if isinstance(value, Made) and value.arguments and value.cls != "super":
        return Made(value.cls, value.taint, value.about, value.path, value.line)
    return value
