"""Expressions that tell one process from another, and those that tell whether there are others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["global", "local", "node", "group", "size", "many", "run"]
Form: TypeAlias = Literal["call", "attribute", "environment", "decorator", "name"]


@dataclass(frozen=True, slots=True)
class RankQuery:
    """``pattern`` gives a rank of ``kind``, the world's ``size``, or whether there are ``many`` processes (a truth).
    ``run``: an experiment tracker's run: where the project starts it, it may be there on rank 0 alone.

    ``first`` and ``last``: it is a truth, "I am the first (last) of them". ``form``: how it stands in code; an
    ``environment`` pattern is the variable's name, a ``decorator`` lets only that rank run the function (elsewhere the
    call returns None), a ``name`` is a bare variable or parameter that nothing in the project explains.
    """

    pattern: str
    kind: Kind
    form: Form = "call"
    first: bool = False
    last: bool = False


def _each(words: str, kind: Kind, form: Form = "call", *, first: bool = False, last: bool = False) -> list[RankQuery]:
    return [RankQuery(word, kind, form, first, last) for word in words.split()]


def _of(owner: str, words: str, kind: Kind, form: Form = "call", *, first: bool = False) -> list[RankQuery]:
    return [RankQuery(f"{owner}.{word}", kind, form, first) for word in words.split()]


def _first(owner: str, form: Form) -> Iterator[RankQuery]:
    """Yield the names under which projects keep, or ask, whether this is rank 0: ``is_main_process``,
    ``is_local_root_worker``. A word that trees and lists have too needs one that says what it is the first of."""
    of = ("process", "proc", "rank", "worker", "ordinal", "host", "device")
    alone = (
        "data_parallel_master",
        "dp_master",
        "main",
        "master",
        "chief",
        "coordinator",
        "leader",
        "rank0",
        "rank_0",
        "rank_zero",
        "zero_rank",
    )
    zero = ("global_zero", "world_zero", "global_rank_zero", "world_process_zero", "process_zero", "process_0")
    of_what = ("main", "master", "chief", "primary", "coordinator", "root", "lead", "leader", "head", "first", "zero")
    for word in (*alone, *zero, *(f"{word}_{what}" for word in of_what for what in of)):
        for begin in ("is_", "is_global_", "if_", "am_i_"):
            yield RankQuery(f"{owner}{begin}{word}", "global", form, first=True)
        yield RankQuery(f"{owner}is_local_{word}", "local", form, first=True)
    yield from _each(f"{owner}is_local_zero {owner}is_local_process_zero", "local", form, first=True)
    if form != "call":
        for word in ("main", "master", "chief", "primary", "root"):
            yield RankQuery(f"{owner}{word}_process", "global", form, first=True)


def _telling(form: Form) -> Iterator[RankQuery]:
    """Yield the names of the one rank that tells people how it goes: ``is_logging_rank``, ``is_wandb_process``."""
    does = "log logging logger print printing save saving write writing wandb report reporting io output tensorboard"
    for word in does.split():
        for what in ("rank", "process", "proc", "worker"):
            yield RankQuery(f"{'' if form == 'name' else '*.'}is_{word}_{what}", "global", form, first=True)


def _parallel(owner: str, form: Form) -> Iterator[RankQuery]:
    """Yield the names of a rank in a sub-group: ``tp_rank``, ``data_parallel_rank``, ``pp_is_last_stage``."""
    short = "tp dp pp cp ep sp mp fsdp hsdp edp etp cdp"
    of = "data tensor model pipeline pipe context sequence expert tensor_model pipeline_model replica stage"
    for word in (*short.split(), *of.split()):
        for what in ("rank", "parallel_rank", "group_rank"):
            yield RankQuery(f"{owner}{word}_{what}", "group", form)
    for stage in ("pp_is_first_stage", "pp_is_last_stage", "is_pp_first_stage", "is_pp_last_stage"):
        yield RankQuery(f"{owner}{stage}", "group", form, first=True)


def _only() -> Iterator[RankQuery]:
    """Yield what decorators are called that let rank 0 alone run a function."""
    words = "rank_zero rank0 rank_0 zero_rank main_process main_rank main master_process master_rank master"
    yield from (
        RankQuery(f"*.{word}", "global", "decorator", first=True) for word in ("one_rank_only", "run_on_one_rank")
    )
    for word in (*words.split(), "root", "root_rank", "chief", "global_zero", "primary"):
        for shape in ("{}_only", "only_{}", "only_on_{}", "on_{}", "on_{}_only", "run_on_{}", "run_on_{}_only"):
            yield RankQuery(f"*.{shape.format(word)}", "global", "decorator", first=True)


# Settings that say that there are several processes.
_SEVERAL = " ".join(
    (
        "distributed is_distributed use_distributed use_ddp is_ddp ddp",
        "distributed_data_parallel multiprocessing_distributed",
    )
)
_MANY_DEVICES = " ".join(
    (
        "gpus num_gpus n_gpus n_gpu ngpus ngpu nprocs nproc num_procs n_procs ngpus_per_node num_gpus_per_node",
        "n_devices num_devices",
    )
)
_MPU = "megatron.core.parallel_state"
_PARALLEL = "data tensor_model pipeline_model context expert_model expert_tensor expert_data model"

QUERIES: tuple[RankQuery, ...] = (
    # JAX. A device's index inside shard_map (lax.axis_index) is no rank: all processes run the same program.
    *_each("jax.process_index", "global"),
    *_each("jax.distributed.global_state.process_id", "global", "attribute"),
    *_each("jax.process_count jax.device_count jax.local_device_count", "size"),
    *_each("jax.distributed.global_state.num_processes", "size", "attribute"),
    *_each("jax.distributed.is_initialized", "many"),
    # torch
    *_of("torch.distributed", "get_rank group.WORLD.rank", "global"),
    *_of("torch.distributed", "get_node_local_rank", "local"),
    *_of("torch.distributed", "get_group_rank", "group"),
    *_each("torch.cuda.current_device torch.accelerator.current_device_index", "local"),
    *_of("torch.distributed", "get_world_size group.WORLD.size", "size"),
    *_of("torch.distributed", "is_initialized is_available is_torchelastic_launched", "many"),
    *_of("torch.distributed.device_mesh.DeviceMesh", "get_local_rank get_coordinate get_rank", "group"),
    *_of("torch.distributed.device_mesh.DeviceMesh", "size", "size"),
    *_each("torch.cuda.device_count", "size"),
    # Launchers
    *_each("RANK SLURM_PROCID OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK MV2_COMM_WORLD_RANK", "global", "environment"),
    *_each("TPU_WORKER_ID CLOUD_TPU_TASK_ID JAX_PROCESS_ID JAX_PROCESS_INDEX ALLRANKS_RANK", "global", "environment"),
    *_each("LOCAL_RANK SLURM_LOCALID OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID", "local", "environment"),
    *_each("MV2_COMM_WORLD_LOCAL_RANK PMI_LOCAL_RANK ALLRANKS_LOCAL_RANK", "local", "environment"),
    *_each("HOROVOD_RANK JSM_NAMESPACE_RANK PALS_RANKID PADDLE_TRAINER_ID", "global", "environment"),
    *_each("HOROVOD_LOCAL_RANK JSM_NAMESPACE_LOCAL_RANK PALS_LOCAL_RANKID", "local", "environment"),
    *_each(
        "GROUP_RANK NODE_RANK SLURM_NODEID OMPI_COMM_WORLD_NODE_RANK HOSTNAME SLURMD_NODENAME", "node", "environment"
    ),
    *_each("WORLD_SIZE SLURM_NTASKS SLURM_NPROCS OMPI_COMM_WORLD_SIZE PMI_SIZE", "size", "environment"),
    *_each("TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS", "many", "environment"),
    *_each("MASTER_ADDR MASTER_PORT COORDINATOR_ADDRESS JAX_COORDINATOR_ADDRESS", "many", "environment"),
    *_each("LOCAL_WORLD_SIZE SLURM_NNODES SLURM_JOB_NUM_NODES ALLRANKS_WORLD_SIZE", "size", "environment"),
    *_each("socket.gethostname platform.node os.uname", "node"),
    # Trackers
    *_each("wandb.run", "run", "attribute"),
    *_each("mlflow.active_run", "run"),
    # Lightning and Fabric
    *_of("lightning.pytorch.Trainer", "global_rank", "global", "attribute"),
    *_of("lightning.pytorch.Trainer", "is_global_zero", "global", "attribute", first=True),
    *_of("lightning.pytorch.Trainer", "local_rank", "local", "attribute"),
    *_of("lightning.pytorch.Trainer", "node_rank", "node", "attribute"),
    *_of("lightning.pytorch.Trainer", "world_size num_nodes num_devices", "size", "attribute"),
    *_of("lightning.pytorch.LightningModule", "global_rank", "global", "attribute"),
    *_of("lightning.pytorch.LightningModule", "local_rank", "local", "attribute"),
    *_of("lightning.fabric.Fabric", "global_rank", "global", "attribute"),
    *_of("lightning.fabric.Fabric", "is_global_zero", "global", "attribute", first=True),
    *_of("lightning.fabric.Fabric", "local_rank", "local", "attribute"),
    *_of("lightning.fabric.Fabric", "node_rank", "node", "attribute"),
    *_of("lightning.fabric.Fabric", "world_size", "size", "attribute"),
    *_each("*.is_global_zero *.should_rank_save_checkpoint", "global", "attribute", first=True),
    *_each("*.global_rank", "global", "attribute"),
    *_each("*.node_rank", "node", "attribute"),
    *_each("*.rank_zero_only", "global", "decorator", first=True),
    *_each("lightning.pytorch.utilities.rank_zero_only rank_zero_only", "global", "decorator", first=True),
    *_each("lightning.pytorch.utilities.rank_zero_only.rank rank_zero_only.rank", "global", "attribute"),
    # Accelerate
    *[
        query
        for owner in ("accelerate.Accelerator", "accelerate.PartialState", "accelerate.AcceleratorState")
        for query in (
            *_of(owner, "is_main_process", "global", "attribute", first=True),
            RankQuery(f"{owner}.is_last_process", "global", "attribute", last=True),
            *_of(owner, "is_local_main_process", "local", "attribute", first=True),
            *_of(owner, "process_index", "global", "attribute"),
            *_of(owner, "local_process_index", "local", "attribute"),
            *_of(owner, "num_processes", "size", "attribute"),
            *_of(owner, "use_distributed", "many", "attribute"),
            *_of(owner, "on_main_process", "global", "decorator", first=True),
            *_of(owner, "on_local_main_process", "local", "decorator", first=True),
            *_of(owner, "on_process on_last_process", "global", "decorator"),
            *_of(owner, "on_local_process", "local", "decorator"),
            *_of(owner, "tensor_parallel_rank pipeline_parallel_rank", "group", "attribute"),
            *_of(owner, "context_parallel_rank data_parallel_rank data_parallel_shard_rank", "group", "attribute"),
        )
    ],
    *_each("*.process_index", "global", "attribute"),
    *_each("*.local_process_index", "local", "attribute"),
    *_each("*.num_processes", "size", "attribute"),
    *_each("*.on_local_main_process", "local", "decorator", first=True),
    # transformers
    *_each("*.is_world_process_zero", "global", "attribute", first=True),
    *_each("transformers.Trainer.is_world_process_zero *.is_world_process_zero", "global", first=True),
    *_each("transformers.Trainer.is_local_process_zero *.is_local_process_zero", "local", first=True),
    *_each("*.is_local_process_zero", "local", "attribute", first=True),
    *_of("transformers.TrainingArguments", "should_save should_log", "global", "attribute", first=True),
    *_of("transformers.TrainingArguments", "process_index", "global", "attribute"),
    *_of("transformers.TrainingArguments", "local_rank local_process_index", "local", "attribute"),
    *_of("transformers.TrainingArguments", "world_size n_gpu", "size", "attribute"),
    # DeepSpeed
    *_of("deepspeed.DeepSpeedEngine", "global_rank", "global", "attribute"),
    *_of("deepspeed.DeepSpeedEngine", "local_rank", "local", "attribute"),
    *_of("deepspeed.DeepSpeedEngine", "world_size", "size", "attribute"),
    # Megatron: a rank in a sub-group, and whether it is the first stage
    *[
        query
        for owner in (_MPU, "*")
        for query in (
            *_of(owner, " ".join(f"get_{word}_parallel_rank" for word in _PARALLEL.split()), "group"),
            *_of(owner, " ".join(f"get_{word}_parallel_world_size" for word in _PARALLEL.split()), "size"),
            *_of(owner, "get_tensor_model_parallel_src_rank get_data_parallel_src_rank", "group"),
            *_of(owner, "is_pipeline_first_stage is_pipeline_last_stage", "group", first=True),
        )
    ],
    *_each("*.get_tp_rank *.get_pp_rank *.get_dp_rank *.get_cp_rank *.get_ep_rank *.get_sp_rank", "group"),
    *_each("*.get_dp_local_rank *.get_tp_local_rank", "group"),
    # Composer, mmengine, detectron2, fairseq, SpeechBrain, MPI, Horovod, torch_xla
    *_of("composer.utils.dist", "get_global_rank", "global"),
    *_of("composer.utils.dist", "get_local_rank", "local"),
    *_of("composer.utils.dist", "get_node_rank", "node"),
    *_of("composer.utils.dist", "get_world_size get_local_world_size", "size"),
    *_of("mmengine.dist", "get_rank", "global"),
    *_of("mmengine.dist", "get_dist_info", "global"),
    *_of("mmengine.dist", "get_local_rank", "local"),
    *_of("mmengine.dist", "is_main_process", "global", first=True),
    *_of("mmengine.dist", "master_only", "global", "decorator", first=True),
    *_of("mmengine.dist", "get_world_size", "size"),
    *_of("mmengine.dist", "is_distributed", "many"),
    *_of("detectron2.utils.comm", "get_rank", "global"),
    *_of("detectron2.utils.comm", "get_local_rank", "local"),
    *_of("detectron2.utils.comm", "is_main_process", "global", first=True),
    *_of("detectron2.utils.comm", "get_world_size", "size"),
    *_of("fairseq.distributed.utils", "is_master", "global", first=True),
    *_of("fairseq.distributed.utils", "get_rank get_global_rank get_data_parallel_rank", "global"),
    *_of("speechbrain.utils.distributed", "if_main_process", "global", first=True),
    *_of("speechbrain.utils.distributed", "main_process_only", "global", "decorator", first=True),
    *_each("mpi4py.MPI.COMM_WORLD.Get_rank mpi4py.MPI.Comm.Get_rank *.Get_rank", "global"),
    *_each("mpi4py.MPI.COMM_WORLD.rank mpi4py.MPI.Comm.rank", "global", "attribute"),
    *_each("mpi4py.MPI.COMM_WORLD.Get_size mpi4py.MPI.Comm.Get_size *.Get_size", "size"),
    *_of("horovod", "rank", "global"),
    *_of("horovod", "local_rank", "local"),
    *_of("horovod", "cross_rank", "node"),
    *_of("horovod", "size local_size", "size"),
    *_of("bmtrain", "rank", "global"),
    *_of("bmtrain", "world_size", "size"),
    *_of("torch_xla.core.xla_model", "get_ordinal", "global"),
    *_of("torch_xla.core.xla_model", "get_local_ordinal", "local"),
    *_of("torch_xla.core.xla_model", "is_master_ordinal", "global", first=True),
    *_of("torch_xla.core.xla_model", "xrt_world_size", "size"),
    *_of("torch_xla.runtime", "global_ordinal process_index", "global"),
    *_of("torch_xla.runtime", "local_ordinal", "local"),
    *_of("torch_xla.runtime", "world_size process_count", "size"),
    *_of("paddle.distributed", "get_rank", "global"),
    *_of("paddle.distributed", "get_world_size", "size"),
    *_of("oneflow.env", "get_rank", "global"),
    # allranks
    *_of("allranks.World", "rank", "global", "attribute"),
    *_of("allranks.World", "is_main", "global", "attribute", first=True),
    *_of("allranks.World", "local_rank", "local", "attribute"),
    *_of("allranks.World", "host", "node", "attribute"),
    *_of("allranks.World", "size hosts", "size", "attribute"),
    # What nothing in the project explains is taken at its word.
    *_each("*.rank", "global", "attribute"),
    *_each("*.local_rank", "local", "attribute"),
    *_each("*.world_size", "size", "attribute"),
    *_each("*.world_rank *.dist_rank *.ddp_rank *.process_rank *.proc_rank *.mpi_rank", "global", "attribute"),
    *_each("rank global_rank world_rank dist_rank ddp_rank process_rank proc_rank mpi_rank", "global", "name"),
    *_each("process_index process_id host_id proc_id", "global", "name"),
    *_each("local_rank", "local", "name"),
    *_each(_SEVERAL, "many", "name"),
    *_each(" ".join(f"*.{word}" for word in _SEVERAL.split()), "many", "attribute"),
    *_each("node_rank", "node", "name"),
    *_each("world_size", "size", "name"),
    *_each("*.get_rank *.get_global_rank *.get_process_index *.safe_get_rank *.get_rank_safe", "global"),
    *_each("*.get_world_rank *.get_dist_rank *.get_process_rank *.get_distributed_rank *.get_rank_id", "global"),
    *_each("*.get_local_rank", "local"),
    *_each("*.get_node_rank", "node"),
    *_each("*.rank", "global"),
    *_each("*.local_rank", "local"),
    *_parallel("*.", "attribute"),
    *_parallel("", "name"),
    *_telling("call"),
    *_telling("attribute"),
    *_telling("name"),
    # How many devices there are, of which each has its process.
    *_each(" ".join(f"*.{word}" for word in _MANY_DEVICES.split()), "size", "attribute"),
    *_each(_MANY_DEVICES, "size", "name"),
    *_each("*.get_world_size", "size"),
    *_each("*.is_primary *.is_logging_process", "global", first=True),
    *_first("*.", "call"),
    *_first("*.", "attribute"),
    *_first("", "name"),
    *_only(),
    *_each("*.is_last_rank", "global", last=True),
    *_each("*.is_dist_avail_and_initialized *.is_distributed *.is_dist_initialized", "many"),
)

# Calls that start a tracker's run.
RUN_STARTS = frozenset({"init", "start_run"})
# Classes that call the function they are given beside the program.
BESIDE = frozenset({"Process", "Thread"})
# Classes whose `start` begins to `run`.
BEGUN = frozenset({"threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process"})
# Receivers of `get_local_rank` that are meshes of devices, or one dimension of them: it is the place in that.
OF_MESH = re.compile(r"(?i)mesh|(^|[._])(dp|fsdp|hsdp|tp|pp|cp|sp|ep)(_?(group|dim|rank))?\b")
