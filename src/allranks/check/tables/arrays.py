"""JAX arrays that lie in parts on the devices of all processes, and the functions that compute with them."""

from __future__ import annotations

# They return a function that runs compiled; with shardings it runs on all devices of a mesh, whatever it is given.
COMPILERS: frozenset[str] = frozenset(
    ["jax.jit", "jax.pmap", "flax.nnx.jit", "flax.nnx.pmap", "equinox.filter_jit", "equinox.filter_pmap"]
)
SHARDED_BY: frozenset[str] = frozenset(["in_shardings", "out_shardings", "in_axis_resources", "out_axis_resources"])
SHARDINGS: frozenset[str] = frozenset(["jax.sharding.NamedSharding", "jax.sharding.PositionalSharding"])
# What says how an array lies on the devices of a mesh, and functions that run on them.
SPECS: frozenset[str] = frozenset(["jax.sharding.PartitionSpec", "jax.P"])
MESHES: frozenset[str] = frozenset(["jax.sharding.Mesh", "jax.make_mesh"])
SHARD_MAPS: frozenset[str] = frozenset(["jax.shard_map", "jax.experimental.shard_map.shard_map"])
MAKERS: tuple[str, ...] = (
    "jax.make_array_from_process_local_data",
    "jax.make_array_from_callback",
    "jax.make_array_from_single_device_arrays",
    "jax.experimental.multihost_utils.host_local_array_to_global_array",
)
# They bring the whole of an array to this host, which fails where it holds a part of it.
FETCHES: frozenset[str] = frozenset(
    [
        *("jax.device_get", "float", "int"),
        *(
            f"numpy.{name}"
            for name in (
                *("asarray", "array", "ascontiguousarray", "copy", "sum", "mean", "min", "max"),
                *("concatenate", "stack", "argmax", "argmin", "isnan", "isfinite", "all", "any", "allclose", "squeeze"),
            )
        ),
    ]
)
TREE_MAPS: frozenset[str] = frozenset(["jax.tree.map", "jax.tree_map", "jax.tree_util.tree_map"])
# What this process can say of such an array alone.
LOCAL_VIEWS: frozenset[str] = frozenset(
    [
        *("addressable_shards", "addressable_data", "is_fully_addressable", "is_fully_replicated", "sharding"),
        *("shape", "dtype", "ndim", "size", "nbytes", "global_shards", "step"),
    ]
)
COMPUTATION = "jit computation"
