"""AR308: every process shuffles in its own way, then takes its part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.draws import draws_apart, is_of_pipeline, is_own, is_seeded
from allranks.check.tree.origins import reached
from allranks.check.tree.splits import handed_at, split_at, splits
from allranks.check.tree.syntax import (
    bases_of,
    calls_of,
    class_of,
    function_of,
    given,
    inside,
    is_constant,
    keyword,
    name_of,
    own,
    places_in,
    tail_of,
)
from allranks.check.tree.words import mentions, says
from allranks.findings import Finding

# Call -> where it takes what makes it the same everywhere.
_DRAWS = {
    "torch.utils.data.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
}
_SAMPLERS = ("torch.utils.data.DistributedSampler", "DistributedSampler")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEALS = ("DistributedSampler", "Accelerator(", "pl.Trainer", "L.Trainer", "lightning", "prepare_data_loader")
_SEEDS = (
    *("seed(", "seed =", "seed_everything", "set_seed", "seed_all", "random_seed", "RandomState(", "fix_random"),
    "init_seeds",
)


class RankDivergentShuffle(LocalRule):
    """
    ## What it does
    Finds data that a rank-local random state shuffles (or divides into training and validation), and that is divided by
    rank afterwards. The division is in the same function, or in the samplers of a program that sets no seed. Also a
    `DistributedSampler` whose seed differs from process to process.

    ## Why is this bad
    Division by number is right only if all processes have the same list.

    ## What happens with N processes
    Every process draws its part from another order. Some items are read several times in an epoch, others never. One
    process trains on what another one validates on.

    ## Known problems
    A program that sets any seed is taken to set the same one in all processes before the draw.

    ## Use instead
    A generator with a seed that all processes know: `random.Random(seed + epoch).shuffle(files)`.
    """

    code, name, severity, row = "AR308", "rank-divergent-shuffle", "error", "data"
    cluster = "Each process takes its part of another order: some items are read several times, others never."
    advice = "Shuffle with a generator whose seed all processes share, or shuffle on rank 0 and broadcast."
    words = ("shuffle", "permutation", "randperm", "random_split", "train_test_split", "Sampler", "list_files")
    nodes = (ast.Call,)
    whole = True
    bad = (
        """\
import random
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
files = ["a", "b", "c", "d"]
random.shuffle(files)  # <-- found
mine = files[dist.get_rank() :: dist.get_world_size()]
sampler = DistributedSampler(mine, seed=1234 + dist.get_rank())  # <-- found
""",
    )
    good = (
        """\
import random
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("gloo")
files = ["a", "b", "c", "d"]
random.Random(1234).shuffle(files)
mine = files[dist.get_rank() :: dist.get_world_size()]
random.shuffle(mine)
sampler = DistributedSampler(mine, seed=1234)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call):
            return
        name, seed = name_of(node, file), keyword(node, "seed")
        if seed is not None and is_own(seed, file) and _deals(node, file):
            yield self.local(file, node, f"the seed of {tail_of(node)} differs from process to process")
        elif name in _DRAWS:
            drawn = given(node, *_DRAWS[name]) is None and not is_constant(keyword(node, "shuffle"), False)
            if drawn and not is_seeded(node, file):
                yield self.local(file, node, f"{tail_of(node)} draws {_BY_ITSELF}")
        elif node.args and (apart := _lists_at_random(node) or draws_apart(node, file)):
            if splits(_shuffled(node, file), file):
                return
            data = ast.unparse(_shuffled(node, file))
            if (split := _split_below(node, data, file)) is not None:
                what = f"each process shuffles {data} by itself, and line {split} splits it by rank"
                yield self.local(file, node, what)
            elif apart == "unseeded" and _makes_dataset(node, file):
                yield self.local(file, node, f"{data} is shuffled {_BY_ITSELF}")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether a program deals out what the file orders, and sets no seed."""
        path, facts = finding.place.path, program.facts
        lines = facts.code(path)
        seeds = (
            [line for line in lines if any(word in line for word in _SEEDS)] if _BY_ITSELF in finding.message else []
        )
        apart = any("rank" in line for line in seeds) or not seeds
        return _BY_ITSELF not in finding.message or (apart and facts.says(path, *_DEALS))


_BY_ITSELF = "by a rank-local random state, and the data is divided by number"


def _lists_at_random(call: ast.Call) -> str:
    """Return ``generator`` for ``tf.data.Dataset.list_files``, which shuffles unless it is told not to."""
    fixed = is_constant(keyword(call, "shuffle"), False) or keyword(call, "seed") is not None
    return "generator" if tail_of(call) == "list_files" and not fixed else ""


def _deals(call: ast.Call, file: File) -> bool:
    """Whether a call makes a sampler, or a part of data for a rank, from a seed."""
    samples = tail_of(call).endswith("Sampler") and (
        name_of(call, file) in _SAMPLERS or keyword(call, "rank") is not None
    )
    return samples or handed_at(call, file) is not None


def _shuffled(draw: ast.Call, file: File) -> ast.expr:
    """Return what a call shuffles: ``files`` of ``files.shuffle(100)`` in a pipeline, else its first argument."""
    return draw.func.value if isinstance(draw.func, ast.Attribute) and is_of_pipeline(draw, file) else draw.args[0]


def _split_below(shuffle: ast.Call, data: str, file: File) -> int | None:
    """Return the line below in the function that divides what was shuffled, or what was made of that."""
    above = next(file.parents(shuffle), None)
    scope = function_of(shuffle, file) or file.tree
    if any(isinstance(at, ast.Call) and "broadcast" in tail_of(at) for at in own(scope)):
        return None
    names = {data, *(ast.unparse(one) for one in (above.targets if isinstance(above, ast.Assign) else ()))}
    for at in own(scope):
        split = split_at(at, file) or handed_at(at, file) if getattr(at, "lineno", 0) >= shuffle.lineno else None
        if split is None or at is shuffle:
            continue
        made = [split.source, *(one for one in reached(split.source, file) if isinstance(scope, _FUNCTIONS))]
        if any(inner is shuffle for one in made for inner in walk(one)) or any(names & places_in(one) for one in made):
            return getattr(at, "lineno", None)
    returned = isinstance(scope, _FUNCTIONS) and any(isinstance(p, ast.Return) for p, _ in inside(shuffle, file))
    for call in calls_of(file).get(scope.name, ()) if returned and isinstance(scope, _FUNCTIONS) else ():
        around = function_of(call, file)
        for split in splits(around, file) if around is not None else ():
            if any(inner is call for one in reached(split.source, file) for inner in walk(one)):
                return getattr(split.node, "lineno", None)
    return None


def _makes_dataset(call: ast.Call, file: File) -> bool:
    """Whether a data set that others divide by number shuffles what it is made of, where it is made."""
    function, owner = function_of(call, file), class_of(call, file)
    if function is None or owner is None or not mentions(call.args[0], "rows"):
        return False
    maker = next((at for at in owner.body if isinstance(at, ast.FunctionDef) and at.name == "__init__"), None)
    called = {tail_of(at) for at in own(maker) if isinstance(at, ast.Call)} if maker is not None else set()
    if function is not maker and function.name not in called:
        return False
    maps = any(base.endswith("Dataset") and "Iterable" not in base for base in (*bases_of(owner, file), owner.name))
    return maps and not says(owner.name, "held_out")
