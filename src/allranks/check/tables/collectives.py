"""Calls that every process of a group must make, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["call", "attribute", "context"]

# Of the methods of MPI's communicators, those that are called as nothing else is.
OF_MPI = frozenset(["bcast", "Bcast", "Allgather", "Allgatherv", "Allreduce"])
# Classes of which an object is a group of some processes: what its methods call, these meet in.
GROUPS = frozenset(["TorchCollective", "ProcessGroup", "ProcessGroupNCCL", "ProcessGroupGloo"])


@dataclass(frozen=True, slots=True)
class Collective:
    """``pattern`` meets the other processes as ``op``; two roles agree when their sequences of ops are equal.

    ``group``: the parameter that names a sub-group (keyword, or position from 0); without it, all processes meet.
    ``uniform``: what it returns is the same on every rank; ``in_place``: positions of arguments that become the same
    on every rank, or, if it is not ``uniform``, whole on one rank alone. ``unless``: (keyword, constant) under which it
    meets nobody; ``only_if``: it meets somebody only under one of these. ``hidden``: the name does not say that it
    waits for others. ``sharded``: it does so only where a model is in parts (FSDP, ZeRO).
    """

    pattern: str
    op: str
    form: Form = "call"
    group: tuple[str | int, ...] = ()
    uniform: bool = True
    in_place: tuple[int, ...] = ()
    unless: tuple[tuple[str, object], ...] = ()
    only_if: tuple[tuple[str, object], ...] = ()
    hidden: bool = False
    sharded: bool = False


def _of(
    owner: str,
    words: str,
    *,
    hidden: bool = False,
    uniform: bool = True,
    sharded: bool = False,
    group: tuple[str | int, ...] = (),
    fills: str = "broadcast_object_list",
) -> Iterator[Collective]:
    """Yield calls ``owner.word`` that meet as ``word``; those in ``fills`` change their first argument."""
    for word in words.split():
        filled = (0,) if word in fills.split() else ()
        yield Collective(
            f"{owner}.{word}", word, group=group, uniform=uniform, in_place=filled, hidden=hidden, sharded=sharded
        )


def _torch() -> Iterator[Collective]:
    """Yield torch.distributed, positions as in torch 2.13. deepspeed.comm has the same names."""
    for word, group, filled in (
        ("all_reduce", 2, 0),
        ("all_reduce_coalesced", 2, 0),
        ("all_gather", 2, 0),
        ("all_gather_coalesced", 2, 0),
        ("all_gather_into_tensor", 2, 0),
        ("all_gather_single", 2, 0),
        ("all_gather_object", 2, 0),
        ("_all_gather_base", 2, 0),
        ("broadcast", 2, 0),
        ("broadcast_object_list", 2, 0),
    ):
        yield Collective(f"torch.distributed.{word}", word, group=("group", group), in_place=(filled,))
    for word, group in (
        ("reduce_scatter", 3),
        ("reduce_scatter_tensor", 3),
        ("_reduce_scatter_base", 3),
        ("scatter", 3),
        ("scatter_object_list", 3),
        ("gather", 3),
        ("gather_object", 3),
        ("all_to_all", 2),
        ("all_to_all_single", 4),
        ("barrier", 0),
        ("monitored_barrier", 0),
    ):
        yield Collective(f"torch.distributed.{word}", word, group=("group", group), uniform=False)
    yield Collective("torch.distributed.reduce", "reduce", group=("group", 3), uniform=False, in_place=(0,))
    # Every process of the parent group must take part in the making of a group.
    yield Collective("torch.distributed.new_group", "new_group", unless=(("use_local_synchronization", True),))
    yield from _of("torch.distributed", "new_subgroups new_subgroups_by_enumeration split_group shrink_group")
    yield from _of("torch.distributed", "init_process_group")
    yield from _of("torch.distributed", "destroy_process_group", hidden=True)
    yield from _of("torch.distributed.rpc", "init_rpc")
    yield Collective("torch.distributed.device_mesh.init_device_mesh", "init_device_mesh", hidden=True)
    for owner in ("torch.distributed.nn.functional", "torch.distributed.nn"):
        words = "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter"
        yield from _of(owner, words, uniform=False)
    functional = "all_reduce all_gather_tensor broadcast reduce_scatter_tensor all_to_all_single permute_tensor"
    for word in functional.split():
        yield Collective(f"torch.distributed._functional_collectives.{word}", word, group=("group",))


def _torch_hidden() -> Iterator[Collective]:
    """Yield what does not look like a collective: sharded models, DTensor, distributed checkpoints."""
    wrapped = "torch.nn.parallel.DistributedDataParallel"
    fsdp = "torch.distributed.fsdp.FullyShardedDataParallel"
    for owner, op in ((wrapped, "DDP"), (fsdp, "FSDP")):
        yield Collective(owner, f"{op} construction", hidden=True)
        yield Collective(f"{owner}.__call__", f"{op} forward", uniform=False, hidden=True)
        yield Collective(f"{owner}.forward", f"{op} forward", uniform=False, hidden=True)
        yield Collective(f"{owner}.join", f"{op} join", "context", hidden=True)
    yield from (
        Collective(f"torch.distributed.fsdp.FSDPModule.{word}", "FSDP forward", uniform=False, hidden=True)
        for word in ("__call__", "forward")
    )
    sharded = "state_dict load_state_dict optim_state_dict optim_state_dict_to_load full_optim_state_dict"
    yield from _of(fsdp, f"{sharded} sharded_optim_state_dict scatter_full_optim_state_dict", hidden=True)
    yield from _of(fsdp, "shard_full_optim_state_dict rekey_optim_state_dict clip_grad_norm_", hidden=True)
    yield Collective(f"{fsdp}.summon_full_params", "summon_full_params", hidden=True)
    yield Collective("*.summon_full_params", "summon_full_params", hidden=True)
    yield from _of("*", "full_optim_state_dict scatter_full_optim_state_dict consolidate_state_dict", hidden=True)
    yield from _of("torch.distributed.optim.ZeroRedundancyOptimizer", "consolidate_state_dict", hidden=True)
    yield from _of("torch.distributed.tensor.DTensor", "full_tensor redistribute", hidden=True)
    yield from _of("torch.distributed.tensor", "distribute_tensor distribute_module", hidden=True)
    yield from _of("*", "full_tensor", hidden=True)
    saved = "torch.distributed.checkpoint"
    for word in ("save", "async_save", "load", "save_state_dict", "load_state_dict"):
        yield Collective(f"{saved}.{word}", f"checkpoint {word}", unless=(("no_dist", True),), hidden=True)
    full = "get_model_state_dict get_optimizer_state_dict get_state_dict"
    yield from _of(f"{saved}.state_dict", full, hidden=True, sharded=True)
    given = "set_model_state_dict set_optimizer_state_dict set_state_dict"
    yield from _of(f"{saved}.state_dict", given, hidden=True)
    yield Collective("torch.distributed.algorithms.join.Join", "join", "context", hidden=True)
    yield Collective("torch.distributed.algorithms.Join", "join", "context", hidden=True)


def _jax() -> Iterator[Collective]:
    hosts = "jax.experimental.multihost_utils"
    yield Collective(f"{hosts}.sync_global_devices", "sync_global_devices")
    yield from _of(hosts, "broadcast_one_to_all process_allgather assert_equal")
    yield Collective(f"{hosts}.live_devices", "live_devices", "context")
    # Not shutdown: it waits for the others' end, and every process comes to its own.
    yield from _of("jax.distributed", "initialize")
    yield from _of("*", "wait_at_barrier sync_global_devices process_allgather broadcast_one_to_all")
    # Orbax meets in the constructor of its CheckpointManager too: the directory is made by one, and awaited by all.
    owner = "orbax.checkpoint.CheckpointManager"
    yield Collective(owner, "CheckpointManager", hidden=True)
    yield from _of(owner, "save delete reload", hidden=True)
    yield from _of(owner, "restore wait_until_finished close", hidden=True, uniform=False)
    for name in ("Checkpointer", "AsyncCheckpointer", "PyTreeCheckpointer", "StandardCheckpointer"):
        for word in ("save", "restore"):
            yield Collective(f"orbax.checkpoint.{name}.{word}", f"checkpoint {word}", hidden=True)
    yield from _of("flax.training.checkpoints", "save_checkpoint_multiprocess", hidden=True)


def _lightning() -> Iterator[Collective]:
    for owner in ("lightning.fabric.Fabric", "lightning.pytorch.strategies.Strategy"):
        yield from _of(owner, "barrier broadcast all_gather all_reduce reduce reduce_boolean_decision")
    fabric = "lightning.fabric.Fabric"
    yield from _of(fabric, "save load save_checkpoint", hidden=True)
    yield from _of(fabric, "clip_gradients", hidden=True)
    trainer = "lightning.pytorch.Trainer"
    yield from _of(trainer, "save_checkpoint fit validate test predict", hidden=True)
    # It fits where it is made, unless it is told to run nothing.
    yield Collective("lightning.pytorch.LightningCLI", "fit", hidden=True, unless=(("run", False),))
    for word in ("callback_metrics", "logged_metrics", "progress_bar_metrics"):
        yield Collective(f"{trainer}.{word}", word, "attribute", hidden=True)
    for word in ("barrier", "broadcast", "all_gather", "reduce", "reduce_boolean_decision"):
        yield Collective(f"{trainer}.strategy.{word}", word)
    for word in ("save_checkpoint", "lightning_module_state_dict", "optimizer_state"):
        yield Collective(f"{trainer}.strategy.{word}", word, hidden=True)
    module = "lightning.pytorch.LightningModule"
    yield from _of(module, "all_gather")
    for word in ("log", "log_dict"):
        asked, alone = (("sync_dist", True),), (("rank_zero_only", True),)
        yield Collective(f"{module}.{word}", f"{word} (sync_dist)", only_if=asked, unless=alone, hidden=True)


def _accelerate() -> Iterator[Collective]:
    owner = "accelerate.Accelerator"
    yield from _of(owner, "wait_for_everyone gather gather_for_metrics reduce pad_across_processes check_trigger")
    # Under plain DDP each of these works alone: random numbers of the others are lost, and nobody waits.
    yield from _of(owner, "save_state load_state save_model get_state_dict clip_grad_norm_", hidden=True, sharded=True)
    yield from _of(owner, "prepare prepare_model backward end_training", hidden=True, uniform=False)
    for word in ("__call__", "forward"):
        name = f"accelerate.PreparedModel.{word}"
        yield Collective(name, "FSDP forward", uniform=False, hidden=True, sharded=True)
    yield from _of("accelerate.PartialState", "wait_for_everyone")
    yield from _of("accelerate.AcceleratorState", "wait_for_everyone")
    words = "gather gather_object broadcast broadcast_object_list reduce pad_across_processes wait_for_everyone"
    yield from _of("accelerate.utils", words)
    yield from _of("*", "wait_for_everyone gather_for_metrics pad_across_processes")


def _transformers() -> Iterator[Collective]:
    owner = "transformers.Trainer"
    yield from _of(owner, "train evaluate predict", hidden=True)
    # Under plain DDP these save on one rank, and nobody waits.
    yield from _of(owner, "save_model _save_checkpoint", hidden=True, sharded=True)


def _deepspeed() -> Iterator[Collective]:
    yield Collective("deepspeed.initialize", "deepspeed.initialize", hidden=True)
    yield Collective("deepspeed.init_distributed", "init_distributed")
    owner = "deepspeed.DeepSpeedEngine"
    yield from _of(owner, "save_checkpoint load_checkpoint save_16bit_model save_fp16_model", hidden=True)
    yield from _of(owner, "step", hidden=True, uniform=False)
    for word, what in (("backward", "backward"), ("__call__", "forward"), ("forward", "forward")):
        yield Collective(f"{owner}.{word}", f"engine {what}", uniform=False, hidden=True)
    gathered = (("enabled", False),)
    yield Collective("deepspeed.zero.GatheredParameters", "GatheredParameters", unless=gathered, hidden=True)
    for kind in ("_zero3_consolidated_16bit_state_dict", "_consolidated_16bit_state_dict"):
        yield Collective(f"*.{kind}", "consolidated state dict", hidden=True)
    for word in ("fp32_param", "grad", "optimizer_state"):
        yield from _of("deepspeed.utils", f"safe_get_full_{word} safe_set_full_{word}", hidden=True)


def _megatron() -> Iterator[Collective]:
    yield from _of("megatron.training.checkpointing", "save_checkpoint load_checkpoint", hidden=True)
    yield from _of("megatron.checkpointing", "save_checkpoint load_checkpoint", hidden=True)
    for word in ("save", "load"):
        yield Collective(f"megatron.core.dist_checkpointing.{word}", f"checkpoint {word}", hidden=True)
    yield from _of("megatron.core.parallel_state", "initialize_model_parallel", hidden=True)


def _mpi() -> Iterator[Collective]:
    """Yield the methods of MPI's communicators: with a capital, they fill a buffer that they are given."""
    for owner in ("mpi4py.MPI.COMM_WORLD", "mpi4py.MPI.Comm"):
        yield from _of(owner, "bcast allgather allreduce barrier Barrier Split Create")
        yield from _of(owner, "gather scatter reduce alltoall scan exscan", uniform=False)
        yield from _of(owner, "Gather Gatherv Scatter Scatterv Reduce Reduce_scatter Alltoall Alltoallv", uniform=False)
        for word in OF_MPI - {"bcast"}:
            yield Collective(f"{owner}.{word}", word, in_place=(0 if word == "Bcast" else 1,))


def _others() -> Iterator[Collective]:
    words = "allreduce allreduce_ grouped_allreduce allgather allgather_object broadcast broadcast_ broadcast_object"
    yield from _of("horovod", f"{words} broadcast_parameters broadcast_optimizer_state alltoall barrier join init")
    for word in ("step", "synchronize"):
        yield Collective(f"horovod.DistributedOptimizer.{word}", f"allreduce in {word}", uniform=False, hidden=True)
    yield from _of("bmtrain", "synchronize sum_loss init_distributed")
    yield from _of("bmtrain", "save load", hidden=True)
    yield from _mpi()
    xla = "torch_xla.core.xla_model"
    yield from _of(xla, "rendezvous all_reduce all_gather all_to_all mesh_reduce reduce_scatter collective_broadcast")
    yield from _of(xla, "optimizer_step", hidden=True)
    yield Collective(f"{xla}.save", "rendezvous", hidden=True)
    dist = "barrier broadcast broadcast_object_list all_reduce all_gather all_gather_object all_gather_dict gather"
    of_some = ("group",)
    in_place = "broadcast broadcast_object_list all_reduce"
    yield from _of("mmengine.dist", dist, group=of_some, fills=in_place)
    yield from _of("mmengine.dist", "collect_results collect_results_cpu collect_results_gpu sync_random_seed")
    yield from _of("composer.utils.dist", dist, group=of_some, fills=in_place)
    yield from _of("composer.utils.dist", "initialize_dist")
    yield from _of("composer.Trainer", "fit eval predict", hidden=True)
    for owner in ("fairseq.distributed_utils", "fairseq.distributed.utils"):
        words = "all_reduce all_gather all_gather_list all_reduce_dict broadcast broadcast_object broadcast_tensors"
        yield from _of(owner, words)
    yield from _of("fairseq.checkpoint_utils", "save_checkpoint load_checkpoint", hidden=True, uniform=False)
    # Each report waits for that of all other workers.
    yield from _of("ray.train", "report", hidden=True)
    yield from _of("ray.air.session", "report", hidden=True)
    yield from _of("detectron2.utils.comm", "synchronize gather all_gather reduce_dict shared_random_seed")
    yield from _of("torchmetrics.Metric", "compute", hidden=True)
    words = "all_reduce all_gather broadcast reduce scatter barrier"
    yield from _of("paddle.distributed", words, group=of_some, fills=f"{in_place} all_gather")
    # A receiver of which nothing is known, as a library's copy of torch.distributed: these names mean nothing else.
    words = "barrier all_reduce allreduce all_gather allgather reduce_scatter broadcast_object_list"
    yield from _of("*", words, group=of_some)
    words = "all_gather_object gather_object broadcast_object all_gather_into_tensor monitored_barrier"
    yield from _of("*", words, group=of_some)
    yield from _of("*", "reduce_boolean_decision sync_random_seed shared_random_seed collect_results_cpu")


def _ours() -> Iterator[Collective]:
    """Yield the calls of allranks that every rank must make. ``gate`` and ``verify`` exchange over a store."""
    yield from _of("allranks.World", "barrier broadcast all_gather gather any all min max agree on_main exchange")
    yield from _of("allranks", "init collective verify preflight", hidden=True)
    yield from _of("allranks.Checkpointer", "save maybe_save restore close", hidden=True)


COLLECTIVES: tuple[Collective, ...] = (
    *_torch(),
    *_torch_hidden(),
    *_jax(),
    *_lightning(),
    *_accelerate(),
    *_transformers(),
    *_deepspeed(),
    *_megatron(),
    *_others(),
    *_ours(),
)
