"""Calls that show that a program runs as several processes, beside rank queries and collectives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from allranks.check.tables.data import SAMPLERS, WRAPPERS

Kind: TypeAlias = Literal["initialise", "wrap", "sample", "launch"]


@dataclass(frozen=True, slots=True)
class Sign:
    """``pattern`` initialises, wraps a model for several processes, samples data for one of them, or starts them."""

    pattern: str
    kind: Kind


INITIALISERS = (
    *("torch.distributed.device_mesh.init_device_mesh", "accelerate.Accelerator", "accelerate.PartialState"),
    *("lightning.fabric.Fabric", "deepspeed.initialize", "deepspeed.init_distributed", "jax.distributed.initialize"),
    *("mmengine.dist.init_dist", "mmengine.dist.init_pytorch_dist", "torch.distributed.init_device_mesh"),
    *("horovod.init", "torch.distributed.init_process_group", "allranks.init", "composer.utils.dist.initialize_dist"),
    *(
        "bmtrain.init_distributed",
        "composer.Trainer",
        "torchtnt.utils.init_from_env",
        "levanter.initialize",
        "ignite.distributed.Parallel",
        "ignite.distributed.initialize",
        "tensorflow.distribute.MultiWorkerMirroredStrategy",
        "tensorflow.distribute.experimental.MultiWorkerMirroredStrategy",
    ),
)
# Functions of packages that nobody here knows, which join the processes as their names say.
_SAYS_IT = (
    *("init_distributed", "init_distributed_mode", "init_distributed_device", "init_distributed_environment"),
    *("initialize_distributed", "setup_distributed", "distributed_setup", "init_torch_distributed", "init_dist"),
    *("dist_init", "setup_ddp", "ddp_setup", "init_ddp", "init_process_group", "setup_process_group"),
    *("initialize_megatron", "launch_from_torch", "launch_from_slurm", "launch_from_openmpi", "init_parallel_env"),
)
# What joins the processes, or finds them joined, and is no collective by itself; and the op under which that counts.
JOIN = "join"
WAIT = "wait"  # the op under which it counts that a process waits for another one, and meets nobody
JOINING: frozenset[str] = frozenset(
    [
        *("accelerate.Accelerator", "accelerate.PartialState", "lightning.fabric.Fabric.launch", "composer.Trainer"),
        *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments", "transformers.Trainer"),
        *("trl.SFTConfig", "trl.DPOConfig", "deepspeed.init_distributed", "deepspeed.initialize", "horovod.init"),
        *("composer.utils.dist.initialize_dist", "mmengine.dist.init_dist", "mmengine.dist.init_pytorch_dist"),
        *("bmtrain.init_distributed", "flashy.distrib.init"),
    ]
)
# The ops of the collectives that do so.
JOINED: frozenset[str] = frozenset([JOIN, "init_process_group", "initialize", "initialize_model_parallel", "fit"])
# What joins the processes and wraps the model by itself.
TRAINERS = ("lightning.pytorch.Trainer", "lightning.pytorch.LightningCLI", "composer.Trainer", "transformers.Trainer")
# What starts the processes itself.
STARTERS = (
    *("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "torch_xla.launch"),
    *("torch_xla.distributed.xla_multiprocessing.spawn", "accelerate.notebook_launcher", "accelerate.debug_launcher"),
    *("detectron2.engine.launch", "ray.train.torch.TorchTrainer"),
    *("submitit.AutoExecutor", "submitit.SlurmExecutor", "torch.distributed.launcher.api.elastic_launch"),
)
SIGNS: tuple[Sign, ...] = (
    *(Sign(name, "initialise") for name in INITIALISERS),
    *(Sign(name, "wrap") for name in sorted(WRAPPERS)),
    *(Sign(name, "sample") for name in sorted(SAMPLERS)),
    *(Sign(name, "launch") for name in STARTERS),
    *(Sign(f"*.{word}", "initialise") for word in _SAYS_IT),
    *(Sign(name, "launch") for name in ("ray.tune.with_parameters", "ray.tune.Tuner")),
)
# Who asks JAX for one of each deals something out among the processes; of how many there are, both of these tell too.
DEALING = (frozenset(["process_index", "host_id"]), frozenset(["process_count", "host_count"]))
OF_EACH_HOST = frozenset(["device_count", "local_device_count"])
# Classes whose hooks a framework calls on every process.
HOOKED = (
    "lightning.pytorch.LightningModule",
    "lightning.pytorch.LightningDataModule",
    "lightning.pytorch.Callback",
    "lightning.pytorch.callbacks.Callback",
    "lightning.pytorch.callbacks.BasePredictionWriter",
    "lightning.pytorch.callbacks.ModelCheckpoint",
    "lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint",
    "transformers.TrainerCallback",
    "transformers.Trainer",
    "composer.Callback",
    "composer.core.Callback",
    "mmengine.hooks.Hook",
    "mmengine.dist.Hook",  # that of mmcv.runner
    "torchtnt.framework.callback.Callback",
    "composer.loggers.LoggerDestination",
    "composer.core.Algorithm",
    "composer.Algorithm",
    "fastai.callback.core.Callback",
    "detectron2.engine.HookBase",
    "detectron2.engine.train_loop.HookBase",
    "catalyst.dl.Callback",
    "catalyst.core.callback.Callback",
    *("catalyst.dl.Runner", "catalyst.dl.IRunner", "catalyst.dl.SupervisedRunner"),
    *("lightning.pytorch.LightningCLI", "lightning.pytorch.loggers.Logger", "lightning.pytorch.loggers.logger.Logger"),
    *("lightning.pytorch.loggers.base.LightningLoggerBase", "lightning.pytorch.loggers.LightningLoggerBase"),
    *("mmengine.hooks.hook.Hook", "mmengine.dist.hooks.Hook", "mmengine.dist.hooks.hook.Hook"),
    *("detectron2.evaluation.DatasetEvaluator", "detectron2.evaluation.evaluator.DatasetEvaluator"),
    *("composer.core.callback.Callback", "nemo.core.ModelPT", "nemo.core.classes.ModelPT"),
    *("torchtnt.framework.unit.TrainUnit", "torchtnt.framework.TrainUnit", "torchtnt.framework.AutoUnit"),
)
# Heirs of the callbacks that these packages bring along are called as those are.
_BROUGHT_ALONG = re.compile(
    r"lightning\.pytorch\.callbacks\.\w+(\.\w+)?|(transformers|composer|mmengine|torchtnt|fastai)\.[\w.]*(Callback|Hook)"
)


def is_hooked(name: str) -> bool:
    """Whether a class of a framework, by its documented name, has hooks that are called on every process."""
    return name in HOOKED or _BROUGHT_ALONG.fullmatch(name) is not None


# Classes that are made on every process of a program that trains.
MADE_EVERYWHERE = (
    *("torch.utils.data.Dataset", "torch.utils.data.IterableDataset", "torch.nn.Module"),
    *("lightning.pytorch.loggers.Logger", "lightning.pytorch.loggers.logger.Logger"),
)
