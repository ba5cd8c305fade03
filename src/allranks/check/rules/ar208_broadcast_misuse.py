"""AR208: the result of a collective is written into an object that nobody keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.check.syntax import inside, name_of, rank_guard
from allranks.findings import Finding

# These write what the others sent into their argument at this position.
_FILLED = {
    "torch.distributed.broadcast_object_list": 0,
    "torch.distributed.all_gather_object": 0,
    "torch.distributed.all_gather": 0,
    "torch.distributed.scatter_object_list": 0,
    "torch.distributed.broadcast": 0,
    "torch.distributed.all_reduce": 0,
    "torch.distributed.all_gather_into_tensor": 0,
}
# Not zeros or ones: an all_reduce of a fresh constant is a way to warm up, or a barrier.
_MAKERS = ("torch.tensor", "torch.as_tensor")


class BroadcastMisuse(LocalRule):
    """
    ## What it does
    Finds collectives that fill an argument in place, and are given an object that nobody holds:
    `broadcast_object_list([path], src=0)`, `all_reduce(torch.tensor(loss))`.

    ## Why is this bad
    What the other ranks sent is written into a temporary list or tensor and thrown away. The variable keeps this
    rank's own value.

    ## What happens with N processes
    Every rank meets and goes on, each with its own value: other paths, other decisions, no error.

    ## Known problems
    None known. A broadcast that is meant as a barrier alone is better written as one.

    ## Use instead
    `box = [path]`, `broadcast_object_list(box, src=0)`, `path = box[0]`.
    """

    code, name, severity, row = "AR208", "broadcast-misuse", "error", "collectives"
    cluster = "The ranks meet, and each goes on with its own value: what was sent is thrown away."
    advice = "Keep the list or tensor in a variable and read the result out of it."
    words = ("broadcast", "all_gather", "scatter", "all_reduce")
    nodes = (ast.Call,)
    calls = _FILLED
    bad = (
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\n\n\ndef run_dir(make):\n"
                    "    path = make() if dist.get_rank() == 0 else None\n"
                    "    dist.broadcast_object_list([path], src=0)\n    return path\n"
                )
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": (
                    "import torch\nfrom torch.distributed import all_reduce\n\n\ndef mean(loss):\n"
                    "    all_reduce(torch.tensor(loss))\n    return loss\n"
                )
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\n\n\ndef agree(path):\n    box = [path]\n"
                    "    dist.broadcast_object_list(box, src=0)\n    return box[0]\n"
                )
            }
        ),
        # The source alone: the others keep theirs.
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\n\n\ndef tell(address, leader):\n    if leader:\n"
                    "        dist.broadcast_object_list([address], src=0)\n        return address\n    else:\n"
                    "        box = [None]\n        dist.broadcast_object_list(box, src=0)\n        return box[0]\n"
                )
            }
        ),
        # Tensors that somebody holds.
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\n\n\ndef f(a, b, parts):\n    dist.all_gather([a, b], a)\n"
                    "    dist.broadcast(a.data, 0)\n    dist.all_gather(list(parts), a)\n"
                )
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        called = name_of(node, file)
        position = _FILLED.get(called)
        if position is None or not node.args or not _is_temporary(node.args[position], called, file):
            return
        if _is_sender(node, called, file):
            return
        word = called.rpartition(".")[2]
        yield self.local(
            file, node, f"{word} fills {ast.unparse(node.args[position])}, which nobody keeps: its result is lost"
        )


def _is_temporary(argument: ast.expr, called: str, file: File) -> bool:
    """A list written here holds objects: filling it changes no variable. A list of tensors is filled through them."""
    if called.endswith(("_object", "object_list")):
        return isinstance(argument, ast.List | ast.ListComp) or (
            isinstance(argument, ast.BinOp)
            and isinstance(argument.op, ast.Mult)
            and isinstance(argument.left, ast.List)
        )
    return isinstance(argument, ast.Call) and name_of(argument, file) in _MAKERS


def _is_sender(call: ast.Call, called: str, file: File) -> bool:
    """The call stands in a branch for the source alone: the receivers make theirs in the other branch."""
    if rank_guard(call, file) is not None:
        return True
    for parent, child in inside(call, file):
        if isinstance(parent, ast.If):
            others = parent.orelse if child in parent.body else parent.body
            if any(isinstance(at, ast.Call) and name_of(at, file) == called for o in others for at in walk(o)):
                return True
    return False
