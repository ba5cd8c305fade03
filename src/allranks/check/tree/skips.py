"""What one process alone sees in a training loop: its loss, what is in its batch, that it has failed.

A backward pass of a wrapped model is a meeting. Whoever skips one by such a condition leaves the others waiting there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allranks.check.sources.nodes import children, walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT
from allranks.check.tables.items import counts, is_batch, may_hold_samples
from allranks.check.tree.namesakes import only_sounds
from allranks.check.tree.syntax import asks_rank, calls_of, nodes_in, own, tail_of, variables, words_of

_LOSS = re.compile(r"loss|(?<![a-z])kl(?![a-z])|policykl|approxkl|isnan|isinf|isfinite", re.IGNORECASE)
AGREES = re.compile(r"reduce|gather|broadcast|sync|agree|psum|pmean|allreduce|\bsum_loss\b")
_TOLD = re.compile(f"{AGREES.pattern}|(?i:distributed)|world_size")
_DATA = re.compile(r"(?i)(loader|dataset|dl|data_?iter|iterator|batch(es)?|samples|data)\b")
# Methods and functions that make one number, or one truth, of what is in a tensor.
_LOOKS = frozenset(
    (
        *("any", "all", "sum", "max", "min", "mean", "item", "numel"),
        *("nonzero", "count_nonzero", "isnan", "isinf", "isfinite", "allclose", "equal", "unique"),
    )
)
_STEP = re.compile(
    r"^_*((train|training|forward_backward|fwd_bwd|optimi[sz]e)_(step|batch|iter|iteration|one_step|one_batch|one_iter)"
    r"|(step|batch|iter)_train|forward_backward|forward_and_backward|update_params)$"
)
_OPTIMIZER = re.compile(r"optim|scaler|update_params|zero_grad", re.IGNORECASE)
_READS = re.compile(
    r"(?i)load|open|read|decode|^next$|fetch|parse|sample|batch|collate|process|transform|augment|token|^to$"
)
_NORM = re.compile(r"(?i)grad\w*_norm|clip_grad|norm\w*_grad")
_PART = re.compile(r"step|batch|iter(?!at)|backward|update")
# Who fails so, fails in the text of the program or at the end of the data, or was stopped by its user.
_ALIKE = frozenset(
    (
        *(
            "KeyboardInterrupt",
            "StopIteration",
            "SystemExit",
            "ImportError",
            "ModuleNotFoundError",
            "AttributeError",
            "TypeError",
            "NameError",
        ),
        *("NotImplementedError", "StopAsyncIteration", "GeneratorExit"),
    )
)
Leaving = ast.Break | ast.Continue | ast.Return
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Failed(NamedTuple):
    """``certain``: it fails at what is its own, not at what all have."""

    says: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of training in a file. ``stepping``: its functions that run a backward pass; ``updating``: those of
    them that speak of an optimizer too; ``backward``: it has such passes at all."""

    stepping: frozenset[str]
    updating: frozenset[str]
    backward: bool

    @classmethod
    def of(cls, file: File) -> Steps:
        passes = [call for call in calls_of(file).get("backward", ()) if tail_of(call) == "backward"]
        parents = {above for one in passes for above in file.parents(one) if isinstance(above, ast.FunctionDef)}
        stepping = [function for function in parents if function.name != "forward"]
        updating = frozenset(function.name for function in stepping if _optimises(function))
        return cls(frozenset(function.name for function in stepping), updating, bool(passes))

    def leaves(self, branch: ast.If, left: Leaving, file: File) -> bool:
        """Whether ``branch`` leaves a round of a loop of steps, or a step before its backward pass, by what is own."""
        loops, function = around(branch, file)
        if loops:
            late = isinstance(left, ast.Continue) and not self._meets_later(loops[0], branch)
            there = not late and self._steps_in(loops[0], branch.test)
        else:
            there = isinstance(left, ast.Return) and _steps_later(function, branch)
        return there and by_its_own(branch.test, loops, function)

    def _meets_later(self, loop: ast.AST, branch: ast.If) -> bool:
        """Whether a step, or a reduction, stands behind ``branch`` in the round of a loop, or all in one function."""
        later = [call for call in calls_in((loop,)) if call.lineno > (branch.end_lineno or branch.lineno)]
        before = any(self._is_step(call) and call.lineno < branch.lineno for call in calls_in((loop,)))
        return not before or any(self._is_step(call) or AGREES.search(tail_of(call)) for call in later)

    def _steps_in(self, loop: ast.AST, test: ast.expr) -> bool:
        """Whether a loop runs backward passes of this file, or where a loss is asked, what is a step by its name."""
        called = set(called_in(loop))
        if "backward" in called or not called.isdisjoint(self.stepping):
            return True
        return _on_loss(test, list(words_of(test))) and any(map(_STEP.search, called))

    def guards(self, branch: ast.If, file: File) -> bool:
        """Whether a backward pass stands in a branch on what is own, and none in the other one."""
        if not self.backward or not any(tail_of(call) == "backward" for call in calls_in(branch.body)):
            return False
        loops, function = around(branch, file)
        apart = any(self._is_step(call) for call in calls_in(branch.orelse))
        stepping = bool(loops) or (isinstance(function, ast.FunctionDef) and _STEP.search(function.name) is not None)
        if apart or not stepping or not _optimises(function) or not _compares(branch.test, function):
            return False
        return by_its_own(branch.test, loops, function)

    def fails_in(self, handler: ast.ExceptHandler, file: File) -> bool:
        """Whether the exceptions of a step in a loop, or in the function that is one, come to ``handler``."""
        tried = next(p for p in file.parents(handler) if isinstance(p, ast.Try | ast.TryStar))
        loops, function = around(handler, file)
        whole = isinstance(function, ast.FunctionDef) and (_STEP.search(function.name) or _is_one_step(function))
        data = any(_is_data(loop.iter) for loop in loops if isinstance(loop, ast.For))
        drawn = bool(loops) and "next" in called_in(function)
        steps = [call for call in calls_in(tried.body) if self._is_step(call)]
        if not (data or drawn or whole) or not steps or _unwraps(function, tried.body):
            return False
        caught_up = any(tail_of(c) in self.stepping or self._is_step(c) for c in calls_in(handler.body))
        return self._trains(function, steps) and not caught_up and not _is_told(handler, function)

    def failed(self, handler: ast.ExceptHandler, file: File) -> Failed | None:
        """Return what becomes of a process that comes to ``handler``, if it goes on alone without its backward pass."""
        if not swallowed(handler):
            return None
        if self.fails_in(handler, file):
            return Failed("a process whose step fails continues without its backward pass", True)
        own_data = self._unread(handler, file)
        says = "a process that cannot read its data skips this round, and its backward pass"
        return None if own_data is None else Failed(says, own_data)

    def _unread(self, handler: ast.ExceptHandler, file: File) -> bool | None:
        """Return whether what cannot be read, so that this process leaves the round of a loop before its step, is known
        to be of its own data; None if nothing is read there, or the step is not left."""
        trying = next(p for p in file.parents(handler) if isinstance(p, ast.Try))
        loops, function = around(handler, file)
        if not self.backward or not loops or not isinstance(handler.body[-1], ast.Continue | ast.Break):
            return None
        ends = trying.end_lineno or trying.lineno
        later = [call for call in calls_in((loops[0],)) if self._is_step(call) and call.lineno > ends]
        tried = list(calls_in(trying.body))
        reads = any(_READS.search(tail_of(call)) for call in tried) and not any(map(self._is_step, tried))
        if not (later and reads and self._trains(function, later)) or _is_told(handler, function):
            return None
        data = isinstance(loops[0], ast.For) and _is_data(loops[0].iter)
        return data or any(tail_of(call) == "next" for call in tried) or any(map(asks_rank, trying.body))

    def _trains(self, function: ast.AST, steps: Iterable[ast.Call]) -> bool:
        """Whether the optimizer is at work in a function, or in one of this file that it calls as its step."""
        return _optimises(function) or any(tail_of(call) in self.updating for call in steps)

    def _is_step(self, call: ast.Call) -> bool:
        """The backward pass, or what is called as a step."""
        name = tail_of(call)
        return (
            name == "backward"
            or _STEP.search(name) is not None
            or (name in self.stepping and _PART.search(name) is not None)
        )


def _unwraps(function: ast.AST, tried: list[ast.stmt]) -> bool:
    """Whether what is tried calls the model inside of the wrapped one: ``inner = getattr(model, "module", model)``."""
    stored = (at for at in own(function) if isinstance(at, ast.Assign) and isinstance(at.value, ast.Call))
    inner = {
        ast.unparse(at.targets[0])
        for at in stored
        if ast.unparse(at.value).startswith("getattr(") and "'module'" in ast.unparse(at.value)
    }
    return any(ast.unparse(call.func) in inner for call in calls_in(tried))


def _is_one_step(function: ast.FunctionDef) -> bool:
    """Whether it is one step of training by what it does: one backward pass, then the optimizer, in no loop."""
    called, loops = called_in(function), (at for at in own(function) if isinstance(at, _LOOPS))
    return {"backward", "step"} <= set(called) and not any("backward" in called_in(loop) for loop in loops)


def _steps_later(function: ast.AST, branch: ast.If) -> bool:
    """Whether a function is a step of training that has yet to come to its backward pass."""
    if not isinstance(function, ast.FunctionDef) or not (_STEP.search(function.name) or _is_one_step(function)):
        return False
    return any(tail_of(call) == "backward" and call.lineno > branch.lineno for call in calls_in(function.body))


def around(node: ast.AST, file: File) -> tuple[list[ast.AST], ast.AST]:
    """Return the loops around a node in its function, nearest first, and the function (or the module)."""
    loops: list[ast.AST] = []
    for above in file.parents(node):
        if isinstance(above, _FUNCTIONS):
            return loops, above
        if isinstance(above, _LOOPS):
            loops.append(above)
    return loops, file.tree


def _is_told(handler: ast.ExceptHandler, function: ast.AST) -> bool:
    """Whether a handler notes the failure in what is reduced over the processes afterwards."""
    assigned = [part for part in walk(function) if isinstance(part, ast.Assign)]
    told = agreed(function)
    told |= {name for part in assigned if targets_of(part) & told for name in names_in(part.value)}
    return any(targets_of(part) & told for part in walk(handler) if isinstance(part, ast.Assign))


def _optimises(function: ast.AST) -> bool:
    """Whether it trains: it speaks of an optimizer, or its steps are taken elsewhere."""
    return any(_OPTIMIZER.search(word) for word in words_of(function))


def _compares(test: ast.expr, function: ast.AST) -> bool:
    """Whether a condition looks at numbers that are computed in a function, not at settings."""
    if any(isinstance(part, ast.Call) and tail_of(part) in _LOOKS for part in walk(test)):
        return True
    made = {name for part in walk(function) if isinstance(part, ast.Assign) for name in targets_of(part)}
    orders = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
    compared = [part for part in walk(test) if isinstance(part, ast.Compare) and isinstance(part.ops[0], orders)]
    sides = [side for part in compared for side in (part.left, *part.comparators)] or [test]
    return any(isinstance(side, ast.Name) and side.id in made for side in sides)


def by_its_own(test: ast.expr, loops: Sequence[ast.AST], function: ast.AST) -> bool:
    """Whether a condition is on what this process alone computes: its loss, its batch, a flag that says so of them."""
    if _looks(test, loops, function):
        return True
    flag = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if not (isinstance(flag, ast.Name) and loops) or flag.id in agreed(function):
        return False
    asked = (at for at in walk(loops[0]) if isinstance(at, ast.If) and _sets(at.body, flag.id))
    return any(_looks(at.test, loops, function) for at in asked)


def _looks(test: ast.expr, loops: Sequence[ast.AST], function: ast.AST) -> bool:
    words = list(words_of(test))
    if any(map(AGREES.search, words)) or names_in(test) & (agreed(function) | _norms(function)):
        return False
    if _on_loss(test, words):
        return True
    data = [_data_of(loop) for loop in loops] or [_data_given(function)]
    return any(_on_data(test, one) for one in data)


def _norms(function: ast.AST) -> set[str]:
    """Return what is made of gradients, which have been reduced: ``norm = clip_grad_norm_(parameters, 1.0)``."""
    made = (at for at in own(function) if isinstance(at, ast.Assign) and isinstance(at.value, ast.Call))
    return {name for at in made if _NORM.search(tail_of(at.value)) for name in targets_of(at)}


def _on_loss(test: ast.expr, words: list[str]) -> bool:
    if isinstance(test, ast.Compare) and ast.unparse(test.comparators[0]) == "None":
        return False  # whether there is a loss at all is the same for all
    if any("grad" in word.lower() for word in words) and not any("loss" in word.lower() for word in words):
        return False  # gradients have been reduced
    # That of held-out data is no loss of this batch, and may be that of all: `own_scores` follows it.
    return any(map(_LOSS.search, words)) and not any(map(HELD_OUT.search, words))


def _sets(body: Iterable[ast.stmt], name: str) -> bool:
    """Whether a block sets a variable to a constant."""
    return any(isinstance(p, ast.Assign) and isinstance(p.value, ast.Constant) and name in targets_of(p) for p in body)


def _data_of(loop: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """Return the variables of a loop over data, and the names of what is made of them in its body."""
    if not isinstance(loop, ast.For) or not _is_data(loop.iter):
        return set(), set(), set()
    target, counted = loop.target, isinstance(loop.iter, ast.Call) and tail_of(loop.iter) == "enumerate"
    if counted and isinstance(target, ast.Tuple):
        given = {n for part in target.elts[1:] for n in names_in(part)}
    else:
        given = names_in(target)
    return _with_made({name for name in given if not counts(name)}, loop)


def _data_given(function: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """Return the parameters that a step is given a batch as, and the names of what is made of them."""
    if not isinstance(function, ast.FunctionDef):
        return set(), set(), set()
    return _with_made({arg.arg for arg in function.args.args if is_batch(arg.arg)}, function)


def _with_made(given: set[str], tree: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """Return these names, with what is made of them, and those of lists that are picked out of that by a condition."""
    made, picked = set(given), set[str]()
    for part in walk(tree) if given else ():
        if isinstance(part, ast.Assign) and names_in(part.value) & made and not _agrees(part.value):
            new = {name for name in targets_of(part) if not counts(name)}
            made |= new
            if isinstance(part.value, ast.ListComp) and any(loop.ifs for loop in part.value.generators):
                picked |= new
    return given, made, picked


def _on_data(test: ast.expr, data: tuple[set[str], set[str], set[str]]) -> bool:
    """Whether a condition looks into a batch: is there one, is anything in it, what comes out of its numbers."""
    given, made, picked = data
    if not made:
        return False
    if isinstance(test, ast.BoolOp):
        return any(_on_data(value, data) for value in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        plain = isinstance(test.operand, ast.Name) and test.operand.id in given | picked
        return plain or _on_data(test.operand, data)
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and isinstance(test.ops[0], ast.Is):
        return test.left.id in given and ast.unparse(test.comparators[0]) == "None"
    for part in walk(test):
        if isinstance(part, ast.Call) and tail_of(part) in _LOOKS and names_in(part) & made:
            return True
    return _is_empty(test, made)


def _is_empty(test: ast.expr, made: set[str]) -> bool:
    """``len(batch) == 0``: other sizes are alike where the loader cuts batches."""
    if not isinstance(test, ast.Compare) or not isinstance(test.comparators[0], ast.Constant):
        return False
    asked = isinstance(test.left, ast.Call) and tail_of(test.left) == "len"
    return asked and test.comparators[0].value == 0 and bool(names_in(test.left) & made)


def agreed(function: ast.AST) -> set[str]:
    """Return names that went through, or came out of, a reduction over the processes, and what else they are called."""
    found: set[str] = set()
    renamed: list[tuple[str, str]] = []
    for part in walk(function):
        if isinstance(part, ast.Assign | ast.Expr) and any(map(AGREES.search, called_in(part))):
            found |= names_in(part)
        elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Name):
            renamed += [(target.id, part.value.id) for target in part.targets if isinstance(target, ast.Name)]
    return (found | {name for name, other in renamed if other in found}) - {"self"}


def swallowed(handler: ast.ExceptHandler) -> bool:
    """Whether a process that has failed goes on alone: not every way through the handler raises."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if all(kind is not None and tail_of(kind) in _ALIKE for kind in kinds):
        return False
    asked = any(map(_TOLD.search, words_of(handler)))
    return not asked and not _always_raises(handler.body)


def _always_raises(body: Iterable[ast.stmt]) -> bool:
    for part in body:
        if isinstance(part, ast.Raise):
            return True
        if isinstance(part, ast.Expr) and tail_of(part.value) in ("exit", "_exit", "abort", "quit", "kill"):
            return True
        if isinstance(part, ast.If) and leaving(part.body):
            return False
        if isinstance(part, ast.If) and part.orelse and _always_raises(part.body) and _always_raises(part.orelse):
            return True
    return False


def leaving(body: Iterable[ast.stmt]) -> Leaving | None:
    """Return the statement by which a block leaves its round of the loop, if it does."""
    return next((s for s in body if isinstance(s, Leaving)), None)


def calls_in(body: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls of a block, those of nested functions left out."""
    return (at for at in nodes_in(body) if isinstance(at, ast.Call))


def _is_data(source: ast.expr) -> bool:
    """Whether a loop goes over batches: each process has its own."""
    text = ast.unparse(source)
    ranged = isinstance(source, ast.Call) and tail_of(source) in ("range", "trange")
    return not ranged and ".items(" not in text and may_hold_samples(text) and bool(_DATA.search(text))


def _agrees(node: ast.AST) -> bool:
    return any(map(AGREES.search, called_in(node)))


def names_in(node: ast.AST) -> set[str]:
    """Return the names in ``node``, but for ``self``."""
    return variables(node) - {"self"}


def targets_of(part: ast.Assign) -> set[str]:
    found = (name for target in part.targets for name in (target, *children(target)))
    return {name.id for name in found if isinstance(name, ast.Name)}


def called_in(node: ast.AST) -> Iterator[str]:
    return (tail_of(part) for part in walk(node) if isinstance(part, ast.Call) and not only_sounds(part))
