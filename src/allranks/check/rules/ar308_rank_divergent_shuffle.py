"""AR308: every process shuffles in its own way, then takes its part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.origins import RANK_KINDS, origins
from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.source import File
from allranks.check.splits import handed, splits
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
_PERMUTES = ("numpy.random.permutation", "torch.randperm")
_TRAINS, _TESTS = re.compile(r"train"), re.compile(r"test|val|eval|dev")
# Call -> the keyword that makes it the same everywhere.
_DRAWS = {
    "torch.utils.data.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
}
# Whose draws a seed decides; a seeder of another name is taken to seed all of them.
_FAMILIES = ("random", "numpy", "torch", "sklearn")
_DECIDES = {"random": ("random",), "numpy": ("numpy", "sklearn"), "torch": ("torch",)}
_SEEDERS = frozenset(
    [
        *("seed", "set_seed", "manual_seed", "seed_everything", "set_random_seed", "seed_all", "init_seeds"),
        *("set_seeds", "setup_seed", "fix_seed", "set_all_seeds", "init_seed", "manual_seed_all"),
    ]
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
            if seed is not None and origins(seed, file) & _OWN:
                yield self.local(file, node, "the sampler's seed is this process' own")
        elif name in _DRAWS:
            if self._draws_alone(node, file):
                yield self.local(file, node, f"{tail_of(node)} draws from this process' own random state")
        elif name in _PERMUTES and _parts_of(node, file) and not _is_seeded(node, file):
            if distributed(file) or "transformers" in file.imports.values():
                yield self.local(
                    file, node, f"training and test data are told apart by this process' own {tail_of(node)}"
                )
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
        if has_stars(call) or is_constant(keyword(call, "shuffle"), False) or _is_seeded(call, file):
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
    parts = [ast.unparse(at.targets[0]) for at in stored if _is_slice(at.value, order)]
    return any(map(_TRAINS.search, parts)) and any(map(_TESTS.search, parts))


def _is_slice(node: ast.expr, name: str) -> bool:
    """``name[:n]``"""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == name


def _shuffled(call: ast.Call, file: File) -> str | None:
    """Return what ``call`` shuffles by a random state of this process alone."""
    argument = call.args[0] if call.args else None
    if argument is None:
        return None
    if name_of(call, file) in _SHUFFLES:
        return ast.unparse(argument) if not _is_seeded(call, file) and keyword(call, "generator") is None else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("shuffle", "permutation"):
        return ast.unparse(argument) if origins(call.func.value, file) & _OWN else None
    return None


def _dealt_out_later(shuffle: ast.Call, data: str, file: File) -> int | None:
    """Return the line below in the same function where what was shuffled is dealt out."""
    scope = function_of(shuffle, file) or file.tree
    dealt = file.once("dealt out", scope, lambda it: _dealt(it, file))
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


def _dealt(scope: ast.AST, file: File) -> tuple[tuple[ast.AST, frozenset[str]], ...]:
    return tuple((s.node, _names(s.source)) for s in (*splits(scope, file), *handed(scope, file)))


def _stores(scope: ast.AST) -> tuple[tuple[ast.Assign, frozenset[str], frozenset[str]], ...]:
    """Return the assignments of a scope by line, with the names they read and those they store under."""
    nodes = sorted((n for n in own(scope) if isinstance(n, ast.Assign)), key=lambda n: n.lineno)
    return tuple((n, _names(n.value), frozenset(ast.unparse(target) for target in n.targets)) for n in nodes)


def _sent(scope: ast.AST) -> tuple[frozenset[str], ...]:
    """Return the names in each broadcast of a scope: the order that rank 0 drew is sent to all."""
    return tuple(_names(n) for n in own(scope) if isinstance(n, ast.Call) and "broadcast" in tail_of(n))


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(ast.unparse(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute))


def _is_seeded(draw: ast.Call, file: File) -> bool:
    """What it draws from has a seed that is the same on all processes: the last one set above, or any in the file."""
    family = name_of(draw, file).partition(".")[0]
    seeds = [(call, own) for of, call, own in file.once("seeds", file.tree, lambda _: _seeds(file)) if family in of]
    function = function_of(draw, file)
    above = [one for one in seeds if one[0].lineno <= draw.lineno and function_of(one[0], file) is function]
    return not above[-1][1] if above and function is not None else any(not own for _, own in seeds)


def _seeds(file: File) -> list[tuple[tuple[str, ...], ast.Call, bool]]:
    """Return the calls that set a seed by line: whose draws they decide, and whether the seed is the process' own."""
    calls = [n for n in file.nodes if isinstance(n, ast.Call) and tail_of(n) in _SEEDERS]
    found = []
    for call in sorted(calls, key=lambda n: n.lineno):
        family = name_of(call, file).partition(".")[0]
        given_ones = (*call.args, *(k.value for k in call.keywords))
        own_seed = any(origins(a, file) & _OWN for a in given_ones)
        of = _DECIDES.get(family, _FAMILIES)
        found.append((of, call, own_seed))
    return found


def _runs_in_parallel(file: File) -> bool:
    """The file itself starts or splits: it is the program, not a collection of functions."""
    return any(word in file.text for word in ("init_process_group", "DistributedSampler", "Accelerator(", "Fabric("))
