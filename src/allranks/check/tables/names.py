"""Other names of documented packages and functions: prefix -> documented prefix, the longest first.

Packages that are published twice, modules that re-export, APIs that were renamed.
"""

from __future__ import annotations

from functools import cache

ALIASES: tuple[tuple[str, str], ...] = (
    ("torch.nn.parallel.distributed.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "torch.distributed.fsdp"),
    ("orbax.checkpoint.multihost.sync_global_processes", "jax.experimental.multihost_utils.sync_global_devices"),
    ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"),
    ("torch.distributed._composable.fsdp.fully_shard", "torch.distributed.fsdp.fully_shard"),
    ("torch.distributed.checkpoint.state_dict_loader", "torch.distributed.checkpoint"),
    ("torch.distributed.checkpoint.state_dict_saver", "torch.distributed.checkpoint"),
    ("torch.utils.tensorboard.writer.SummaryWriter", "torch.utils.tensorboard.SummaryWriter"),
    ("transformers.trainer_seq2seq.Seq2SeqTrainer", "transformers.Trainer"),
    ("orbax.checkpoint.utils.sync_global_devices", "jax.experimental.multihost_utils.sync_global_devices"),
    ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
    ("fairscale.nn.model_parallel.initialize", "megatron.core.parallel_state"),
    ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch.utilities"),
    ("jax.experimental.shard_map.shard_map", "jax.shard_map"),
    ("lightning.pytorch.callbacks.Callback", "lightning.pytorch.Callback"),
    ("lightning.fabric.utilities.rank_zero", "lightning.pytorch.utilities"),
    ("torch.distributed._shard.checkpoint", "torch.distributed.checkpoint"),
    ("orbax.checkpoint.checkpoint_manager", "orbax.checkpoint"),
    ("torch.distributed.distributed_c10d", "torch.distributed"),
    ("torch.distributed._composable.fsdp", "torch.distributed.fsdp"),
    ("lightning_utilities.core.rank_zero", "lightning.pytorch.utilities"),
    ("accelerate.accelerator.Accelerator", "accelerate.Accelerator"),
    ("orbax.checkpoint.checkpointers", "orbax.checkpoint"),
    ("lightning.fabric.fabric.Fabric", "lightning.fabric.Fabric"),
    ("torch.distributed._checkpoint", "torch.distributed.checkpoint"),
    ("lightning.LightningDataModule", "lightning.pytorch.LightningDataModule"),
    ("lightning.pytorch.cli.LightningCLI", "lightning.pytorch.LightningCLI"),
    ("composer.trainer.Trainer", "composer.Trainer"),
    ("lightning.pytorch.trainer.Trainer", "lightning.pytorch.Trainer"),
    ("lightning.pytorch.trainer.trainer.Trainer", "lightning.pytorch.Trainer"),
    ("lightning.pytorch.utilities.cli.LightningCLI", "lightning.pytorch.LightningCLI"),
    ("torch.distributed.tensor.api", "torch.distributed.tensor"),
    ("transformers.trainer.Trainer", "transformers.Trainer"),
    ("torch.distributed.fsdp.FSDP", "torch.distributed.fsdp.FullyShardedDataParallel"),
    ("accelerate.utils.operations", "accelerate.utils"),
    ("transformers.Seq2SeqTrainer", "transformers.Trainer"),
    ("jax.experimental.maps.Mesh", "jax.sharding.Mesh"),
    ("jax.experimental.pjit.pjit", "jax.jit"),
    ("lightning.fabric.utilities", "lightning.pytorch.utilities"),
    ("tensorflow.compat.v1.gfile", "tensorflow.io.gfile"),
    ("torch.distributed._tensor", "torch.distributed.tensor"),
    ("tensorboard.SummaryWriter", "torch.utils.tensorboard.SummaryWriter"),
    ("lightning.LightningModule", "lightning.pytorch.LightningModule"),
    ("lightning.seed_everything", "lightning.pytorch.seed_everything"),
    ("torch.utils.data.dataset", "torch.utils.data"),
    ("torch.utils.data.sampler", "torch.utils.data"),
    ("torch.serialization.save", "torch.save"),
    ("torch.serialization.load", "torch.load"),
    ("horovod.tensorflow.keras", "horovod"),
    ("torch.distributed.deprecated", "torch.distributed"),
    ("torch.distributed.c10d", "torch.distributed"),
    ("accelerate.utils.other", "accelerate.utils"),
    ("mmcv.runner.dist_utils", "mmengine.dist"),
    ("jax.interpreters.pxla", "jax.sharding"),
    ("jax._src.distributed", "jax.distributed"),
    ("tensorflow.compat.v1", "tensorflow"),
    ("tensorflow.compat.v2", "tensorflow"),
    ("deepspeed.comm.comm", "torch.distributed"),
    ("mmengine.dist.utils", "mmengine.dist"),
    ("lightning.Callback", "lightning.pytorch.Callback"),
    ("horovod.tensorflow", "horovod"),
    ("mmengine.dist.dist", "mmengine.dist"),
    ("pytorch_lightning", "lightning.pytorch"),
    ("lightning.Trainer", "lightning.pytorch.Trainer"),
    ("megatron.core.mpu", "megatron.core.parallel_state"),
    ("lightning.Fabric", "lightning.fabric.Fabric"),
    ("lightning_fabric", "lightning.fabric"),
    ("accelerate.state", "accelerate"),
    ("tensorflow.gfile", "tensorflow.io.gfile"),
    ("etils.epath.Path", "pathlib.Path"),
    ("deepspeed.comm", "torch.distributed"),
    ("jax.host_count", "jax.process_count"),
    ("horovod.torch", "horovod"),
    ("horovod.keras", "horovod"),
    ("megatron.mpu", "megatron.core.parallel_state"),
    ("tensorboardX", "torch.utils.tensorboard"),
    ("jax.host_id", "jax.process_index"),
    ("mmcv.runner", "mmengine.dist"),
    ("tf.io.gfile", "tensorflow.io.gfile"),
    ("cloudpickle", "pickle"),
    ("epath.Path", "pathlib.Path"),
    ("_pickle", "pickle"),
    ("io.open", "open"),
    ("dill", "pickle"),
)
# Last parts of names that are documented under another last part.
RENAMED = frozenset(
    name.rpartition(".")[2] for name, meant in ALIASES if name.rpartition(".")[2] != meant.rpartition(".")[2]
)
_STARTS = tuple({prefix.partition(".")[0] for prefix, _ in ALIASES})
_INSTEAD = dict(ALIASES)


@cache
def documented(name: str) -> str:
    """Return the name that the tables use: ``pytorch_lightning.Trainer`` -> ``lightning.pytorch.Trainer``."""
    prefix = name if name.startswith(_STARTS) else ""
    while prefix:
        if (instead := _INSTEAD.get(prefix)) is not None:
            return documented(instead + name[len(prefix) :])
        prefix = prefix.rpartition(".")[0]
    return name
