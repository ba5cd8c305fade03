"""Explain why only some ranks make a call: conditions on the rank, and loops that some ranks have left early.

A rank reports the user's functions on its stack: for each function its line, and the branches around that line. If two
ranks are in one function, and one rank is past a loop in which the other still is, it has left that loop early. This
module does no I/O.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.errors import name_ranks
from allranks.source import parse

_ABOUT_RANKS = re.compile(
    r"(?i)(^|_)(rank_?\d*|rank_zero|process_index|process_id)$|^(main|master|leader|lead|chief|coordinator)$"
    r"|^is_.*(main|master|zero|primary|leader|chief|coordinator)"
)
_LOOPS, _LEAVES = (ast.For, ast.AsyncFor, ast.While), (ast.Return, ast.Continue, ast.Break, ast.Raise)
ON_ALL_RANKS = "Call it on every rank, and guard only what is done with the result."
EQUAL_STEPS = (
    "Give all ranks equally many steps (drop_last=True, allranks.shard), or let them stop together: world.any(done)."
)


@dataclass(frozen=True, slots=True)
class BranchRange:
    """The lines ``first`` to ``last`` of a file, which run under the ``if`` or loop ``text`` in line ``line``.

    ``is_loop``: the statement is a loop, otherwise it is a condition on the rank. ``function`` is the first line of the
    function around it (0 for none).
    """

    is_loop: bool
    line: int
    text: str
    first: int
    last: int
    function: int


def branches_of_source(source: str) -> list[BranchRange]:
    """Return the loops and the conditions on the rank in a source, outermost first; none if it does not parse."""
    tree = parse(source)
    return [] if tree is None else list(_branches_below(tree, 0))


def _branches_below(node: ast.AST, function: int) -> Iterator[BranchRange]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block: Any = getattr(node, name, None)
        for statement in block if isinstance(block, list) else ():
            yield from _branches_of_statement(statement, function, block[-1].end_lineno)
            within = function
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                within = min([statement.lineno, *(one.lineno for one in statement.decorator_list)])
            yield from _branches_below(statement, within)


def _branches_of_statement(node: ast.stmt, function: int, end: int) -> Iterator[BranchRange]:
    """Yield the branches of a statement; ``end`` is the last line of the block that contains the statement."""
    if isinstance(node, _LOOPS):
        head = f"while {ast.unparse(node.test)}" if isinstance(node, ast.While) else _loop_header(node)
        yield BranchRange(True, node.lineno, head, node.lineno, node.body[-1].end_lineno or end, function)
    elif isinstance(node, ast.If) and _is_about_ranks(node.test):
        condition = f"if {ast.unparse(node.test)}"
        last = node.body[-1].end_lineno or end
        yield BranchRange(False, node.lineno, condition, node.body[0].lineno, last, function)
        if node.orelse:
            first, last = node.orelse[0].lineno, node.orelse[-1].end_lineno or end
            yield BranchRange(False, node.lineno, f"else of {condition}", first, last, function)
        elif isinstance(node.body[-1], _LEAVES):
            left = f"{condition}: {ast.unparse(node.body[-1]).partition(' ')[0]}"
            yield BranchRange(False, node.lineno, left, last + 1, end, function)


def _loop_header(node: ast.For | ast.AsyncFor) -> str:
    return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"


def _is_about_ranks(test: ast.expr) -> bool:
    names = (getattr(one, "id", None) or getattr(one, "attr", None) or "" for one in ast.walk(test))
    return any(map(_ABOUT_RANKS.search, names))


# Of a rank, from its outermost function: the file's name, the function's first line, the rank's line, its branches.
Frames = Sequence[Sequence[Any]]


def frame_as_json(path: str, function: int, line: int, branches: Sequence[BranchRange]) -> list[Any]:
    """Return a frame as a list of JSON values; ``branches`` are the branches of its file."""
    around = [one for one in branches if one.function == function and one.first <= line <= one.last]
    return [path, function, line, [[one.is_loop, one.line, one.text, one.first, one.last] for one in around]]


@dataclass(frozen=True, slots=True)
class DivergenceReason:
    """An explanation for a call that only some ranks make.

    ``text`` is the explanation, ``ranks`` are the ranks that differ, and ``remedy`` says what to do. ``is_guarded``:
    only one rank makes the call, under a condition on the rank.
    """

    text: str
    ranks: tuple[int, ...]
    remedy: str
    is_guarded: bool = False


def divergence_reason(groups: Sequence[tuple[Sequence[int], Frames]]) -> DivergenceReason | None:
    """Return why groups of ranks make different calls, from their frames; None if no reason is found.

    ``groups`` are pairs of the ranks and their frames.
    """
    for at, (ranks, frames) in enumerate(groups):
        others = [*groups[:at], *groups[at + 1 :]]
        for path, function, _, around in frames:
            there = [_line_in_function(function, path, frames) for _, frames in others]
            for is_loop, line, text, first, last in around:
                if is_loop and all(one is not None and one[0] > last for one in there):
                    return _left_loop_reason([rank for other, _ in others for rank in other], text, f"{path}:{line}")
                arms = [one[1].get(line) for one in there if one is not None]
                if not is_loop and not any(arms):
                    return _guarded_reason(ranks, text, f"{path}:{line}")
                if any(arm not in (None, first) for arm in arms):
                    return None  # both arms of one condition
    return None


def _line_in_function(function: int, path: str, frames: Frames) -> tuple[int, dict[int, int]] | None:
    """Return a rank's line in a function, and the branches around it; None if the rank is not in that function.

    The branches are a mapping from the line of the statement to the first line that runs under it.
    """
    found = (one for one in frames if one[0] == path and one[1] == function)
    return next(((line, {branch[1]: branch[3] for branch in around}) for _, _, line, around in found), None)


def _left_loop_reason(ranks: Sequence[int], text: str, where: str) -> DivergenceReason:
    why = f"{name_ranks(ranks)} {'has' if len(ranks) == 1 else 'have'} left the loop early, `{text}` ({where})"
    return DivergenceReason(why, tuple(ranks), EQUAL_STEPS)


def _guarded_reason(ranks: Sequence[int], text: str, where: str) -> DivergenceReason:
    verb = "makes" if len(ranks) == 1 else "make"
    why = f"only {name_ranks(ranks)} {verb} the call, under `{text}` ({where})"
    return DivergenceReason(why, tuple(ranks), ON_ALL_RANKS, is_guarded=len(ranks) == 1)


def reason_of_guard(ranks: Sequence[int], frames: Frames) -> DivergenceReason | None:
    """Return the explanation if these ranks wait under a condition on the rank, and the other ranks have ended; else
    None.
    """
    found = ((path, *one) for path, _, _, around in frames for one in around if not one[0])
    return next((_guarded_reason(ranks, text, f"{path}:{line}") for path, _, line, text, *_ in found), None)
