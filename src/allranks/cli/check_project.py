"""Find the project to check, its settings in pyproject.toml, and its files."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from allranks.check.config import Config, ConfigWrong, read
from allranks.check.sources.files import EXCLUDED, Walk
from allranks.check.sources.files import read as read_files
from allranks.check.sources.reach import candidates
from allranks.check.sources.scripts import is_text
from allranks.cli.pyproject import table_of

# In a project of more Python files than this, who imports a part of it is not looked for.
MANY = 2_000


@dataclass(frozen=True, slots=True)
class Project:
    """The project to check. Its paths are relative to ``root``. ``where`` is the pyproject.toml that was used, or "".

    ``known``: a pyproject.toml or a .git shows that this is a project. Otherwise it is only a folder.
    """

    root: Path
    config: Config
    where: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class Files:
    """The files to check.

    - ``files``: the bytes of each file, by its path from the root. ``failed``: why other files could not be read.
    - ``shown``: the files whose findings are shown (None: all).
    - ``complete``: whether these are all files of the project.
    - ``importers_skipped``: files that import these files were not searched for: the project is too large, or this is
      only a folder.
    """

    files: dict[str, bytes]
    failed: dict[str, str]
    shown: frozenset[str] | None = None
    complete: bool = False
    importers_skipped: bool = False


def project_of(paths: Sequence[Path]) -> Project:
    """Return the project of these paths: the closest folder above them with [tool.allranks.check].

    If there is none, use the closest folder with a pyproject.toml or a .git, or else the working folder. Raises
    ConfigWrong.
    """
    cwd = Path.cwd()
    start = Path(os.path.commonpath([_folder(path) for path in paths])) if paths else cwd
    fallback = None
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if (config := _config(file)) is not None:
            return Project(folder, config, os.fspath(file))
        if fallback is None and (file.exists() or (folder / ".git").exists()):
            fallback = folder
    return Project(fallback or (cwd if start.is_relative_to(cwd) else start), Config(), known=fallback is not None)


def overridden(config: Config, arguments: Namespace) -> Config:
    """Return the configuration with the options of the command line applied.

    Options that extend a list are added to it; all other options replace the configured value.
    """
    return config.with_(
        select=arguments.select,
        ignore=(*config.ignore, *arguments.ignore) if arguments.ignore else None,
        extend_select=(*config.extend_select, *arguments.extend_select) if arguments.extend_select else None,
        assume=arguments.assume,
        confidence=arguments.confidence,
        precision=arguments.precision,
        entry_points=tuple(arguments.entry) if arguments.entry else None,
        extend_exclude=(*config.extend_exclude, *arguments.exclude) if arguments.exclude else None,
        fail_on=arguments.fail_on,
        output_format=arguments.output_format,
        baseline=arguments.baseline,
    )


def files_of(project: Project, paths: Sequence[Path]) -> Files:
    """Return the files at and below the paths, and the other files that the check needs.

    If the paths are only a part of a project, the other files are: files that import them, scripts and pages, and what
    all of these import. Raises ConfigWrong for a path that does not exist.
    """
    for path in paths:
        if not path.exists():
            raise ConfigWrong(f"{path}: no such file or folder")
    walk = walk_of(project)
    found, lost = walk.find(paths)
    files, failed = read_files(project.root, found)
    if any(project.root.is_relative_to(os.path.abspath(path)) for path in paths):
        return Files(files, {**lost, **failed}, complete=True)
    return part_of(project, files, {**lost, **failed})


def part_of(project: Project, files: Mapping[str, bytes], failed: dict[str, str]) -> Files:
    """Return these files, which are a part of a project, together with the project's files around them."""
    around, skipped = surroundings(project, files)
    return Files({**around, **files}, failed, frozenset(files), importers_skipped=skipped)


def walk_of(project: Project) -> Walk:
    config = project.config
    exclude = (*(EXCLUDED if config.exclude is None else config.exclude), *config.extend_exclude)
    return Walk(project.root, exclude, config.respect_gitignore)


def surroundings(project: Project, files: Mapping[str, bytes]) -> tuple[dict[str, bytes], bool]:
    """Return the files of the project that import ``files``, and all files that any of these import.

    ``files`` themselves are left out; scripts and pages are included. The second value is whether the search for
    importing files was skipped: in a project of more than `MANY` Python files, and in a folder that is no project.
    """
    above: dict[str, bytes] = {}
    others = [path for path in walk_of(project).find([project.root])[0] if path not in files] if project.known else []
    skipped = not project.known or sum(not is_text(path) for path in others) > MANY
    if not skipped:
        texts, _ = read_files(project.root, others)
        above = {
            path: texts[path] for path in {*importers({**texts, **files}, files), *filter(is_text, texts)} - {*files}
        }
    near = {**above, **files}
    return {**reached(project, near, near), **above}, skipped


def importers(files: Mapping[str, bytes], names: Iterable[str]) -> set[str]:
    """Return the files that import one of these names, directly or through other files."""
    by: dict[str, set[str]] = {}
    for path, raw in files.items():
        for imported in candidates(path, raw) if not is_text(path) else ():
            by.setdefault(imported, set()).add(path)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        new = by.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def reached(project: Project, files: Mapping[str, bytes], names: Iterable[str]) -> dict[str, bytes]:
    """Return the project's files that the files ``names`` import, directly or through other files.

    Files in ``files`` are left out.
    """
    more: dict[str, bytes] = {}
    waiting = list(names)
    seen = set(files)
    while waiting:
        name = waiting.pop()
        raw = files[name] if name in files else more[name]
        new = [path for path in dict.fromkeys(candidates(name, raw)) if path not in seen]
        seen.update(new)
        found, _ = read_files(project.root, [path for path in new if (project.root / path).is_file()])
        more |= found
        waiting += found
    return more


def _folder(path: Path) -> Path:
    path = Path(os.path.abspath(path))
    return path if path.is_dir() else path.parent


def _config(file: Path) -> Config | None:
    table = table_of(file, "check")
    if table is None:
        return None
    config = read(table, os.fspath(file))
    return replace(config, baseline=os.fspath(file.parent / config.baseline)) if config.baseline else config
