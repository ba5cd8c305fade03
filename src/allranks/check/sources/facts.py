"""What rules ask of the texts of a whole project, found out when they do and once. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from allranks.check.project.modules import Modules
from allranks.check.sources.launches import Launches, on_one_host, on_several_nodes
from allranks.check.sources.source import File, is_test

# How many devices a trainer is given, by which strategy, and what nobody asks for who has one.
_SEVERAL_DEVICES = re.compile(
    rb"(?i)(strategy|accelerator|distributed_backend)[\"']?\s*[=:,]\s*[\"']?(ddp|fsdp|deepspeed)"
    rb"|(ddp|fsdp|deepspeed)(strategy|plugin)|\b(devices|gpus|num_nodes)[\"']?\s*[=:]\s*[\"']?(-1|[2-9]|\[0, ?1)"
    rb"|sync_dist\s*=\s*True|\brank_zero_(only|info|warn)\b"
)


class Facts:
    """Facts about a project: the bytes of its Python files, scripts and pages (``sources``), their ``lines``, and the
    Python ``files`` that can be read."""

    def __init__(self, sources: Mapping[str, bytes], lines: Mapping[str, list[str]], files: Mapping[str, File]) -> None:
        self._sources, self._files = sources, files
        self.lines = lines
        self.launches = Launches(sources)

    @cached_property
    def one_host(self) -> bool:
        """Whether all processes that are joined were started by one on its own host."""
        return on_one_host(self._sources)

    @cached_property
    def several_nodes(self) -> bool:
        """Whether anything speaks of several nodes."""
        return on_several_nodes(self._sources)

    @cached_property
    def one_node(self) -> frozenset[str]:
        """Programs that whoever starts them says to be on one node."""
        return self.launches.on_one_node - self.launches.across_nodes

    @cached_property
    def by_trainer(self) -> frozenset[str]:
        """Files of programs that a trainer runs as several processes: those whose settings say so, and all that they
        import; where a configuration, a script or a page says so, all files."""
        found = {path for path, raw in self._sources.items() if not is_test(path) and _SEVERAL_DEVICES.search(raw)}
        programs = {path for path in self.lines if path.endswith(".py")}
        if not found <= programs:
            return frozenset(programs)
        return self._around.used_by(found)

    def used_by(self, paths: Iterable[str]) -> frozenset[str]:
        """Return files and all that they import."""
        return self._around.used_by(paths)

    @cached_property
    def _around(self) -> Around:
        return Around(self._files)

    def files(self, path: str) -> list[File]:
        """Return the files of the programs that a file belongs to: those that import it, and all that these import."""
        return [self._files[one] for one in sorted(self._around.files(path)) if one in self._files]

    def code(self, path: str) -> list[str]:
        """Return the lines of code of the programs that a file belongs to."""
        return [line for file in self.files(path) for line in file.code]

    def anywhere(self, *words: str) -> bool:
        """Return whether the code of any file has one of these words."""
        return any(file.says(*words) for file in self._files.values())

    def says(self, path: str, *words: str) -> bool:
        """Return whether the code of the programs that ``path`` belongs to has one of these words."""
        return any(file.says(*words) for file in self.files(path))


class Around:
    """A file with those that import it, and all that these import."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self._files = files
        self._known: dict[str, frozenset[str]] = {}

    def files(self, path: str) -> frozenset[str]:
        """Return the files of the programs that ``path`` belongs to, tests left out."""
        if path not in self._known:
            users = closed([path], lambda one: self._importers.get(one, ()))
            every = closed(users, lambda one: self._imported.get(one, ()))
            self._known[path] = frozenset(one for one in every if one == path or not is_test(one))
        return self._known[path]

    def used_by(self, paths: Iterable[str]) -> frozenset[str]:
        """Return files and all that they import."""
        return frozenset(closed(paths, lambda one: self._imported.get(one, ())))

    @cached_property
    def _imported(self) -> dict[str, tuple[str, ...]]:
        modules = Modules.of(self._files)
        return {path: tuple(dict.fromkeys(self._found(file, modules))) for path, file in self._files.items()}

    def _found(self, file: File, modules: Modules) -> Iterator[str]:
        for dotted in _imports(file):
            found = modules.find(dotted, file.path)
            if found is not None and found in self._files:
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


def _imports(file: File) -> Iterator[str]:
    """Yield the modules that a file may import: ``pkg`` and ``pkg.train`` of ``from pkg import train``."""
    for node in (*file.kinds.get(ast.Import, ()), *file.kinds.get(ast.ImportFrom, ())):
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joint = "" if base.endswith(".") else "."
            yield base
            yield from (f"{base}{joint}{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


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
