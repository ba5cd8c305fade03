"""Find out from the sources of a stack whether a thread runs code under a condition on the rank (``if rank == 0:``)."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

from allranks.callsite import is_users, short_path
from allranks.hang import stacks
from allranks.source import parse

# What programs call their rank, or being rank 0.
_RANK = re.compile(
    r"r|(.*_)?(rank|process_(index|id)|(is_)?(main|master)(_process|_rank)?|(is_)?(rank|global|world)_zero)",
    re.IGNORECASE,
)
# (first line, last line, line of the condition, its words) of what is run where a condition on the rank holds or fails.
_Branch = tuple[int, int, int, str]


def rank_branch(frame: FrameType | None) -> str:
    """Return the innermost condition on the rank around a stack, e.g. ``if rank == 0 (train.py:14)``; else "".

    Only sources that were read before the hang are used (``stacks.remember``).
    """
    for step in stacks.frames_outward(frame):
        file = step.f_code.co_filename
        if not is_users(file) or file not in linecache.cache:
            continue
        line = step.f_lineno or 0
        below = [branch for branch in _branches_of_file(file) if branch[0] <= line <= branch[1]]
        if below:
            _, _, at, words = below[-1]
            return f"if {words} ({short_path(file)}:{at})"
    return ""


@lru_cache(maxsize=256)
def _branches_of_file(file: str) -> tuple[_Branch, ...]:
    tree = parse("".join(linecache.getlines(file)))
    return () if tree is None else tuple(sorted(_rank_branches_of(tree)))


def _rank_branches_of(tree: ast.AST) -> Iterator[_Branch]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any(map(_is_rank, ast.walk(node.test))):
            for words, run in ((ast.unparse(node.test), node.body), (f"not ({ast.unparse(node.test)})", node.orelse)):
                if run:
                    yield run[0].lineno, run[-1].end_lineno or run[-1].lineno, node.lineno, words


def _is_rank(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(_RANK.fullmatch(name.removeprefix("get_")))
