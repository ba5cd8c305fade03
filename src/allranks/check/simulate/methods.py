"""What methods of values return that are of no class that is known: lists, dictionaries, texts."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from allranks.check.simulate import arithmetic
from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Method, Simulation
from allranks.check.simulate.state import Frame
from allranks.check.simulate.values import (
    ANYTHING,
    NONE,
    Const,
    Either,
    Function,
    Items,
    Library,
    Made,
    Table,
    Text,
    Unknown,
    Value,
    lift,
    taint,
    unknown,
)

_MOST = 64
_CLOCK_LETTERS = "HIklMSfspPXcTRr"  # what strftime fills in that changes within a day


# Functions


def _append(simulator: Simulation, frame: Frame, given: Given) -> Value | None:
    """Put something into a list."""
    base, target = given.receiver, given.owner
    if not isinstance(target, ast.Name | ast.Attribute) or not isinstance(base, Items | Unknown):
        return None
    few = isinstance(base, Items) and len(base.items) < _MOST and not frame.loops
    if few and isinstance(base, Items) and len(given.arguments) == 1:
        simulator.statements.change(frame, target, Items((*base.items, given.arguments[0]), base.kind))
    else:
        simulator.statements.change(frame, target, Unknown(taint(base) | unknown(*given.arguments).taint))
    return NONE


def _format(_: Simulation, __: Frame, given: Given) -> Value | None:
    base = given.receiver
    if not isinstance(base, Const | Text):
        return None
    shape = arithmetic.shape_of(base)
    return lift(lambda *parts: Text(shape, unknown(base, *parts).taint), *given.every) if given.every else base


def _changed_text(_: Simulation, __: Frame, given: Given) -> Value | None:
    base = given.receiver
    if not isinstance(base, Const | Text):
        return None
    return Text("{}", unknown(base, *given.every).taint) if taint(base) else unknown(*given.every)


def _get(simulator: Simulation, _: Frame, given: Given) -> Value | None:
    """Return ``table.get(key, default)``."""
    base = given.receiver
    known = isinstance(base, Table | Unknown) or (isinstance(base, Made) and base.cls == "<dict>")
    if given.first is not None and base is not None and known:
        return simulator.expressions.item(base, given.first)
    return None


def _values(_: Simulation, __: Frame, given: Given) -> Value | None:
    """Return ``table.values()`` or ``table.items()``, of a dictionary of which something is known."""
    base, pairs = given.receiver, ast.unparse(given.node).endswith(".items()")
    if isinstance(base, Table) and base.items and not base.open:
        rows = (Items((Const(key), value)) if pairs else value for key, value in base.items)
        return Items(tuple(rows), "list")
    if isinstance(base, Made) and base.cls == "<dict>" and base.about is not None:
        return Made("<values>", base.taint, Items((ANYTHING, base.about)) if pairs else base.about)
    return Made("os.environ.keys") if base == Library("os.environ") else None


def _acquire(_: Simulation, __: Frame, given: Given) -> Value | None:
    return given.receiver if isinstance(given.receiver, Made) and given.receiver.cls in ("lock", "turn") else None


def _update(simulator: Simulation, frame: Frame, given: Given) -> Value | None:
    """Put the keywords of ``table.update(rank=rank)`` into a dictionary that is known in part."""
    base, target = given.receiver, given.owner
    plain = isinstance(base, Unknown) and not (base.taint or base.true)
    if not isinstance(target, ast.Name) or not given.keywords or not (plain or isinstance(base, Table)):
        return None
    items: dict[object, Value] = dict(base.items) if isinstance(base, Table) else {}
    items.update(given.keywords)
    simulator.statements.change(frame, target, Table(tuple(items.items()), open=True))
    return NONE


def _tests_text(_: Simulation, __: Frame, given: Given) -> Value | None:
    """Return ``text.startswith(part)`` of constants."""
    base, part = given.receiver, given.first
    if not (isinstance(base, Const) and isinstance(base.value, str)):
        return None
    if not (isinstance(part, Const) and isinstance(part.value, str)):
        return None
    begins = ast.unparse(given.node).partition("(")[0].endswith("startswith")
    return Const(base.value.startswith(part.value) if begins else base.value.endswith(part.value))


def _strftime(_: Simulation, __: Frame, given: Given) -> Value | None:
    base, form = given.receiver, given.first
    if not isinstance(base, Made) or not base.taint:
        return None
    plain = isinstance(form, Const) and isinstance(form.value, str)
    changes = not plain or any(f"%{letter}" in arithmetic.shape_of(form or NONE) for letter in _CLOCK_LETTERS)
    return Text("{}", base.taint if changes else 0)


def _number(_: Simulation, __: Frame, given: Given) -> Value | None:
    return given.receiver if isinstance(given.receiver, Const) else None


def _descriptor_of_file(_: Simulation, __: Frame, ___: Given) -> Value | None:
    return Made("io.FileIO")


def _set_defaults(simulator: Simulation, _: Frame, given: Given) -> Value | None:
    """Note the functions that ``parser.set_defaults(run=train)`` lets a command line choose."""
    for name, value in given.keywords:
        if isinstance(value, Function):
            before = simulator.chosen[name].options if name in simulator.chosen else ()
            simulator.chosen[name] = Either(tuple(dict.fromkeys((*before, value))))
    return NONE


METHODS: Mapping[str, Method] = {
    **dict.fromkeys(("append", "extend", "add"), _append),
    **dict.fromkeys(
        ("strip", "rstrip", "lstrip", "lower", "upper", "replace", "split", "rsplit", "removesuffix", "removeprefix"),
        _changed_text,
    ),
    **dict.fromkeys(("item", "bool", "any", "all", "to", "cuda", "float", "int", "long"), _number),
    "fileno": _descriptor_of_file,
    "acquire": _acquire,
    **dict.fromkeys(("values", "items", "keys"), _values),
    "format": _format,
    "update": _update,
    **dict.fromkeys(("startswith", "endswith"), _tests_text),
    "get": _get,
    "set_defaults": _set_defaults,
    "strftime": _strftime,
}
