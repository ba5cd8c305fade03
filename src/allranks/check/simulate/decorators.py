"""What decorators make of functions and classes."""

from __future__ import annotations

import ast
from dataclasses import replace

from allranks.check.knowledge.tables import RankQuery
from allranks.check.simulate.compiled import compiled_by_decorator
from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame
from allranks.check.simulate.values import Class, Function, Items, Library, Made, Value

_OF_PROCESS = ("process_index", "local_process_index")  # which process a decorator lets in


def decorate(simulator: Simulation, frame: Frame, value: Value, decorator: ast.expr) -> Value:
    """Return what a decorator makes of a function or of a class."""
    if isinstance(value, Function):
        compiled = compiled_by_decorator(simulator, frame, value, decorator)
        if compiled is not None:
            return compiled
    made = simulator.expressions.value(frame, decorator.func if isinstance(decorator, ast.Call) else decorator)
    if isinstance(value, Function) and (owner := _owner_of_command(decorator)) is not None:
        key = commands_of(owner)
        before = simulator.heap.get(key, "all")
        known = before.items if isinstance(before, Items) else ()
        simulator.heap.set(key, "all", Items((*known, value)))
    name = made.name if isinstance(made, Library | Function) else ast.unparse(decorator).partition("(")[0]
    last = name.rpartition(".")[2]
    if last in ("staticmethod", "classmethod"):
        return Made(last, about=value)
    if last in ("property", "cached_property", "setter", "getter"):
        return Made("property", about=value)
    knowledge = simulator.knowledge
    query = knowledge.rank("decorator", knowledge.documented(name))
    index = next((one for one in getattr(decorator, "keywords", ()) if one.arg in _OF_PROCESS), None)
    first = index is not None and isinstance(index.value, ast.Constant) and index.value.value == 0
    if first and query is not None and index is not None:
        query = RankQuery("local" if index.arg == "local_process_index" else "global", "first")
    kind = (query.kind if query.which else "other") if query is not None else knowledge.named("decorator", last)
    if name in knowledge.signs["no_grad"] and isinstance(value, Function):
        value.no_grad = True
    if kind is not None and isinstance(value, Function):
        value.only = 0b0011 if kind == "local" else 0b0001 if kind == "global" else 0b1110
        return value
    if isinstance(made, Class) and isinstance(value, Function) and made.find("__call__") is not None:
        return _by_object(simulator, frame, made, value, decorator)
    if not isinstance(made, Function) or not isinstance(value, Function | Class):
        return value
    wrapper: Value = made
    if isinstance(decorator, ast.Call):
        wrapper = simulator.calls.invoke(frame, made, simulator.calls.given(frame, decorator))
    if isinstance(wrapper, Function):
        wrapper = simulator.calls.invoke(frame, wrapper, Given(decorator, (value,)))
    return wrapper if isinstance(wrapper, Function | Class) else value


def _by_object(simulator: Simulation, frame: Frame, cls: Class, value: Function, decorator: ast.expr) -> Value:
    """Return what ``@Only(0)`` makes of a function: what the object's ``__call__`` returns for it."""
    if not isinstance(decorator, ast.Call):
        return value
    given = simulator.calls.given(frame, decorator)
    wrapper = simulator.calls.apply(
        frame, simulator.calls.construct(frame, cls, given), replace(given, arguments=(value,), keywords=())
    )
    return wrapper if isinstance(wrapper, Function) else value


def _owner_of_command(decorator: ast.expr) -> ast.expr | None:
    """Return ``app`` of the decorators ``@app.command()`` of typer and click; None for all others."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    is_command = isinstance(named, ast.Attribute) and named.attr in ("command", "callback", "default")
    return named.value if is_command and isinstance(named, ast.Attribute) else None


def commands_of(app: ast.expr) -> Library:
    """Return what holds the commands of a program, by the variable with which it is started."""
    return Library(f"<commands of {ast.unparse(app)}>")
