"""Where one process stops what the loop of a framework, or one of this file, runs on all: by its clock, its loss, its
rank; or gives the framework no loss to run a backward pass of.
"""

from __future__ import annotations

import ast
import re

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.skips import (
    AGREES,
    Leaving,
    Steps,
    around,
    by_its_own,
    called_in,
    calls_in,
    names_in,
    targets_of,
)
from allranks.check.tree.syntax import asks_rank, class_of, inside, is_constant, rank_guard, tail_of

# What the loop of a framework asks on every rank: Lightning's Trainer, the control of transformers.
STOPS = ("should_stop", "should_training_stop", "should_epoch_stop")
ENDS = "stop_training"  # a method of the state that a hook is given
GIVES = "training_step"
_OUTPUTS = ("outputs", "output", "state", "batch", "out")
_CLOCKS = ("time.time", "time.monotonic", "time.perf_counter", "datetime.datetime.now", "datetime.datetime.utcnow")
# Where the loop itself meets, the interpreted program tells more of it.
_MEETS = re.compile(r"barrier|all_?reduce|gather|broadcast|wait_for_everyone|sync|reduce")
_STEPS = re.compile(r"^_?(backward|train_(step|batch|iter)|training_step|update_params|gradient_accumulation)$|^_grad")


def asks_to_stop(node: ast.Assign | ast.Call, file: File) -> bool:
    """Whether a hook tells the loop of its framework to stop, by its own clock, the loss of its own batch or its
    rank."""
    function = around(node, file)[1]
    if not _stops(node) or not isinstance(function, ast.FunctionDef) or any(map(AGREES.search, called_in(function))):
        return False
    made = {name: part.value for part in walk(function) if isinstance(part, ast.Assign) for name in targets_of(part)}
    if not ast.unparse(node).startswith("self.should") and rank_guard(node, file) is not None:
        return True
    tests = [above.test for above, _ in inside(node, file) if isinstance(above, ast.If)]
    waiting, asked = list(tests), set[str]()
    for test in waiting:
        asked |= (more := {name for name in names_in(test) if name in made} - asked)
        waiting += [made[name] for name in sorted(more)]
    parts = [at for test in waiting for at in walk(test)]
    return any((isinstance(at, ast.Call) and file.qualified(at.func) in _CLOCKS) or _is_loss(at) for at in parts)


def gives_no_loss(branch: ast.If, file: File) -> bool:
    """Whether a step of Lightning, which runs the backward pass itself, gives none back by what this process alone
    has."""
    function = around(branch, file)[1]
    if not isinstance(function, ast.FunctionDef) or function.name != GIVES or class_of(function, file) is None:
        return False
    left = branch.body[-1]
    if not isinstance(left, ast.Return) or not (left.value is None or is_constant(left.value, None)):
        return False
    ran = any(tail_of(call) in ("backward", "manual_backward") for call in calls_in(function.body))
    return not ran and by_its_own(branch.test, (), function)


def leaves_by_rank(branch: ast.If, file: File) -> bool:
    """Whether some ranks leave a loop of steps that does not show where it meets."""
    if not isinstance(branch.body[-1], ast.Break):
        return False
    guarded = False
    for above, child in ((branch, branch.body[-1]), *inside(branch, file)):
        if isinstance(above, ast.For | ast.While):
            called = set(called_in(above))
            return guarded and any(map(_STEPS.search, called)) and not any(map(_MEETS.search, called))
        guarded = guarded or (isinstance(above, ast.If) and child is not above.test and asks_rank(above.test))
    return False


def _stops(node: ast.Assign | ast.Call) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == f"state.{ENDS}"
    target = node.targets[0]
    return isinstance(target, ast.Attribute) and target.attr in STOPS and is_constant(node.value, True)


def _is_loss(node: ast.AST) -> bool:
    """``outputs["loss"]``, ``state.loss``: of this process' batch."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value == "loss" and isinstance(node.value, ast.Name) and node.value.id in _OUTPUTS
    return isinstance(node, ast.Attribute) and node.attr == "loss" and ast.unparse(node.value) in _OUTPUTS


def leaves_alone(node: ast.If, left: Leaving, steps: Steps, file: File) -> str:
    """Say how a process leaves alone; empty if it does not."""
    if steps.leaves(node, left, file):
        return f"each process decides for itself to {type(left).__name__.lower()}, in a loop of backward passes"
    if gives_no_loss(node, file):
        return "each process decides for itself to return no loss, and then has no backward pass"
    return "some ranks leave the loop of steps here, and the others continue" if leaves_by_rank(node, file) else ""
