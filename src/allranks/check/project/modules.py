"""Which file an import means. As Python's import system, with the folders that are likely on its path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

# Folders that build tools put on the path of an installed project.
_SOURCE_FOLDERS = ("src", "python", "lib")


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules among the files ``paths`` (from the root, ``/`` between the parts).

    A folder on Python's path is one that is no package: the folder of the program, a folder above it, the root, or
    ``src``. ``installed``: packages of libraries; a folder without ``__init__.py`` never hides one of them.
    """

    paths: frozenset[str]
    installed: frozenset[str] = frozenset()
    _folders: frozenset[str] = frozenset()
    _tops: dict[str, tuple[str, ...]] = field(default_factory=dict)  # first part of a name -> folders that have it
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Iterable[str], *, installed: Collection[str] = ()) -> Modules:
        """Return the modules of these files, of which the Python files count."""
        every = frozenset(path for path in paths if path.endswith(".py"))
        folders = {"/".join(parts[:end]) for parts in (p.split("/") for p in every) for end in range(len(parts))}
        tops: dict[str, dict[str, None]] = {}
        for path in sorted(every):
            parts = path.split("/")
            for at in range(len(parts)):
                top = parts[at].removesuffix(".py")
                tops.setdefault(top, {}).setdefault("/".join(parts[:at]), None)
        return cls(every, frozenset(installed), frozenset(folders), {top: tuple(where) for top, where in tops.items()})

    def find(self, dotted: str, importer: str) -> str | None:
        """Return the file of a module, as ``importer`` (a path) names it: relative with its dots, or absolute.

        A package without ``__init__.py`` is the path of its folder with a "/" behind it. None: not of the project.
        """
        key = (dotted, importer.rpartition("/")[0])
        if key not in self._found:
            self._found[key] = (
                self._relative(dotted, importer) if dotted[:1] == "." else self._absolute(dotted, importer)
            )
        return self._found[key]

    def beside(self, program: str, dotted: str) -> str | None:
        """Return the file of an absolute module in the folder of the program that was started: that comes first."""
        folder = program.rpartition("/")[0]
        parts = dotted.split(".")
        found = self._at(f"{folder}/" if folder else "", parts)
        return None if found is None or parts[0] in self.installed else found

    def submodule(self, package: str, name: str) -> str | None:
        """Return the file of the module ``name`` in a package (as `find` returns it)."""
        if package.endswith("/__init__.py"):
            return self._at(package.removesuffix("__init__.py"), [name])
        return self._at(package, [name]) if package.endswith("/") or package == "" else None

    def package(self, path: str) -> str | None:
        """Return the package that a module is in (as `find` returns it); None for one at the top."""
        folder = path.removesuffix("/__init__.py").rstrip("/").rpartition("/")[0]
        if not folder:
            return None
        inside = f"{folder}/__init__.py"
        return inside if inside in self.paths else f"{folder}/"

    def _relative(self, dotted: str, importer: str) -> str | None:
        level = len(dotted) - len(dotted.lstrip("."))
        folder = importer.split("/")[:-level]
        if len(importer.split("/")) < level:
            return None
        base = "/".join(folder) + "/" if folder else ""
        return self._at(base, [part for part in dotted[level:].split(".") if part])

    def _absolute(self, dotted: str, importer: str) -> str | None:
        parts = dotted.split(".")
        for base in self._path(importer, parts[0]):
            found = self._at(base, parts)
            if found == importer and len(parts) == 1 and parts[0] in self.installed:
                continue  # tracker/wandb.py imports the wandb that is installed
            if found is not None and not (parts[0] in self.installed and self._is_namespace(base + parts[0])):
                return found
        return None

    def _path(self, importer: str, top: str) -> Iterator[str]:
        """Yield the folders, with a "/" behind, where a name is looked up: near ones first."""
        if top not in self._tops:
            return
        seen: dict[str, None] = {}
        folders = importer.split("/")[:-1]
        for end in range(len(folders), -1, -1):
            folder = "/".join(folders[:end])
            if (
                not folder
                or f"{folder}/__init__.py" not in self.paths
                or (end == len(folders) and self._is_program(importer))
            ):
                seen.setdefault(folder, None)
        seen.update(dict.fromkeys(folder for folder in _SOURCE_FOLDERS if folder in self._folders))
        guessed = () if top in self.installed else self._tops[top]  # elsewhere a folder of that name is another thing
        others = [f for f in guessed if f"{f}/__init__.py" not in self.paths and f not in seen]
        for folder in (*seen, *sorted(others, key=lambda f: (-_shared(f, importer), f.count("/"), f))):
            yield f"{folder}/" if folder else ""

    def _is_program(self, path: str) -> bool:
        """Whether a file may be started itself, so that its folder is on the path although it is a package."""
        return not path.endswith("/__init__.py")

    def _is_namespace(self, folder: str) -> bool:
        return f"{folder}/__init__.py" not in self.paths and f"{folder}.py" not in self.paths

    def _at(self, base: str, parts: list[str]) -> str | None:
        """Return the module below a folder, "" or with a "/" behind; a package before a file before a folder."""
        stem = base + "/".join(parts)
        if not parts:
            stem = base.removesuffix("/")
            if not stem:
                return "__init__.py" if "__init__.py" in self.paths else ""
        for path in (f"{stem}/__init__.py", f"{stem}.py"):
            if path in self.paths:
                return path
        return f"{stem}/" if stem in self._folders else None


def _shared(folder: str, importer: str) -> int:
    """Return how many parts two paths have in common."""
    count = 0
    for one, other in zip(folder.split("/"), importer.split("/"), strict=False):
        if one != other:
            break
        count += 1
    return count
