"""The way of a program to a collective, through its files: whether it asks anywhere if there are other processes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from allranks.check.sources.source import File, parse
from allranks.check.tree.alone_too import MAKERS, asked_on_the_way
from allranks.check.tree.syntax import calls_of
from allranks.findings import Place


def files_with_makers(path: str, around: Iterable[str], lines: Mapping[str, list[str]]) -> list[File]:
    """Return a file, and those ``around`` it that make a process group."""
    texts = {one: "\n".join(lines[one]) for one in around}
    wanted = (one for one, text in texts.items() if one == path or any(name in text for name in MAKERS))
    trees = {one: parse(texts[one]) for one in wanted}
    return [File(one, texts[one], tree) for one, tree in trees.items() if isinstance(tree, ast.Module)]


def is_asked(way: Iterable[Place], files: dict[str, File], lines: Mapping[str, list[str]]) -> bool:
    """Say whether somebody asks, at one of the calls on a way, whether there are others; or the way is not understood.
    ``files``: those that were read for other ways, by path."""
    return any((there := _call_at(place, files, lines)) is None or asked_on_the_way(*there) for place in way)


def _call_at(place: Place, files: dict[str, File], lines: Mapping[str, list[str]]) -> tuple[ast.Call, File] | None:
    if place.path not in files:
        text = "\n".join(lines.get(place.path, ()))
        tree = parse(text)
        if not isinstance(tree, ast.Module):
            return None
        files[place.path] = File(place.path, text, tree)
    file = files[place.path]
    calls = (call for calls in calls_of(file).values() for call in calls if call.lineno == place.line)
    return next(((call, file) for call in calls if file.place(call) == place), None)
