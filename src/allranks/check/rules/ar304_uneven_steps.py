"""AR304: data is dealt out so that some processes get more of it than others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tables.data import HELD_OUT, LOADERS
from allranks.check.tree.drained import EVEN, is_drained, is_kept, is_loaded, is_of_loaded_dataset, is_stepped
from allranks.check.tree.evened import is_evened, is_rest_of_all
from allranks.check.tree.padding import padded_once
from allranks.check.tree.rounds_of_jax import is_run_apart
from allranks.check.tree.splits import SPLITTERS, Split, split_at
from allranks.check.tree.syntax import function_of, is_constant, keyword, name_of, own, speaks_of, tail_of
from allranks.findings import Finding

# Data that each process makes for itself while it trains.
_OWN_DATA = re.compile(r"(replay_?|rollout_?|experience_?)(buffer|memory|data)?s?$", re.IGNORECASE)
_TRAINS = re.compile(r"\.fit\(|\.train\(|\.backward\(|Trainer\(")
_EVALUATES = re.compile(r"\.generate\(|no_grad|inference_mode|\.push_to_hub\(|\.to_json\(")
_MEETS = ("all_reduce", "backward", "gather", "barrier")
_STREAMS = ("webdataset.WebDataset", "webdataset.WebLoader", "webdataset.DataPipeline")
_BY_NODE = re.compile(r"^split_by_node$")
_WAYS = (is_drained, is_loaded, is_of_loaded_dataset, is_stepped)
_REST = "the rest of a global batch is divided by rank: some ranks get less, or nothing"
_OF_JAX = "Cut to what all have, or pad and mask, or check at each step (process_allgather) whether all have one more."
_EVEN_STREAM = re.compile(r"with_epoch|ddp_equalize|resampled|Resampled|\.repeat\(|with_length|Join\(|islice")


class UnevenSteps(LocalRule):
    """
    ## What it does
    Finds parts of the training data that can differ in length by rank, where the steps are collective:

    - a generator or sampler that keeps every N-th item (`i % world_size == rank`, `islice(it, rank, None, n)`) until
      its source ends
    - parts of `split_between_processes` without padding; `dataset.shard(n, rank)` of training rows; WebDataset shards
      that are divided by node and read to their end
    - a loader without `drop_last=True` over the buffer of experience that each process has filled
    - a backward pass of a wrapped model for each item of `files[rank::world]`; a loader over every N-th sample by its
      number (`range(rank, len(rows), world)`)
    - groups that are padded with their own beginning (`xs + xs[:missing]`)
    - the rest of a global batch, divided by rank and not dropped (low confidence)

    ## Why is this bad
    If the number of items is no multiple of N, some processes get one item more. An item that is skipped after the
    split (too long, not readable) is missing in one process only.

    ## What happens with N processes
    At the end of the epoch some processes make one step more. JAX hangs there. torch waits, or that step matches the
    first step of the next epoch, and from then on gradients of different steps are averaged.

    ## Known problems
    Not reported: data for counted steps (`next` in a counted loop, `islice`), a generator without an end, a loop that
    all ranks leave together, torch's `Join`, and a program that neither trains nor gathers.

    ## Use instead
    Let all processes make the same number of steps. Cut or pad the source to a multiple of N before it is divided
    (`DistributedSampler` pads), or agree on the end of the data (`allranks.Dataset`).

    ## Fix safety
    There is no automatic fix: only the author knows whether to cut or to pad.
    """

    code, name, severity, row = "AR304", "uneven-steps", "warning", "data"
    cluster = "Some processes make one step more than the others: a hang, or gradients of different steps averaged."
    advice = "Cut or pad the data to a multiple of the processes before it is divided, or agree on when it ends."
    words = ("rank", "process_index", "split_between_processes", "DataLoader", "split_by_node", "num_replicas")
    nodes = (ast.Compare, ast.Call, ast.Subscript)
    calls = ("range", *SPLITTERS, *LOADERS, *_STREAMS)
    bad = (
        Example(
            {
                "dataset.py": """\
import jax
from datasets import load_dataset


def samples(tok):
    process_index = jax.process_index()
    process_count = jax.process_count()
    dataset = load_dataset("data", split="train", streaming=True)
    for i, item in enumerate(dataset):
        if i % process_count != process_index:
            continue
        try:
            yield tok.encode(item)
        except ValueError:
            continue
"""
            },
            at=(10,),
        ),
        Example(
            {
                "buckets.py": """\
class Buckets:
    def split(self, buckets):
        for name, images in buckets.items():
            with self.accelerator.split_between_processes(images, apply_padding=False) as part:
                self.buckets[name] = part
"""
            },
            at=(4,),
        ),
        Example(
            {
                "data.py": """\
import jax
import numpy as np


def names(every):
    return every[jax.process_index() :: jax.process_count()]


def batches(every):
    for name in names(every):
        yield np.load(name)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "sampler.py": """\
from torch.utils.data import DistributedSampler


class Shards(DistributedSampler):
    def __iter__(self):
        mine = self.shards[self.rank :: self.num_replicas]
        return iter([i for start, stop in mine for i in range(start, stop)])

    def __len__(self):
        return sum(map(len, self.shards)) // self.num_replicas


def rest(self, batch):
    if batch and not self.drop_last:
        yield batch[self.rank * 8 : self.rank * 8 + 8]
"""
            },
            at=(6, 15),
        ),
        Example(
            {
                "ppo.py": """\
from torch.utils.data import DataLoader


class Trainer:
    def train(self):
        loader = DataLoader(self.replay_buffer, batch_size=8, shuffle=True, drop_last=False)
        for batch in loader:
            self.strategy.all_reduce(self.step(batch))
"""
            },
            at=(6,),
        ),
        Example(
            {
                "data.py": """\
import torch.distributed as dist
import webdataset as wds


def train_data(urls):
    return wds.WebDataset(urls, nodesplitter=wds.split_by_node).shuffle(1000).decode("pil")
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from datasets import load_dataset


def train(trainer, rank):
    rows = load_dataset("data", split="train")
    trainer.fit(rows.shard(dist.get_world_size(), rank))
"""
            },
            at=(7,),
        ),
        Example(
            {
                "data.py": """\
import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, SubsetRandomSampler


class Factory:
    def loader(self, epoch):
        batches = list(self.batches)
        np.random.RandomState(self.seed + epoch).shuffle(batches)
        batches = batches[dist.get_rank() :: dist.get_world_size()]
        return DataLoader(self.rows, batch_sampler=batches)


def train_loader(rows, seed):
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    sampler = SubsetRandomSampler(order[dist.get_rank() :: dist.get_world_size()])
    return DataLoader(rows, 8, sampler=sampler)
"""
            },
            at=(11, 17),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def loaders(train, test, seed):
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    order = order[: len(order) // dist.get_world_size() * dist.get_world_size()]
    mine = order[dist.get_rank() :: dist.get_world_size()]
    return DataLoader(Subset(train, mine), 8)


def held_out(rows, shuffle):
    mine = list(range(len(rows)))[dist.get_rank() :: dist.get_world_size()]
    test_loader = DataLoader(Subset(rows, mine), 8, shuffle=shuffle)
    return test_loader
"""
            }
        ),
        Example(
            {
                "embed.py": """\
import torch.distributed as dist
from datasets import load_dataset


def embed(model, rank):
    rows = load_dataset("data", split="train").shard(dist.get_world_size(), rank)
    return [model.generate(row) for row in rows]


def train(trainer, rank):
    rows = load_dataset("data", split="train")
    rows = rows.select(range(len(rows) - len(rows) % dist.get_world_size()))
    trainer.fit(rows.shard(dist.get_world_size(), rank))
"""
            }
        ),
        Example(
            {
                "data.py": """\
import jax
import numpy as np


def names(every):
    each = len(every) // jax.process_count()
    return every[: each * jax.process_count()][jax.process_index() :: jax.process_count()]


def batches(every):
    for name in names(every):
        yield np.load(name)
"""
            }
        ),
        Example(
            {
                "dataset.py": """\
from itertools import islice
import jax


def samples(items):
    count = jax.process_count()
    items = items[: len(items) // count * count]
    for i, item in enumerate(items):
        if i % count == jax.process_index():
            yield item


class Endless:
    def __iter__(self):
        yield from islice(self.order(), jax.process_index(), None, jax.process_count())

    def order(self):
        while True:
            yield from range(self.size)


def for_ever(items):
    while True:
        for i, item in enumerate(items):
            if i % jax.process_count() == jax.process_index():
                yield item


def once(items):
    for i, item in enumerate(items):
        if i % jax.process_count() == jax.process_index():
            yield item


def again(items):
    while True:
        yield from once(items)
"""
            }
        ),
        Example(
            {
                "generate.py": """\
from accelerate import PartialState

state = PartialState()
with state.split_between_processes(["a", "b", "c"]) as prompts:
    images = [len(prompt) for prompt in prompts]
"""
            }
        ),
    )

    def stands(self, finding: Finding, program: Program) -> bool:
        path = finding.place.path
        alone = path in program.facts.steady or program.facts.goes_alone(path)
        return finding.message == _REST or not alone

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.Call):
            if name_of(node, file) in LOADERS and _is_own_data(node, file):
                yield self.local(
                    file,
                    keyword(node, "drop_last") or node,
                    "each process has filled its own buffer: some have a batch more than others",
                )
            elif _is_endless_split(node, file):
                yield self.local(file, node, "shards are split by node and read to their end: some nodes have more")
        split = split_at(node, file)
        if split is None:
            return
        if split.how in ("stride", "block") and (short := padded_once(split, file)) is not None:
            yield self.local(file, short, "data shorter than its padding is padded too little: some ranks get less")
            return
        if is_rest_of_all(split, file):
            yield replace(self.local(file, node, _REST), confidence="low")
        elif "split_between_processes" in ast.unparse(node) and isinstance(node, ast.Call):
            padding = keyword(node, "apply_padding")
            if (padding is None or is_constant(padding, False)) and is_kept(node, file):
                yield self.local(
                    file,
                    node,
                    "split_between_processes gives some processes one item less, and this part is trained on",
                )
        elif split.how == "call" and _is_sharded(node, split, file):
            yield self.local(file, node, "rows are sharded by rank as they come: some ranks get one more than others")
        elif split.how == "stride" and is_run_apart(split, file) and not is_evened(split, file):
            message = "every N-th item goes to this process, and each item is a step of all ranks: some make one more"
            yield self.local(file, node, message, advice=_OF_JAX)
        elif split.how in ("modulo", "stride") and any(w(split, file) for w in _WAYS) and not is_evened(split, file):
            yield self.local(file, node, "every N-th item goes to this process: some get one item more than others")


def _is_sharded(node: ast.AST, split: Split, file: File) -> bool:
    """``dataset.shard(n, rank)`` of a data set of Hugging Face, in a function that trains on it."""
    function = function_of(node, file)
    if function is None or tail_of(node) != "shard" or "datasets" not in file.text or HELD_OUT.search(function.name):
        return False
    text = ast.unparse(function)
    held_out = speaks_of(split.source, HELD_OUT)
    trains = _TRAINS.search(text) and not held_out and not _EVALUATES.search(text)
    return bool(trains) and not any(word in text for word in (*EVEN, " // ", " % "))


def _is_own_data(loader: ast.Call, file: File) -> bool:
    """A loader that keeps its last batch, over what this process has made, in a function whose steps meet."""
    drop, function = keyword(loader, "drop_last"), function_of(loader, file)
    if function is None or not loader.args or not (drop is None or is_constant(drop, False)):
        return False
    meets = any(isinstance(n, ast.Call) and any(word in tail_of(n) for word in _MEETS) for n in own(function))
    return meets and bool(_OWN_DATA.search(tail_of(loader.args[0])))


def _is_endless_split(call: ast.Call, file: File) -> bool:
    """A stream of WebDataset that is split by node and not cut to a number of samples."""
    if name_of(call, file) not in _STREAMS or not speaks_of(call, _BY_NODE) or _EVEN_STREAM.search(file.text):
        return False
    function = function_of(call, file)
    return not (speaks_of(call, HELD_OUT) or (function is not None and HELD_OUT.search(function.name)))
