"""Find out what a Python frame calls in C, where no Python frame shows it: a jitted function, a wait for an array.

It parses the source of the call in the calling frame, and resolves the names in that call.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from allranks.source import parse

_NOTHING = object()
# Methods of arrays that wait for the device.
_WAITS = frozenset(["block_until_ready", "item", "cpu", "tolist", "synchronize"])


def waits_for_device(frame: FrameType | None) -> str:
    """Return the source of a frame's current call if that call runs a JAX program or waits for an array; else ""."""
    expression = None if frame is None else _call_expression(frame.f_code, frame.f_lasti)
    if frame is None or expression is None:
        return ""
    called = expression.func
    kind = type(_resolve_name(called, frame))
    jitted = kind.__module__.startswith("jaxlib") and kind.__name__.endswith("Function")
    waits = isinstance(called, ast.Attribute) and (called.attr in _WAITS or _is_work(called, frame))
    return ast.unparse(expression) if jitted or waits else ""


def _is_work(called: ast.Attribute, frame: FrameType) -> bool:
    """Return whether a call waits for a torch collective or for data of another rank, e.g. ``work.wait()``."""
    if called.attr != "wait":
        return False
    if isinstance(called.value, ast.Call):  # dist.irecv(...).wait()
        return getattr(_resolve_name(called.value.func, frame), "__module__", "").startswith("torch.distributed")
    return type(_resolve_name(called.value, frame)).__module__.startswith("torch.")


@lru_cache(maxsize=256)
def _call_expression(code: CodeType, instruction: int) -> ast.Call | None:
    """Return the call at an instruction of a code object, parsed from its source; None without a call or a source."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or None in position or code.co_filename not in linecache.cache:
        return None
    first, last, begin, end = (number or 0 for number in position)
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[first - 1 : last]]
    if not lines:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    parsed = parse(b"".join(lines).decode(errors="replace"), "eval")
    return parsed.body if isinstance(parsed, ast.Expression) and isinstance(parsed.body, ast.Call) else None


def _resolve_name(word: ast.expr, frame: FrameType) -> object:
    """Return the object that a name or a dotted name means in a frame, without calling anything."""
    if isinstance(word, ast.Name):
        return frame.f_locals.get(word.id, frame.f_globals.get(word.id, _NOTHING))
    if isinstance(word, ast.Attribute) and (owner := _resolve_name(word.value, frame)) is not _NOTHING:
        return inspect.getattr_static(owner, word.attr, _NOTHING)
    return _NOTHING
