"""Which files a script imports, read off its text: nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from allranks.callsite import is_users


def imported_files(script: Path) -> list[Path]:
    """Return the script and the user's own files that it imports, directly or through others.

    Own files are those below the script's folder, and packages that are installed as editable. A name that is made
    while the program runs (``importlib.import_module(name)``) is not seen.
    """
    found: set[Path] = set()
    waiting = [(script, script.parent)]
    while waiting:
        path, root = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += (place for name in sorted(_names(path, root)) for place in _files(name, root, script.parent))
    return sorted(found)


def _names(path: Path, root: Path) -> set[str]:
    """Return the dotted names that a file imports; of ``from a import b`` both ``a`` and ``a.b``: b may be a module."""
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


def _files(name: str, *roots: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files that an import of ``name`` reads, each with the folder in which its top-level package is."""
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
    """Return the folder that holds a top-level package which is installed as editable; None for any other."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not is_users(spec.origin) or not spec.origin.endswith(".py"):
        return None
    here = Path(spec.origin).parent
    return here.parent if spec.submodule_search_locations else here
