"""When a framework reads its settings and starts its devices: order of calls at start-up."""

from __future__ import annotations

from allranks.names.variables import NAMES

# Any of these starts JAX's backend: after it jax.distributed.initialize raises, and XLA_FLAGS are read no more.
# (Measured with jax 0.10.2: defining a jit does not, asking for a device or making an array does.)
JAX_STARTERS: frozenset[str] = frozenset(
    f"jax.{word}"
    for word in (
        *("devices", "local_devices", "device_count", "local_device_count", "process_index", "process_count"),
        *("process_indices", "default_backend", "device_put", "device_get", "live_arrays"),
        *("random.PRNGKey", "random.key", "random.split", "random.normal", "random.uniform", "random.fold_in"),
        *("make_mesh", "experimental.mesh_utils.create_device_mesh", "print_environment_info"),
        *("host_id", "host_count", "lib.xla_bridge.get_backend", "extend.backend.get_backend"),
        *("experimental.multihost_utils.sync_global_devices", "experimental.multihost_utils.process_allgather"),
    )
)
# Functions of jax.numpy that make an array, so start the backend.
JAX_ARRAYS: frozenset[str] = frozenset(
    f"jax.numpy.{word}" for word in ("array", "asarray", "zeros", "ones", "full", "arange", "linspace", "eye", "empty")
)
JAX_JOINS = "jax.distributed.initialize"
# JAX takes its options from the environment when it is imported; these it asks for when processes join.
AT_JOINING = frozenset(
    [
        *("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_COORDINATOR_BIND_ADDRESS", "JAX_LOCAL_DEVICE_IDS"),
        *("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT", "JAX_PROCESS_INDEX", "JAX_SLICE_INDEX"),
        *("JAX_PARTITION_INDEX", "JAX_DISTRIBUTED_DEBUG"),
    ]
)
AT_START = frozenset(["XLA_FLAGS", "LIBTPU_INIT_ARGS"]) | {n for n in NAMES["XLA_"] if "PYTHON_CLIENT" in n}
# They give the process its GPU, too.
_STARTS = ("accelerate.Accelerator", "accelerate.PartialState", "deepspeed.initialize")
_JOINS = frozenset(["torch.distributed.init_process_group", "deepspeed.init_distributed", *_STARTS])
READ_BY: dict[str, tuple[frozenset[str], str]] = {
    **dict.fromkeys(AT_START, (JAX_STARTERS | JAX_ARRAYS, "JAX's backend has read it")),
    **dict.fromkeys(
        ["MASTER_ADDR", "MASTER_PORT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE"],
        (_JOINS, "the process group has read it"),
    ),
    "CUDA_VISIBLE_DEVICES": (
        frozenset(
            [
                *("torch.cuda.set_device", "torch.cuda.init", "torch.cuda.current_device", "torch.cuda.synchronize"),
                *("torch.cuda.get_device_properties", "torch.cuda.get_device_name", "torch.cuda.mem_get_info"),
                *("jax.devices", "jax.device_count", "jax.local_devices", "jax.local_device_count", *_STARTS),
            ]
        ),
        "CUDA has read it",
    ),
}
# The calls before or after which it matters what a program has done.
WATCHED = frozenset({JAX_JOINS}).union(*(READ_BY[name][0] for name in (*AT_START, "CUDA_VISIBLE_DEVICES")))
