"""Check environment variables: find those that nothing reads, and those that must be equal on all ranks. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allranks.findings import Row, ok, warning
from allranks.names.variables import IMAGES, MEANT, NAMES, PLUGINS, nearest_variable
from allranks.secret_values import mask_variables

# These change the result, or how ranks communicate: they must be equal.
_DECISIVE = ("JAX_", "XLA_", "TORCH_", "NCCL_", "GLOO_", "LIBTPU_", "FLAX_", "NVTE_", "CUBLAS_", "PYTORCH_")
# These change speed and order.
_OTHERS = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NPROC",
    "PJRT_NPROC",
    "TF_",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "HF_",
    "CUDA_",
)
# These are local to a rank or host.
_LOCAL = frozenset(
    [
        *("JAX_PROCESS_INDEX", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_BIND_ADDRESS"),
        *("JAX_SLICE_INDEX", "JAX_PARTITION_INDEX", "JAX_CUDA_VISIBLE_DEVICES", "JAX_ROCM_VISIBLE_DEVICES"),
        *("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_HOSTID"),
        *("NCCL_TOPO_FILE", "NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    ]
)


def unread_row(environ: Mapping[str, str], is_read: Callable[[str], bool]) -> Row:
    """Return a report row with the variables that nothing reads.

    ``is_read(name)`` says whether installed code contains the name; it is called for unknown names. Only names with the
    prefixes of JAX, XLA, torch, NCCL and Gloo are checked.
    """
    found = [name for name in sorted(environ) if _is_unknown(name, environ) and not is_read(name)]
    if not found:
        return ok("environment", "every JAX_, XLA_, TORCH_, NCCL_ and GLOO_ variable is read")
    return warning(
        "environment", f"nothing reads {', '.join(found)}", remedy="; ".join(map(_advice_on_name, found)) + "."
    )


def _is_unknown(name: str, environ: Mapping[str, str]) -> bool:
    if name in ("JAX_PROCESS_COUNT", "JAX_PROCESS_INDEX") and "ALLRANKS_RANK" in environ:
        return False  # `allranks run` sets them, for programs
    known = next((names for prefix, names in NAMES.items() if name.startswith(prefix)), None)
    return known is not None and name not in known and not name.startswith(PLUGINS + IMAGES)


def _advice_on_name(name: str) -> str:
    if name in MEANT:
        return f"for {name}: {MEANT[name]}"
    close = nearest_variable(name)
    return f"did you mean {close}" if close else f"unset {name}, which has no effect"


def decisive_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be equal on all ranks, with their values."""
    return _variables_with_prefixes(environ, _DECISIVE)


def other_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that should be equal on all ranks, with their values."""
    return _variables_with_prefixes(environ, _OTHERS)


def _variables_with_prefixes(environ: Mapping[str, str], prefixes: Iterable[str]) -> dict[str, str]:
    start = tuple(prefixes)
    chosen = {name: environ[name] for name in sorted(environ) if name.startswith(start) and name not in _LOCAL}
    return mask_variables(chosen)
