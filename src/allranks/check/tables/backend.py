"""When a framework reads its settings and starts its devices: order of calls at start-up."""

from __future__ import annotations

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
