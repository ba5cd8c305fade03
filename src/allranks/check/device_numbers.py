"""Where the rank in the job stands for the number of a GPU of this host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from allranks.check.nodes import walk
from allranks.check.origins import origins, passed, values
from allranks.check.source import File
from allranks.check.syntax import calls_of, inside, is_constant, keyword, name_of, speaks_of, tail_of
from allranks.check.tables.data import WRAPPERS

SET_DEVICE = re.compile(r"^torch\.(cuda|npu|mlu|xpu|musa|accelerator)\.set_device")
# The same through what hides the kind of accelerator: deepspeed's get_accelerator().
_ACCELERATOR = re.compile(r"accelerator|platform|device_module", re.IGNORECASE)
_KIND = re.compile(r"device|accelerator|backend", re.IGNORECASE)
_PREFIXES = ("cuda:", "npu:", "xpu:", "mlu:", "musa:", "hpu:")
# The last parts of the calls that take the number of a device.
_NAMED = ("set_device", "set_device_index", "device", "cuda", "to", *sorted({n.rpartition(".")[2] for n in WRAPPERS}))
_RANK_CALLS = ("horovod.rank",)
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def by_rank_in_job(file: File) -> tuple[ast.expr, ...]:
    """Return the calls that set the device by the rank in the job, or else the first call or text that names one so
    where there are several processes. None where all processes are on one host.
    """
    if any(word in file.text for word in ("spawn(", "start_processes", "Process(")):
        return ()
    by_name = calls_of(file)
    mapped = [call for calls in by_name.values() for call in calls if keyword(call, "device_map") is not None]
    calls = dict.fromkeys([*(call for word in _NAMED for call in by_name.get(word, ())), *mapped])
    named = (*calls, *file.kinds.get(ast.JoinedStr, ()), *file.kinds.get(ast.BinOp, ()))
    wrong = [at for at in named if any(_is_global(d, file, 0) for d in _devices(at, file))]
    sets = [at for at in wrong if _sets_device(at, file) or (isinstance(at, ast.Call) and _mapped_to(at))]
    if sets or ("init_process_group" not in file.text and "is_initialized" not in file.text):
        return tuple(sets)
    return tuple(sorted(wrong, key=lambda at: (at.lineno, at.col_offset))[:1])


def _sets_device(at: ast.AST, file: File) -> bool:
    if SET_DEVICE.search(name_of(at, file)):
        return True
    hidden = isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr == "set_device"
    return hidden and bool(_ACCELERATOR.search(ast.unparse(at)))


def _mapped_to(call: ast.Call) -> ast.expr | None:
    """Return the device of ``device_map={"": device}``."""
    where = keyword(call, "device_map")
    return where.values[0] if isinstance(where, ast.Dict) and len(where.values) == 1 else None


def _devices(call: ast.Call | ast.JoinedStr | ast.BinOp, file: File) -> Iterator[ast.expr]:
    """Yield the numbers of devices that a call is given, or that a text names."""
    if isinstance(call, ast.BinOp):
        if isinstance(call.left, ast.Constant) and str(call.left.value).removesuffix("%d") in _PREFIXES:
            yield _number(call)
        return
    if isinstance(call, ast.JoinedStr):
        if _names_device(call):
            yield _number(call)
        return
    name = name_of(call, file)
    if _sets_device(call, file):
        yield from map(_number, call.args[:1])
    elif (device := _mapped_to(call)) is not None:
        yield _number(device)
    elif name == "torch.device":
        yield from map(_number, call.args[1:2] or call.args[:1])
    elif name in WRAPPERS and isinstance(ids := keyword(call, "device_ids"), ast.List):
        yield from ids.elts
    elif name == "torch.cuda.device" or (tail_of(call) in ("cuda", "to") and isinstance(call.func, ast.Attribute)):
        yield from call.args[:1]


def _names_device(text: ast.JoinedStr) -> bool:
    """``f"cuda:{rank}"``, ``f"{device_type}:{rank}"``."""
    head = text.values[0]
    if len(text.values) == 3 and isinstance(head, ast.FormattedValue):
        return is_constant(text.values[1], ":") and speaks_of(head.value, _KIND)
    return len(text.values) == 2 and isinstance(head, ast.Constant) and str(head.value) in _PREFIXES


def _number(device: ast.expr) -> ast.expr:
    """Return what stands behind the colon of ``f"cuda:{rank}"``, ``"cuda:" + str(rank)``, ``"cuda:%d" % rank`` or
    ``"cuda:{}".format(rank)``."""
    if isinstance(device, ast.JoinedStr) and device.values and isinstance(device.values[-1], ast.FormattedValue):
        return device.values[-1].value
    if isinstance(device, ast.BinOp) and isinstance(device.left, ast.Constant):
        one = isinstance(device.right, ast.Call) and tail_of(device.right) == "str" and device.right.args
        return one[0] if one else device.right
    if isinstance(device, ast.Call) and tail_of(device) == "format" and len(device.args) == 1:
        return device.args[0]
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
        return node.attr in ("rank", "global_rank", "process_index")
    stored = values(node, file) or passed(node, file)
    if not stored and isinstance(node, ast.Attribute):
        return node.attr in ("global_rank", "process_index")
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


def fixed_map(call: ast.Call) -> ast.expr | None:
    """Return ``{"": 0}`` of ``from_pretrained(..., device_map={"": 0})``."""
    where = keyword(call, "device_map")
    if isinstance(where, ast.Dict) and len(where.values) == 1:
        key, value = where.keys[0], where.values[0]
        whole = isinstance(key, ast.Constant) and key.value == ""
        return where if whole and isinstance(value, ast.Constant) and value.value in (0, "cuda:0") else None
    return where if isinstance(where, ast.Constant) and where.value == "cuda:0" else None
