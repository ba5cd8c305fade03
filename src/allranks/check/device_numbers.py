"""Where the rank in the job stands for the number of a GPU of this host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from allranks.check.nodes import walk
from allranks.check.origins import origins, passed, values
from allranks.check.source import File
from allranks.check.syntax import inside, keyword, name_of, tail_of
from allranks.check.tables.data import WRAPPERS

SET_DEVICE = re.compile(r"^torch\.(cuda|npu|mlu|xpu|musa|accelerator)\.set_device")
_PREFIXES = ("cuda:", "npu:", "xpu:", "mlu:", "musa:", "hpu:")
_RANK_CALLS = ("horovod.rank",)
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def by_rank_in_job(file: File) -> tuple[ast.expr, ...]:
    """Return the calls that set the device by the rank in the job, or else the first call or text that names one so
    where there are several processes. None where all processes are on one host.
    """
    if any(word in file.text for word in ("spawn(", "start_processes", "Process(")):
        return ()
    named = (at for at in file.nodes if isinstance(at, ast.Call | ast.JoinedStr))
    wrong = [at for at in named if any(_is_global(d, file, 0) for d in _devices(at, file))]
    sets = [at for at in wrong if SET_DEVICE.search(name_of(at, file))]
    if sets or ("init_process_group" not in file.text and "is_initialized" not in file.text):
        return tuple(sets)
    return tuple(sorted(wrong, key=lambda at: at.lineno)[:1])


def _devices(call: ast.Call | ast.JoinedStr, file: File) -> Iterator[ast.expr]:
    """Yield the numbers of devices that a call is given, or that a text names."""
    if isinstance(call, ast.JoinedStr):
        head = call.values[0] if len(call.values) == 2 else None
        if isinstance(head, ast.Constant) and str(head.value) in _PREFIXES:
            yield _number(call)
        return
    name = name_of(call, file)
    if SET_DEVICE.search(name):
        yield from map(_number, call.args[:1])
    elif name == "torch.device":
        yield from map(_number, call.args[1:2] or call.args[:1])
    elif name in WRAPPERS and isinstance(ids := keyword(call, "device_ids"), ast.List):
        yield from ids.elts
    elif name == "torch.cuda.device" or (tail_of(call) == "cuda" and isinstance(call.func, ast.Attribute)):
        yield from call.args[:1]


def _number(device: ast.expr) -> ast.expr:
    """Return what stands behind the colon of ``f"cuda:{rank}"``."""
    if isinstance(device, ast.JoinedStr) and device.values and isinstance(device.values[-1], ast.FormattedValue):
        return device.values[-1].value
    return device


def _is_global(node: ast.expr, file: File, depth: int) -> bool:
    """``node`` is for certain the rank in the job, as it is."""
    made = origins(node, file)
    if depth > 6 or "global" not in made or not made <= {"global", "local"}:
        return False
    if isinstance(node, ast.Call):
        if tail_of(node) == "int" and node.args:
            return _is_global(node.args[0], file, depth + 1)
        asked = tail_of(node) in ("get_rank", "get_global_rank") or name_of(node, file) in _RANK_CALLS
        return asked or _is_variable(node.args[:1])
    if isinstance(node, ast.Subscript):
        return _is_variable([node.slice])
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        return node.attr in ("rank", "global_rank")
    stored = values(node, file) or passed(node, file)
    sure = [one for one in stored if _is_global(one, file, depth + 1)]
    if made == {"global"}:
        return bool(stored) and len(sure) == len(stored)
    # Where the processes are joined it is the rank in the job, and only else the one on the node.
    return any(_is_joined(parent.test) for one in sure for parent, _ in inside(one, file) if _asks(parent, one))


def _asks(parent: ast.AST, inner: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(parent, ast.If) and any(inner in walk(s) for s in parent.body)


def _is_joined(test: ast.expr) -> bool:
    return any(isinstance(at, ast.Call) and tail_of(at) == "is_initialized" for at in walk(test))


def _is_variable(names: list[ast.expr]) -> bool:
    return any(isinstance(n, ast.Constant) and n.value in _RANK_VARIABLES for n in names)
