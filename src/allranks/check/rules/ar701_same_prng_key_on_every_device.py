"""AR701: the devices of all processes draw the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tables.seeds import KEYS
from allranks.check.tree.origins import RANK_KINDS, origins, passed, values
from allranks.check.tree.syntax import (
    arguments,
    calls_of,
    class_of,
    distributed,
    function_of,
    keyword,
    name_of,
    own,
    tail_of,
)
from allranks.findings import Finding

_PER_HOST = ("flax.training.common_utils.shard_prng_key", "shard_prng_key")
_DRAWS = ("normal", "uniform", "truncated_normal", "bernoulli", "randint", "gumbel", "rademacher", "bits")
_APART = ("process_index", "host_id", "axis_index", "rank")
_OF_TORCH = "All ranks draw the same noise, augmentations or samples; nothing fails."
_WORKERS = "the workers of every rank's loader draw the same random numbers"
_RANDOM = ("random.", "rand(", "randn", "Random", "augment", "Jitter", "shuffle")
_DEEPEST = 5


class SamePrngKeyOnEveryDevice(LocalRule):
    """
    ## What it does
    Finds randomness that is equal on processes with different data:

    - a JAX key from a shared seed that each process splits among its own devices (`split(key, local_device_count())`,
      `shard_prng_key(key)`), or with which it draws its own rows (`normal(key, (local_device_count(), n))`)
    - with torch, a loader behind a `DistributedSampler` whose `generator` has the same seed on all ranks: its workers
      draw the same augmentations everywhere

    ## Why is this bad
    Dropout and noise must differ from row to row of the batch. With one key, all hosts draw the same masks.

    ## What happens with N processes
    Nothing fails. The batch has N times the rows, and only the noise of one process. Regularisation is weaker than on
    one host, and drawn samples occur N times.

    ## Known problems
    A key is followed within one file: where it comes from another, it is not reported.

    ## Use instead
    `jax.random.fold_in(key, jax.process_index())` before the split. With torch, add the rank to the seed of the
    generator.
    """

    code, name, severity, row = "AR701", "same-prng-key-on-every-device", "warning", "randomness"
    cluster = "All hosts draw the same dropout masks and samples; nothing fails."
    advice = "Fold the rank in: jax.random.fold_in(key, jax.process_index())."
    words = ("local_device", "shard_prng_key", "manual_seed")
    nodes = (ast.Call,)
    calls = (*_PER_HOST, "jax.random.split", "manual_seed", *_DRAWS)
    bad = (
        Example(
            {
                "train.py": """\
import jax


def main(step, state, batch):
    print(jax.process_index())
    key = jax.random.PRNGKey(0)
    keys = jax.random.split(key, jax.local_device_count())
    return jax.pmap(step)(state, batch, keys)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax


def main(step, state, batch):
    key = jax.random.fold_in(jax.random.PRNGKey(0), jax.process_index())
    keys = jax.random.split(key, jax.local_device_count())
    return jax.pmap(step)(state, batch, keys)
"""
            }
        ),
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and distributed(file)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        name, key = name_of(node, file), node.args[0]
        if tail_of(node) == "manual_seed":
            if _is_of_loader(node, file) and not origins(key, file) & RANK_KINDS:
                yield self.local(file, node, _WORKERS, cluster=_OF_TORCH, advice="Add the rank to the seed.")
            return
        counts = any("local_device" in ast.unparse(one) for one in _reached(node))
        by_devices = name.startswith("jax.random.") and counts
        if not (name.endswith(_PER_HOST) or by_devices) or not _is_shared(key, file, 0):
            return
        splits = name.endswith(("split", *_PER_HOST))
        what = "splits the same key" if splits else "draws its own rows with the same key"
        yield self.local(file, node, f"every process {what} {ast.unparse(key)}")

    def stands(self, finding: Finding, program: Program) -> bool:
        """Whether what the workers of a loader draw alike is drawn somewhere."""
        return finding.message != _WORKERS or program.facts.says(finding.place.path, *_RANDOM)


def _reached(call: ast.Call) -> list[ast.expr]:
    return arguments(call)[1:]


def _is_shared(key: ast.expr, file: File, depth: int) -> bool:
    """Whether a key comes from a seed that all processes share: its way to ``PRNGKey`` is seen, without the rank."""
    if depth > _DEEPEST or origins(key, file) & RANK_KINDS or any(word in ast.unparse(key) for word in _APART):
        return False
    if isinstance(key, ast.Call):
        split = name_of(key, file) == "jax.random.split" and bool(key.args)
        return name_of(key, file) in KEYS or (split and _is_shared(key.args[0], file, depth + 1))
    if isinstance(key, ast.Subscript):
        return _is_shared(key.value, file, depth + 1)
    if not isinstance(key, ast.Name | ast.Attribute):
        return False
    stored = [one for one in values(key, file) if one is not key]
    if any(origins(one, file) & RANK_KINDS or any(word in ast.unparse(one) for word in _APART) for one in stored):
        return False
    given_ones = [*stored, *passed(key, file), *_fields(key, file)]
    return any(_is_shared(one, file, depth + 1) for one in given_ones[:4])


def _fields(key: ast.expr, file: File) -> list[ast.expr]:
    """Return what a field of this class is made with in this file: ``State.create(dropout_rng=...)``."""
    owner = class_of(key, file)
    if owner is None or not isinstance(key, ast.Attribute):
        return []
    made = (call for tail in ("create", owner.name) for call in calls_of(file).get(tail, ()))
    return [value for call in made if (value := keyword(call, key.attr)) is not None]


def _is_of_loader(seeds: ast.Call, file: File) -> bool:
    """Whether the generator is that of a loader with workers that reads one rank's part of the data."""
    function = function_of(seeds, file)
    made = seeds.func.value if isinstance(seeds.func, ast.Attribute) else None
    if function is None or not isinstance(made, ast.Name) or "DistributedSampler" not in file.text:
        return False
    loaders = (at for at in own(function) if isinstance(at, ast.Call) and keyword(at, "num_workers") is not None)
    given_ones = (keyword(at, "generator") for at in loaders if keyword(at, "sampler") is not None)
    return any(isinstance(one, ast.Name) and one.id == made.id for one in given_ones)
