"""AR701: the devices of all processes draw the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.draws import is_own
from allranks.check.tree.mapped import DRAWS, MAPS, drawn_alike, is_shared
from allranks.check.tree.origins import RANK_KINDS, origins
from allranks.check.tree.syntax import arguments, calls_of, function_of, keyword, name_of, own, tail_of, words_of
from allranks.check.tree.words import parts, says
from allranks.findings import Finding, Note

_PER_HOST = ("flax.training.common_utils.shard_prng_key", "shard_prng_key")
_SEEDERS = (
    *("torch.manual_seed", "accelerate.utils.set_seed", "transformers.set_seed", "transformers.trainer_utils.set_seed"),
    *("lightning.pytorch.seed_everything", "lightning.fabric.seed_everything"),
)
_ADD = "Add the rank to the seed, once the model is made."
_FOLD = "Fold the index of the device in: jax.random.fold_in(key, jax.lax.axis_index(axis_name))."
# Seeds of other generators than that of torch.
_OTHERS = ("Generator", "np.random.seed", "numpy.random.seed", " random.seed")
_BY_RANK = ("rank", "process_index", "device_specific", "offset", "initial_seed")
_OF_TORCH = "All ranks draw the same noise, augmentations or samples; nothing fails."
_WORKERS = "the workers of every rank's loader draw the same random numbers"
_ALIKE = "torch has the same seed on all ranks, and the training draws noise"
_RANDOM = ("random.", "rand(", "randn", "Random", "augment", "Jitter", "shuffle")
# Draws of a training step: noise, the time of a diffusion, windows of data.
_NOISE = ("randn_like", "add_noise", "q_sample")
_SIZED = ("torch.randn", "torch.rand", "torch.randint")
_ROWS = frozenset({"batch", "bs", "bsz"})
_SEVERAL = (
    *("DistributedDataParallel", "DDP(", "Accelerator(", "FSDP", "fully_shard", "deepspeed.init", "strategy="),
    "all_reduce(",
)
_LEARNS = ("backward(", "training_step")


class SamePrngKeyOnEveryDevice(LocalRule):
    """
    ## What it does
    Finds randomness that is equal on processes with different data:

    - a JAX key from a shared seed that each process splits among its own devices (`split(key, local_device_count())`,
      `shard_prng_key(key)`), or with which it draws its own rows (`normal(key, (local_device_count(), n))`)
    - a function under `pmap` or `shard_map` that draws with a key which all devices have alike
    - with torch, one seed on all ranks of a training that draws noise (`randn_like`, `add_noise`)
    - with torch, a loader behind a `DistributedSampler` whose `generator` has the same seed on all ranks: its workers
      draw the same augmentations everywhere

    ## Why is this bad
    Dropout and noise must differ from row to row of the batch. With one key, all hosts draw the same masks.

    ## What happens with N processes
    Nothing fails. The batch has N times the rows, and only the noise of one process. Regularisation is weaker than on
    one host, and drawn samples occur N times.

    ## Known problems
    A key is followed within one file: where it comes from another, it is not reported. With torch, a program in which
    the rank is a part of any seed is not reported. Confidence is low if another file learns.

    ## Use instead
    `jax.random.fold_in(key, jax.process_index())` before the split. With torch, add the rank to the seed of the
    generator.
    """

    code, name, severity, row = "AR701", "same-prng-key-on-every-device", "warning", "randomness"
    cluster = "All hosts draw the same dropout masks and samples; nothing fails."
    advice = "Fold the rank in: jax.random.fold_in(key, jax.process_index())."
    words = ("local_device", "shard_prng_key", "seed", "pmap", "shard_map")
    nodes = (ast.Call,)
    calls = (*_PER_HOST, "jax.random.split", *_SEEDERS, *MAPS, *DRAWS)
    bad = (
        """\
import jax


def main(step, state, batch):
    print(jax.process_index())
    key = jax.random.PRNGKey(0)
    keys = jax.random.split(key, jax.local_device_count())  # <-- found
    return jax.pmap(step)(state, batch, keys)
""",
    )
    good = (
        """\
import jax


def main(step, state, batch):
    key = jax.random.fold_in(jax.random.PRNGKey(0), jax.process_index())
    keys = jax.random.split(key, jax.local_device_count())
    return jax.pmap(step)(state, batch, keys)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not says(file.path, "one_process")

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        name, key = name_of(node, file), node.args[0]
        if name in _SEEDERS:
            function = function_of(node, file)
            name = function.name if function is not None else ""
            apart = says(file.path, "held_out") or says(name, "held_out", "one_process") or "worker" in name
            alike = len(node.args) == 1 and keyword(node, "device_specific") is None and not is_own(key, file)
            if alike and not apart and file.once("seeds alike", file.tree, lambda _: node) is node:
                found = self.local(file, node, _ALIKE, cluster=_OF_TORCH, advice=_ADD)
                here = file.says(*_LEARNS)
                yield found if here else replace(found, confidence="low")
        elif tail_of(node) == "manual_seed":
            if _is_of_loader(node, file) and not origins(key, file) & RANK_KINDS:
                yield self.local(file, node, _WORKERS, cluster=_OF_TORCH, advice=_ADD)
        elif name in MAPS:
            if (draw := drawn_alike(node, file)) is not None:
                note = Note("it runs on each device", file.place(node))
                what = "every device draws with the same key: nothing folds its index in"
                yield self.finding(file.place(draw), file.symbol(draw), what, notes=[note], advice=_FOLD)
        else:
            yield from self._split(node, name, key, file)

    def _split(self, node: ast.Call, name: str, key: ast.expr, file: File) -> Iterator[Finding]:
        counts = any("local_device" in ast.unparse(one) for one in arguments(node)[1:])
        by_devices = name.startswith("jax.random.") and counts
        if (name.endswith(_PER_HOST) or by_devices) and is_shared(key, file):
            splits = name.endswith(("split", *_PER_HOST))
            what = "splits the same key" if splits else "draws its own rows with the same key"
            yield self.local(file, node, f"every process {what} {ast.unparse(key)}")

    def confirm(self, finding: Finding, program: Program) -> bool:
        """Whether what is drawn alike is drawn somewhere, and no seed of the program has the rank in it."""
        path, facts = finding.place.path, program.facts
        if finding.message == _WORKERS:
            return facts.says(path, *_RANDOM)
        if finding.message != _ALIKE:
            return True
        lines = facts.code(path)
        return (
            not _has_rank_in_seed(lines)
            and facts.says(path, *_SEVERAL)
            and facts.says(path, *_LEARNS)
            and any(map(_draws_noise, facts.files(path)))
        )


def _has_rank_in_seed(lines: list[str]) -> bool:
    """Whether some line makes the seed of a process, and has the rank in it: ``set_seed(...)``, ``seed = ...``, or
    ``s = ...`` where a line seeds with ``s``."""
    seeding = [at for at in lines if not any(word in at for word in _OTHERS) and _called_seed(at)]
    names = {at.rpartition("seed")[2].partition("(")[2].partition(")")[0].strip() for at in seeding}
    stored = (at for at in lines if "=" in at and not set("(,:#") & set(at.partition("=")[0]))
    stored = (at for at in stored if "seed" in (name := at.partition("=")[0].strip(" +")) or name in names)
    return any(word in at for at in (*seeding, *stored) for word in _BY_RANK)


def _draws_noise(file: File) -> bool:
    """Whether a file draws numbers for each row of a batch."""
    sized = (at for name in _SIZED for at in calls_of(file).get(name.rpartition(".")[2], ()))
    drawn = (at for at in sized if name_of(at, file) in _SIZED and keyword(at, "generator") is None)
    sizes = [one for at in drawn for one in arguments(at)]
    rows = any(parts(word) & _ROWS for one in sizes for word in words_of(one))
    return (
        rows or any(word in calls_of(file) for word in _NOISE) or any("shape[0]" in ast.unparse(one) for one in sizes)
    )


def _called_seed(line: str) -> bool:
    """Whether a line calls something whose name has the word seed."""
    heads = [part.rpartition(" ")[2].rpartition(".")[2] for part in line.split("(")[:-1]]
    return any("seed" in head for head in heads) and not line.lstrip().startswith("def ")


def _is_of_loader(seeds: ast.Call, file: File) -> bool:
    """Whether the generator is that of a loader with workers that reads one rank's part of the data."""
    function = function_of(seeds, file)
    made = seeds.func.value if isinstance(seeds.func, ast.Attribute) else None
    if function is None or not isinstance(made, ast.Name) or not file.says("DistributedSampler"):
        return False
    loaders = (at for at in own(function) if isinstance(at, ast.Call) and keyword(at, "num_workers") is not None)
    given_ones = (keyword(at, "generator") for at in loaders if keyword(at, "sampler") is not None)
    return any(isinstance(one, ast.Name) and one.id == made.id for one in given_ones)
