"""Which code and which versions a rank runs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from allranks.callsite import is_users
from allranks.digest import digest, show
from allranks.readiness.imports import imported_files

_FRAMEWORKS = ("allranks", "jax", "jaxlib", "torch", "numpy")
_MOST_FILES, _GIT_SECONDS = 5000, 5.0


def loaded_files() -> list[Path]:
    """Return the Python files of the program itself that are imported by now."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(Path(file) for file in files if file and file.endswith(".py") and is_users(file))


def program_files(place: Path) -> list[Path]:
    """Return the Python files of a program: those of a folder, or a script and what it imports of the user's own."""
    return files_under(place) if place.is_dir() else imported_files(place)


def files_under(place: Path) -> list[Path]:
    """Return the Python files of a folder (of a script: of its folder), without hidden folders and environments."""
    folder = place if place.is_dir() else place.parent
    found: list[Path] = []
    for here, folders, files in os.walk(folder):
        at = Path(here)
        folders[:] = sorted(
            f for f in folders if not f.startswith((".", "__")) and not (at / f / "pyvenv.cfg").exists()
        )
        found += [at / file for file in sorted(files) if file.endswith(".py")]
        if len(found) > _MOST_FILES:
            break
    return found[:_MOST_FILES]


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Return a digest of each file, by its path below the folder that all are in: hosts may have it elsewhere."""
    paths = [file.resolve() for file in files]
    if not paths:
        return {}
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return {path.relative_to(root).as_posix(): show(digest(path.read_bytes()))[:16] for path in paths if path.exists()}


def commit(place: Path) -> str:
    """Return the git commit that is checked out around a file or folder, "" where there is none."""
    for folder in (place, *place.parents):
        git = folder / ".git"
        if git.is_file():  # a worktree of a repository that is elsewhere
            git = folder / git.read_text().removeprefix("gitdir:").strip()
        if (git / "HEAD").is_file():
            return _resolved((git / "HEAD").read_text().strip(), git)
    return ""


def changed(files: Sequence[Path], place: Path) -> int | None:
    """Return how many of the files are not as they were committed, untracked ones too; None if git cannot say that."""
    git = shutil.which("git")
    if git is None or not files:
        return None
    command = [git, "-C", str(place), "status", "--porcelain", "--untracked-files=all", "--", *map(str, files)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return None if done.returncode else done.stdout.count(b"\n")


def _resolved(head: str, git: Path) -> str:
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    common = git / "commondir"
    whole = git / common.read_text().strip() if common.is_file() else git
    if (whole / name).is_file():
        return (whole / name).read_text().strip()
    packed = whole / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


def versions() -> dict[str, str]:
    """Return the versions of Python, of the frameworks that are installed, and of what else is imported."""
    found = {"python": platform.python_version()}
    for name, module in sorted(sys.modules.items()):
        version = vars(module).get("__version__") if "." not in name and module is not None else None
        if isinstance(version, str) and not is_users(getattr(module, "__file__", None) or ""):
            found[name] = version
    for name in _FRAMEWORKS:
        try:
            found.setdefault(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
    return found
