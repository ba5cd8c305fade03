"""Comparisons, as four processes of a running job see them: a rank is never -1, the world is never of size 1."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from allranks.check.interpret.truth import BY_PROCESS, BY_RANK, FALSE, TRUE, UNKNOWN, negate
from allranks.check.interpret.values import (
    ALONE,
    CLOCK,
    MANY,
    NO_CONSTANT,
    PROCESS,
    RANKS,
    SIZE,
    Value,
    boolean,
    replace,
    tainted,
)

_PLAIN: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Kinds of devices: all ranks have the same, and a number each.
_KINDS = ("cuda", "cpu", "mps", "gpu", "xpu", "npu", "tpu", "hpu", "meta")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def compared(left: Value, symbol: str, right: Value) -> Value:
    """Return the truth of ``left symbol right``."""
    taint = left.taint | right.taint
    if symbol in ("is", "is not", "==", "!=") and right.constant is None:
        truth = left.is_none()
        return boolean(truth if symbol in ("is", "==") else negate(truth), taint)
    if left.number or right.number:
        return boolean(_of_rank(left, symbol, right), taint)
    if left.instance == SIZE or right.instance == SIZE:
        made = boolean(_of_size(left, symbol, right), taint)
        return replace(made, flags=MANY) if made.constant is not NO_CONSTANT else made
    one, two = left.constant, right.constant
    if one is not NO_CONSTANT and two is not NO_CONSTANT and symbol in _PLAIN:
        try:
            return boolean(TRUE if _PLAIN[symbol](one, two) else FALSE, taint)
        except TypeError:
            return boolean(UNKNOWN, taint)
    if isinstance(two, bool) and symbol in ("is", "==", "is not", "!="):
        same = (symbol in ("is", "==")) == two
        return boolean(left.true() if same else negate(left.true()), taint)
    if symbol in ("in", "not in") and one is not NO_CONSTANT and right.elements:
        constants = [element.constant for element in right.elements]
        if NO_CONSTANT not in constants:
            return boolean(TRUE if (one in constants) == (symbol == "in") else FALSE, taint)
    if symbol in ("in", "not in") and not right.ranked and right.elements is None:
        return boolean(BY_PROCESS if right.taint & PROCESS else UNKNOWN, right.taint)
    if taint & RANKS and two == -1 and one is NO_CONSTANT and not set("TF") & set(left.true()):
        return boolean(UNKNOWN, taint)  # no rank: all have one, or none has
    if taint & RANKS:
        return boolean(UNKNOWN if one in _KINDS or two in _KINDS else BY_RANK, taint)
    # Numbers that come from a listing (the step of the latest checkpoint) are mostly the same everywhere.
    own = taint & (CLOCK | ALONE) or (taint & PROCESS and symbol in ("==", "!=") and isinstance(two, str))
    return boolean(BY_PROCESS if own else UNKNOWN, taint)


def left_over(left: Value, right: Value) -> Value:
    """Return what ``left % right`` leaves: of a step that was found in a folder, what all find who go on from there."""
    made, flags = tainted(replace(left, taint=left.taint & ~PROCESS), right), left.flags | right.flags
    return replace(made, flags=flags) if flags else made


def _of_rank(left: Value, symbol: str, right: Value) -> str:
    if not left.number:
        return _of_rank(right, _MIRRORED[symbol], left) if symbol in _MIRRORED else BY_RANK
    if right.instance == SIZE and symbol in _PLAIN:
        return TRUE if symbol in ("<", "<=", "!=") else FALSE
    zero = negate(left.truth or left.true())
    if symbol in ("in", "not in"):
        truth = _in(zero, right)
        return truth if symbol == "in" else negate(truth)
    other = right.constant
    if isinstance(other, str) and other.lstrip("-").isdigit():  # a variable of the environment, as it stands there
        other = int(other)
    if not isinstance(other, int) or isinstance(other, bool):
        return _unlike_first(zero) if right.taint == left.taint == 0 else BY_RANK
    if symbol in ("!=", ">", ">="):
        return negate(_of_rank(left, {"!=": "==", ">": "<=", ">=": "<"}[symbol], right))
    if symbol == "==":
        return zero if other == 0 else FALSE if other < 0 else _unlike_first(zero)
    bound = other if symbol == "<=" else other - 1  # rank <= bound
    if bound < 0:
        return FALSE
    return zero if bound == 0 else zero.replace("F", "D")


def _unlike_first(zero: str) -> str:
    """``rank == 3``: false for the first, true for one of the others."""
    return "".join("F" if letter == "T" else "D" for letter in zero)


def _in(zero: str, right: Value) -> str:
    constants = [element.constant for element in right.elements or ()]
    if not constants or not all(isinstance(c, int) for c in constants):
        return BY_RANK
    if all(c <= 0 for c in constants if isinstance(c, int)):
        return zero if 0 in constants else FALSE
    return "".join("T" if letter == "T" and 0 in constants else "D" for letter in zero)


def _of_size(left: Value, symbol: str, right: Value) -> str:
    if left.instance != SIZE:
        return _of_size(right, _MIRRORED[symbol], left) if symbol in _MIRRORED else UNKNOWN
    other = right.constant
    if not isinstance(other, int) or symbol not in _PLAIN or other > 2 or (other == 2 and symbol not in ("<", ">=")):
        return UNKNOWN
    # More than one, and as many as it takes.
    return TRUE if _PLAIN[symbol](1_000, other) else FALSE
