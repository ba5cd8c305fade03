"""AR308: every process shuffles in its own way, then takes its part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.origins import RANK_KINDS, origins
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.splits import splits
from allranks.check.syntax import (
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
from allranks.check.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.findings import Finding

_SHUFFLES = ("random.shuffle", "numpy.random.shuffle", "numpy.random.permutation", "torch.randperm", "random.sample")
# Call -> the keyword that makes it the same everywhere.
_DRAWS = {
    "torch.utils.data.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
}
_GENERATORS = (
    *("random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "random.seed", "numpy.random.seed"),
    *("torch.Generator.manual_seed",),
)
_SEEDERS = (
    "seed",
    "set_seed",
    "manual_seed",
    "seed_everything",
    "set_random_seed",
    "seed_all",
    "init_seeds",
    "set_seeds",
)
_OWN = RANK_KINDS | {"clock", "random", "identity"}


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
            if seed is not None and origins(seed, file) & _OWN:
                yield self.local(file, node, "the sampler's seed is this process' own")
        elif name in _DRAWS:
            if self._draws_alone(node, file):
                yield self.local(file, node, f"{tail_of(node)} draws from this process' own random state")
        elif (data := _shuffled(node, file)) is not None:
            split = _dealt_out_later(node, data, file)
            if split is not None:
                yield self.local(
                    file, node, f"{data} is shuffled by this process alone, and dealt out by rank in line {split}"
                )

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at seeds that come from elsewhere: through parameters, attributes, other files."""
        for event in program.calls("torch.utils.data.DistributedSampler"):
            seed = event.argument(4, "seed")
            if event.active and seed is not None and seed.taint & (RANKS | CLOCK | IDENTITY | PROCESS):
                yield self.found(event, "the sampler's seed is this process' own")

    def _draws_alone(self, call: ast.Call, file: File) -> bool:
        seed = given(call, *_DRAWS[name_of(call, file)])
        if has_stars(call) or is_constant(keyword(call, "shuffle"), False) or _is_seeded(file):
            return False
        return seed is None and distributed(file) and _runs_in_parallel(file)


def _shuffled(call: ast.Call, file: File) -> str | None:
    """Return what ``call`` shuffles by a random state of this process alone."""
    argument = call.args[0] if call.args else None
    if argument is None:
        return None
    if name_of(call, file) in _SHUFFLES:
        return ast.unparse(argument) if not _is_seeded(file) and keyword(call, "generator") is None else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("shuffle", "permutation"):
        return ast.unparse(argument) if origins(call.func.value, file) & _OWN else None
    return None


def _dealt_out_later(shuffle: ast.Call, data: str, file: File) -> int | None:
    """Return the line below in the same function where what was shuffled is dealt out."""
    scope = function_of(shuffle, file) or file.tree
    dealt = file.once("dealt out", scope, lambda it: tuple((s.node, _names(s.source)) for s in splits(it, file)))
    if not dealt:
        return None
    around = set(map(id, file.parents(shuffle)))
    names = {data}
    for node, read, written in file.once("stores", scope, _stores):
        if node.lineno >= shuffle.lineno and (not names.isdisjoint(read) or id(node) in around):
            names |= written
    if any(not names.isdisjoint(sent) for sent in file.once("sent", scope, _sent)):
        return None
    lines = (line for node, of in dealt if (line := getattr(node, "lineno", 0)) and not names.isdisjoint(of))
    return next((int(line) for line in lines if line > shuffle.lineno), None)


def _stores(scope: ast.AST) -> tuple[tuple[ast.Assign, frozenset[str], frozenset[str]], ...]:
    """Return the assignments of a scope by line, with the names they read and those they store under."""
    nodes = sorted((n for n in own(scope) if isinstance(n, ast.Assign)), key=lambda n: n.lineno)
    return tuple((n, _names(n.value), frozenset(ast.unparse(target) for target in n.targets)) for n in nodes)


def _sent(scope: ast.AST) -> tuple[frozenset[str], ...]:
    """Return the names in each broadcast of a scope: the order that rank 0 drew is sent to all."""
    return tuple(_names(n) for n in own(scope) if isinstance(n, ast.Call) and "broadcast" in tail_of(n))


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(ast.unparse(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute))


def _is_seeded(file: File) -> bool:
    """Somewhere in the file a seed is set that is the same on all processes."""
    return file.once("seeded", file.tree, lambda _: _sets_seed(file))


def _sets_seed(file: File) -> bool:
    calls = [n for n in file.nodes if isinstance(n, ast.Call) and tail_of(n) in _SEEDERS]
    return any(not any(origins(a, file) & _OWN for a in (*c.args, *(k.value for k in c.keywords))) for c in calls)


def _runs_in_parallel(file: File) -> bool:
    """The file itself starts or splits: it is the program, not a collection of functions."""
    return any(word in file.text for word in ("init_process_group", "DistributedSampler", "Accelerator(", "Fabric("))
