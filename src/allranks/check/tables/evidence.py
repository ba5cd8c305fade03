"""Calls that show that a program runs as several processes, beside rank queries and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["initialise", "wrap", "sample", "launch"]


@dataclass(frozen=True, slots=True)
class Sign:
    """``pattern`` initialises, wraps a model for several processes, samples data for one of them, or starts them."""

    pattern: str
    kind: Kind


SIGNS: tuple[Sign, ...] = (
    Sign("torch.nn.parallel.DistributedDataParallel", "wrap"),
    Sign("torch.distributed.fsdp.FullyShardedDataParallel", "wrap"),
    Sign("torch.distributed.fsdp.fully_shard", "wrap"),
    Sign("torch.distributed._composable.fsdp.fully_shard", "wrap"),
    Sign("torch.utils.data.distributed.DistributedSampler", "sample"),
    Sign("torch.utils.data.DistributedSampler", "sample"),
    Sign("torch.distributed.device_mesh.init_device_mesh", "initialise"),
    Sign("torch.multiprocessing.spawn", "launch"),
    Sign("accelerate.Accelerator", "initialise"),
    Sign("lightning.fabric.Fabric", "initialise"),
    Sign("lightning.Fabric", "initialise"),
    Sign("deepspeed.initialize", "initialise"),
    Sign("deepspeed.init_distributed", "initialise"),
    Sign("jax.distributed.initialize", "initialise"),
    Sign("horovod.torch.init", "initialise"),
)

# Classes whose hooks a framework calls on every process.
HOOKED = (
    "lightning.pytorch.LightningModule",
    "lightning.pytorch.LightningDataModule",
    "lightning.pytorch.Callback",
    "lightning.pytorch.callbacks.Callback",
    "lightning.LightningModule",
    "lightning.LightningDataModule",
    "lightning.Callback",
    "transformers.TrainerCallback",
    "transformers.Trainer",
)
