"""The files of a project: found, and read. An effect; what to leave out is decided in `globs`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from allranks.check.sources.globs import Ignore, gitignore, matches
from allranks.check.sources.scripts import PAGES
from allranks.check.sources.scripts import SUFFIXES as SCRIPTS

SUFFIXES = (".py", ".ipynb", *SCRIPTS, *PAGES)
EXCLUDED = (
    ".*",
    "__pycache__",
    "__pypackages__",
    "_build",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
    "*.egg-info",
)
LARGEST = 20_000_000
MOST_IGNORES = 100_000  # bytes of a .gitignore: every path below it is compared with each of its lines


@dataclass(frozen=True, slots=True)
class Walk:
    """What to look at: ``root`` is absolute; ``exclude`` are globs from there."""

    root: Path
    exclude: tuple[str, ...] = EXCLUDED
    respect_gitignore: bool = True

    def find(self, given: Iterable[Path]) -> tuple[list[str], dict[str, str]]:
        """Return the paths from the root of Python files and notebooks among ``given`` and below, and what failed.

        What is given itself is taken, whatever excludes it. Links to folders are not followed below; a link to a file
        of the project is left out, since the file has a name already.
        """
        found: dict[str, None] = {}
        failed: dict[str, str] = {}
        for start in given:
            path = self.relative(start)
            if start.is_dir():
                found |= dict.fromkeys(self._below(path, failed))
            elif start.is_file():
                found[path] = None
            elif start.exists():
                failed[path] = "is no file, and no folder"
            else:
                failed[path] = "there is no such file or folder"
        return list(found), failed

    def relative(self, path: Path) -> str:
        """Return a path from the root, "/" between its parts."""
        return Path(os.path.relpath(path.absolute(), self.root)).as_posix()

    def _below(self, start: str, failed: dict[str, str]) -> Iterator[str]:
        exclude = tuple(glob for glob in self.exclude if start == "." or not matches((glob,), start))
        waiting = [(start, self._ignores_above(start, failed))]
        while waiting:
            folder, ignores = waiting.pop()
            try:
                entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
            except OSError as error:
                failed[folder] = _reason(error)
                continue
            if self.respect_gitignore and any(entry.name == ".gitignore" for entry in entries):
                ignores = (*ignores, *self._ignore_in(folder, failed))
            deeper = []
            for entry in entries:
                path = entry.name if folder == "." else f"{folder}/{entry.name}"
                folder_too = entry.is_dir(follow_symlinks=False)
                if not folder_too and not entry.name.endswith(SUFFIXES):
                    continue
                if matches(exclude, path) or _ignored(path, ignores, folder=folder_too):
                    continue
                if folder_too:
                    deeper.append((path, ignores))
                    continue
                try:
                    wanted = entry.is_file() and not (entry.is_symlink() and self._has_own_name(path))
                except OSError as error:  # of a link to itself
                    failed[path] = _reason(error)
                    continue
                if wanted:
                    yield path
            waiting += reversed(deeper)

    def _has_own_name(self, path: str) -> bool:
        return Path(os.path.realpath(self.root / path)).is_relative_to(os.path.realpath(self.root))

    def _ignores_above(self, start: str, failed: dict[str, str]) -> tuple[tuple[str, Ignore], ...]:
        parts = [] if start == "." else start.split("/")[:-1]
        above = [".", *("/".join(parts[: at + 1]) for at in range(len(parts)))] if start != "." else []
        return (
            tuple(one for folder in above for one in self._ignore_in(folder, failed)) if self.respect_gitignore else ()
        )

    def _ignore_in(self, folder: str, failed: dict[str, str]) -> Iterator[tuple[str, Ignore]]:
        path = self.root / folder / ".gitignore"
        if not path.is_file():  # none, or a pipe
            return
        try:
            with open(path, errors="replace") as file:
                text = file.read(MOST_IGNORES + 1)
        except OSError:  # it is not for us: nothing is ignored then
            return
        if len(text) > MOST_IGNORES:
            failed[self.relative(path)] = f"larger than {MOST_IGNORES // 1000} kB, so it excludes nothing"
            return
        yield ("" if folder == "." else f"{folder}/"), gitignore(text)


def read(root: Path, paths: Iterable[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the bytes of files by path, and why others could not be read."""
    files: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    for path in paths:
        try:
            with open(root / path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size > LARGEST:
                    failed[path] = f"larger than {LARGEST // 1_000_000} MB"
                else:
                    files[path] = file.read()
        except OSError as error:
            failed[path] = _reason(error)
    return files, failed


def _ignored(path: str, ignores: Iterable[tuple[str, Ignore]], *, folder: bool) -> bool:
    """Return what the innermost .gitignore that says something about a path says."""
    for base, ignore in reversed(tuple(ignores)):
        if path.startswith(base) and (verdict := ignore.verdict(path[len(base) :], folder=folder)) is not None:
            return verdict
    return False


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
