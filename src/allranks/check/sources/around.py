"""The files of the programs that a file belongs to. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from allranks.check.project.modules import Modules
from allranks.check.sources.source import is_test

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]{,20000}\)|[^\n]*)|import[ \t]+([^\n]*))", re.M
)
_NAME = re.compile(r"[\w.]+")


class Around:
    """A file with those that import it, and all that these import, by ``lines`` of each file of a project."""

    def __init__(self, lines: Mapping[str, Sequence[str]]) -> None:
        self._lines = lines
        self._known: dict[str, frozenset[str]] = {}
        self._texts: dict[str, str] = {}

    def files(self, path: str) -> frozenset[str]:
        """Return the files of the programs that ``path`` belongs to, tests left out."""
        if path not in self._known:
            users = closed([path], lambda one: self._importers.get(one, ()))
            every = closed(users, lambda one: self._imported.get(one, ()))
            self._known[path] = frozenset(one for one in every if one == path or not is_test(one))
        return self._known[path]

    def says(self, path: str, *words: str) -> bool:
        """Return whether one of these texts is in a file of the programs that ``path`` belongs to."""
        return any(word in self._text(one) for one in self.files(path) for word in words)

    def used_by(self, paths: Iterable[str]) -> frozenset[str]:
        """Return files and all that they import."""
        return frozenset(closed(paths, lambda one: self._imported.get(one, ())))

    def _text(self, path: str) -> str:
        if path not in self._texts:
            self._texts[path] = "\n".join(self._lines[path])
        return self._texts[path]

    @cached_property
    def _imported(self) -> dict[str, tuple[str, ...]]:
        modules = Modules.of(self._lines)
        paths = [path for path in self._lines if path.endswith(".py")]
        return {path: tuple(dict.fromkeys(self._found(path, modules))) for path in paths}

    def _found(self, path: str, modules: Modules) -> Iterator[str]:
        for dotted in _imports(self._text(path)):
            found = modules.find(dotted, path)
            if found is not None and found in self._lines:
                yield found

    @cached_property
    def _importers(self) -> dict[str, list[str]]:
        """Who imports a file; who imports a package need not mean that part of it."""
        users: dict[str, list[str]] = {}
        for user, used in self._imported.items():
            if not user.endswith("__init__.py"):
                for one in used:
                    users.setdefault(one, []).append(user)
        return users


def _imports(text: str) -> Iterator[str]:
    """Yield the modules that a text may import: ``pkg`` and ``pkg.train`` of ``from pkg import train``."""
    for base, names, plain in _IMPORT.findall(text):
        if base:
            yield base
            joint = "" if base.endswith(".") else "."
            yield from (f"{base}{joint}{name}" for name in _NAME.findall(names))
        else:
            yield from (one.strip().partition(" ")[0] for one in plain.partition("#")[0].split(","))


def closed(start: Iterable[str], after: Callable[[str], Iterable[str]]) -> set[str]:
    """Return what ``after`` leads to from ``start``, step by step, and ``start`` itself."""
    found = set(start)
    waiting = list(found)
    while waiting:
        for one in after(waiting.pop()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found
