"""AR308: every process shuffles in its own way, then takes its part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.dealing import dealt_out_later
from allranks.check.nodes import walk
from allranks.check.origins import RANK_KINDS, origins
from allranks.check.own_seeds import OWN, is_own_generator, is_own_seed, is_seeded, seeds
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.syntax import (
    bases_of,
    class_of,
    distributed,
    function_of,
    given,
    has_stars,
    is_constant,
    keyword,
    name_of,
    own,
    tail_of,
)
from allranks.check.tables.data import SAMPLERS
from allranks.check.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.findings import Finding

_SHUFFLES = ("random.shuffle", "numpy.random.shuffle", "numpy.random.permutation", "torch.randperm", "random.sample")
_PERMUTES = ("numpy.random.permutation", "torch.randperm")
_TRAINS, _TESTS = re.compile(r"train"), re.compile(r"test|val|eval|dev")
# Call -> the keyword that makes it the same everywhere.
_DRAWS = {
    "torch.utils.data.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
}
_ORDERED = "this data set orders itself by a seed of this process, and is dealt out by number"


class RankDivergentShuffle(LocalRule, ProgramRule):
    """
    ## What it does
    Finds data that is shuffled (or divided into training and validation) by a random state that each process has for
    itself, and is dealt out by rank afterwards. Also a `DistributedSampler` with a seed of the process' own.

    ## Why is this bad
    Dealing out by number is right only if all processes have the same list.

    ## What happens with N processes
    Every process draws its part from another order: some items are read several times in an epoch, others never; what
    one process validates on, another one trains on.

    ## Known problems
    A seed that is set in another file is not seen. If all processes set the same one there, and draw as often until
    then, the shuffle is the same, but it hangs on that.

    ## Use instead
    A generator with a seed that all processes know: `random.Random(seed + epoch).shuffle(files)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR308", "rank-divergent-shuffle", "error", "data"
    cluster = "Each process deals from another order: some items are read several times, others never."
    advice = "Shuffle with a generator whose seed all processes share, or shuffle on rank 0 and broadcast."
    words = ("shuffle", "permutation", "randperm", "random.sample", "random_split", "train_test_split", "Sampler")
    nodes = (ast.Call,)
    calls = ("DistributedSampler", *_DRAWS, *_SHUFFLES, "shuffle", "permutation")
    bad = (
        Example(
            {
                "data.py": """\
import random
import torch.distributed as dist


def part(files):
    random.shuffle(files)
    return files[dist.get_rank() :: dist.get_world_size()]
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import time
import torch.distributed as dist
from torch.utils.data import DistributedSampler, random_split

dist.init_process_group("nccl")
train, val = random_split(list(range(100)), [90, 10])
sampler = DistributedSampler(train, seed=int(time.time()))
"""
            },
            at=(6, 7),
        ),
        Example(
            {
                "buckets.py": """\
from math import ceil
from random import shuffle


class Buckets:
    def split(self, buckets):
        for name, images in buckets.items():
            shuffle(images)
            kept = images[: ceil(len(images) / 8) * 8]
            with self.accelerator.split_between_processes(kept, apply_padding=True) as part:
                self.buckets[name] = part
"""
            },
            at=(8,),
        ),
        Example(
            {
                "data.py": """\
import glob
import random
from reader import Packed


def train(fabric):
    fabric.seed_everything(7)
    return loader(fabric, seed=7 + fabric.global_rank)


def loader(fabric, seed):
    names = sorted(glob.glob("data/*.bin"))
    random.seed(seed)
    random.shuffle(names)
    return Packed(names, num_processes=fabric.world_size, process_rank=fabric.global_rank)
"""
            },
            at=(14,),
        ),
        Example(
            {
                "data.py": """\
import random
import torch
import torch.distributed as dist

torch.manual_seed(0)


def part(files):
    random.shuffle(files)
    return files[dist.get_rank() :: dist.get_world_size()]
"""
            },
            at=(9,),
        ),
        # The generator's seed is the process' own; what is dealt out is what a method returns.
        Example(
            {
                "data.py": """\
import time
import random
import torch
from torch.utils.data import Dataset, DistributedSampler, Sampler


class Balanced(Sampler):
    def __init__(self, rows, seed=None):
        self.rows, self.rank, self.world = rows, torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.seed = seed if seed is not None else torch.seed() % 2**31

    def order(self):
        g = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(self.rows), generator=g)

    def __iter__(self):
        return iter(self.order()[self.rank :: self.world])


class Sounds(Dataset):
    def __init__(self, files):
        random.seed(time.time())
        random.shuffle(files)


def sampler(rows, rank):
    random.Random(3 + rank).shuffle(rows)
    train = Sounds(rows[100:])
    return DistributedSampler(train, 8, rank)


class Agreed(Balanced):
    def __init__(self, rows):
        self.seed = share_seed(torch.seed())
"""
            },
            at=(14, 23, 27),
        ),
        Example(
            {
                "train.py": """\
import numpy as np
import transformers


def data(rows):
    order = np.random.permutation(len(rows))
    train_rows = order[:90]
    eval_rows = order[90:]
    return train_rows, eval_rows


def main(model, rows):
    train, test = data(rows)
    transformers.Trainer(model, train_dataset=train, eval_dataset=test).train()
"""
            },
            at=(6,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import random
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, random_split


def part(files, seed):
    random.Random(seed).shuffle(files)
    return files[dist.get_rank() :: dist.get_world_size()]


def own(files):
    mine = files[dist.get_rank() :: dist.get_world_size()]
    random.shuffle(mine)
    return mine


def agreed(files):
    order = torch.randperm(len(files))
    dist.broadcast(order, 0)
    return order[dist.get_rank() :: dist.get_world_size()]


def parts(data):
    train, val = random_split(data, [9, 1], generator=torch.Generator().manual_seed(1))
    return DistributedSampler(train, seed=7)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import random
import torch.distributed as dist

random.seed(0)
files = list("abc")
random.shuffle(files)
mine = files[dist.get_rank() :: dist.get_world_size()]
"""
            }
        ),
        Example({"alone.py": "from sklearn.model_selection import train_test_split\n\ntrain_test_split([])\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or file.is_test:
            return
        name = name_of(node, file)
        if name == "torch.utils.data.DistributedSampler":
            seed = given(node, 4, "seed")
            if seed is not None and origins(seed, file) & OWN:
                yield self.local(file, node, "the sampler's seed is this process' own")
        elif name in _DRAWS:
            if self._draws_alone(node, file):
                yield self.local(file, node, f"{tail_of(node)} draws from this process' own random state")
        elif name in _PERMUTES and _parts_of(node, file) and not is_seeded(node, file):
            if distributed(file) or "fabric." in file.text or "transformers" in file.imports.values():
                yield self.local(
                    file, node, f"training and test data are told apart by this process' own {tail_of(node)}"
                )
        elif (data := _shuffled(node, file)) is not None:
            split = dealt_out_later(node, data, file)
            if split is None and _orders_dataset(node, file):
                yield self.local(file, node, _ORDERED)
            elif split is not None:
                yield self.local(
                    file, node, f"{data} is shuffled by this process alone, and dealt out by rank in line {split}"
                )

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether samplers deal out a data set that orders itself."""
        return finding.message != _ORDERED or any(e.name in SAMPLERS and e.active for e in program.events)

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at seeds that come from elsewhere: through parameters, attributes, other files."""
        for event in program.calls("torch.utils.data.DistributedSampler"):
            seed = event.argument(4, "seed")
            if event.active and seed is not None and seed.taint & (RANKS | CLOCK | IDENTITY | PROCESS):
                yield self.found(event, "the sampler's seed is this process' own")

    def _draws_alone(self, call: ast.Call, file: File) -> bool:
        seed = given(call, *_DRAWS[name_of(call, file)])
        if has_stars(call) or is_constant(keyword(call, "shuffle"), False) or is_seeded(call, file):
            return False
        return seed is None and distributed(file) and _runs_in_parallel(file) and not _starts_ranks(call, file)


def _starts_ranks(call: ast.Call, file: File) -> bool:
    """It runs in the process that starts the others, and what it draws is passed to them."""
    scope = function_of(call, file) or file.tree
    return any(isinstance(at, ast.Call) and tail_of(at) in ("spawn", "start_processes") for at in own(scope))


def _parts_of(call: ast.Call, file: File) -> bool:
    """``order = permutation(n)``, of which slices are what is trained on and what is tested on."""
    above, scope = next(file.parents(call), None), function_of(call, file)
    if scope is None or keyword(call, "generator") is not None:
        return False
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Name):
        return False
    order, stored = above.targets[0].id, [at for at in own(scope) if isinstance(at, ast.Assign)]
    parts = [name for at in stored for name in _slices(at, order)]
    return any(map(_TRAINS.search, parts)) and any(map(_TESTS.search, parts))


def _slices(assign: ast.Assign, order: str) -> list[str]:
    """Return what is made of slices of ``order``: ``train, test = Rows(x[order[:n]]), Rows(x[order[n:]])``"""
    target, value = assign.targets[0], assign.value
    both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]  # type: ignore[attr-defined]
    return [ast.unparse(one) for one, made in pairs if any(_is_slice(at, order) for at in walk(made))]


def _is_slice(node: ast.AST, name: str) -> bool:
    """``name[:n]``"""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == name


def _shuffled(call: ast.Call, file: File) -> str | None:
    """Return what ``call`` shuffles by a random state of this process alone."""
    argument = call.args[0] if call.args else None
    if argument is None or origins(argument, file) & RANK_KINDS:
        return None  # nothing, or what is this process' part already
    if name_of(call, file) in _SHUFFLES:
        generator = keyword(call, "generator")
        drawn_alone = not is_seeded(call, file) if generator is None else is_own_generator(generator, file)
        return ast.unparse(argument) if drawn_alone else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("shuffle", "permutation"):
        return ast.unparse(argument) if is_own_seed(call.func.value, file) else None
    return None


def _orders_dataset(call: ast.Call, file: File) -> bool:
    """The constructor of a data set shuffles by a seed that it sets itself, and that is this process' own."""
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or function.name != "__init__":
        return False
    data = any(base.endswith("Dataset") for base in bases_of(owner, file))
    family = name_of(call, file).partition(".")[0]
    set_here = (
        one for of, one, own_seed in file.once("seeds", file.tree, lambda _: seeds(file)) if family in of and own_seed
    )
    return data and any(function_of(one, file) is function and one.lineno < call.lineno for one in set_here)


def _runs_in_parallel(file: File) -> bool:
    """The file itself starts or splits: it is the program, not a collection of functions."""
    return any(word in file.text for word in ("init_process_group", "DistributedSampler", "Accelerator(", "Fabric("))
