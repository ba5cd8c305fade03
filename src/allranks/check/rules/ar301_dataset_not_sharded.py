"""AR301: a model for several processes, and a loader that gives each of them the whole data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.survey.loaders import is_plain
from allranks.check.survey.unagreed import trains_alone
from allranks.check.tables.data import HELD_OUT, LOADERS, UNSPLIT
from allranks.check.tree import dividing as told
from allranks.check.tree.loader_calls import (
    SPLITS,
    is_part,
    is_stream,
    may_be_sampled,
    picks_of_all,
    prepared_without,
    sampler_left_out,
    streams_undealt,
    strides,
    takes_a_share,
    trainers_own,
    trains_in_order,
    wraps,
)
from allranks.check.tree.readers import SOURCES, divides_alone, split_by_worker_alone, workers_in
from allranks.check.tree.syntax import is_called, is_constant, keyword, name_of, tail_of
from allranks.findings import Finding, Note

# These split an IterableDataset themselves.
_SPLITTING_STREAMS = frozenset({"accelerate", "transformers", "webdataset", "ray"})


class DatasetNotSharded(LocalRule, ProgramRule):
    """
    ## What it does
    Finds training data that every process reads completely, in a program that wraps its model for several processes:

    - a `DataLoader(..., shuffle=True)` (or one of training data) without a sampler, or of an `IterableDataset`
    - an `IterableDataset` with the part of a worker (`get_worker_info`) only; a sampler of the project without the rank
    - a batch that is divided by the number of processes, while the loader shuffles without a sampler
    - a shuffling loader that Accelerate or Fabric never prepares, while the model is prepared
    - `get_train_dataloader` of a `Trainer` that does not prepare its loader; Lightning without a sampler
    - with JAX: a file that divides the batch by the processes and reads all rows; Grain's `NoSharding`

    ## Why is this bad
    Every process reads the whole data set in an epoch.

    ## What happens with N processes
    An epoch costs N times as much as needed. With equal seeds, all ranks compute the same gradients, and N - 1 of N
    devices work for nothing.

    ## Known problems
    A data set that divides itself by rank, in another file, is not seen from the file that wraps the model.

    ## Use instead
    `sampler=DistributedSampler(dataset)` with `set_epoch`. For an `IterableDataset`, which takes no sampler: the part
    of each process and worker in `__iter__`. Or `allranks.Dataset`.
    """

    code, name, severity, row = "AR301", "dataset-not-sharded", "error", "data"
    cluster = "Every process reads the whole data set: N processes do the work of one."
    advice = "Give the loader sampler=DistributedSampler(dataset), and call set_epoch in the loop."
    words = (
        *("DistributedDataParallel", "FullyShardedDataParallel", "DistributedOptimizer", "Accelerator(", "Fabric("),
        *("_count()", "world_size", "prepare(", "setup_module(", "get_train_dataloader", "streaming=", "buffer_size="),
        *("get_worker_info", "DistributedSampler"),
    )
    nodes = (ast.Call, ast.ClassDef, ast.FunctionDef)
    calls = (*LOADERS, *SOURCES)
    bad = (
        Example(
            {
                "module.py": """\
import lightning as L
from datasets import load_dataset
from torch.utils.data import DataLoader


class Data(L.LightningDataModule):
    def setup(self, stage):
        self.stream = load_dataset("rows", streaming=True).shuffle(buffer_size=1000)

    def train_dataloader(self):
        yield DataLoader(self.stream, batch_size=8)
        yield DataLoader(self.rows, batch_size=8, shuffle=True)
""",
                "fit.py": """\
import lightning as L
from module import Data

L.Trainer(devices=8, use_distributed_sampler=False).fit(model, Data())
""",
            },
            at=(11, 12),
        ),
        Example(
            {
                "train.py": """\
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def loaders(model, rows):
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    return loader, DDP(model), sampler
"""
            },
            at=(7,),
        ),
        Example(
            {
                "feed.py": """\
import jax
import tensorflow_datasets as tfds


def batches(builder, global_batch):
    local = global_batch // jax.process_count()
    if jax.process_index() == 0:
        print(local, "rows a process")
    return builder.as_dataset(split="train").batch(local)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import grain.python as grain
import jax


def sampler(records):
    return grain.IndexSampler(records, shard_options=grain.NoSharding(), shuffle=True)


jax.distributed.initialize()
for batch in sampler(100):
    step(batch)
"""
            },
            at=(6,),
        ),
        Example(
            {
                "data.py": """\
from torch.utils.data import DataLoader, Dataset, Sampler


class Rows(Dataset):
    def __getitem__(self, index):
        return self.rows[index]


class Buckets(Sampler):
    def __iter__(self):
        return iter(self.order())


def train_loaders():
    yield DataLoader(Rows(), batch_size=32, shuffle=True)
    yield DataLoader(Rows(), sampler=Buckets())
""",
                "train.py": """\
import data
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(make_model())
for loader in data.train_loaders():
    model(next(loader))
""",
            },
            at=(15, 16),
        ),
        Example(
            {
                "lines.py": """\
from torch.utils.data import IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, files, rank):
        self.files = files
        self.rank = rank

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for file in self.files[worker::workers]:
            yield from open(file)
""",
                "train.py": """\
import torch.distributed as dist
from lines import Lines
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(make_model())
for line in Lines(["a", "b"], dist.get_rank()):
    model(line)
""",
            },
            at=(12,),
        ),
        Example(
            {
                "train.py": """\
import datasets
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        yield from open("train.txt")


def train(model, dataset, train_set, val_set, stream):
    model = DDP(model)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=32, num_workers=4)
    val_loader = DataLoader(val_set, batch_size=32)
    lines = Lines()
    rows = datasets.load_dataset("rows", split="train", streaming=True).map(len)
    return DataLoader(lines, batch_size=32), DataLoader(rows if stream else lines, batch_size=32)
"""
            },
            at=(13, 14, 18, 18),
        ),
        Example(
            {
                "trainer.py": """\
import transformers
from torch.utils.data import DataLoader


class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=self.args.train_batch_size, shuffle=True)


class Prepared(transformers.Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, shuffle=True))
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(model, optimizer, rows):
    accelerator = Accelerator()
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in loader:
        accelerator.backward(model(batch))
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import data
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model):
    model = DDP(model)
    for batch in data.loader(data.Lines("train.txt"), 0):
        model(batch)


main(make_model())
""",
                "data.py": """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, get_worker_info


def loader(lines, workers):
    if dist.is_initialized():
        return DataLoader(lines, num_workers=workers, sampler=DistributedSampler(lines))
    return DataLoader(lines, num_workers=workers, shuffle=True)


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        info = get_worker_info()
        first = self.rank * info.num_workers + info.id
        return iter(open(self.path).readlines()[first :: self.world * info.num_workers])
""",
            }
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(model, optimizer, rows, val):
    accelerator = Accelerator()
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    val_loader = DataLoader(val, batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch))
    for batch in val_loader:
        model(batch)
"""
            }
        ),
        Example(
            {
                "train.py": """\
from torch.utils.data import DataLoader


def train(model, dataset):
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if isinstance(node, ast.ClassDef):
            part = split_by_worker_alone(node, file) if "get_worker_info" in file.text else None
            if part is not None:
                notes = [
                    Note("the number of the worker is used here", file.place(at)) for at in workers_in(node, file)[:1]
                ]
                place, symbol = file.place(part), file.symbol(part)
                yield self.finding(place, symbol, told.BY_WORKER, notes=notes, advice=told.OF_A_STREAM)
        elif isinstance(node, ast.FunctionDef):
            if (made := trainers_own(node, file)) is not None:
                yield self.local(file, made, told.OF_TRAINER, advice=told.OF_A_TRAINER)
        elif isinstance(node, ast.Call) and tail_of(node) in SOURCES:
            if ("process_count" in file.text or "host_count" in file.text) and divides_alone(file):
                yield self.local(file, node, told.SAME_ROWS, advice=told.OF_JAX)
        elif isinstance(node, ast.Call) and name_of(node, file) in LOADERS and not may_be_sampled(node):
            yield from self._loader(node, file)

    def _loader(self, node: ast.Call, file: File) -> Iterator[Finding]:
        if is_called(node, HELD_OUT, file):
            return
        shuffles = is_constant(keyword(node, "shuffle"), True) or picks_of_all(node, file)
        if shuffles and (model := prepared_without(node, file)) is not None:
            note = Note("the model is prepared here, without it", file.place(model))
            place, symbol = file.place(node), file.symbol(node)
            yield self.finding(place, symbol, told.UNPREPARED, notes=[note], advice=told.PREPARED)
        if shuffles and (sampler := sampler_left_out(node, file)) is not None:
            lacks = f"this loader of the whole data set lacks the sampler of line {sampler.lineno}"
            yield self.local(file, node, lacks)
        reads_all = (shuffles or is_stream(node, file) or trains_in_order(node, file)) and wraps(file)
        dealt = SPLITS.search(file.text) or (node.args and is_part(node.args[0], file))
        dealt = dealt or (is_stream(node, file) and strides(file))
        if (takes_a_share(node, file) or reads_all) and not dealt:
            advice = told.OF_A_STREAM if is_stream(node, file) else self.advice
            yield self.local(file, node, told.NO_SAMPLER, advice=advice)
        elif streams_undealt(node, file):
            led = "lightning" in file.text
            yield self.local(file, node, told.STREAMED_AS_IT_IS if led else told.STREAMED, advice=told.OF_A_STREAM)

    def stands(self, finding: Finding, program: Program) -> bool:
        made = [d for e in program.calls(*LOADERS) if e.place == finding.place and (d := e.argument(0, "dataset"))]
        if any("part" in d.flags or (d.instance and program.facts.is_drawn_endlessly(d.instance)) for d in made):
            return False
        led = "lightning" in program.packages and not trains_alone(program)
        if finding.message == told.STREAMED_AS_IT_IS:
            return led and "split_dataset_by_node" not in program.names
        several = program.packages.isdisjoint(_SPLITTING_STREAMS) and (program.wraps or led)
        if finding.message == told.STREAMED:
            return several and any(e.active for e in program.calls(*LOADERS) if e.place == finding.place)
        return finding.message != told.BY_WORKER or several

    def check(self, program: Program) -> Iterator[Finding]:
        for event in program.calls(*LOADERS):
            if event.place in program.unsplit:
                yield self.found(event, told.NO_SAMPLER, advice=told.OF_A_STREAM if is_plain(event) else None)
        for event in program.calls(*UNSPLIT):
            if event.active and event.everyone and not HELD_OUT.search(event.symbol.rpartition(".")[2]):
                yield self.found(event, told.NOT_SHARDED, advice=told.OF_GRAIN)
