"""Patterns of paths, as .gitignore has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_TOKEN = re.compile(r"(?:(?<=/)|\A)\*\*/|/\*\*(?=/|\Z)|\*\*|\*|\?|\[!?[^\]]+\]|[^*?\[]|\[")
_DEEP = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*"}


@lru_cache(maxsize=4096)
def pattern(glob: str) -> re.Pattern[str]:
    """Return what matches a path ("/" between its parts) as .gitignore reads the glob.

    Without a slash it is about a name at any depth; with one, about the whole path. What matches a folder matches all
    that is in it.
    """
    anchored = "/" in glob.rstrip("/")
    text = _path_pattern(_TOKEN.findall(re.sub(r"\*{3,}", "**", glob.strip("/"))))
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{text}(?:/.*)?", re.DOTALL)


def matches(globs: Iterable[str], path: str) -> bool:
    """Return whether one of the globs is about this path."""
    return any(pattern(glob).fullmatch(path) for glob in globs)


def _path_pattern(tokens: Sequence[str]) -> str:
    """Return the pattern of a path: parts between wildcards that match any folders."""
    begins = [at for at, one in enumerate(tokens) if at == 0 or one in _DEEP]
    parts = []
    for begin, end in pairwise([*begins, len(tokens)]):
        deep = tokens[begin] if tokens[begin] in _DEEP else ""
        following = tokens[end] if end < len(tokens) else ""
        text = _name_pattern(tokens[begin + bool(deep) : end], begin, goes_on=following == "**")
        text += "(?=/|\\Z)" if following == "/**" else ""
        parts.append(_after(_DEEP.get(deep, ""), text, begin, goes_on=following != ""))
    return "".join(parts)


def _name_pattern(tokens: Sequence[str], number: int, *, goes_on: bool) -> str:
    """Return the pattern of a part of a path, in which ``*`` does not match a slash.

    ``goes_on``: a wildcard follows that matches the rest of the last name.
    """
    begins = [at for at, one in enumerate(tokens) if at == 0 or one == "*"]
    parts = []
    for begin, end in pairwise([*begins, len(tokens)]):
        text = "".join(_translated(one) for one in tokens[begin:end] if one != "*")
        in_name = "/" not in tokens[begin:end] and (goes_on or end < len(tokens))
        parts.append(_after("[^/]*" if tokens[begin] == "*" else "", text, f"{number}_{begin}", goes_on=in_name))
    return "".join(parts)


def _after(wildcard: str, text: str, number: object, *, goes_on: bool) -> str:
    """Return the pattern of a wildcard and what follows it.

    If it ``goes_on`` with another wildcard, which matches all that is between, the first place is as good as any later
    one. So no other one is tried (a group that is atomic), and a name is matched in a time linear in its length.
    """
    if not wildcard or not goes_on:
        return wildcard + text
    lazy = wildcard.replace("*", "*?") + ("?" if wildcard.endswith("?") else "")
    return f"(?=(?P<g{number}>{lazy}{text}))(?P=g{number})"


def _translated(one: str) -> str:
    if one == "?":
        return "[^/]"
    if one.startswith("[") and len(one) > 1:
        inside = re.sub(r"[\\\[&|~]|-(?=-)", r"\\\g<0>", one[1:-1])
        chosen = f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        try:
            re.compile(chosen)
        except re.error:  # [z-a]
            return re.escape(one)
        return f"(?!/){chosen}"
    return re.escape(one)


@dataclass(frozen=True, slots=True)
class Ignore:
    """The lines of one .gitignore that say something, in order: (pattern, taken back by "!", folders only)."""

    lines: tuple[tuple[re.Pattern[str], bool, bool], ...]

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Return whether a path, from this file's folder, is ignored; None where no line is about it. The last wins."""
        for glob, back, folders in reversed(self.lines):
            if (folder or not folders) and glob.fullmatch(path):
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
                lines.append((pattern(glob), back, glob.endswith("/")))
    return Ignore(tuple(lines))
