"""Find the code and the versions that a rank runs: the program's files, their digests, and the git commit."""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from allranks.callsite import is_users
from allranks.digest import digest, show

_FRAMEWORKS = ("allranks", "jax", "jaxlib", "torch", "numpy")
_MOST_FILES, _GIT_SECONDS = 5000, 5.0


def loaded_files() -> list[Path]:
    """Return the program's Python files that this process has imported so far."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(Path(file) for file in files if file and file.endswith(".py") and is_users(file))


def program_files(script_or_folder: Path) -> list[Path]:
    """Return the Python files of a program: those of a folder, or a script and the user's files that it imports."""
    return files_under(script_or_folder) if script_or_folder.is_dir() else imported_files(script_or_folder)


def files_under(script_or_folder: Path) -> list[Path]:
    """Return the Python files of a folder (of a script: of its folder), except in hidden folders and environments."""
    folder = script_or_folder if script_or_folder.is_dir() else script_or_folder.parent
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


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """Return a digest of each file, by its path below the common folder of all files.

    That folder may differ between hosts.
    """
    paths = [file.resolve() for file in files]
    if not paths:
        return {}
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return {path.relative_to(root).as_posix(): show(digest(path.read_bytes()))[:16] for path in paths if path.exists()}


def git_commit(path: Path) -> str:
    """Return the git commit that is checked out around a file or folder; "" if there is none."""
    for folder in (path, *path.parents):
        git = folder / ".git"
        if git.is_file():  # a worktree of a repository that is elsewhere
            git = folder / git.read_text().removeprefix("gitdir:").strip()
        if (git / "HEAD").is_file():
            return _resolve_head((git / "HEAD").read_text().strip(), git)
    return ""


def changed_count(files: Sequence[Path], path: Path) -> int | None:
    """Return how many files differ from the commit, including untracked ones; None if git cannot tell."""
    git = shutil.which("git")
    if git is None or not files:
        return None
    command = [git, "-C", str(path), "status", "--porcelain", "--untracked-files=all", "--", *map(str, files)]
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


def _resolve_head(head: str, git: Path) -> str:
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


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of the installed frameworks, and of other imported libraries, by name."""
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


def imported_files(script: Path) -> list[Path]:
    """Return the script and the user's files that it imports, directly or through others. No code of these files runs.

    The user's files are those below the script's folder, and packages that are installed as editable. A name that is
    computed while the program runs (``importlib.import_module(name)``) is not seen.
    """
    found: set[Path] = set()
    waiting = [(script, script.parent)]
    while waiting:
        path, root = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += (
                place
                for name in sorted(_imported_names(path, root))
                for place in _files_of_import(name, root, script.parent)
            )
    return sorted(found)


def _imported_names(path: Path, root: Path) -> set[str]:
    """Return the dotted names that a file imports.

    ``from a import b`` counts as both ``a`` and ``a.b``, because b may be a module.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # its digest is compared all the same
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(root).parent.parts
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            names |= {module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)}
    return names - {""}


def _files_of_import(name: str, *roots: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files that an import of ``name`` reads, each with the folder that contains its top-level package."""
    top, *rest = name.split(".")
    near = [root for root in roots if (root / top).is_dir() or (root / f"{top}.py").is_file()]
    root = near[0] if near else _root_of(top)
    if root is None:
        return
    at = root
    for part in (top, *rest):
        at = at / part
        for path in (at.with_name(f"{part}.py"), at / "__init__.py"):
            if path.is_file():
                yield path, root


def _root_of(top: str) -> Path | None:
    """Return the folder that contains a top-level package, if that is installed as editable; else None."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not is_users(spec.origin) or not spec.origin.endswith(".py"):
        return None
    here = Path(spec.origin).parent
    return here.parent if spec.submodule_search_locations else here
