"""AR703: what one rank alone knows decides what all ranks do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import Function, asks_rank, calls_of, function_of, is_constant, own, rank_guard
from allranks.findings import Finding, Note

# What the loop of a framework asks on every rank: Lightning's Trainer, the control of transformers.
_ASKED = ("should_stop", "should_training_stop", "should_epoch_stop", "should_evaluate")


class StateWrittenOnOneRank(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a variable or attribute that is set behind a guard on the rank, and later decides on every rank whether a
    collective is called: also one of a framework's that ends its loop (`trainer.should_stop`,
    `control.should_training_stop`). And what a function that runs on rank 0 alone returns, where all ranks use it:
    the others have None.

    ## Why is this bad
    The other ranks still have the old value.

    ## What happens with N processes
    Rank 0 notices that it should stop (no patience left, the run was cancelled) and leaves; the others go on and
    wait for it in the next collective.

    ## Known problems
    State that goes through an object that the check does not follow is not seen. State that all ranks set in a loop
    that ends by a reduced value is reported too. The rule is off unless selected: it has been wrong as often as
    right in real code.

    ## Use instead
    Broadcast the state from the rank that knows it, before anybody acts on it.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR703", "state-written-on-one-rank", "error", "collectives"
    default = False
    cluster = "One rank acts on the new value, the others on the old one: a hang, or models that drift apart."
    advice = "Broadcast it from the rank that sets it before it decides anything."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def main(losses):
    dist.init_process_group("nccl")
    stop = False
    if dist.get_rank() == 0:
        stop = losses[-1] > losses[0]
    if not stop:
        dist.barrier()
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

class Trainer:
    def __init__(self):
        self.cancelled = False

    def log(self, loss, limit):
        if dist.get_rank() == 0:
            if loss > limit:
                self.cancelled = True

    def fit(self, losses):
        for loss in losses:
            self.log(loss, 10)
            if self.cancelled:
                return
            dist.all_reduce(loss)
""",
            },
            at=(17,),
        ),
        Example(
            {
                "stop.py": """\
from lightning.pytorch.utilities import rank_zero_only

class Limit(Callback):
    def on_validation_end(self, trainer, module):
        self.look(trainer)

    @rank_zero_only
    def look(self, trainer):
        if self.clock.is_over():
            trainer.should_stop = True

class Patience(TrainerCallback):
    def on_evaluate(self, args, state, control, **kwargs):
        if state.is_world_process_zero and self.worse(state):
            control.should_training_stop = True

@rank_zero_only
def build(settings):
    return Network(settings)

def main(settings):
    net = build(settings)
    net.compile()
""",
            },
            at=(10, 15, 22),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

def main(losses):
    dist.init_process_group("nccl")
    stop = [False]
    if dist.get_rank() == 0:
        stop = [losses[-1] > losses[0]]
    dist.broadcast_object_list(stop, src=0)
    if not stop[0]:
        dist.barrier()
""",
            },
        ),
        Example(
            {
                "stop.py": """\
class Limit(Callback):
    def on_validation_end(self, trainer, module):
        stop = trainer.strategy.broadcast(self.clock.is_over())
        if stop:
            trainer.should_stop = True
        if trainer.is_global_zero:
            trainer.should_stop = False

@rank_zero_only
def tracker(settings):
    return Run(settings)

def main(settings, rank):
    run = tracker(settings)
    if run is not None:
        run.log(1)

def fit(settings, is_main_process):
    run = tracker(settings)
    if is_main_process:
        run.log(1)
""",
            },
        ),
    )

    words = (*_ASKED, "rank_zero", "main_process", "master_only", "process_zero", "rank0")
    nodes = (ast.Assign, ast.FunctionDef)

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.FunctionDef):
            if _gives_something(node) and any(map(asks_rank, node.decorator_list)):
                for call, name in _used_by_all(node, file):
                    note = Note("runs on one rank", file.place(node))
                    message = f"{name} is None on every rank but one: {node.name} runs on one rank alone"
                    yield self.finding(file.place(call), file.symbol(call), message, notes=[note])
            return
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if not (isinstance(target, ast.Attribute) and target.attr in _ASKED and is_constant(node.value, True)):
            return
        guard = rank_guard(node, file)
        if guard is not None and ast.unparse(target.value) != "self":
            yield self.local(
                file, node, f"{ast.unparse(target)} is asked on every rank, and set on some: {ast.unparse(guard)}"
            )

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "state":
                yield self.found(
                    parting,
                    f"{parting.named} depends on {parting.condition}, which was set on some ranks only",
                    notes=parting.sides(),
                )


def _gives_something(function: Function) -> bool:
    given = (at.value for at in own(function) if isinstance(at, ast.Return))
    return any(value is not None and not isinstance(value, ast.Constant) for value in given)


def _used_by_all(function: Function, file: File) -> Iterator[tuple[ast.Call, str]]:
    """Yield calls by all ranks whose result is then used as if they all had it, and what it is stored in."""
    for call in calls_of(file).get(function.name, ()):
        above, around = next(file.parents(call), None), function_of(call, file)
        if not (isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)) or around is None:
            continue
        name = above.targets[0].id
        if around is not function and rank_guard(call, file) is None and _is_used(name, above, around, file):
            yield call, name


def _is_used(name: str, stored: ast.Assign, around: Function, file: File) -> bool:
    """Whether a method of it is called afterwards, on all ranks, and nobody asks whether it is there."""
    nodes = list(own(around))
    if any(isinstance(at, ast.If | ast.IfExp | ast.Assert) and name in ast.unparse(at.test) for at in nodes):
        return False
    later = (at for at in nodes if isinstance(at, ast.Call) and at.lineno > stored.lineno)
    return any(
        isinstance(at.func, ast.Attribute)
        and isinstance(at.func.value, ast.Name)
        and at.func.value.id == name
        and rank_guard(at, file) is None
        for at in later
    )
