"""Loaders that give each process all data: never prepared, beside a sampler that nobody reads, by a share alone."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

PREPARED = """\
from accelerate import Accelerator
from torch.utils.data import DataLoader


def train(model, optimizer, rows, skip):
    accelerator = Accelerator()
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    {prepared}
    for epoch in range(3):
        batches = accelerator.skip_first_batches(loader, skip) if skip else loader
        for step, batch in enumerate(batches):
            accelerator.backward(model(batch))
"""
KEPT = """\
from torch.utils.data import DataLoader


class Tuner{kin}:
    def __init__(self, fabric):
        self.fabric = fabric

    def setup(self, model, train, valid):
        self.model = self.fabric.setup_module(model)
        {made}
        self.valid_loader = self.fabric.setup_dataloaders(DataLoader(valid, 8))

    def fit(self):
        for batch in {over}:
            self.fabric.backward(self.model(batch))
"""
LOADER = "self.train_loader = DataLoader(train, 8, shuffle=True)"
SAMPLED = """\
from torch.utils.data import DataLoader, DistributedSampler


def loaders(args, train):
    sampler = None
    if args.distributed:
        sampler = DistributedSampler(train, num_replicas=args.world_size, rank=args.rank)
    return DataLoader(train, args.batch_size, {how}, drop_last=True)


def main(args, model):
    import torch
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loaders(args, args.rows):
        model(batch)
"""
SHARED = """\
import torch.distributed as dist
from torch.utils.data import DataLoader


def loader(rows, global_batch, train):
    return DataLoader(rows, batch_size=global_batch // dist.get_world_size(), {how})


def main(rows, step):
    dist.init_process_group("nccl")
    for batch in loader(rows, 256, True):
        step(batch)
"""


def lines(source: str) -> list[int]:
    findings = check({"train.py": source.encode()}, Settings(select=("AR301",))).findings
    return [finding.place.line for finding in findings]


def test_a_loader_is_followed_through_the_names_that_it_is_gone_over_by() -> None:
    """Who skips what a resumed run has seen goes over the loader under another name."""
    source = PREPARED.replace("{prepared}", "model, optimizer = accelerator.prepare(model, optimizer)")
    assert lines(source) == [7]
    source = PREPARED.replace("{prepared}", "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)")
    assert lines(source) == []


@pytest.mark.parametrize(
    ("kin", "made", "over", "found"),
    [
        ("", LOADER, "self.train_loader", [10]),
        ("", LOADER, "enumerate(self.train_loader)", [10]),
        ("(Base)", LOADER, "self.train_loader", []),
        (
            "",
            f"{LOADER}; self.train_loader = self.fabric.setup_dataloaders(self.train_loader)",
            "self.train_loader",
            [],
        ),
        ("", "self.train_loader = DataLoader(train, 8)", "self.train_loader", []),
        ("", LOADER, "self.stream(self.train_loader)", []),
        ("", LOADER, "self.valid_loader", []),
    ],
)
def test_a_loader_that_a_class_keeps_is_gone_over_unprepared(kin: str, made: str, over: str, found: list[int]) -> None:
    """The class prepares its model, has no kin that might prepare the rest, and hands the loader to nobody."""
    source = KEPT.format(kin=kin, made=made, over=over)
    source += "\n    def stream(self, loader):\n        return self.fabric.setup_dataloaders(loader)\n"
    assert lines(source) == found


@pytest.mark.parametrize(
    ("how", "found"),
    [("shuffle=True", [8]), ("shuffle=sampler is None, sampler=sampler", []), ("shuffle=sampler is None", [])],
)
def test_a_sampler_that_nothing_reads_is_left_out(how: str, found: list[int]) -> None:
    """It is made where there are several processes, and the loader shuffles whatever happens."""
    assert lines(SAMPLED.format(how=how)) == found


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("shuffle=True", [6]),
        ("shuffle=train", [6]),
        ("shuffle=False", []),
        ("shuffle=train, sampler=train.sampler", []),
        ("shuffle=train, batch_sampler=train.batches", []),
    ],
)
def test_a_share_of_the_batch_is_no_share_of_the_data(how: str, found: list[int]) -> None:
    """Who divides the batch by the number of processes has several of them, and the loader deals out nothing."""
    assert lines(SHARED.format(how=how)) == found
    own_part = SHARED.replace("DataLoader(rows,", "DataLoader(rows[dist.get_rank() :: dist.get_world_size()],")
    assert lines(own_part.format(how=how)) == []


TRAINER = """\
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer


class Tuner(Trainer):
    def get_train_dataloader(self):
        loader = {made}
        return {given}
"""


@pytest.mark.parametrize(
    ("made", "given", "found"),
    [
        ("DataLoader(self.train_dataset, shuffle=True)", "loader", [7]),
        ("Loader.of(self.args).from_schema(self.schema, shuffle=True)", "loader", [7]),
        ("DataLoader(self.train_dataset, shuffle=True)", "self.accelerator.prepare(loader)", []),
        ("DataLoader(self.train_dataset, sampler=self._get_train_sampler())", "loader", []),
        ("DataLoader(self.part(self.args.process_index), shuffle=True)", "loader", []),
    ],
)
def test_a_trainer_goes_over_the_loader_that_its_heir_makes(made: str, given: str, found: list[int]) -> None:
    """Transformers' own method prepares the loader; who overrides it has to."""
    source = TRAINER.format(made=made, given=given)
    findings = check({"tune.py": source.encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found


OF_HEIR = """\
from torch.utils.data import DataLoader
from transformers import Trainer


class Tuner(Trainer):
    def __init__(self, accelerator):
        self.loader = DataLoader(self.train_dataset, shuffle=True)
        {prepares}

    def get_train_dataloader(self):
        return self.loader
"""


@pytest.mark.parametrize(
    ("prepares", "found"),
    [
        ("self.model, self.loader = accelerator.prepare(self.model, self.loader)", []),
        ("self.model = accelerator.prepare(self.model)", [7]),
    ],
)
def test_a_trainer_goes_over_the_loader_that_its_heir_keeps(prepares: str, found: list[int]) -> None:
    findings = check({"tune.py": OF_HEIR.format(prepares=prepares).encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found


WORKERS = """\
import os
import numpy as np
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, get_worker_info


class Files(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        {first}
        yield from self.files[info.id :: info.num_workers]


model = DDP(make_model())
"""


@pytest.mark.parametrize(
    ("first", "found"),
    [("np.random.seed(dist.get_rank() + info.seed)", [12]), ("self.files = part(self.files, dist.get_rank())", [])],
)
def test_a_seed_by_the_rank_gives_nobody_a_part(first: str, found: list[int]) -> None:
    """Every process reads all of it, in its own order."""
    findings = check({"a.py": WORKERS.format(first=first).encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found


OF_ALL = """\
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from {module} import wrapped


def main(rows, held):
    loader = DataLoader(rows, {how})
    val_loader = DataLoader(held, 8, sampler=SequentialSampler(held))
    model = wrapped(make_model())
    for batch in loader:
        model(batch)


main(read("rows"), read("held"))
"""
WRAPPED = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wrapped(model):
    dist.init_process_group("gloo")
    return DistributedDataParallel(model)
"""


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("8, sampler=RandomSampler(rows)", [6]),
        ("batch_size=8, sampler=RandomSampler(rows)", [6]),
        ("batch_size=None, sampler=RandomSampler(rows)", []),
        ("8, sampler=sampler_of(rows)", []),
    ],
)
def test_a_sampler_of_all_rows_is_no_part_of_them(how: str, found: list[int]) -> None:
    """Each process draws all of them; only a data set that gives whole batches may deal them out below."""
    apart = {"train.py": OF_ALL.format(how=how, module="models"), "models.py": WRAPPED}
    together = {"train.py": OF_ALL.format(how=how, module="models").replace("from models import wrapped\n", "")}
    together["train.py"] = together["train.py"].replace("\n\n\ndef main", "\n\n\n\ndef main") + WRAPPED
    for files in (apart, together):
        sources = {path: text.encode() for path, text in files.items()}
        findings = check(sources, Settings(select=("AR301",))).findings
        assert [finding.place.line for finding in findings] == found


def test_a_loader_that_shuffles_by_default_is_given_a_sampler() -> None:
    """Another function leaves it out where there are several processes; who says what the sampler leaves is right."""
    loader = """\
from torch.utils.data import DataLoader


def loader_of(rows, sampler=None, shuffle=True):
    return DataLoader(rows, 8, shuffle=shuffle, sampler=sampler)
"""
    train = """\
import torch.distributed as dist
from loader import loader_of
from torch.utils.data import DistributedSampler


def main(rows, several):
    if several:
        dist.init_process_group("gloo")
        sampler = DistributedSampler(rows)
    else:
        sampler = None
    return loader_of(rows, sampler{more})


main([], True)
"""
    for more, found in (("", [5]), (", shuffle=sampler is None", []), (", shuffle=False", [])):
        sources = {"train.py": train.replace("{more}", more).encode(), "loader.py": loader.encode()}
        findings = check(sources, Settings(select=("AR303",))).findings
        assert [finding.place.line for finding in findings] == found


def test_horovod_averages_what_each_process_has_of_all_rows() -> None:
    """Its optimizer is what wraps the model, and splits no data."""
    train = """\
import horovod.torch as hvd
from torch.utils.data import DataLoader

optimizer = hvd.DistributedOptimizer(make(model))
loader = DataLoader(rows, shuffle=True)
"""
    sampled = train.replace("shuffle=True", "sampler=data.DistributedSampler(rows, hvd.size(), hvd.rank())")
    for text, lines in ((train, [5]), (sampled, [])):
        findings = check({"train.py": text.encode()}, Settings(select=("AR301",))).findings
        assert [one.place.line for one in findings] == lines


@pytest.mark.parametrize(("how", "lines"), [("shuffle=True, ", [8]), ("", []), ("shuffle=on, ", [])])
def test_a_loader_that_shuffles_is_given_no_sampler_by_what_is_passed_on(how: str, lines: list[int]) -> None:
    """It bears none beside that; the sampler that is made for its data goes nowhere."""
    text = f"""\
from torch.utils.data import DataLoader, DistributedSampler


class Loaders:
    def train(self, rows, size):
        more = dict(self.defaults, batch_size=size)
        self.sampler = DistributedSampler(rows)
        return DataLoader(rows, {how}**more)
"""
    findings = check({"loaders.py": text.encode()}, Settings(select=("AR301",))).findings
    assert [one.place.line for one in findings] == lines


PARTED = """\
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader, partition_dataset
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rows, model):
    dist.init_process_group("nccl")
    world, rank = dist.get_world_size(), dist.get_rank()
    {part}
    loader = DataLoader(CacheDataset(rows), batch_size=2, shuffle=True)
    model = DDP(model)
    for batch in loader:
        model(batch).backward()


train(files(), net())
"""


@pytest.mark.parametrize(
    ("part", "found"),
    [("rows = partition_dataset(data=rows, num_partitions=world)[rank]", []), ("rows = first(data=rows)", [10])],
)
def test_monai_parts_data_before_it_is_loaded(part: str, found: list[int]) -> None:
    """Each process takes its place in the list of parts."""
    findings = check({"a.py": PARTED.format(part=part).encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found


IN_A_FUNCTION = """\
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader
from torch.nn.parallel import DistributedDataParallel as DDP


def loader(rows):
    return DataLoader(CacheDataset(data=rows), batch_size=2, shuffle=True)


def train(rows, model):
    dist.init_process_group("nccl")
    if dist.is_initialized():
        rows = in_parts(rows, dist.get_world_size())[{which}]
    model = DDP(model)
    for batch in loader(rows):
        model(batch).backward()


train(files(), net())
"""


@pytest.mark.parametrize(("which", "found"), [("dist.get_rank()", []), ("0", [7])])
def test_a_data_set_of_a_part_is_a_part(which: str, found: list[int]) -> None:
    """Whatever package has its class, and whoever loads it."""
    findings = check({"a.py": IN_A_FUNCTION.format(which=which).encode()}, Settings(select=("AR301",))).findings
    assert [finding.place.line for finding in findings] == found


ALONE = """\
import jax
import tensorflow_datasets as tfds


def batches(builder, global_batch):
    if jax.process_count() > 1:
        {more}
    return builder.as_dataset(split="train").batch(global_batch // jax.process_count())
"""


@pytest.mark.parametrize(
    ("more", "found"), [("raise NotImplementedError('one process')", []), ("print('several processes')", [8])]
)
def test_who_refuses_to_be_one_of_several_has_all_rows_to_himself(more: str, found: list[int]) -> None:
    assert lines(ALONE.format(more=more)) == found
