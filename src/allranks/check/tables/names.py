"""Other names of documented packages and functions: prefix -> documented prefix, the longest first."""

from __future__ import annotations

ALIASES: tuple[tuple[str, str], ...] = (
    ("torch.distributed.distributed_c10d", "torch.distributed"),
    ("deepspeed.comm", "torch.distributed"),
    ("torch.nn.parallel.distributed.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel"),
    ("torch.utils.tensorboard.writer", "torch.utils.tensorboard"),
    ("tensorboardX", "torch.utils.tensorboard"),
    ("pytorch_lightning", "lightning.pytorch"),
    ("lightning_fabric", "lightning.fabric"),
    ("accelerate.accelerator", "accelerate"),
    ("cloudpickle", "pickle"),
    ("_pickle", "pickle"),
    ("io.open", "open"),
)
