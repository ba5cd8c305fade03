"""Which files of the project a file imports, by name alone: who checks one file needs the others it calls. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

_IMPORT = re.compile(
    rb"^[ \t]*(?:import[ \t]+(?P<modules>[\w., \t]+)"
    rb"|from[ \t]+(?P<base>[\w.]+)[ \t]+import[ \t]*(?P<names>\([^)]{,20000}\)|[^\n#]*))",
    re.MULTILINE,
)
_AS = re.compile(rb"\s+as\s+\w+|#[^\n]*")


def candidates(path: str, raw: bytes) -> Iterator[str]:
    """Yield the paths where what a file imports may stand: beside it, from the root, or below ``src``.

    Paths may come twice, and most are not there: what is installed is not the project's.
    """
    folder = posixpath.dirname(path)
    for match in _IMPORT.finditer(raw):
        if match["modules"] is not None:
            for module in _AS.sub(b"", match["modules"]).split(b","):
                yield from _files(folder, module.strip().decode("ascii", "ignore"), ())
        else:
            names = _AS.sub(b"", match["names"]).strip(b"() \t\r\\").split(b",")
            yield from _files(
                folder,
                match["base"].decode("ascii", "ignore"),
                tuple(name.strip().decode("ascii", "ignore") for name in names),
            )


def _files(folder: str, module: str, names: tuple[str, ...]) -> Iterator[str]:
    dots = len(module) - len(module.lstrip("."))
    parts = module.strip(".").split(".") if module.strip(".") else []
    bases = ("/".join([folder, *[".."] * (dots - 1)]),) if dots else (folder, "", "src")
    for base in dict.fromkeys(bases):
        for length in range(1, len(parts) + 1):
            yield from _module(base, parts[:length])
        for name in names:
            if name.isidentifier():
                yield from _module(base, [*parts, name])
        if dots:
            yield posixpath.normpath(posixpath.join(base, "__init__.py"))


def _module(base: str, parts: list[str]) -> Iterator[str]:
    path = posixpath.normpath(posixpath.join(base, *parts))
    if not path.startswith(".."):
        yield f"{path}.py"
        yield f"{path}/__init__.py"
