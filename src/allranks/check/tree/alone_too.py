"""Where code runs in a program of one process too, which has made no process group. Pure.

What tells the two apart is a switch (`args.distributed`, `self.use_ddp`) that the same function or class asks
elsewhere, or that says there whether a group is made. A size of 1 tells nothing: a group may have one process. Or
Accelerate joins the processes, if there are several, and other places of the file ask whether they are joined.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File
from allranks.check.tree.earlier import callers, is_plain
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import (
    Function,
    asks_rank,
    blocks,
    calls_of,
    class_of,
    function_of,
    inside,
    keyword,
    leaves,
    name_of,
    own,
    raises,
    speaks_of,
    tail_of,
)

MAKERS = ("init_process_group", "init_distributed")
_BRANCHES = (ast.If, ast.IfExp)
_ACCELERATOR = "accelerate.Accelerator"
_OF_DEEPSPEED = ("deepspeed_plugin", "deepspeed_plugins")
_THERE = re.compile("is_initialized")
_OPS = (
    *("barrier", "all_reduce", "all_gather", "broadcast", "all_gather_object", "broadcast_object_list", "reduce"),
    *("gather", "gather_object", "all_gather_into_tensor", "reduce_scatter", "get_world_size", "get_rank"),
)
MEETINGS = frozenset(f"torch.distributed.{word}" for word in _OPS)
# Who asks so is there with others, or knows of no others.
_ASKS = re.compile(
    r"(?i)distribut|world|is_initialized|ddp|fsdp|multi|n_?gpus?|num_gpus|device_count|parallel|launcher"
    r"|(^|_)dist(_|$)|n_?procs?|num_(workers|processes)|deepspeed|rank|group|workers|sync|main_process|master|primary"
)
# One process alone has the rank -1: `if local_rank not in (-1, 0):`.
_APART = re.compile(r"rank\w*['\"]?[^\n]*\W-1\b")
_SWITCH = re.compile(
    r"^_?(is_|use_|run_|do_|enable_|with_)?(distributed|dist|ddp|multi_?gpu|multiprocessing_distributed)"
    r"(_run|_training|_mode)?$"
)
# What has such a name is called where there are others.
_OF_MANY = re.compile(
    r"(?i)ddp|dist|parallel|fsdp|reduce|gather|sync|broadcast|rank|multi|zero|shard|expert|pipeline|megatron|bcast"
    r"|barrier|nccl|mesh|world|group|collect|average"
)
_FIRST = re.compile(r"^[\w.]*rank(\(\))? == 0$|^[\w.]*(main_process|is_master|is_primary|is_main)(\(\))?$")


def meets_alone(function: Function, file: File) -> list[ast.Call]:
    """Return the calls of a function that fail where it runs without a process group, as its program may."""
    calls = [at for at in own(function) if isinstance(at, ast.Call) and name_of(at, file) in MEETINGS]
    open_ones = [call for call in calls if keyword(call, "group") is None and not asked_on_the_way(call, file)]
    told = open_ones and not makes_always(file) and _may_be_alone(function, file)
    return sorted(open_ones, key=lambda call: (call.lineno, call.col_offset)) if told else []


def _may_be_alone(function: Function, file: File) -> bool:
    """Whether a function, or its class, asks a switch for many processes, and is called whatever that says."""
    owner = class_of(function, file)
    if any(_OF_MANY.search(one.name) for one in (function, owner) if one is not None):
        return False
    sites = callers(function, file)
    if sites and all(asked_on_the_way(site, file) for site in sites):
        return False
    if file.once("joined by accelerate", file.tree, lambda _: _joined_if_several(file)):
        return True
    branches = [at for one in (function, owner) if one is not None for at in walk(one) if isinstance(at, _BRANCHES)]
    return any(_is_switch(at.test, file) or (isinstance(at, ast.If) and _makes(at)) for at in branches)


def _joined_if_several(file: File) -> bool:
    """Whether the file leaves it to Accelerate to make a group, which makes none of one, and knows that. DeepSpeed,
    whose settings it may be given, makes one of one."""
    made = [call for call in calls_of(file).get("Accelerator", ()) if name_of(call, file) == _ACCELERATOR]
    with_deepspeed = any(keyword(call, word) is not None for call in made for word in _OF_DEEPSPEED)
    return bool(made) and not with_deepspeed and bool(calls_of(file).get("is_initialized")) and not _makers(file)


def makes_always(file: File) -> bool | None:
    """Whether this file makes a group in any case, also one of one process; None if it makes none."""
    makers = [call for call in _makers(file) if _is_of_library(call, file)]
    return any(_is_made_always(maker, file) for maker in makers) if makers else None


def _is_made_always(maker: ast.Call, file: File) -> bool:
    above = next((at for at, _ in inside(maker, file) if isinstance(at, ast.If)), None)
    if any(isinstance(at, ast.Try) and child in at.body and _goes_on(at) for at, child in inside(maker, file)):
        return False
    if above is None or speaks_of(above.test, _THERE) or asks_rank(above.test) or not _asks(above.test, file):
        return not (_is_left_before(maker, file) or _is_called_if_several(maker, file))
    return bool(above.orelse) and (leaves(above.orelse) or (_makes(above) and any(map(_calls_maker, above.orelse))))


def _goes_on(attempt: ast.Try) -> bool:
    """Whether the program goes on where what it tried fails, without another try."""
    return any(not raises(h) and not leaves(h.body) and not any(map(_calls_maker, h.body)) for h in attempt.handlers)


def _is_called_if_several(maker: ast.Call, file: File) -> bool:
    """Whether its function is called in this file alone where a switch says that there are others."""
    function = function_of(maker, file)
    sites = callers(function, file) if function is not None else []
    if function is not None and not sites and function_of(function, file) is not None:  # it is called where it is made
        sites = [call for call in calls_of(file).get(function.name, ()) if isinstance(call.func, ast.Name)]
    return bool(sites) and all(any(_says_several(*at, file) for at in inside(site, file)) for site in sites)


def _says_several(above: ast.AST, child: ast.AST, file: File) -> bool:
    asks = isinstance(above, ast.If) and child in above.body and _asks(above.test, file)
    return asks and not asks_rank(above.test) and not speaks_of(above.test, _THERE)  # type: ignore[attr-defined]


def _is_left_before(maker: ast.Call, file: File) -> bool:
    """Whether its function ends above it where something says that there are no others: `if "RANK" in os.environ: ...
    else: return`."""
    function = function_of(maker, file)
    above = (at for at in function.body if at.lineno < maker.lineno) if function is not None else ()
    branches = [at for statement in above for at in _arms(statement)]
    return any(isinstance(block[-1], ast.Return) and not speaks_of(test, _THERE) for test, block in branches)


def _arms(statement: ast.stmt) -> Iterator[tuple[ast.expr, list[ast.stmt]]]:
    """Yield the blocks of an `if` with its `elif` and `else`, each with its condition, the last one for `else`."""
    while isinstance(statement, ast.If):
        yield statement.test, statement.body
        if len(statement.orelse) != 1 or not isinstance(statement.orelse[0], ast.If):
            if statement.orelse:
                yield statement.test, statement.orelse
            return
        statement = statement.orelse[0]


def _made_under(file: File) -> set[str]:
    """Return the conditions under which this file makes a group: where one of them holds again, there is one."""
    around = ((at, child) for call in _makers(file) for at, child in inside(call, file))
    return {ast.unparse(at.test) for at, child in around if isinstance(at, ast.If) and child in at.body}


def _makers(file: File) -> list[ast.Call]:
    return [call for name in MAKERS for call in calls_of(file).get(name, ())]


def _is_of_library(maker: ast.Call, file: File) -> bool:
    """Not a function of the project that bears such a name, and may make a group or not."""
    return tail_of(maker) == MAKERS[0] or name_of(maker, file).startswith("deepspeed")


def _makes(branch: ast.If) -> bool:
    return any(map(_calls_maker, branch.body))


def _calls_maker(statement: ast.stmt) -> bool:
    return any(isinstance(at, ast.Call) and tail_of(at) in MAKERS for at in walk(statement))


def asked_on_the_way(call: ast.AST, file: File) -> bool:
    """Whether somebody asks on the way to a call in its function whether there are others."""
    made_under = file.once("conditions of groups", file.tree, lambda _: _made_under(file))
    for above, child in inside(call, file):
        beside = [at for at in above.values if at is not child] if isinstance(above, ast.BoolOp) else []
        if any(_asks(at, file) or _counts(at) for at in beside):
            return True
        if isinstance(above, _BRANCHES) and child is not above.test and _asks(above.test, file):
            holds = child not in above.orelse if isinstance(above, ast.If) else child is above.body
            if not _is_alone(above.test, holds, file):
                return True
        if made_under and isinstance(above, ast.If) and child in above.body and ast.unparse(above.test) in made_under:
            return True
        if any(_stays_behind(at, file) or _joins(at, file) for at in _above(above, child)):
            return True
    return False


def _counts(test: ast.expr) -> bool:
    """Whether a condition compares a number with the length of something: `done != len(data)` does not hold for one
    process alone, which has gone through all of it."""
    sides = (
        [test.left, *test.comparators] if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq) else []
    )
    return any(isinstance(at, ast.Call) and tail_of(at) == "len" for at in sides) and not any(
        isinstance(at, ast.Constant) for at in sides
    )


def _above(parent: ast.AST, child: ast.AST) -> list[ast.stmt]:
    """Return the statements above one in its block."""
    return next((block[: block.index(child)] for block in blocks(parent) if child in block), [])


def _asks(test: ast.expr, file: File) -> bool:
    """Whether a condition says if there are others, by its words or by what a function of this file asks for it; also
    `flag is not None` where that is `torch.zeros(1) if distributed else None`."""
    if speaks_of(test, _ASKS):
        return True
    stored = (value for at in walk(test) if isinstance(at, ast.Name) for value in values(at, file))
    if any(isinstance(value, ast.IfExp) and _is_none_alone(value) for value in stored):
        return True
    asked = (function_called(at, file) for at in walk(test) if isinstance(at, ast.Call))
    return any(function is not None and speaks_of(function, _THERE) for function in asked)


def _is_none_alone(value: ast.IfExp) -> bool:
    """Whether it is None on one side of a condition that says if there are others."""
    sides = (value.body, value.orelse)
    return speaks_of(value.test, _ASKS) and any(isinstance(at, ast.Constant) and at.value is None for at in sides)


def _joins(statement: ast.stmt, file: File) -> bool:
    """Whether a statement makes a group in any case."""
    calls = walk(statement) if is_plain(statement) else ()
    return any(isinstance(at, ast.Call) and tail_of(at) in MAKERS and _is_of_library(at, file) for at in calls)


def _stays_behind(statement: ast.stmt, file: File) -> bool:
    """Whether one process alone does not come by a statement."""
    if isinstance(statement, ast.Assert):
        return _asks(statement.test, file) and not _is_alone(statement.test, True, file)
    if not isinstance(statement, ast.If) or not leaves(statement.body):
        return False
    return _asks(statement.test, file) and not _is_alone(statement.test, False, file)


def _is_alone(test: ast.expr, holds: bool, file: File) -> bool:
    """Whether one process alone comes by a condition too, where it ``holds`` or does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_alone(test.operand, not holds, file)
    if isinstance(test, ast.Name | ast.Attribute) and _is_switch(test, file):
        return not holds
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and not holds:
        return any(_is_alone(value, False, file) for value in test.values)
    return holds and _FIRST.search(ast.unparse(test)) is not None and _APART.search(file.text) is None


def _is_switch(test: ast.AST, file: File) -> bool:
    """Whether a condition asks a switch for many processes: not one of the modules that are called so."""
    if isinstance(test, ast.Attribute | ast.Name):
        word = test.attr if isinstance(test, ast.Attribute) else test.id
        return _SWITCH.search(word) is not None and not (file.qualified(test) or "").startswith("torch.")
    if isinstance(test, ast.Subscript) and isinstance(test.slice, ast.Constant):
        return isinstance(test.slice.value, str) and _SWITCH.search(test.slice.value) is not None
    return any(_is_switch(at, file) for at in children(test))
