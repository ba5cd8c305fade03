"""What an object is called when nothing in the project says of what class it is (a parameter, ``self.accelerator``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allranks.check.tables.data import BARE, UNWRAPPED

# The last part of the receiver's name -> class, as in the other tables. Only names that are used for nothing else.
RECEIVERS: Mapping[str, str] = {
    "accelerator": "accelerate.Accelerator",
    "fabric": "lightning.fabric.Fabric",
    "model_engine": "deepspeed.DeepSpeedEngine",
    "ds_engine": "deepspeed.DeepSpeedEngine",
    "checkpoint_manager": "orbax.checkpoint.CheckpointManager",
    "ckpt_manager": "orbax.checkpoint.CheckpointManager",
    "device_mesh": "torch.distributed.device_mesh.DeviceMesh",
    "pl_module": "lightning.pytorch.LightningModule",
    "training_args": "transformers.TrainingArguments",
    "partial_state": "accelerate.PartialState",
}
# Parameters that frameworks fill: (method, parameter) -> class. The methods are hooks of callbacks.
HOOKS: tuple[str, ...] = (
    *("on_train_start", "on_train_end", "on_train_epoch_start", "on_train_epoch_end", "on_train_batch_end"),
    *("on_validation_end", "on_validation_epoch_end", "on_validation_start", "on_fit_start", "on_fit_end"),
    *("on_save_checkpoint", "on_load_checkpoint", "on_train_batch_start", "on_validation_batch_end", "setup"),
    *("teardown", "on_test_end", "on_test_epoch_end", "on_exception", "on_sanity_check_end"),
)
HOOK_PARAMETERS: Mapping[str, str] = {
    "trainer": "lightning.pytorch.Trainer",
    "pl_module": "lightning.pytorch.LightningModule",
}
# What registers a function that another method of the same object calls, on the ranks that call that.
REGISTERS: Mapping[str, str] = {
    "register_save_state_pre_hook": "save_state",
    "register_load_state_pre_hook": "load_state",
}
# Attributes that frameworks set: class and attribute -> class.
ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(UNWRAPPED, BARE),
    "pathlib.Path.parent": "pathlib.Path",
    "transformers.Trainer.args": "transformers.TrainingArguments",
    "transformers.Trainer.accelerator": "accelerate.Accelerator",
    "lightning.pytorch.LightningModule.trainer": "lightning.pytorch.Trainer",
    "lightning.pytorch.LightningDataModule.trainer": "lightning.pytorch.Trainer",
    "lightning.pytorch.LightningCLI.trainer": "lightning.pytorch.Trainer",
    "lightning.pytorch.Trainer.strategy": "lightning.pytorch.strategies.Strategy",
    "lightning.fabric.Fabric.strategy": "lightning.pytorch.strategies.Strategy",
}
# Packages whose classes have one base in common.
BASES: Mapping[str, str] = {"torchmetrics": "torchmetrics.Metric"}
# What a trainer that has one device is an instance of: it meets nobody.
ONE_PROCESS = "<trainer of one process>"
# Packages whose trainers, classes with such an end of their name, are made of the one of transformers.
TRAINER = "transformers.Trainer"
WITH_TRAINERS = frozenset(["transformers", "trl", "sentence_transformers", "optimum", "setfit", "adapters"])


def is_trainer(name: str) -> bool:
    """Whether a documented name is that of a trainer that is made of the one of transformers."""
    return name.endswith("Trainer") and name.partition(".")[0] in WITH_TRAINERS


def trainer_of(imports: Iterable[str]) -> str:
    """Return the class of what a file that imports these calls its trainer; empty if nothing tells."""
    packages = {dotted.partition(".")[0] for dotted in imports}
    if any("lightning" in package for package in packages):
        return "lightning.pytorch.Trainer"
    return TRAINER if packages & WITH_TRAINERS else ""


# What calls return: function or method -> class of the result.
RETURNS: Mapping[str, str] = {
    "lightning.pytorch.Trainer.from_argparse_args": "lightning.pytorch.Trainer",
    "deepspeed.initialize": "deepspeed.DeepSpeedEngine",
    "torch.distributed.device_mesh.init_device_mesh": "torch.distributed.device_mesh.DeviceMesh",
    "transformers.HfArgumentParser.parse_args_into_dataclasses": "transformers.TrainingArguments",
    "mpi4py.MPI.COMM_WORLD.Split": "mpi4py.MPI.Comm",
    "torch.distributed.fsdp.fully_shard": "torch.distributed.fsdp.FSDPModule",
    "torch.distributed.tensor.distribute_tensor": "torch.distributed.tensor.DTensor",
    "torch.distributed.tensor.DTensor.from_local": "torch.distributed.tensor.DTensor",
    "allranks.current": "allranks.World",
    "allranks.init": "allranks.World",
    "pathlib.Path.cwd": "pathlib.Path",
    "pathlib.Path.home": "pathlib.Path",
    "matplotlib.pyplot.figure": "matplotlib.figure.Figure",
    "PIL.Image.open": "PIL.Image.Image",
    "PIL.Image.fromarray": "PIL.Image.Image",
}
# Calls that return a tuple: the class of each part; ``<rank>``, and ``<world size>`` for how many processes there are.
TUPLES: Mapping[str, tuple[str, ...]] = {
    "deepspeed.initialize": ("deepspeed.DeepSpeedEngine", "", "", ""),
    "mmengine.dist.get_dist_info": ("<rank>", "<world size>"),
    **dict.fromkeys(("*.get_dist_info", "*.get_rank_and_world_size"), ("<rank>", "<world size>")),
    "*.get_world_size_and_rank": ("<world size>", "<rank>"),
}
