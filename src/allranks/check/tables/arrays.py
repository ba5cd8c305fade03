"""JAX arrays that lie in parts on the devices of all processes, and the functions that compute with them."""

from __future__ import annotations

# They return a function that runs compiled; with shardings it runs on all devices of a mesh, whatever it is given.
COMPILERS: frozenset[str] = frozenset(
    ["jax.jit", "jax.pmap", "flax.nnx.jit", "flax.nnx.pmap", "equinox.filter_jit", "equinox.filter_pmap"]
)
SHARDED_BY: frozenset[str] = frozenset(["in_shardings", "out_shardings", "in_axis_resources", "out_axis_resources"])
SHARDINGS: frozenset[str] = frozenset(["jax.sharding.NamedSharding", "jax.sharding.PositionalSharding"])
ON_ONE = "jax.sharding.SingleDeviceSharding"
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
# They put arrays where they are told.
PLACING: frozenset[str] = frozenset(["jax.device_put", "jax.lax.with_sharding_constraint"])
# What they give of a tree of arrays are its arrays, or the same tree.
LEAVES: frozenset[str] = frozenset(
    [
        *("jax.tree.leaves", "jax.tree_leaves", "jax.tree_util.tree_leaves", "flax.traverse_util.flatten_dict"),
        *("jax.block_until_ready", "flax.core.freeze", "flax.core.unfreeze", "flax.serialization.to_state_dict"),
    ]
)
# Methods that run a model on what they are given.
APPLYING: frozenset[str] = frozenset(["apply", "apply_fn"])
# What is there of its own accord as another array, and is computed.
OTHER_VIEWS: frozenset[str] = frozenset(["T", "mT", "real", "imag"])
# Functions that compute at once, outside of compiled ones, by the beginning of their names; not those ``ABOUT`` arrays.
COMPUTING: tuple[str, ...] = ("jax.numpy.", "jax.nn.", "jax.lax.", "jax.scipy.", "optax.", "einops.")
ABOUT: frozenset[str] = frozenset(
    [
        *("shape", "ndim", "size", "dtype", "result_type", "issubdtype", "isscalar", "iscomplexobj", "isrealobj"),
        *("asarray", "array", "with_sharding_constraint", "zeros_like", "ones_like", "empty_like", "full_like"),
    ]
)
METHODS: frozenset[str] = frozenset(
    [
        *("mean", "sum", "min", "max", "std", "var", "prod", "any", "all", "argmax", "argmin", "argsort", "cumsum"),
        *("astype", "reshape", "transpose", "squeeze", "clip", "dot", "ravel", "flatten", "swapaxes", "conj", "trace"),
    ]
)
# Methods of dictionaries of arrays, and of arrays, after which they lie as they did.
TREE_METHODS: frozenset[str] = frozenset(["items", "values", "get", "copy", "block_until_ready"])
FETCHING_METHODS: frozenset[str] = frozenset(["item", "tolist"])
# What they give lies as what they are given does.
ELEMENTWISE: frozenset[str] = frozenset(
    [
        *(
            "astype",
            "clip",
            "conj",
            "abs",
            "absolute",
            "exp",
            "expm1",
            "log",
            "log1p",
            "log2",
            "sqrt",
            "square",
            "sign",
        ),
        *("sin", "cos", "tanh", "negative", "power", "add", "subtract", "multiply", "divide", "true_divide", "mod"),
        *("where", "maximum", "minimum", "isnan", "isfinite", "isinf", "logical_not", "logical_and", "round", "rint"),
        *("relu", "gelu", "silu", "sigmoid", "softplus", "stop_gradient", "equal", "not_equal", "less", "greater"),
    ]
)
# Ops of what all processes compute together: by a compiled function, and one operation at a time.
COMPUTATION, EAGER = "jit computation", "computation on a sharded array"
