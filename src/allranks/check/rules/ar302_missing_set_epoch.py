"""AR302: a shuffling DistributedSampler whose epoch is never set."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT, LEADERS, LOADERS
from allranks.check.tables.names import documented
from allranks.check.tree.epochs import (
    SAMPLERS,
    epoch_loop,
    is_chosen_sampler,
    is_epoch_loop,
    is_held_out,
    is_told_to_shuffle,
    names_set_epoch,
    sets_epoch,
    told_once,
)
from allranks.check.tree.origins import origins, values
from allranks.check.tree.syntax import (
    calls_of,
    class_of,
    function_of,
    given,
    has_left_before,
    has_stars,
    is_constant,
    name_of,
    own,
    rank_guard,
    tail_of,
)
from allranks.findings import Finding, Note

# Words of a program that goes over its data again, and of one that learns from it.
_AGAIN = re.compile(r"epoch|cycle|StopIteration|iterations", re.IGNORECASE)
_LEARNS = re.compile(r"backward|zero_grad|value_and_grad")
_PARTED = (
    "The ranks take their parts of different orders: some rows are read twice in an epoch, others never.",
    "Call set_epoch on every rank.",
)
_NEVER = "this sampler shuffles, and set_epoch is never called"
_NOT_HERE = "this sampler shuffles, and nothing in its program calls set_epoch"
_ONCE = "set_epoch is called once, before the first epoch"
_SOME = "only some ranks call set_epoch"
# They call set_epoch themselves.
_SETTING = frozenset({"lightning", "accelerate", "composer", "transformers", "ray", "mmengine", "mmcv", "catalyst"})
_FRAMEWORKS = frozenset({"lightning", "accelerate", "composer"})


class MissingSetEpoch(LocalRule):
    """
    ## What it does
    Finds a shuffling `DistributedSampler` without `set_epoch`:

    - in a file with a loop over epochs
    - if its loader is used elsewhere, and nothing that the program or a user of that file imports calls `set_epoch`,
      though it trains and counts epochs
    - `set_epoch` under a rank guard, or once before all epochs
    - a sampler in a file that calls it on its other samplers only

    ## Why is this bad
    The order is drawn from seed + epoch. Without `set_epoch` the epoch stays 0.

    ## What happens with N processes
    Every epoch has the same order, and each rank always reads the same part of the data. There is no error; the model
    is worse.

    ## Known problems
    What a program imports counts as its own: a `set_epoch` there that it never calls hides the fault. A program with
    one epoch loses nothing. A program that uses `DataParallel` and shares nothing among processes counts as
    single-process. If a setting decides whether the sampler shuffles, confidence is low.

    ## Use instead
    `sampler.set_epoch(epoch)` at the start of each epoch.
    """

    code, name, severity, row = "AR302", "missing-set-epoch", "warning", "data"
    cluster = "Every epoch has the same order, and each rank always reads the same part of the data."
    advice = "Call sampler.set_epoch(epoch) at the start of each epoch."
    words = ("DistributedSampler", "set_epoch")
    whole = True
    nodes = (ast.Call, ast.IfExp)
    calls = (*SAMPLERS, "set_epoch")
    bad = (
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(dataset, step):
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    for epoch in range(10):
        for batch in loader:
            step(batch)


def get_train_val_loaders(dataset, rank):
    kind = RandomSampler if rank == -1 else DistributedSampler
    yield DataLoader(dataset, sampler=kind(dataset))
    yield DataLoader(dataset, sampler=DistributedSampler(dataset, 8, rank, True))
"""
            },
            at=(6, 13, 15),
        ),
        Example(
            {
                "data.py": """\
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))
""",
                "train.py": """\
import torch.distributed as dist
from data import loader

dist.init_process_group("nccl")
for epoch in range(3):
    for batch in loader([]):
        batch.loss(epoch).backward()
""",
            },
            at=(4,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def main(train, val):
    train_sampler = DistributedSampler(train)
    val_sampler = None
    val_sampler = DistributedSampler(val)
    loaders = [DataLoader(train, sampler=train_sampler), DataLoader(val, sampler=val_sampler)]
    for epoch in range(3):
        if dist.get_rank() == 0:
            val_sampler.set_epoch(epoch)
        yield from loaders
"""
            },
            at=(6, 12),
        ),
        # The loop is a library's, which is told no sampler; of transformers only its models are used.
        Example(
            {
                "train.py": """from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModel
from lib.loop import fit


def main(rows):
    sampler = DistributedSampler(rows)
    val_sampler = DistributedSampler(rows)
    fit(AutoModel(), DataLoader(rows, sampler=sampler), DataLoader(rows, sampler=val_sampler))
""",
                "lib/loop.py": """def fit(model, loader, val_loader):
    for epoch in range(3):
        for batch in loader:
            model(batch, epoch).backward()
""",
            },
            at=(7,),
        ),
        # A setting says that it shuffles; another program of the project sets the epoch of its own sampler.
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main(options, data):
    training_sampler = DistributedSampler(data, shuffle=options["shuffle"], drop_last=True)
    loader = DataLoader(data, sampler=training_sampler)
    for epoch in range(options["epochs"]):
        for batch in loader:
            print(epoch, batch)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "data.py": """\
from torch.utils.data import DataLoader, DistributedSampler

def loader(rows):
    return DataLoader(rows, sampler=DistributedSampler(rows))
""",
                "train.py": """\
import torch.distributed as dist
from data import loader

dist.init_process_group("nccl")
for epoch in range(3):
    for batch in loader([]):
        batch.loss(epoch).backward()
""",
                "finetune.py": """\
from torch.utils.data import DistributedSampler

sampler = DistributedSampler([])
for epoch in range(3):
    sampler.set_epoch(epoch)
""",
            },
            at=(4,),
        ),
    )
    good = (
        # The loop stands in the class that it inherits from.
        Example(
            {
                "pretrain.py": """\
from base import Base
from torch.utils.data import DataLoader, DistributedSampler


class Pretrain(Base):
    def make_loader(self, rows):
        sampler = DistributedSampler(rows)
        return DataLoader(rows, sampler=sampler)

    def report(self):
        for epoch in range(self.epochs):
            print(epoch)
""",
                "base.py": """\
class Base:
    def fit(self, rows):
        loader = self.make_loader(rows)
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
""",
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(dataset, step):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    for epoch in range(10):
        if dist.get_rank() >= 0:
            sampler.set_epoch(epoch)
        for batch in loader:
            step(batch)
"""
            }
        ),
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader, DistributedSampler


def train(test_set, train_set):
    test = DataLoader(test_set, sampler=DistributedSampler(test_set))
    train = DataLoader(train_set, sampler=DistributedSampler(train_set, shuffle=False))
    for epoch in range(10):
        yield from train
        yield from test
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if _leaves_it(file):
            return
        if isinstance(node, ast.IfExp):
            if is_chosen_sampler(node, file) and not names_set_epoch(file):
                yield self._untold(node, file, here=epoch_loop(file) is not None)
        elif isinstance(node, ast.Call) and tail_of(node) == "set_epoch":
            if _is_left_to_some(node, file):
                yield self.local(file, node, _SOME, cluster=_PARTED[0], advice=_PARTED[1])
            elif (rounds := told_once(node, file)) is not None:
                notes = [Note("the loop over epochs is here", file.place(rounds))]
                yield self.finding(file.place(node), file.symbol(node), _ONCE, notes=notes)
        elif isinstance(node, ast.Call) and name_of(node, file) in SAMPLERS and not has_stars(node):
            yield from self._sampler(node, file)

    def _sampler(self, node: ast.Call, file: File) -> Iterator[Finding]:
        shuffle = given(node, 3, "shuffle")
        if is_constant(shuffle, False) or is_held_out(node, file):
            return
        if names_set_epoch(file):
            if _is_passed_over(node, file):
                yield self.local(file, node, "this sampler shuffles, and set_epoch is called on other samplers only")
            return
        here = epoch_loop(file) is not None and not _inherits(node, file) and not _is_handed_on(node, file)
        found = self._untold(node, file, here=here)
        certain = shuffle is None or is_told_to_shuffle(shuffle, node, file)
        yield found if certain else replace(found, confidence="low")

    def _untold(self, node: ast.AST, file: File, *, here: bool) -> Finding:
        loop = epoch_loop(file)
        notes = [Note("the epochs are counted here", file.place(loop))] if loop is not None else []
        return self.finding(file.place(node), file.symbol(node), _NEVER if here else _NOT_HERE, notes=notes)

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether nothing else of its program calls ``set_epoch``, and something goes over the data again."""
        if finding.message in (_NEVER, _NOT_HERE) and program.facts.learns_in_threads(finding.place.path):
            return False
        if finding.message == _NEVER:
            return not sets_epoch(program.around.get(finding.place, (frozenset(), frozenset()))[1])
        if finding.message != _NOT_HERE:
            return True
        made = [event for event in program.calls(*SAMPLERS) if event.place == finding.place]
        symbols = [at for event in made for at in event.symbols]
        held_out = any(HELD_OUT.search(part) for symbol in symbols for part in symbol.split(".") if "train" not in part)
        told = [event.argument(3, "shuffle") for event in made]
        kept = bool(told) and all(value is not None and value.constant is False for value in told)
        if held_out or kept or (made and not any(event.active for event in made)):
            return False
        packages, names = program.around.get(finding.place, (program.packages, program.names))
        own = finding.place.path.split("/")  # a framework's own repository
        return _is_never_told(packages.difference(own), names, program, finding.place.path)


def _leaves_it(file: File) -> bool:
    """Whether a file leaves its samplers to a framework, which sets their epochs."""
    imported = {documented(dotted).partition(".")[0] for dotted in file.imports.values()} & _FRAMEWORKS
    return any(word in file.text for package in imported for word in LEADERS[package])


def _is_never_told(packages: frozenset[str], names: frozenset[str], program: Program, path: str) -> bool:
    """Whether a program goes over its data again to learn from it, and none of its words sets an epoch. What learns may
    be loaded by its name, where nothing in the whole project sets one."""
    if sets_epoch(names) or packages & _SETTING:
        return False
    learning = names if sets_epoch(program.names) else program.names
    if not any(map(_LEARNS.search, learning)):
        return False
    return any(map(_AGAIN.search, names)) or not program.facts.beginning_again.isdisjoint(program.facts.around(path))


def _is_left_to_some(call: ast.Call, file: File) -> bool:
    """It stands under a guard on the rank, and nothing in its function calls it for the others."""
    guard, scope = rank_guard(call, file), function_of(call, file) or file.tree
    if guard is None or not origins(guard, file) & {"global", "local"} or has_left_before(guard, call, file):
        return False
    return sum(isinstance(at, ast.Call) and tail_of(at) == "set_epoch" for at in own(scope)) == 1


def _is_passed_over(sampler: ast.Call, file: File) -> bool:
    """Whatever is told the epoch in this file is another sampler that is made here."""
    if not any(isinstance(parent, ast.Assign) for parent in itertools.islice(file.parents(sampler), 1)):
        return False
    told = [at.func.value for at in calls_of(file).get("set_epoch", ()) if isinstance(at.func, ast.Attribute)]
    made = [[value for value in values(one, file) if not is_constant(value, None)] for one in told]
    others = [all(at is not sampler and name_of(at, file) in SAMPLERS for at in those) and those for those in made]
    return bool(others) and all(others) and epoch_loop(file) is not None


def _inherits(call: ast.Call, file: File) -> bool:
    """It is made in a class whose loop over epochs may stand in a class of another file."""
    owner, function = class_of(call, file), function_of(call, file)
    if owner is None or function is None or any(is_epoch_loop(at) for at in own(function)):
        return False
    here = {at.name for at in file.nodes if isinstance(at, ast.ClassDef)}
    outside = [base for base in owner.bases if tail_of(base) not in (*here, "object", "Module", "ABC")]
    return bool(outside)


def _is_handed_on(call: ast.Call, file: File) -> bool:
    """The sampler goes to a function, or is kept in an object: its epoch may be set there."""
    above = next((p for p in file.parents(call) if isinstance(p, ast.stmt)), None)
    if not isinstance(above, ast.Assign | ast.Return) or above.value is not call:
        return False
    if isinstance(above, ast.Return):
        return True
    names = {at.id for target in above.targets for at in walk(target) if isinstance(at, ast.Name)}
    return any(
        isinstance(at, ast.Call)
        and name_of(at, file) not in LOADERS
        and tail_of(at) != "BatchSampler"
        and any(isinstance(a, ast.Name) and a.id in names for a in [*at.args, *(k.value for k in at.keywords)])
        for at in file.nodes
    )
