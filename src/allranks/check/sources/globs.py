"""Patterns of paths, as .gitignore has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(r"\*\*/|/\*\*|\*\*|\*|\?|\[!?[^\]]+\]|[^*?\[]|\[")
_WILD = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@lru_cache(maxsize=4096)
def pattern(glob: str) -> re.Pattern[str]:
    """Return what matches a path ("/" between its parts) as .gitignore reads the glob.

    Without a slash it is about a name at any depth; with one, about the whole path. What matches a folder matches all
    that is in it.
    """
    anchored = "/" in glob.rstrip("/")
    text = "".join(_translated(token) for token in _TOKEN.findall(glob.strip("/")))
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{text}(?:/.*)?", re.DOTALL)


def matches(globs: Iterable[str], path: str) -> bool:
    """Return whether one of the globs is about this path."""
    return any(pattern(glob).fullmatch(path) for glob in globs)


def _translated(token: str) -> str:
    if token in _WILD:
        return _WILD[token]
    if token.startswith("[") and len(token) > 1:
        inside = token[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(token)


@dataclass(frozen=True, slots=True)
class Ignore:
    """The lines of one .gitignore that say something, in order: (pattern, taken back by "!", folders only)."""

    lines: tuple[tuple[str, bool, bool], ...]

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Return whether a path, from this file's folder, is ignored; None where no line is about it. The last wins."""
        for glob, back, folders in reversed(self.lines):
            if (folder or not folders) and pattern(glob).fullmatch(path):
                return not back
        return None


def gitignore(text: str) -> Ignore:
    """Return what a .gitignore says."""
    lines = []
    for line in text.splitlines():
        line = line.rstrip()
        if line and not line.startswith("#"):
            back = line.startswith("!")
            glob = line.removeprefix("!").replace("\\#", "#").replace("\\!", "!")
            if glob.strip("/"):
                lines.append((glob, back, glob.endswith("/")))
    return Ignore(tuple(lines))
