"""AR208: what a collective fills is thrown away or None, or it comes from a rank that is not in the group."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.gathered_before import is_of_gathered
from allranks.check.tree.given_by_one import none_elsewhere
from allranks.check.tree.syntax import given, inside, is_constant, keyword, name_of, rank_guard, tail_of
from allranks.findings import Finding

# These write what the others sent into their argument at this position.
_FILLED = {
    "torch.distributed.broadcast_object_list": 0,
    "mmengine.dist.broadcast_object_list": 0,
    "torch.distributed.all_gather_object": 0,
    "torch.distributed.all_gather": 0,
    "torch.distributed.scatter_object_list": 0,
    "torch.distributed.broadcast": 0,
    "torch.distributed.all_gather_into_tensor": 0,
}
# Not zeros or ones: a fresh constant is a way to warm up, or a barrier.
_MAKERS = ("torch.tensor", "torch.as_tensor")
# Where their source or destination and their group stand, by position and by name.
_ROOTED = {
    "torch.distributed.broadcast": (1, "src", 2),
    "torch.distributed.broadcast_object_list": (1, "src", 2),
    "torch.distributed.scatter": (2, "src", 3),
    "torch.distributed.scatter_object_list": (2, "src", 3),
    "torch.distributed.reduce": (1, "dst", 3),
    "torch.distributed.gather": (2, "dst", 3),
    "torch.distributed.gather_object": (2, "dst", 3),
}
_STRANGER = "In every group except one, the ranks wait for a rank that is not in the group, or stop with an error."
_NOTHING = "The receivers stop with an error, and the sender waits for them."
_A_BOX = "Make a list of the same length, or a tensor of the same shape, on every rank: box = [None]."
# What these fill is a receiver's own.
_RECEIVED = ("broadcast", "broadcast_object_list", "scatter_object_list")
_BY_PLACE = "Pass group_src=0 (or get_global_rank(group, 0)): the first rank of the group."
_OTHER_RANK = re.compile(r"(?<!local)(?<!global)(?<!world)(?<!get)_rank\b")
# What the groups of a part of the job are called, of which there are several.
_PART = re.compile(
    r"(?i)(^|_)(dp|ddp|tp|pp|mp|ep|sp|cp|edp|hsdp|tmp|sdp|zero|intra|inter|local|node|shard|replicate|replica|subgroup|"
    r"data_?parallel|tensor\w*_?parallel|model_?parallel|pipe\w*|expert\w*|sequence_?parallel|context_?parallel)(_|$)"
)


class BroadcastMisuse(LocalRule):
    """
    ## What it does
    Finds collectives whose result is lost or misdirected:

    - collectives that fill an argument in place, called with a temporary object:
      `broadcast_object_list([path], src=0)`, `broadcast(torch.tensor(step), 0)` (a reduction: AR310)
    - collectives that get None on the receiving ranks: `box = [path] if rank == 0 else None`
    - a global rank as source or destination in a group of some ranks (data-parallel, tensor-parallel, node): `src=0`
      with `group=dp_group` is global rank 0, which only one of these groups has

    ## Why is this bad
    What the other ranks sent is written into a temporary list or tensor and lost. The variable keeps this rank's value.
    Without a list, a receiver has nothing to write into.

    ## What happens with N processes
    Every rank continues with its own value: other paths, other decisions, no error. A receiver with None stops with an
    error, and the sender waits for it.

    ## Known problems
    Groups are recognised by their names. In a small job a group may contain all ranks. A function that checks the rank
    in another group (`if dp_rank == 0`) is not reported. A broadcast that is used as a barrier only is better written
    as a barrier.

    ## Use instead
    `box = [path]`, `broadcast_object_list(box, src=0)`, `path = box[0]`. In a group: `group_src=0`, or
    `src=dist.get_global_rank(group, 0)`.
    """

    code, name, severity, row = "AR208", "broadcast-misuse", "error", "collectives"
    cluster = "Each rank continues with its own value: what was sent is lost."
    advice = "Keep the list or tensor in a variable and read the result out of it."
    words = ("broadcast", "all_gather", "scatter", "all_reduce", "gather", "reduce")
    nodes = (ast.Call,)
    calls = (*_FILLED, *_ROOTED)
    bad = (
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\nfrom mmengine.dist import broadcast_object_list\n\n\n"
                    "def run_dir(make):\n    path = make() if dist.get_rank() == 0 else None\n"
                    "    dist.broadcast_object_list([path], src=0)\n"
                    "    broadcast_object_list([path])\n    return path\n"
                )
            },
            at=(7, 8),
        ),
        Example(
            {
                "train.py": (
                    "import torch\nfrom torch.distributed import broadcast\n\n\ndef agree(step):\n"
                    "    broadcast(torch.tensor(step), 0)\n    return step\n"
                )
            },
            at=(6,),
        ),
        Example(
            {
                "best.py": (
                    "import torch.distributed as dist\n\n\ndef best(scores, rank):\n"
                    "    every = [None] * dist.get_world_size()\n    dist.all_gather_object(every, scores)\n"
                    "    path = None\n    if rank == 0:\n        path = save(every)\n"
                    "    dist.broadcast_object_list([path], src=0)\n    return path\n"
                )
            },
            at=(10,),
        ),
        Example(
            {
                "layers.py": (
                    "import torch.distributed as dist\n\n\nclass Layer:\n    def sync(self, x, boxes):\n"
                    "        dist.broadcast(x, 0, self.dp_group)\n"
                    "        dist.broadcast_object_list(boxes, src=0, group=get_tensor_model_parallel_group())\n"
                    "        dist.reduce(x, dst=0, group=mesh.intra_node_group)\n"
                )
            },
            at=(6, 7, 8),
        ),
        Example(
            {
                "data.py": (
                    "import torch.distributed as dist\n\n\ndef share(make, rank):\n"
                    "    box = [make()] if rank == 0 else None\n    dist.broadcast_object_list(box, src=0)\n"
                    "    sizes = None\n    if rank == 0:\n        sizes = make().sizes\n"
                    "    dist.broadcast(sizes, 0)\n    return box[0]\n"
                )
            },
            at=(6, 10),
        ),
    )
    good = (
        Example(
            {
                "data.py": (
                    "import torch.distributed as dist\n\n\ndef share(make, rank):\n"
                    "    box = [make() if rank == 0 else None]\n    dist.broadcast_object_list(box, src=0)\n"
                    "    sizes = None\n    if rank == 0:\n        sizes = make().sizes\n"
                    "        dist.broadcast(sizes, 0)\n    else:\n        sizes = empty()\n"
                    "        dist.broadcast(sizes, 0)\n"
                    "    rows = make() if rank == 0 else None\n    if rows is None:\n        rows = empty()\n"
                    "    dist.broadcast(rows, 0)\n    return box[0]\n"
                )
            }
        ),
        Example(
            {
                "layers.py": (
                    "import torch.distributed as dist\n\n\nclass Layer:\n    def sync(self, x, boxes, group, src):\n"
                    "        dist.broadcast(x, 0, self.group)\n        dist.broadcast(x, 0, group=group)\n"
                    "        dist.broadcast(x, src, group=self.dp_group)\n        dist.broadcast(x, 0)\n"
                    "        dist.broadcast(x, group=self.tp_group, group_src=0)\n\n    def load(self, x, dp_rank):\n"
                    "        def send(y):\n            dist.broadcast(y, 0, self.mp_group)\n\n"
                    "        if dp_rank == 0:\n            send(x)\n"
                )
            }
        ),
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
        # All have made the same of what was gathered.
        Example(
            {
                "train.py": (
                    "import torch.distributed as dist\n\n\ndef weigh(scores, temperature):\n"
                    "    every = [None] * dist.get_world_size()\n    dist.all_gather_object(every, scores)\n"
                    "    merged = {}\n    for one in every:\n        merged.update(one)\n"
                    "    weights = weights_of(merged, temperature)\n"
                    "    dist.broadcast_object_list([weights], src=0)\n    return weights\n"
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
        if (group := _part_of(node, called)) and not (file.is_test or _in_one_group(node, file)):
            what = f"{_ROOTED[called][1]}=0 is rank 0 of the job, which is not in every {group}"
            yield self.local(file, node, what, cluster=_STRANGER, advice=_BY_PLACE)
            return
        position = _FILLED.get(called)
        filled = node.args[position] if position is not None and node.args else None
        if isinstance(filled, ast.Name) and called.rpartition(".")[2] in _RECEIVED and not file.is_test:
            if (test := none_elsewhere(filled, file)) is not None:
                what = f"{filled.id} is None on the ranks that are to receive it: it is made where {ast.unparse(test)}"
                yield self.local(file, node, what, cluster=_NOTHING, advice=_A_BOX)
            return
        if position is None or not node.args or not _is_temporary(node.args[position], called, file):
            return
        if _is_sender(node, called, file) or _is_known_to_all(node.args[position], file):
            return
        word = called.rpartition(".")[2]
        yield self.local(
            file, node, f"{word} fills {ast.unparse(node.args[position])}, which no variable keeps: its result is lost"
        )


def _part_of(call: ast.Call, called: str) -> str:
    """Return the name of the group of some ranks that a call is made in, if its root is global rank 0; else ''."""
    if called not in _ROOTED or (group := given(call, _ROOTED[called][2], "group")) is None:
        return ""
    at, word, _ = _ROOTED[called]
    root = given(call, at, word)
    beside = keyword(call, f"group_{word}") is not None
    name = tail_of(group).removeprefix("get_")
    rooted = root is not None and isinstance(root, ast.Constant) and root.value == 0 and not is_constant(root, False)
    return name if rooted and not beside and _PART.search(name) else ""


def _in_one_group(call: ast.Call, file: File) -> bool:
    """Whether the functions around let only those ranks meet that are first in another group: theirs has rank 0."""
    functions = [p for p in file.parents(call) if isinstance(p, ast.FunctionDef)]
    asked = (at.test for at in walk(functions[-1]) if isinstance(at, ast.If)) if functions else ()
    return any(
        isinstance(test, ast.Compare)
        and ast.unparse(test.comparators[0]) == "0"
        and _OTHER_RANK.search(ast.unparse(test.left))
        for test in asked
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


def _is_known_to_all(filled: ast.expr, file: File) -> bool:
    """Whoever is to receive what is in a list has made the same, of what was gathered from all."""
    parts = filled.elts if isinstance(filled, ast.List) else []
    return bool(parts) and all(isinstance(part, ast.Name) and is_of_gathered(part, file) for part in parts)


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
