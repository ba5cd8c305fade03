"""AR703: what one rank alone has is used by all ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.one_rank import bound_on_one, holds_on_one, loaded_on_one, on_one
from allranks.check.tree.syntax import asks_rank, class_of, function_of, inside, own, rank_guard
from allranks.check.tree.words import says
from allranks.findings import Finding, Note

_MIXED = "The other ranks go on with other weights: gradients of different models are averaged, without an error."
_LEARNS = ("backward(", "apply_gradients", "train_step", "value_and_grad", ".update(")
_HAS = "which only one rank has"


class StateWrittenOnOneRank(LocalRule):
    """
    ## What it does
    Finds a value that one rank sets and all ranks use:

    - a variable of a function or module that is set behind a rank guard only
    - a checkpoint that one rank loads after the ranks were made equal, in a program that trains
    - an attribute of an object that its constructor makes on one rank only

    ## Why is this bad
    The other ranks have no such value.

    ## What happens with N processes
    The others raise an error (UnboundLocalError, AttributeError), and rank 0 waits for them in the next collective.

    ## Known problems
    A condition that asks whether the value is there, or for the rank in another way, hides the use.

    ## Use instead
    Set it on every rank, or broadcast it from the rank that knows it, before any rank uses it.
    """

    code, name, severity, row = "AR703", "state-written-on-one-rank", "error", "collectives"
    cluster = "The other ranks raise an error where they use it, and the one that has it waits for them."
    advice = "Set it on every rank, or broadcast it from the rank that sets it before it is used."
    whole = True
    words = ("rank", "main", "master", "process_zero", "process_index", "host_id", "chief", "primary")
    nodes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module, ast.ClassDef)
    bad = (
        """\
import torch.distributed as dist


class Run:
    def __init__(self):
        if dist.get_rank() == 0:
            self.writer = open("log.txt", "w")

    def step(self, loss):
        self.writer.write(str(loss))  # <-- found


def main(loss):
    if dist.get_rank() == 0:
        folder = "out"
    print(folder, loss)  # <-- found
""",
    )
    good = (
        """\
import torch.distributed as dist


class Run:
    def __init__(self):
        self.writer = None
        if dist.get_rank() == 0:
            self.writer = open("log.txt", "w")

    def step(self, loss):
        if self.writer is not None:
            self.writer.write(str(loss))


def main(loss):
    if dist.get_rank() == 0:
        folder = "out"
        print(folder, loss)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.ClassDef):
            yield from self._attributes(node, file)
            return
        trains = file.says(*_LEARNS) and not says(file.path, "one_process", "held_out")
        loads = list(loaded_on_one(node, file)) if trains else []
        for call in loads[:1]:
            notes = [Note("so is this", file.place(other)) for other in loads[1:]]
            what = f"{ast.unparse(call.func)} is called on one rank only, and nothing gives the others what it loads"
            yield self.finding(file.place(call), file.symbol(call), what, cluster=_MIXED, notes=notes)
        for one in bound_on_one(node, file):
            note = Note(f"here, where {ast.unparse(one.guard)}", file.place(one.made))
            what = f"{one.name} is set on one rank only, and used on every rank"
            yield self.finding(file.place(one.use), file.symbol(one.use), what, notes=[note])

    def _attributes(self, owner: ast.ClassDef, file: File) -> Iterator[Finding]:
        """Look for attributes that the constructor makes on one rank, and that another method uses on all."""
        nodes = [at for at in walk(owner) if isinstance(at, ast.Attribute) and ast.unparse(at.value) == "self"]
        stored = [at for at in nodes if isinstance(at.ctx, ast.Store)]
        for name in dict.fromkeys(at.attr for at in stored):
            made = [at for at in stored if at.attr == name]
            guard = on_one(made[0], file)
            maker = function_of(made[0], file)
            if (
                guard is None
                or maker is None
                or maker.name != "__init__"
                or any(on_one(at, file) is None for at in made)
            ):
                continue
            if any(isinstance(at, *_DEFINED) and _name(at) == name for at in owner.body):
                continue
            uses = [at for at in nodes if at.attr == name and isinstance(at.ctx, ast.Load)]
            used = next((at for at in uses if _is_for_all(at, name, file)), None)
            if used is not None:
                note = Note(f"here, where {ast.unparse(guard)}", file.place(made[0]))
                what = f"every rank uses self.{name}, {_HAS}"
                yield self.finding(file.place(used), file.symbol(used), what, notes=[note])

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether no other file sets the attribute."""
        if not finding.message.endswith(_HAS):
            return True
        name = finding.message.removesuffix(f", {_HAS}").rpartition(".")[2]
        path = finding.place.path
        return not any(file.says(f".{name} = ") for file in program.facts.files(path) if file.path != path)


_DEFINED = ((ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign),)


def _name(node: ast.AST) -> str:
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return getattr(node, "name", "") or getattr(targets[0], "id", "")


def _is_for_all(use: ast.Attribute, name: str, file: File) -> bool:
    """Whether a method uses an attribute without asking for the rank, or whether it is there."""
    method = function_of(use, file)
    if (
        method is None
        or class_of(use, file) is None
        or rank_guard(use, file) is not None
        or on_one(use, file) is not None
    ):
        return False
    tests = [parent.test for parent, _ in inside(use, file) if isinstance(parent, ast.If | ast.IfExp | ast.While)]
    tests += [at.test for at in own(method) if isinstance(at, ast.If | ast.Assert) and at.lineno < use.lineno]
    asked = any(name in ast.unparse(test) or asks_rank(test) or holds_on_one(test) for test in tests)
    tried = any(isinstance(parent, ast.Try | ast.BoolOp) for parent, _ in inside(use, file))
    return (
        not asked and not tried and not any(word in method.name for word in ("main", "master", "rank", "save", "log"))
    )
