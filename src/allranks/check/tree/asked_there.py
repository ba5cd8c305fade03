"""The way of a program to a collective, through its files: whether it asks anywhere if there are other processes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from allranks.check.sources.source import File, parse
from allranks.check.tree.alone_too import MAKERS, asked_on_the_way
from allranks.check.tree.syntax import calls_of
from allranks.findings import Place


class Files:
    """Files of a project that can be parsed, each parsed once, when it is asked for. ``lines`` gives their texts."""

    def __init__(self, lines: Mapping[str, list[str]]) -> None:
        self._lines = lines
        self._known: dict[str, File | None] = {}

    def file(self, path: str) -> File | None:
        if path not in self._known:
            text = "\n".join(self._lines.get(path, ()))
            tree = parse(text)
            self._known[path] = File(path, text, tree) if isinstance(tree, ast.Module) else None
        return self._known[path]

    def with_makers(self, path: str, around: Iterable[str]) -> list[File]:
        """Return a file, and those ``around`` it that make a process group."""
        making = (one for one in around if one == path or any(n in line for line in self._lines[one] for n in MAKERS))
        return [file for one in making if (file := self.file(one)) is not None]


def is_asked(way: Iterable[Place], files: Files) -> bool:
    """Say whether somebody asks at one of the calls on a way if there are others; or the way is not understood."""
    return any((there := call_at(place, files)) is None or asked_on_the_way(*there) for place in way)


def call_at(place: Place, files: Files) -> tuple[ast.Call, File] | None:
    """Return the call that stands at a place, and its file."""
    if (file := files.file(place.path)) is None:
        return None
    calls = (call for calls in calls_of(file).values() for call in calls if call.lineno == place.line)
    return next(((call, file) for call in calls if file.place(call) == place), None)
