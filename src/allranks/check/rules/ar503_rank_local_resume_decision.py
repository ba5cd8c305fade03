"""AR503: each process decides for itself whether, and from what, to resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, is_handed, reached
from allranks.check.tree.syntax import EVIDENCE, function_of, inside, leaves, name_of, own, rank_guard, tail_of
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

_LOADS = (
    *("load", "load_checkpoint", "restore", "load_state", "load_state_dict", "load_from_checkpoint", "load_file"),
    *("from_bytes", "deserialize", "tree_deserialise_leaves", "msgpack_restore"),
)
_EXISTS = ("exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob", "iterdir", "get_last_checkpoint")
_LISTS = ("listdir", "glob", "iterdir")
# What all processes get alike, or wait for.
_AGREES = ("broadcast", "barrier", "wait_for_everyone", "sync_global_devices", "all_gather", "any(", "allranks")


class RankLocalResumeDecision(LocalRule):
    """
    ## What it does
    Finds a checkpoint that is loaded if this process finds that it exists: `if os.path.exists(path): torch.load(path)`.

    ## Why is this bad
    Processes may find different things: the file system of another host is late, a disk is not shared, another process
    is writing.

    ## What happens with N processes
    Some ranks resume and others start from nothing, or from another step. They train together, with mixed weights and
    steps. The learning rate or the end of the run differs by rank.

    ## Known problems
    On an idle shared file system all processes find the same. Confidence is low where nothing mentions several nodes,
    and for a path that the user has given.
    A function that waits for the others, broadcasts, or raises if there is no file, is not reported.

    ## Use instead
    Decide on rank 0, broadcast the path (or None), and fail on a rank that cannot read it.
    """

    code, name, severity, row = "AR503", "rank-local-resume-decision", "warning", "checkpoint load"
    of_nodes = True
    cluster = "Some ranks resume and others start from nothing, or from another step, and train on together."
    advice = "Let rank 0 decide and broadcast the path or None; raise on a rank that cannot read it."
    words = ("exists", "isfile", "is_file", "isdir", "listdir", "glob", "latest", "last", "resume")
    nodes = (ast.If,)
    bad = (
        """\
import os
import torch
import torch.distributed as dist


def main(model, optimizer):
    dist.init_process_group("gloo")
    if os.path.exists("checkpoint.pt"):  # <-- found
        state = torch.load("checkpoint.pt", map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
""",
    )
    good = (
        """\
import os
import torch
import torch.distributed as dist


def main(model):
    dist.init_process_group("gloo")
    found = [os.path.exists("checkpoint.pt")]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
        model.load_state_dict(torch.load("checkpoint.pt", map_location="cpu"))
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not says(file.path, "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.If):
            return
        if not _is_presence(node.test) or not _tests_for_file(node.test, file) or not _resumes(node, file):
            return
        code = file.code_in(function_of(node, file))
        agreed = any(word in code for word in _AGREES)
        if agreed or rank_guard(node, file) is not None or any(isinstance(at, ast.Raise) for at in own(node)):
            return
        if not any(isinstance(at, ast.If) and _tests_for_file(at.test, file) for at, _ in inside(node, file)):
            found = self.local(file, node.test, "each process decides by its own files whether it resumes")
            sure = _is_found(node.test, file) and not is_handed(node.test, file)
            yield found if sure else replace(found, confidence="low")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether its program runs as several processes."""
        return program.facts.says(finding.place.path, *EVIDENCE)


def _resumes(branch: ast.If, file: File) -> bool:
    """Whether a checkpoint of a training is loaded in a branch, or behind one that leaves the function."""
    block: list[ast.AST] = list(branch.body)
    if leaves(branch.body):  # if not os.path.exists(path): return
        every = own(function_of(branch, file) or file.tree)
        block = [at for at in every if getattr(at, "lineno", 0) > (branch.end_lineno or 0)]
    calls = (at for part in block for at in walk(part) if isinstance(at, ast.Call) and tail_of(at) in _LOADS)
    loads = any(not name_of(at, file).startswith(("json.", "yaml.")) for at in calls)
    return loads and (_is_resume(branch, file) or any(mentions(part, "progress") for part in block))


def _is_resume(node: ast.AST, file: File) -> bool:
    """Whether the function around a node is called like what resumes."""
    function = function_of(node, file)
    return function is not None and says(function.name, "resumes")


def _is_presence(test: ast.expr) -> bool:
    """Whether a condition asks whether something is there: by its truth, or against None, 0 or -1."""
    if isinstance(test, ast.BoolOp):
        return any(map(_is_presence, test.values))
    others = test.comparators if isinstance(test, ast.Compare) else []
    return all(isinstance(one, ast.Constant | ast.UnaryOp) for one in others)


def _asked(test: ast.expr, file: File) -> Iterator[ast.Call]:
    """Yield the calls that a condition depends on, and those of the functions of the file that these run."""
    for at in (at for one in reached(test, file) for at in walk(one) if isinstance(at, ast.Call)):
        yield at
        function = function_called(at, file)
        yield from (inner for inner in own(function) if isinstance(inner, ast.Call)) if function is not None else ()


def _tests_for_file(test: ast.expr, file: File) -> bool:
    """Whether a condition asks whether a checkpoint is there."""
    calls = list(_asked(test, file))
    asks = any(tail_of(at) in _EXISTS or (says(tail_of(at), "latest") and at.args) for at in calls)
    named = [test, *calls, *(one for at in calls for given in at.args for one in reached(given, file))]
    return asks and (_is_resume(test, file) or any(mentions(one, "checkpoint", "latest") for one in named))


def _is_found(test: ast.expr, file: File) -> bool:
    """Whether the program itself looks for the file: a listing, the latest one, or a name that stands in the program.
    Of a path that its user has given, it is likely that it is there for all."""
    calls = list(_asked(test, file))
    named = [test, *(one for at in calls for given in at.args for one in reached(given, file))]
    lists = any(tail_of(at) in _LISTS for at in calls)
    texts = (at.value for one in named for at in walk(one) if isinstance(at, ast.Constant))
    latest = any(mentions(one, "latest") for one in named) or any("." in str(text) for text in texts)
    return latest or (lists and _is_resume(test, file))
