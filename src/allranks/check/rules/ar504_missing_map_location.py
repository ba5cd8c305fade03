"""AR504: torch.load puts the tensors of all ranks onto the device that saved them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import (
    asks_rank,
    calls_of,
    function_of,
    given,
    has_stars,
    inside,
    keyword,
    name_of,
    own,
    rank_guard,
    tail_of,
)
from allranks.check.tree.words import ends, mentions, says
from allranks.findings import Edit, Finding, Fix, Place

# What a program says that gives each process a GPU.
_SEVERAL = ("init_process_group", "init_distributed", "DistributedDataParallel", "Accelerator(", "LOCAL_RANK")
# What is saved has been brought to the CPU, or each process sees its own GPU alone.
_ELSEWHERE = ("offload_to_cpu=True", "cpu_offload=True", "set_device(0)", "CUDA_VISIBLE_DEVICES", "adaptdl")
_PATHS = ("join", "str", "Path", "open", "expanduser", "format")
_TO_CPU = (".cpu()", "to_cpu(", 'to("cpu")', "to('cpu')")


class MissingMapLocation(LocalRule):
    """
    ## What it does
    Finds `torch.load` without `map_location`, if every rank of a program with a GPU per rank loads what it reads into
    a model or an optimizer.

    ## Why is this bad
    Tensors are restored onto the device from which they were saved: for a file of rank 0, `cuda:0`.

    ## What happens with N processes
    All ranks of a host load onto the same GPU. It runs out of memory at the resume, but not at the start. Each process
    keeps a CUDA context there.

    ## Known problems
    A file that was saved from the CPU is loaded to the CPU. Names decide that published (*pretrained*) weights, and
    files beside the weights, are not reported; nor is a file that brings what it saves to the CPU.

    ## Use instead
    `torch.load(path, map_location="cpu")`, or the rank's own device.

    ## Fix safety
    Unsafe: the code that uses the tensors may expect them on a GPU.
    """

    code, name, severity, row = "AR504", "missing-map-location", "warning", "checkpoint load"
    cluster = "All ranks of a host load onto the GPU from which the file was saved, and it runs out of memory."
    advice = 'Pass map_location="cpu" (or the rank\'s own device).'
    words = ("torch.load", "import load")
    nodes = (ast.Call,)
    calls = ("torch.load",)
    bad = (
        """\
import os
import torch


def resume(model, optimizer, checkpoint_path):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    checkpoint = torch.load(checkpoint_path)  # <-- found
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
""",
    )
    good = (
        """\
import os
import torch


def resume(model, optimizer, path, pretrained):
    rank = int(os.environ["LOCAL_RANK"])
    optimizer.load_state_dict(torch.load(path, map_location=f"cuda:{rank}"))
    model.load_state_dict(torch.load(pretrained))
""",
        """\
# file: eval.py
import torch

model.load_state_dict(torch.load('checkpoint.pt'))
""",
    )

    def applies(self, file: File) -> bool:
        alone = says(file.path, "one_process", "held_out") and not says(file.path, "trains")
        return not (file.is_test or alone or file.says(*_ELSEWHERE))

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or name_of(node, file) != "torch.load" or not node.args or has_stars(node):
            return
        if given(node, 1, "map_location") is not None or keyword(node, "mmap") is not None:
            return
        function, path = function_of(node, file), node.args[0]
        if isinstance(path, ast.Constant) or asks_rank(path) or _is_beside(path):
            return
        if function is not None and says(function.name, "one_process"):
            return
        if isinstance(path, ast.Call) and tail_of(path) not in _PATHS:
            return  # what fetches published weights
        if _is_chosen(node, file) or _is_published(node, file):
            return
        if rank_guard(node, file) is not None or _saves_from_cpu(file) or not _restores(node, file):
            return
        whole = file.place(node)
        end = Place(whole.path, whole.end_line, whole.end_column - 1, whole.end_line, whole.end_column - 1)
        fix = Fix("map_location", (Edit(end, ', map_location="cpu"'),), safe=False)
        yield self.local(file, node, "torch.load without map_location: every rank loads onto one GPU", fix=fix)

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program gives each process a GPU."""
        path, facts = finding.place.path, program.facts
        return facts.says(path, *_SEVERAL) and facts.says(path, "cuda", "nccl", "accelerator")


def _is_chosen(load: ast.Call, file: File) -> bool:
    """Whether another branch loads the same file with a map_location: this one is for a process that has no GPU bound,
    or that has no choice."""
    branches = [parent for parent, _ in inside(load, file) if isinstance(parent, ast.If | ast.IfExp)]
    arms = [at for branch in branches if "cuda" not in ast.unparse(branch.test) for at in walk(branch)]
    others = (at for at in arms if isinstance(at, ast.Call) and tail_of(at) == "load" and at.args)
    path = ast.unparse(load.args[0])
    return any(ast.unparse(at.args[0]) == path and given(at, 1, "map_location") is not None for at in others)


def _is_published(load: ast.Call, file: File) -> bool:
    """Whether it fills a model that a library makes with or without its published weights."""
    above = next(file.parents(load), None)
    model = above.func.value if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) else None
    return model is not None and any("pretrained" in ast.unparse(one) for one in values(model, file))


def _is_beside(path: ast.expr) -> bool:
    """Whether a file lies beside the weights, or has been published, by its name."""
    return any(says(word, "beside") and not says(word, "checkpoint") for word in ends(path))


def _restores(load: ast.Call, file: File) -> bool:
    """Whether its function fills an optimizer, or a model with what is called a checkpoint."""
    taking = [at for at in own(function_of(load, file) or file.tree) if isinstance(at, ast.Call)]
    taking = [
        at for at in taking if tail_of(at) == "load_state_dict" and at.end_lineno and at.end_lineno >= load.lineno
    ]
    optimizer = any("optim" in ast.unparse(at.func).lower() or ".opt." in ast.unparse(at.func) for at in taking)
    above = next(file.parents(load), None)
    named = [load.args[0], *(above.targets if isinstance(above, ast.Assign) else ())]
    return optimizer or (bool(taking) and any(mentions(one, "checkpoint") for one in named))


def _saves_from_cpu(file: File) -> bool:
    """Whether a function of the file brings to the CPU what it saves."""
    saving = {function_of(at, file) or at for at in calls_of(file).get("save", ()) if name_of(at, file) == "torch.save"}
    texts = (file.code_in(at) for at in saving)
    return any(word in text for text in texts for word in _TO_CPU)
