"""What needs no gate: calls that gate themselves, and places that belong to one process or one node."""

from __future__ import annotations

from collections.abc import Mapping

# Every rank calls them, one acts. Some also wait: those stand in `collectives`.
GATED: frozenset[str] = frozenset(
    f"{owner}.{word}"
    for owner, words in {
        "accelerate.Accelerator": "print save log init_trackers log_images save_model save_state end_training",
        "accelerate.tracking.GeneralTracker": "log store_init_configuration finish log_images",
        "lightning.pytorch.Trainer": "save_checkpoint print",
        "lightning.pytorch.LightningModule": "log log_dict print save_hyperparameters",
        "lightning.pytorch.loggers.Logger": "log_metrics log_hyperparams log_image save finalize",
        "lightning.fabric.Fabric": "print log log_dict save",
        "lightning.pytorch.utilities": "rank_zero_info rank_zero_warn rank_zero_debug rank_zero_deprecation",
        "transformers.Trainer": "log save_model save_state log_metrics save_metrics _save_checkpoint push_to_hub",
        "deepspeed.DeepSpeedEngine": "save_checkpoint save_16bit_model",
        "deepspeed.utils": "log_dist",
        "orbax.checkpoint.CheckpointManager": "save delete",
        "orbax.checkpoint.Checkpointer": "save",
        "orbax.checkpoint.AsyncCheckpointer": "save",
        "orbax.checkpoint.StandardCheckpointer": "save",
        "orbax.checkpoint.PyTreeCheckpointer": "save",
        "torch.distributed.checkpoint": "save async_save save_state_dict",
        "torch_xla.core.xla_model": "save master_print",
        "flax.training.checkpoints": "save_checkpoint_multiprocess",
        "allranks": "print log",
        "allranks.Checkpointer": "save maybe_save",
        "allranks.RankWriter": "__init__ __getattr__ __call__",
    }.items()
    for word in words.split()
)
PRIVATE_PATHS: tuple[str, ...] = ("/dev/null", "/dev/termination-log", "/dev/stdout", "/dev/stderr", "/proc/")
# Folders that are on each node by themselves, so that one process a node may write there.
NODE_LOCAL_PATHS: tuple[str, ...] = ("/tmp", "/dev/shm", "/var/tmp", "/local", "/nvme")  # noqa: S108
# Variables of the environment that lead to such a folder.
NODE_LOCAL_VARIABLES: frozenset[str] = frozenset(
    ["TMPDIR", "TMP", "TEMP", "SLURM_TMPDIR", "LOCAL_SCRATCH", "LOCALSCRATCH", "JOB_TMPDIR", "NVME"]
)
# Methods that a framework calls on one rank alone, by the class (its last name) that a class of the project inherits
# from: the kind of rank that is 0 there.
ON_MAIN_ONLY: Mapping[str, str] = {
    "LightningDataModule.prepare_data": "local",
    "LightningModule.prepare_data": "local",
    "CheckpointIO.save_checkpoint": "global",
    "CheckpointIO.remove_checkpoint": "global",
    "TorchCheckpointIO.save_checkpoint": "global",
    "TorchCheckpointIO.remove_checkpoint": "global",
    "Trainer._save": "global",  # of transformers
    "Seq2SeqTrainer._save": "global",
    "SFTTrainer._save": "global",
}
NAMED_ON_MAIN: frozenset[str] = frozenset(name.rpartition(".")[2] for name in ON_MAIN_ONLY)
# Parameters of functions that are called on rank 0 alone: JAX's checkpoint manager tells it that all have written.
CALLED_ON_MAIN = frozenset({"on_commit_callback"})
