"""Who reads data: loaders, what splits their work among ranks, and frameworks that split it by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Names of data that is only looked at.
HELD_OUT = re.compile(r"(^|_)(val(?!ue)|valid|validation|eval|test|dev|held)", re.IGNORECASE)
LOADERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"),
        *("torch_geometric.loader.DataLoader", "torchdata.dataloader2.DataLoader2", "torch_geometric.data.DataLoader"),
        *("monai.data.DataLoader", "monai.data.ThreadDataLoader", "dgl.dataloading.GraphDataLoader"),
    ]
)
SAMPLERS: frozenset[str] = frozenset(
    [
        *("torch.utils.data.DistributedSampler", "torchdata.stateful_dataloader.sampler.StatefulDistributedSampler"),
        *("catalyst.data.DistributedSamplerWrapper", "timm.data.distributed_sampler.RepeatAugSampler"),
    ]
)
# Samplers that go over all samples, and know of no other process.
OF_ALL: frozenset[str] = frozenset(f"torch.utils.data.{name}" for name in ("RandomSampler", "SubsetRandomSampler"))
# Data sets of some of the samples of another, by the position and keyword of the numbers of those.
SUBSETS: Mapping[str, tuple[int, str]] = {"torch.utils.data.Subset": (1, "indices")}
# A program that calls one of these has thought about who reads what.
SPLITTERS: frozenset[str] = frozenset(
    [
        *("datasets.distributed.split_dataset_by_node", "*.split_dataset_by_node", "*.shard"),
        *("*.split_between_processes", "tensorflow.distribute.InputContext"),
        *("tensorflow_datasets.split_for_jax_process", "tensorflow_datasets.even_splits", "*.split_for_jax_process"),
        *("grain.python.ShardByJaxProcess", "grain.ShardByJaxProcess", "grain.python.ShardOptions"),
        *("webdataset.split_by_node", "webdataset.nodesplitter", "webdataset.SimpleShardList"),
        *("webdataset.ResampledShards", "streaming.StreamingDataset", "litdata.StreamingDataset"),
        *("allranks.shard", "allranks.Dataset", "allranks.global_batch"),
    ]
)
# They put together what each process has read for itself.
OWN_ROWS = (
    *("jax.make_array_from_process_local_data", "jax.experimental.multihost_utils.host_local_array_to_global_array"),
)
# What says that nobody's part is taken.
UNSPLIT: frozenset[str] = frozenset({"grain.python.NoSharding", "grain.NoSharding"})
# These put a distributed sampler in by themselves.
SPLITTING_FRAMEWORKS: frozenset[str] = frozenset(
    [
        *("lightning.pytorch.Trainer", "accelerate.Accelerator", "transformers.Trainer", "deepspeed.initialize"),
        *("lightning.fabric.Fabric", "ray.train.torch.prepare_data_loader", "composer.Trainer"),
    ]
)
# By package, what goes over loaders by itself, splits their data and sets their epochs: who imports other things from
# there leaves nothing to it.
LEADERS: Mapping[str, frozenset[str]] = {
    "lightning": frozenset({"Trainer", "LightningCLI", "LightningModule", "LightningDataModule", "Fabric"}),
    "accelerate": frozenset({"Accelerator"}),
    "transformers": frozenset({"Trainer", "Seq2SeqTrainer", "TrainingArguments", "Seq2SeqTrainingArguments"}),
    "composer": frozenset({"Trainer"}),
    "ray": frozenset({"prepare_data_loader", "TorchTrainer"}),
}
WRAPPERS: frozenset[str] = frozenset(
    [
        *("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel"),
        *("torch.distributed.fsdp.fully_shard", "apex.parallel.DistributedDataParallel"),
    ]
)
# The model inside a wrapper that keeps all parameters on every rank: it talks to nobody.
BARE = "<bare model>"
UNWRAPPED: frozenset[str] = frozenset(
    [
        *("torch.nn.parallel.DistributedDataParallel.module", "apex.parallel.DistributedDataParallel.module"),
        *("torch.nn.DataParallel.module", "torch.nn.parallel.DistributedDataParallel._orig_mod"),
    ]
)
