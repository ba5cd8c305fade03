"""AR308: every process shuffles in its own way, then takes its part."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from allranks.check.interpret.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.survey.unagreed import drawn_apart
from allranks.check.tables.data import SAMPLERS
from allranks.check.tree.dealing import dealt_out_later
from allranks.check.tree.orders import (
    DRAWS,
    METHODS,
    SHUFFLES,
    divides_shuffled,
    draws_alone,
    is_dealt_out,
    is_program,
    is_unseeded_method,
    makes_dataset,
    orders_dataset,
    shuffled,
    tells_apart,
)
from allranks.check.tree.origins import origins, reached
from allranks.check.tree.own_seeds import OWN, is_seeded, seeds_sampler
from allranks.check.tree.pipelines import LISTS, SEEDERS, ordered_alone
from allranks.check.tree.switched_off import is_switched_off
from allranks.check.tree.syntax import distributed, given, name_of, tail_of
from allranks.findings import Finding, Note

_PERMUTES = ("numpy.random.permutation", "torch.randperm")
_ORDERED = "this data set shuffles itself by a rank-local random state, and a sampler divides it by number"
_ALONE = "from a rank-local random state"
_UNSEEDED = "a rank-local order"
_SEEDED = "the seed of the sampler differs from process to process"
_DRAWN = "by a rank-local random state, and the data is divided by number"


class RankDivergentShuffle(LocalRule, ProgramRule):
    """
    ## What it does
    Finds data that is shuffled (or divided into training and validation) by a rank-local random state, and is divided
    by rank afterwards. The division is in the same file, or in the samplers and trainers of a program that sets no
    seed, or one that depends on the rank. Also a pipeline of `tf.data` that is shuffled without a seed before its
    `shard`, and a `DistributedSampler`, or another sampler with the rank and the number of processes, with a rank-local
    seed.

    ## Why is this bad
    Division by number is right only if all processes have the same list.

    ## What happens with N processes
    Every process draws its part from another order. Some items are read several times in an epoch, others never. One
    process trains on what another one validates on.

    ## Known problems
    If one file shuffles and divides, a seed that is set in another file is not seen. If all processes set the same seed
    there, and draw equally often until then, the shuffle is equal, but only then.

    ## Use instead
    A generator with a seed that all processes know: `random.Random(seed + epoch).shuffle(files)`.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR308", "rank-divergent-shuffle", "error", "data"
    cluster = "Each process takes its part of another order: some items are read several times, others never."
    advice = "Shuffle with a generator whose seed all processes share, or shuffle on rank 0 and broadcast."
    words = ("shuffle", "permutation", "randperm", ".sample", "random_split", "train_test_split", "Sampler", "_files(")
    nodes = (ast.Call, ast.keyword)
    whole = True
    calls = ("DistributedSampler", *DRAWS, *SHUFFLES, "permutation", "shard", *METHODS)
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
batches = BatchSampler(train, rank=rank, num_replicas=dist.get_world_size(), seed=1 + dist.get_rank())
"""
            },
            at=(6, 7, 8),
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
        # An order that one method draws and another deals out; parts that are taken by index; tables and data sets.
        Example(
            {
                "data.py": """\
import random
import numpy as np
import pandas as pd
import torch.distributed as dist


class Tokens:
    def reset(self):
        random.shuffle(self.shards)
        self.tokens = load(self.shards[0])
        self.position = self.size * self.rank

    def batch(self):
        return self.tokens[self.position : self.position + self.size]


def items(rows, rank, world_size):
    np.random.default_rng().shuffle(rows)
    for i in range(rank, len(rows), world_size):
        yield rows[i]


def table(path):
    rows = pd.read_csv(path).sample(frac=1)
    return rows[dist.get_rank() :: dist.get_world_size()]
"""
            },
            at=(9, 18, 24),
        ),
        # The seed of the program holds the process' number; a data set orders itself, and nobody sets a seed.
        Example(
            {
                "data.py": """\
import random
from torch.utils.data import Dataset, random_split


class Files(Dataset):
    def __init__(self, files, some):
        random.shuffle(files)
        self.files = files[:some]


def halves(rows):
    return random_split(rows, [1, 1])
""",
                "train.py": """\
import torch
from accelerate import Accelerator
from data import Files, halves

accelerator = Accelerator()
torch.manual_seed(7 + accelerator.process_index)
loader = accelerator.prepare(torch.utils.data.DataLoader(halves(Files([], 3))[0]))
""",
            },
            at=(7, 12),
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
random.shuffle(files)
mine = files[dist.get_rank() :: dist.get_world_size()]
"""
            }
        ),
        # Seeded by the program.
        Example(
            {
                "data.py": """\
from torch.utils.data import random_split


def halves(rows):
    return random_split(rows, [1, 1])
""",
                "train.py": """\
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from data import halves

accelerator = Accelerator()
set_seed(7)
loader = accelerator.prepare(torch.utils.data.DataLoader(halves([])[0]))
""",
            }
        ),
        Example({"alone.py": "from sklearn.model_selection import train_test_split\n\ntrain_test_split([])\n"}),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.keyword) and seeds_sampler(node, file):
            yield self._seeded(next(file.parents(node)), node.value, file)
        if not isinstance(node, ast.Call) or is_switched_off(node, file):
            return
        name = name_of(node, file)
        if name == "torch.utils.data.DistributedSampler":
            seed = given(node, 4, "seed")
            if seed is not None and origins(seed, file) & OWN:
                yield self._seeded(node, seed, file)
        elif name in DRAWS:
            if draws_alone(node, file):
                yield self.local(file, node, f"{tail_of(node)} draws {_ALONE if is_program(file) else _DRAWN}")
        elif is_unseeded_method(node, file):
            if (here := is_dealt_out(node, file)) or tail_of(node) == "train_test_split":
                yield self.local(file, node, f"{tail_of(node)} draws {_ALONE if here else _DRAWN}")
        elif name in _PERMUTES and tells_apart(node, file) and not is_seeded(node, file):
            here = distributed(file) or "fabric." in file.text or "transformers" in file.imports.values()
            how = f"by a rank-local {tail_of(node)}" if here else _DRAWN
            yield self.local(file, node, f"training and test data are divided {how}")
        elif tail_of(node) == "shard":
            if (by := ordered_alone(node, file)) is not None and not is_switched_off(by, file):
                what = name_of(by, file) if name_of(by, file) in LISTS else tail_of(by)
                how = f"{what} draws {_UNSEEDED}, and line {node.lineno} splits it by number"
                yield self.local(file, by, how)
        elif (data := shuffled(node, file)) is not None:
            split = dealt_out_later(node, data, file)
            if split is None and orders_dataset(node, file):
                yield self.local(file, node, _ORDERED)
            elif split is None and (makes_dataset(node, data, file) or divides_shuffled(node, data, file)):
                yield self.local(file, node, f"{data} is shuffled {_DRAWN}")
            elif split is not None:
                how = f"each process shuffles {data} by itself, and line {split} splits it by rank"
                yield self.local(file, node, how)

    def _seeded(self, sampler: ast.AST, seed: ast.expr, file: File) -> Finding:
        stored = (value for value in reached(seed, file) if value is not seed and origins(value, file) & OWN)
        notes = [Note("the seed is made here", file.place(value)) for value in itertools.islice(stored, 1)]
        return self.finding(file.place(sampler), file.symbol(sampler), _SEEDED, notes=notes)

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether samplers deal out a data set that orders itself."""
        if finding.message.endswith(_DRAWN):
            return drawn_apart(program, finding.place)
        if _UNSEEDED in finding.message:
            names = program.around.get(finding.place, (program.packages, program.names))[1]
            seeded = finding.message.startswith(LISTS) and any("seed" in name for name in names)
            return names.isdisjoint(SEEDERS) and not seeded
        return finding.message != _ORDERED or any(e.name in SAMPLERS and e.active for e in program.events)

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at seeds that come from elsewhere: through parameters, attributes, other files."""
        for event in program.calls("torch.utils.data.DistributedSampler"):
            seed = event.argument(4, "seed")
            if event.active and seed is not None and seed.taint & (RANKS | CLOCK | IDENTITY | PROCESS):
                yield self.found(event, _SEEDED)
