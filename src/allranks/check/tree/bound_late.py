"""Where a file has a process use a GPU, or meet others through one, before it says which GPU is the process' own."""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.device_numbers import SET_DEVICE, on_current_gpu
from allranks.check.tree.origins import values
from allranks.check.tree.splits import by_rank
from allranks.check.tree.syntax import (
    calls_of,
    function_of,
    given,
    has_stars,
    inside,
    keyword,
    name_of,
    own,
    tail_of,
)

JOINS = ("torch.distributed.init_process_group", "deepspeed.init_distributed")
_MEETS = (
    *("barrier", "synchronize", "all_reduce", "broadcast", "all_gather"),
    *("broadcast_object_list", "all_gather_object"),
)
# What may bind it in this file, or where it calls.
_BOUND = re.compile(
    r"set_device|device_id\s*=|CUDA_VISIBLE_DEVICES|cuda\.device\(|set_device_index|get_device\(|jax|deepspeed|\bray\.|accelerat|parallel_apply",
    re.IGNORECASE,
)
_MAY_BIND = re.compile(
    r"bind|(set|init|setup|get|choose|select)_?\w*(device|gpu|cuda)(?!_(name|cap|prop|count))", re.IGNORECASE
)
_BINDS = re.compile(
    r"set_device|device_id|CUDA_VISIBLE_DEVICES|cuda\.device\(|deepspeed\.initialize|get_device|jax|ray\.|torch_xla|[\"']cpu[\"']|[\"']gloo[\"']|\bnpu\b"
)
# What sends anything, or uses the current GPU.
_SENDS = re.compile(
    r"(all_)?reduce|gather|broadcast|scatter|_object|Parallel|FSDP|DDP|fully_shard|prepare\(|\.cuda\(\)|[\"']cuda[\"']"
)

# The process says by its number which GPU it works on.
_BY_NUMBER = re.compile(r"""device_ids\s*=\s*\[(?!\d)|\bdevice\s*=\s*torch\.device\((?:[^()]*,|\s*f["']cuda:\{)""")
# What takes the current GPU all the same: a tensor without a number, what is sent as objects, the buffers of apex.
_CURRENT = re.compile(
    r"""\.cuda\(\)|\(["']cuda["']\)|device=["']cuda["']|_object(_list)?\(|sync_and_compute|amp\.initialize"""
    r"""|cuda\.(get_device_name|synchronize|reset_peak)"""
)


def goes_by_number(text: str) -> bool:
    """The text of a file that joins names the GPU by its number wherever it puts something: DDP's collectives, and the
    barriers behind them, go through that one."""
    return _BY_NUMBER.search(text) is not None and _CURRENT.search(text) is None


def never_binds(join: ast.Call, file: File) -> bool:
    """A program, or a file that wraps the model, joins NCCL and neither binds a GPU nor calls what may do so."""
    whole = "__main__" in file.text or "DistributedDataParallel" in file.text
    if not whole or has_stars(join) or _BOUND.search(file.text) or _only_waits(file):
        return False
    backend = given(join, 0, "backend")
    made = [backend, *values(backend, file)] if backend is not None else []
    return any(map(_is_nccl, made)) and not any(
        isinstance(at, ast.Call) and _MAY_BIND.search(tail_of(at)) for at in file.nodes
    )


def _only_waits(file: File) -> bool:
    """All that a file meets the others in is barriers, which guess the GPU by the rank."""
    return "barrier(" in file.text and not _SENDS.search(file.text)


def _is_nccl(backend: ast.expr | None) -> bool:
    return isinstance(backend, ast.Constant) and str(backend.value).lower() == "nccl"


def met_too_early(join: ast.Call, file: File) -> ast.Call | None:
    """Return the first collective after ``join`` in its function, if the file binds the device after it alone."""
    function = function_of(join, file)
    with_nccl = name_of(join, file) != JOINS[0] or _is_nccl(given(join, 0, "backend"))
    if function is None or not with_nccl or has_stars(join) or keyword(join, "device_id") is not None:
        return None
    after = [at for at in own(function) if isinstance(at, ast.Call) and at.lineno > join.lineno]
    meets = [at for at in after if tail_of(at) in _MEETS and not name_of(at, file).startswith(("torch.cuda", "jax"))]
    if not meets:
        return None
    first = min(meets, key=lambda at: at.lineno)
    sooner = file.lines[: first.lineno]
    if any(function_of(at, file) is not function for at in _set_calls(file)):
        return None  # whoever calls it may have done so: the program's way tells
    return None if any(_BINDS.search(line) for line in sooner) else first


def _set_calls(file: File) -> list[ast.Call]:
    return [at for at in calls_of(file).get("set_device", ()) if SET_DEVICE.search(name_of(at, file))]


def used_above(binds: ast.Call, file: File) -> ast.expr | None:
    """Return what uses the GPU without a number certainly before ``binds`` gives this process its own."""
    if not binds.args or not by_rank(binds.args[0], file):
        return None
    function = function_of(binds, file)
    if any(function_of(at, file) is function and at.lineno < binds.lineno for at in _set_calls(file)):
        return None
    for parent, child in inside(binds, file):
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if not isinstance(block, list) or child not in block:
                continue
            for statement in block[: block.index(child)]:
                if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
                    found = (at for at in walk(statement) if isinstance(at, ast.Call) and on_current_gpu(at))
                    if (first := next(found, None)) is not None:
                        return first
    return None
