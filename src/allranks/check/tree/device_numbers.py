"""Where the rank in the job stands for the number of a GPU of this host, and where a process that was told the number
of its GPU uses another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import WRAPPERS
from allranks.check.tree.origins import origins, passed, values
from allranks.check.tree.syntax import (
    calls_of,
    distributed,
    given,
    inside,
    is_constant,
    keyword,
    name_of,
    own,
    speaks_of,
    tail_of,
)

SET_DEVICE = re.compile(r"^torch\.(cuda|npu|mlu|xpu|musa|accelerator)\.set_device")
# The same through what hides the kind of accelerator: deepspeed's get_accelerator().
_ACCELERATOR = re.compile(r"accelerator|platform|device_module|^getattr\(torch\b", re.IGNORECASE)
_KIND = re.compile(r"device|accelerator|backend", re.IGNORECASE)
_PREFIXES = ("cuda:", "npu:", "xpu:", "mlu:", "musa:", "hpu:")
# The last parts of the calls that take the number of a device.
_TAKES = ("set_device", "set_device_index", "device", "cuda", "to", "barrier")
_NAMED = (*_TAKES, *sorted({n.rpartition(".")[2] for n in WRAPPERS}))
_BARRIER = "torch.distributed.barrier"
_RANK_CALLS = ("horovod.rank",)
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
_STARTERS = ("Process", "spawn", "start_processes")
_BINDS = re.compile(r"set_device|cuda\.device\(|VISIBLE_DEVICES")
_SETS = re.compile(r"set_device|VISIBLE_DEVICES")
_NEEDS_CURRENT = re.compile(r"""\.cuda\(\)|["']cuda["']\)|device=["']cuda["']|\bbarrier\(|_object(_list)?\(""")


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
    elif (name in WRAPPERS or name == _BARRIER) and isinstance(ids := keyword(call, "device_ids"), ast.List):
        yield from ids.elts
    elif name == "torch.cuda.device" or (tail_of(call) in ("cuda", "to") and isinstance(call.func, ast.Attribute)):
        yield from call.args[:1]


def _names_device(text: ast.JoinedStr) -> bool:
    """``f"cuda:{rank}"``, ``f"{device_type}:{rank}"``."""
    head = text.values[0] if text.values else None
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
    """``node`` is for certain the rank in the job, as it is, or in steps of as many GPUs as a process has."""
    if depth > 6:
        return False
    if isinstance(node, ast.BinOp):
        return _is_reckoned(node, file, depth + 1)
    if not isinstance(node, ast.Name | ast.Attribute) or "global" not in origins(node, file):
        return _is_asked(node, file, depth)
    # What it is before anybody asked, in one process, is no answer.
    stored = [one for one in values(node, file) or passed(node, file) if not _is_number(one)]
    if not stored:
        return _is_asked(node, file, depth)
    sure = [one for one in stored if _is_global(one, file, depth + 1)]
    if len(sure) == len(stored):
        return True
    # Where the processes are joined it is the rank in the job, and only else the one on the node.
    made = frozenset[str]().union(*(origins(one, file) for one in stored))
    if made == {"global"} or not made <= {"global", "local"}:
        return False
    return any(_is_joined(parent.test) for one in sure for parent, _ in inside(one, file) if _asks(parent, one))


def _is_number(node: ast.expr) -> bool:
    """``0``, ``None``, ``-1``."""
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _is_asked(node: ast.expr, file: File, depth: int) -> bool:
    """``dist.get_rank()``, ``int(os.environ["RANK"])``, ``trainer.global_rank``."""
    made = origins(node, file)
    if "global" not in made or not made <= {"global", "local"}:
        return False
    if isinstance(node, ast.Call):
        if tail_of(node) == "int" and node.args:
            return _is_global(node.args[0], file, depth + 1)
        asked = tail_of(node) in ("get_rank", "get_global_rank") or name_of(node, file) in _RANK_CALLS
        return asked or _is_variable(node.args[:1], _RANK_VARIABLES)
    if isinstance(node, ast.Subscript):
        return _is_variable([node.slice], _RANK_VARIABLES)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        return node.attr in ("rank", "global_rank", "process_index")
    return isinstance(node, ast.Attribute) and node.attr in ("global_rank", "process_index")


def _is_reckoned(node: ast.BinOp, file: File, depth: int) -> bool:
    """``rank % world_size``, which is the rank, ``rank * gpus_of_each``, ``node_rank * gpus + local_rank``."""
    left, right = node.left, node.right
    if isinstance(node.op, ast.Mod):
        return _is_global(left, file, depth) and _is_world(right, file, depth)
    if isinstance(node.op, ast.Mult):
        return any(_is_global(a, file, depth) and not origins(b, file) for a, b in ((left, right), (right, left)))
    parts = (origins(left, file), origins(right, file))
    nodes, others = parts if "node" in parts[0] else parts[::-1]
    return isinstance(node.op, ast.Add) and {"node", "sum"} <= nodes and "node" not in others and "local" in others


def _is_world(node: ast.expr, file: File, depth: int) -> bool:
    """``node`` is for certain the number of all processes."""
    if isinstance(node, ast.Subscript):
        return _is_variable([node.slice], _SIZE_VARIABLES)
    if isinstance(node, ast.Call):
        if tail_of(node) == "int" and node.args:
            return _is_world(node.args[0], file, depth)
        asked = tail_of(node) == "get_world_size" and not (node.args or node.keywords)
        return asked or _is_variable(node.args[:1], _SIZE_VARIABLES)
    stored = values(node, file) or passed(node, file)
    return depth <= 6 and bool(stored) and all(_is_world(one, file, depth + 1) for one in stored)


def _asks(parent: ast.AST, inner: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(parent, ast.If) and any(inner in walk(s) for s in parent.body)


def _is_joined(test: ast.expr) -> bool:
    return any(isinstance(at, ast.Call) and tail_of(at) == "is_initialized" for at in walk(test))


def _is_variable(names: list[ast.expr], known: tuple[str, ...]) -> bool:
    return any(isinstance(n, ast.Constant) and n.value in known for n in names)


def fixed_map(call: ast.Call) -> ast.expr | None:
    """Return ``{"": 0}`` of ``from_pretrained(..., device_map={"": 0})``."""
    where = keyword(call, "device_map")
    if isinstance(where, ast.Dict) and len(where.values) == 1:
        key, value = where.keys[0], where.values[0]
        whole = isinstance(key, ast.Constant) and key.value == ""
        return where if whole and isinstance(value, ast.Constant) and value.value in (0, "cuda:0") else None
    return where if isinstance(where, ast.Constant) and where.value == "cuda:0" else None


def off_its_own(file: File) -> dict[ast.expr, str]:
    """Return the calls that leave a process on the current GPU though it has the number of its own, and what is wrong
    with each."""
    used = "the process has the number of its own GPU, and this call uses the current one instead"
    left = "nothing enters this context, so that the process stays on the current GPU"
    return {**dict.fromkeys(_current_in_started(file), used), **dict.fromkeys(_never_entered(file), left)}


def _never_entered(file: File) -> Iterator[ast.Call]:
    """Yield ``torch.cuda.device(local_rank)`` as a statement, where what goes through the current GPU needs it."""
    if not distributed(file) or _SETS.search(file.text) or not _NEEDS_CURRENT.search(file.text):
        return
    for call in calls_of(file).get("device", ()):
        if name_of(call, file) == "torch.cuda.device" and isinstance(next(file.parents(call), None), ast.Expr):
            yield call


def _current_in_started(file: File) -> tuple[ast.expr, ...]:
    """Return the first use of the current GPU in each function that is started as a process and is told the number of
    its GPU, where nothing makes that GPU the current one."""
    if _BINDS.search(file.text):
        return ()
    started = {tail_of(one) for word in _STARTERS for call in calls_of(file).get(word, ()) for one in _target(call)}
    functions = [f for f in file.kinds.get(ast.FunctionDef, ()) if isinstance(f, ast.FunctionDef) and f.name in started]
    uses = ([at for at in own(f) if isinstance(at, ast.Call) and on_current_gpu(at)] for f in functions)
    firsts = [
        min(found, key=lambda at: at.lineno)
        for f, found in zip(functions, uses, strict=True)
        if found and _is_told(f, file)
    ]
    return tuple(firsts)


def _target(call: ast.Call) -> list[ast.expr]:
    target = given(call, 0, "fn") if tail_of(call) != "Process" else keyword(call, "target")
    return [target] if target is not None else []


def _is_told(function: ast.FunctionDef, file: File) -> bool:
    """Whether a function names a GPU by a number that it is given."""
    told = {argument.arg for argument in function.args.args}
    named = (at for at in own(function) if isinstance(at, ast.Call | ast.JoinedStr | ast.BinOp))
    numbers = (number for at in named if _says_which(at, file) for number in _devices(at, file))
    return any(isinstance(number, ast.Name) and number.id in told for number in numbers)


def _says_which(at: ast.Call | ast.JoinedStr | ast.BinOp, file: File) -> bool:
    """``torch.device("cuda", number)`` or a text with the number in it; what else is given a device may have any."""
    return not isinstance(at, ast.Call) or (name_of(at, file) == "torch.device" and len(at.args) > 1)


def on_current_gpu(call: ast.Call) -> bool:
    """``x.cuda()``, ``x.to("cuda")``, ``torch.empty(1, device="cuda")``."""
    if _says_cuda(keyword(call, "device")):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    bare = call.func.attr == "cuda" and not call.args and not call.keywords
    return bare or (call.func.attr == "to" and any(map(_says_cuda, call.args[:1])))


def _says_cuda(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"
