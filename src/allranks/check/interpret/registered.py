"""What a program makes by its name: classes and functions in a registry, and kinds of classes that all processes make.

Nothing in the code calls them. Where the program joins others, the configuration that names them is the same on every
process, and so each of them makes its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from allranks.check.interpret.interest import Names
from allranks.check.interpret.state import Result
from allranks.check.interpret.statements import Interpreter
from allranks.check.interpret.values import Value
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.evidence import MADE_EVERYWHERE
from allranks.check.tables.names import documented

_REGISTERED = re.compile(r"(?i)(^|[._])regist(er|ry)")
# What is registered to be called by one process, or for something else than to be made.
_OTHERWISE = re.compile(
    r"(?i)atexit|signal|hook|command|cli|parser|export|convert|test|pytree|dispatch|serial|codec"
    r"|workspace|executor|launcher"
)
_OTHERWISE_CLASSES = re.compile(_OTHERWISE.pattern.replace("hook|", ""))  # a class of hooks is made as others are

# How the decorators of web servers are called: `@app.post("/files")`.
_ROUTES = frozenset(["get", "post", "put", "patch", "delete", "route", "api_route", "websocket"])


def built_by_name(run: Interpreter, names: Names, paths: Collection[str]) -> list[Result]:
    """Return what the makers do of all that is made by name in these files."""
    results = [run.run(maker, None) for maker in _makers(run, names, paths)]
    return [result for result in results if result is not None]


def settings(run: Interpreter, paths: Collection[str]) -> list[Result]:
    """Return what dataclasses in these files, which no function makes, do when they are made: parsers of options and
    of configurations fill them."""
    results = [run.run(maker, None) for maker in _filled(run, paths)]
    return [result for result in results if result is not None]


def _filled(run: Interpreter, paths: Collection[str]) -> Iterator[Value]:
    for path in sorted(paths):
        summary = run.project.summaries.get(path)
        for key, cls in summary.classes.items() if summary is not None else ():
            method = dict(cls.methods).get("__post_init__")
            if method is not None and f"{path}::{method}" not in run.callees:
                yield Value(reference=f"{path}::{method}", receiver=Value(instance=f"{path}::{key}"))


def kept_by_name(run: Interpreter, paths: Collection[str]) -> Iterator[str]:
    """Yield the classes in these files that are kept in a registry."""
    for path in sorted(paths):
        summary = run.project.summaries.get(path)
        for key, cls in summary.classes.items() if summary is not None else ():
            if is_registered(cls.decorators, _OTHERWISE_CLASSES):
                yield f"{path}::{key}"


def is_registered(decorators: tuple[Node, ...], otherwise: re.Pattern[str] = _OTHERWISE) -> bool:
    """Whether one of the decorators keeps what it is given under a name."""
    names = (render(d[1] if d[0] == "call" else d) for d in decorators)
    return any(_REGISTERED.search(name) and not otherwise.search(name) for name in names)


def is_route(decorators: tuple[Node, ...]) -> bool:
    """Whether one of the decorators lets a web server call a function: in the one process that is asked."""
    calls = (one for one in decorators if one[0] == "call" and one[1][0] == "attr" and one[1][2] in _ROUTES)
    addresses = (one[2][0][1] for one in calls if one[2] and one[2][0][0] in ("const", "text"))
    return any(isinstance(address, tuple) or str(address).startswith("/") for address in addresses)


def _makers(run: Interpreter, names: Names, paths: Collection[str]) -> Iterator[Value]:
    for path in sorted(paths):
        summary = run.project.summaries.get(path)
        if summary is None:
            continue
        for key, facts in summary.functions.items():
            if not facts.owner and f"{path}::{key}" not in run.callees and is_registered(facts.decorators):
                yield Value(reference=f"{path}::{key}")
        for key, cls in summary.classes.items():
            reference = f"{path}::{key}"
            method = run.method(reference, "__init__")
            if method is not None and (
                is_registered(cls.decorators, _OTHERWISE_CLASSES) or _is_made_everywhere(run, names, reference)
            ):
                if any(f"{path}::{own}" in run.interesting for _, own in cls.methods):
                    run.interesting |= set(_constructors(run, reference))  # they call what this class does otherwise
                yield Value(reference=method, receiver=Value(instance=reference))


def _constructors(run: Interpreter, reference: str) -> Iterator[str]:
    for kin in run.lineage(reference):
        if (method := run.project.methods(kin).get("__init__")) is not None:
            yield method


def _is_made_everywhere(run: Interpreter, names: Names, reference: str) -> bool:
    """Whether all processes make a class by its kind, and no function here, which would tell who does, names it."""
    if not any(documented(kin) in MADE_EVERYWHERE for kin in run.lineage(reference)):
        return False
    name = reference.partition("::")[2]
    return not any(
        key and run.project.summaries[path].functions[key].owner != name
        for path, keys in names.named_by.get(name, {}).items()
        for key in keys
    )
