"""AR208: what a collective fills is thrown away or None, or it comes from a rank that is not in the group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import given, is_constant, keyword, name_of, rank_guard, tail_of
from allranks.findings import Finding

# These write what the others sent into their argument at this position.
_FILLED = {
    "torch.distributed.broadcast_object_list": 0,
    "torch.distributed.all_gather_object": 0,
    "torch.distributed.all_gather": 0,
    "torch.distributed.scatter_object_list": 0,
    "torch.distributed.broadcast": 0,
    "torch.distributed.all_gather_into_tensor": 0,
}
# Not zeros or ones: a fresh constant is a way to warm up, or a barrier.
_MAKERS = ("torch.tensor", "torch.as_tensor")
# The position and name of their source or destination, and the position of their group.
_ROOTED = {
    "torch.distributed.broadcast": (1, "src", 2),
    "torch.distributed.broadcast_object_list": (1, "src", 2),
    "torch.distributed.scatter": (2, "src", 3),
    "torch.distributed.scatter_object_list": (2, "src", 3),
    "torch.distributed.reduce": (1, "dst", 3),
    "torch.distributed.gather": (2, "dst", 3),
    "torch.distributed.gather_object": (2, "dst", 3),
}
_PART = re.compile(
    r"(?i)(^|_)(dp|tp|pp|cp|ep|sp|mp|data|tensor|model|pipeline|expert|sequence|node|local|shard)\w*group$"
)
_STRANGER = "In every group but one nobody has that rank: an error, or a wait until the timeout."
_ITSELF = "The processes wait for each other, as each sends and none receives, or go on with values of their own."
_BY_PLACE = "Pass group_src=0 (or group_dst), or dist.get_global_rank(group, 0)."


class BroadcastMisuse(LocalRule):
    """
    ## What it does
    Finds collectives whose result is lost or misdirected:

    - collectives that fill an argument in place, called with a temporary object: `broadcast_object_list([path],
      src=0)`, `broadcast(torch.tensor(step), 0)`
    - this rank as source, `src=dist.get_rank()`, on all of them
    - a global rank as source or destination in a group of some ranks (data-parallel, tensor-parallel, node): `src=0`
      with `group=dp_group` is global rank 0, which only one of these groups has

    ## Why is this bad
    What the other ranks sent is written into a temporary list or tensor and lost. The variable keeps this rank's value.

    ## What happens with N processes
    Every rank continues with its own value: other paths, other decisions, no error.

    ## Known problems
    Groups are recognised by their names. In a small job a group may contain all ranks.

    ## Use instead
    `box = [path]`, `broadcast_object_list(box, src=0)`, `path = box[0]`. In a group: `group_src=0`, or
    `src=dist.get_global_rank(group, 0)`.
    """

    code, name, severity, row = "AR208", "broadcast-misuse", "error", "collectives"
    cluster = "Each rank continues with its own value: what was sent is lost."
    advice = "Keep the list or tensor in a variable and read the result out of it."
    words = ("broadcast", "all_gather", "scatter", "gather", "reduce")
    nodes = (ast.Call,)
    calls = (*_FILLED, *_ROOTED)
    bad = (
        """\
import torch
import torch.distributed as dist

def agree(path, step, dp_group, loss):
    dist.broadcast_object_list([path], src=0)  # <-- found
    dist.broadcast(torch.tensor(step), 0)  # <-- found
    dist.broadcast(loss, src=0, group=dp_group)  # <-- found
    return path, step
""",
    )
    good = (
        """\
import torch.distributed as dist

def agree(path, loss, dp_group):
    box = [path]
    dist.broadcast_object_list(box, src=0)
    dist.broadcast(loss, group_src=0, group=dp_group)
    return box[0]

def answer(address):
    if dist.get_rank() == 0:
        dist.broadcast_object_list([address], src=0)
        return address
    box = [None]
    dist.broadcast_object_list(box, src=0)
    return box[0]
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or file.is_test:
            return
        called = name_of(node, file)
        if group := _group_without_rank_0(node, called):
            what = f"{_ROOTED[called][1]}=0 is rank 0 of the job, which is not in every {group}"
            yield self.local(file, node, what, cluster=_STRANGER, advice=_BY_PLACE)
            return
        at, word, _ = _ROOTED.get(called, (0, "", 0))
        root = given(node, at, word) if word else None
        each = isinstance(root, ast.Call) and name_of(root, file) == "torch.distributed.get_rank"
        if each and rank_guard(node, file) is None:
            yield self.local(file, node, f"every process names itself as {word}", cluster=_ITSELF)
            return
        position = _FILLED.get(called)
        if position is None or not node.args or not _is_temporary(node.args[position], called, file):
            return
        if rank_guard(node, file) is None:  # behind a guard it is the source, and the others receive elsewhere
            word, filled = called.rpartition(".")[2], ast.unparse(node.args[position])
            yield self.local(file, node, f"{word} fills {filled}, which no variable keeps: its result is lost")


def _group_without_rank_0(call: ast.Call, called: str) -> str:
    """Return the name of the group of some ranks in which a call takes global rank 0 as its root; empty if none."""
    if called not in _ROOTED or (group := given(call, _ROOTED[called][2], "group")) is None:
        return ""
    at, word, _ = _ROOTED[called]
    root = given(call, at, word)
    name = tail_of(group).removeprefix("get_")
    is_rank_0 = root is not None and is_constant(root, 0) and not is_constant(root, False)
    return name if is_rank_0 and keyword(call, f"group_{word}") is None and _PART.search(name) else ""


def _is_temporary(argument: ast.expr, called: str, file: File) -> bool:
    """Whether nothing keeps what is filled: a list of objects, or a tensor, that is made in the call."""
    if called.endswith(("_object", "object_list")):
        is_repeated = isinstance(argument, ast.BinOp) and isinstance(argument.left, ast.List)
        return is_repeated or isinstance(argument, ast.List | ast.ListComp)
    return isinstance(argument, ast.Call) and name_of(argument, file) in _MAKERS
