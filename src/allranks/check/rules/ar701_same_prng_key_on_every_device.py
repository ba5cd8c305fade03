"""AR701: all devices, or the devices of all processes, draw the same random numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.survey.facts import Facts
from allranks.check.tree.keys import (
    DRAWS,
    asks_place,
    by_own_devices,
    drawn_alike,
    draws_own_rows,
    is_copied,
    is_shared,
    orders_alone,
    takers,
)
from allranks.check.tree.mapped import MAPS
from allranks.check.tree.origins import RANK_KINDS, function_called, origins, values
from allranks.check.tree.syntax import asks_rank, calls_of, distributed, function_of, keyword, name_of, own, tail_of
from allranks.findings import Finding, Note

_REPLICATES = ("flax.jax_utils.replicate", "jax_utils.replicate", "jax.device_put_replicated")
_GIVEN = "every device gets the same key"
_SPLIT = "every process splits the same key"
_WORKERS = "the workers of every rank's loader draw the same random numbers"
# What makes data, and what draws at random.
_DATA = re.compile(r"def __(getitem|iter)__\(")
_DRAWN = re.compile(
    r"\b(random|torch|rng|generator)\.(rand\w*|choices?|shuffle|uniform|sample|normal|permutation|beta|gauss|integers)\b"
    r"|Random(?!Sampler)[A-Z]\w*\(|Jitter|(?i:augment)|multinomial"
)
_OF_TORCH = (
    "All ranks draw the same noise, augmentations or samples; nothing fails.",
    "Seed all ranks alike while the model is made, then with seed + rank.",
)
_SEEDS = ("manual_seed", "seed_everything", "set_seed", "seed_all", "set_random_seed", "fix_seed", "setup_seed")
_PER_HOST = ("flax.training.common_utils.shard_prng_key", "shard_prng_key")


class SamePrngKeyOnEveryDevice(LocalRule, ProgramRule):
    """
    ## What it does
    Finds randomness that is equal on devices or processes with different data:

    - a JAX key that is copied to all devices (`replicate(key)`) for a step that never uses the number of its device
    - a function under `shard_map` or `pmap` that draws with a key that is equal on all devices, while its data is not
    - a key from a shared seed that each process splits among its own devices (`split(key, local_device_count())`,
      `shard_prng_key(key)`), or with which it draws its own rows (`normal(key, (local_device_count(), n))`)
    - with torch, a loader behind a `DistributedSampler` whose `generator` has the same seed on all ranks: its workers
      draw the same augmentations everywhere
    - a program that seeds all its processes alike, and whose training step draws noise, latents, time steps, or places
      in the data

    ## Why is this bad
    Dropout and noise must differ from row to row of the batch. With one key, all devices (or hosts) draw the same
    masks.

    ## What happens with N processes
    Nothing fails. The batch has N times the rows, and only the noise of one process. Regularisation is weaker than on
    one host, and drawn samples occur N times. If the draw chooses what to read, all ranks read the same.

    ## Known problems
    Only the name of a key shows whether it must be equal on all devices; so it is with what torch draws. A seed that is
    an option without a default is not reported.

    ## Use instead
    `jax.random.fold_in(key, jax.process_index())` before the split, `fold_in(key, jax.lax.axis_index("batch"))` inside
    the mapped function. With torch, `torch.manual_seed(seed + rank)` after the model is made.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR701", "same-prng-key-on-every-device", "warning", "randomness"
    cluster = "All hosts (or devices) draw the same dropout masks and samples; nothing fails."
    advice = "Fold the rank in: jax.random.fold_in(key, jax.process_index()), or lax.axis_index inside the step."
    words = ("local_device", "process_count", "shard_prng_key", "replicate", "manual_seed", "shard_map", "pmap")
    nodes = (ast.Call,)
    calls = (*_REPLICATES, *_PER_HOST, *MAPS, "functools.partial", "jax.random.split", "manual_seed", *DRAWS)
    bad = (
        Example(
            {
                "train.py": """\
import jax
from flax.training.common_utils import shard_prng_key


def main(seed):
    rng = jax.random.PRNGKey(seed)
    rng, dropout_rng = jax.random.split(rng)
    dropout_rngs = jax.random.split(dropout_rng, jax.local_device_count())
    sample_rngs = shard_prng_key(rng)
    if jax.process_index() == 0:
        print("start")
    return dropout_rngs, sample_rngs
"""
            },
            at=(8, 9),
        ),
        Example(
            {
                "train.py": """\
import jax
from flax import jax_utils


def train_step(state, batch, dropout_rng):
    return state.apply(batch, rngs={"dropout": dropout_rng})


def main(state, batch):
    step = jax.pmap(train_step, axis_name="batch")
    dropout_rng = jax.random.PRNGKey(0)
    return step(state, batch, jax_utils.replicate(dropout_rng))
"""
            },
            at=(12,),
        ),
        Example(
            {
                "data.py": """\
import torch
from torch.utils.data import DataLoader, DistributedSampler


def loader(dataset, init):
    generator = torch.Generator()
    generator.manual_seed(0)
    return DataLoader(
        dataset, sampler=DistributedSampler(dataset), num_workers=4, worker_init_fn=init, generator=generator
    )
"""
            },
            at=(7,),
        ),
        # Places to read from, drawn alike; the seed is set in another file.
        Example(
            {
                "start.py": """\
import random
import torch


def fix(seed):
    random.seed(seed)
    torch.manual_seed(seed)
""",
                "train.py": """\
import torch
import torch.distributed as dist
from start import fix


def batch(tokens, rows, length):
    starts = torch.randint(len(tokens) - length, (rows,))
    return torch.stack([tokens[i : i + length] for i in starts])


def main(model, tokens):
    dist.init_process_group("nccl")
    fix(7)
    for step in range(100):
        model(batch(tokens, 8, 64)).backward()


if __name__ == "__main__":
    main(None, [])
""",
            },
            at=(7,),
            where="start.py",
        ),
        Example(
            {
                "gan.py": """\
import torch
from torch.nn.parallel import DistributedDataParallel


def train(rank, generator, critic, data, z_dim):
    torch.manual_seed(1)
    generator = DistributedDataParallel(generator, device_ids=[rank])
    for real in data:
        fake = generator(torch.randn(len(real), z_dim))
        critic(fake).mean().backward()
"""
            },
            at=(6,),
        ),
    )
    good = (
        # Each process has a seed of its own in the end, or draws for all alike.
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist


def loss(model, x):
    noise = torch.randn_like(x)
    return model(x + noise)


def main(model, data, seed):
    dist.init_process_group("nccl")
    torch.manual_seed(seed)
    model.build()
    torch.manual_seed(seed + dist.get_rank())
    for x in data:
        loss(model, x).backward()
""",
                "classify.py": """\
import torch
import torch.distributed as dist


def main(model, data, seed):
    dist.init_process_group("nccl")
    torch.manual_seed(seed)
    fixed_noise = torch.randn(8, 8)
    for x in data:
        model(x).backward()
        model.show(fixed_noise)
""",
            }
        ),
        Example(
            {
                "data.py": """\
import torch
from torch.utils.data import DataLoader, DistributedSampler


def loader(dataset, seed, rank):
    generator = torch.Generator()
    generator.manual_seed(seed + rank)
    return DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=4, generator=generator)


def drawn(dataset):
    generator = torch.Generator()
    generator.manual_seed(torch.initial_seed())
    return DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=4, generator=generator)


def by_itself(dataset):
    generator, num_workers = torch.Generator(), 0
    generator.manual_seed(0)
    return DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=num_workers, generator=generator)


def order(rows):
    generator = torch.Generator()
    generator.manual_seed(0)
    return torch.randperm(rows, generator=generator)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import jax
from flax import jax_utils


def train_step(state, batch, rng):
    rng = jax.random.fold_in(rng, jax.lax.axis_index("batch"))
    return state.apply(batch, rngs={"dropout": rng})


def main(state, batch, seed):
    step = jax.pmap(train_step, axis_name="batch")
    rng = jax.random.PRNGKey(seed)
    return step(state, batch, jax_utils.replicate(rng))


def other(seed):
    rng = jax.random.fold_in(jax.random.PRNGKey(seed), jax.process_index())
    return jax.random.split(rng, jax.local_device_count())
"""
            }
        ),
        Example(
            {
                "alone.py": """\
import jax

keys = jax.random.split(jax.random.PRNGKey(0), jax.local_device_count())
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        name, key = name_of(node, file), node.args[0]
        if tail_of(node) == "manual_seed":
            if _seeds_loader(node, file) and not origins(key, file) & RANK_KINDS and not _is_drawn(key, file):
                advice = "Add the rank to the seed of the generator."
                yield self.local(file, node, _WORKERS, cluster=_OF_TORCH[0], advice=advice)
        elif name.endswith(_REPLICATES):
            if not file.is_test and _stays_alike(node, file) and not origins(key, file) & RANK_KINDS:
                yield self.local(file, node, f"{_GIVEN} {ast.unparse(key)}")
        elif name in MAPS or (name == "functools.partial" and name_of(key, file) in MAPS):
            if (drawn := drawn_alike(node, file)) is not None and not file.is_test:
                yield self.local(file, drawn, f"every device draws with the same key {ast.unparse(drawn.args[0])}")
        elif name.startswith("jax.random.") and tail_of(node) in DRAWS:
            if distributed(file) and not file.is_test and draws_own_rows(node, file) and is_shared(key, file):
                yield self.local(file, node, f"every process draws its own rows with the same key {ast.unparse(key)}")
        else:
            per_host = name.endswith(_PER_HOST) or (name == "jax.random.split" and by_own_devices(node, file))
            if per_host and distributed(file) and is_shared(key, file):
                yield self.local(file, node, f"{_SPLIT} {ast.unparse(key)} among its devices")

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at programs of torch that seed all processes alike."""
        for event in program.events:
            if draws := program.drawn.get(event.place):
                notes = [Note(f"{one.symbol} draws here what must differ by process", one.place) for one in draws]
                what, (cluster, advice) = "all processes are seeded alike, and draw the same in training", _OF_TORCH
                yield self.found(event, what, cluster=cluster, advice=advice, notes=notes)

    def stands(self, finding: Finding, program: Program) -> bool:
        """A seed that another file makes this process' own is not the same on all; and a step of another file may ask
        for its device. What the workers of a loader draw alike must be drawn somewhere."""
        path, facts = finding.place.path, program.facts
        if finding.message == _WORKERS and not _draws_data(path, facts):
            return False
        if finding.message.startswith(_GIVEN) and not any("pmap" in line for line in facts.lines[path]):
            return facts.around_says(path, "pmap") and not facts.around_says(path, "axis_index")
        return not (finding.message.startswith(_SPLIT) and path in facts.own_seeds)


def _draws_data(path: str, facts: Facts) -> bool:
    """Whether this file draws at random, or one of its programs that makes data, as far as any does."""
    texts = {one: "\n".join(facts.lines[one]) for one in facts.around(path)}
    made = [text for text in texts.values() if _DATA.search(text)]
    return not made or any(map(_DRAWN.search, (*made, texts.get(path, ""))))


def _stays_alike(copies: ast.Call, file: File) -> bool:
    """A key is copied to all devices for functions under pmap, none of which asks for its device, or puts its own rows
    in an order and does no more."""
    if not is_copied(copies.args[0], file):
        return False
    functions = takers(copies, file)
    if functions and all(orders_alone(one, file) for one in functions):
        return False
    return not any(map(asks_place, functions)) if functions else "axis_index" not in file.text


def _seeds_loader(seeds: ast.Call, file: File) -> bool:
    """Its generator is that of a loader with worker processes that reads one rank's part of the data."""
    function, made = function_of(seeds, file), seeds.func.value if isinstance(seeds.func, ast.Attribute) else None
    if function is None or not isinstance(made, ast.Name) or "DistributedSampler" not in file.text:
        return False
    return any(isinstance(at, ast.Call) and _works_with(at, made.id, file) for at in own(function))


def _is_drawn(key: ast.expr, file: File) -> bool:
    """It is the seed that torch has begun with, which each process drew for itself: nothing here has set one."""
    if not any(isinstance(at, ast.Call) and tail_of(at) == "initial_seed" for at in walk(key)):
        return False
    calls = [at for word in _SEEDS for at in calls_of(file).get(word, ())]
    return not any(tail_of(at) != "manual_seed" or name_of(at, file).startswith("torch.") for at in calls)


def _works_with(loader: ast.Call, generator: str, file: File) -> bool:
    given, starts = keyword(loader, "generator"), keyword(loader, "worker_init_fn")
    workers = keyword(loader, "num_workers")
    if not isinstance(given, ast.Name) or given.id != generator or workers is None:
        return False
    if all(isinstance(many, ast.Constant) and many.value == 0 for many in values(workers, file) or [workers]):
        return False
    init = function_called(ast.Call(starts, [], []), file) if isinstance(starts, ast.Name) else None
    return keyword(loader, "sampler") is not None and not (init is not None and asks_rank(init))
