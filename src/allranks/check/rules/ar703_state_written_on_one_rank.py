"""AR703: what one rank alone knows decides what all ranks do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import PARALLEL, Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.tree.given_by_one import gives_something, used_by_all
from allranks.check.tree.one_rank import Parted
from allranks.check.tree.parted_by_one import HAS, TOLD, parted_by_one
from allranks.check.tree.syntax import asks_rank, is_constant, rank_guard
from allranks.check.tree.told_to_one import told_at
from allranks.findings import Finding, Note

# What the loop of a framework asks on every rank: Lightning's Trainer, the control of transformers.
_ASKED = ("should_stop", "should_training_stop", "should_epoch_stop", "should_evaluate")


class StateWrittenOnOneRank(LocalRule, ProgramRule):
    """
    ## What it does
    Finds a value that one rank sets and all ranks use:

    - a variable or attribute that is set behind a rank guard only, and used, loaded or divided by all
    - the first epoch of a loop, which one rank reads from a checkpoint
    - a counter that all ranks increment and one resets; a list that all gather and one empties
    - an argument of a model that is None on the other ranks; a state of which one rank sets a part, and that all load
    - a variable that one rank changes, and on which a collective depends
    - a schedule of the learning rate, or its counter, that one rank advances
    - a loop whose number of rounds only some ranks have set
    - an object that one rank updates (`if rank == 0: stopper.step(loss)`), while every rank leaves a loop with
      collectives, or computes its loss, by its answer

    With `--confidence low` also a variable that is set behind a guard and later decides whether a collective is called,
    and an attribute of a framework that ends its loop (`trainer.should_stop`, `control.should_training_stop`). And the
    result of a function that runs on rank 0 only, if all ranks use it.

    ## Why is this bad
    The other ranks still have the old value, or none.

    ## What happens with N processes
    If the variable is not set, the others raise an error and rank 0 waits for them. Or rank 0 decides to stop (no
    patience left, the run was cancelled) and leaves, and the others wait for it in the next collective.

    ## Known problems
    An object that is passed on, or whose class is not the project's, is not followed. Confidence is low for kinds that
    were wrong as often as right, such as state that all ranks set in a loop that ends by a reduced value.

    ## Use instead
    Set it on every rank, or broadcast it from the rank that knows it, before any rank acts on it.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR703", "state-written-on-one-rank", "error", "collectives"
    cluster = "One rank acts on the new value, the others on the old one: a hang, or models that diverge."
    advice = "Set it on every rank, or broadcast it from the rank that sets it before it decides anything."
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed as dist

class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.best_file = None
        self.idle = 0

    def evaluated(self, loss, step):
        self.idle += 1
        if loss < self.best and dist.get_rank() == 0:
            self.best_file = self.save(step)
            self.idle = 0

    def is_over(self):
        if self.idle > 5:
            return True

    def finish(self):
        self.model.load_state_dict(load_file(self.best_file))

    def score(self, metric, rank):
        every = collect_results(metric.results)
        if rank == 0:
            score = metric.compute(every)
            metric.results.clear()
        dist.barrier()
        return score

    def build(self, rank):
        if rank == 0:
            names = self.read("names")
        else:
            names = None
        self.model = Detector(names=names)

    def load(self, state, rank):
        if rank == 0:
            state["head"] = state["body"]
        self.model.load_state_dict(state)

def train(path, rank, epochs):
    start = 0
    if path and rank == 0:
        start = torch.load(path)["epoch"]
    print(start)
    for epoch in range(start, epochs):
        step(epoch)
""",
            },
            at=(16, 20, 23, 28, 35, 40, 47),
        ),
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
            at=(15, 17),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from stopping import Patience

def main(rank, losses):
    stopper = Patience(3)
    for loss in losses:
        dist.all_reduce(loss)
        if rank == 0:
            stopper.update(loss)
        if stopper.is_over():
            break
""",
                "stopping.py": """\
class Patience:
    def update(self, loss):
        self.bad += 1
    def is_over(self):
        return self.bad > self.most
""",
            },
            at=(10,),
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

class Trainer:
    def __init__(self):
        self.best_file = None
        self.idle = 0

    def evaluated(self, loss, step):
        self.idle += 1
        if loss < self.best:
            self.idle = 0
        if dist.get_rank() == 0:
            self.best_file = self.save(step)
        if self.idle > 5:
            return True

    def finish(self, rank):
        if rank == 0:
            print(load_file(self.best_file))
        else:
            return

    def score(self, metric, rank, deep):
        every = collect_results(metric.results)
        score = None
        if rank == 0:
            score = metric.compute(every)
            shown = round(score, 3)
        metric.results.clear()
        if deep:
            if rank == 0:
                folder = metric.folder
        else:
            folder = "scores"
            print(folder, [shown for shown in every])
        is_chief = rank == 0
        if is_chief and deep:
            print(shown, folder)
        if not self.several or rank == 0:
            values = {}
        if self.several:
            dist.barrier()
        else:
            values["score"] = score
        return score

    def build(self, rank):
        names, sizes = None, None
        if rank == 0:
            names = self.read("names")
        names = broadcast(names)
        model = Detector(names=names)
        heads = None
        if rank == 0:
            heads = self.read("heads")
        heads = [0] if heads is None else heads
        self.model = Detector(names=names, heads=heads)

def train(path, rank, epochs):
    start = 0
    if path and rank == 0:
        start = torch.load(path)["epoch"]
    start = agreed(start)
    for epoch in range(start, epochs):
        step(epoch)
""",
            },
        ),
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

    whole = True
    words = (*_ASKED, "rank", "main", "master", "process_zero", "process_index", "host_id", "chief", "primary")
    nodes = (ast.Assign, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Assign):
            yield from (self._of(one, file, message) for one, message in parted_by_one(node, file))
        if isinstance(node, ast.Assign | ast.FunctionDef):
            yield from (replace(finding, confidence="low") for finding in self._told(node, file))

    def _of(self, one: Parted, file: File, message: str) -> Finding:
        note = Note(f"here, where {ast.unparse(one.guard)}", file.place(one.made))
        place = file.place(one.use)
        return self.finding(place, file.symbol(one.use), message, notes=[note])

    def _told(self, node: ast.Assign | ast.FunctionDef, file: File) -> Iterator[Finding]:
        """Yield what is asked on every rank and set on one, by the names of frameworks and decorators."""
        if isinstance(node, ast.FunctionDef):
            if gives_something(node) and any(map(asks_rank, node.decorator_list)):
                for call, name in used_by_all(node, file):
                    note = Note("runs on one rank", file.place(node))
                    message = f"{name} is None on every rank except one: {node.name} runs on one rank only"
                    yield self.finding(file.place(call), file.symbol(call), message, notes=[note])
            return
        target = node.targets[0]
        if not (isinstance(target, ast.Attribute) and target.attr in _ASKED and is_constant(node.value, True)):
            return
        guard = rank_guard(node, file)
        if guard is not None and ast.unparse(target.value) != "self":
            yield self.local(
                file, node, f"{ast.unparse(target)} is used on every rank, and set on some: {ast.unparse(guard)}"
            )

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether the class of the object that one rank alone tells says so, and the processes meet in the loop; and
        whether all come to the method that uses what one alone has."""
        if finding.message.endswith(HAS):
            path, name = finding.place.path, finding.message.removesuffix(HAS).rpartition(".")[2]
            here = (e for e in program.events if e.place.path == path and e.symbol == finding.symbol)
            return not program.facts.stores(name, but=path) and any(e.active and e.everyone for e in here)
        if not finding.message.endswith(TOLD):
            return True
        place, facts = finding.place, program.facts
        if (told := told_at(place, facts.lines[place.path])) is None:
            return False
        alone = not told.kind or not facts.stores(told.asked, but=place.path)
        alters = facts.alters(told.kind, told.method, told.asked) if told.method else alone
        return alters and (not told.leaves or program.meets_in(place.path, told.loop.lineno, told.loop.end_lineno or 0))

    def check(self, program: Program) -> Iterator[Finding]:
        for parting in program.divergences():
            if parting.cause == "state":
                message = f"{parting.named} depends on {parting.condition}, which was set on some ranks only"
                yield replace(self.found(parting, message, notes=parting.sides()), confidence="low")
            elif parting.cause == "rounds" and parting.op in PARALLEL:
                message = f"the rounds of a loop with {parting.named} are set on some ranks only"
                yield replace(self.found(parting, message, notes=[Note("here", parting.place)]), place=parting.guard)
