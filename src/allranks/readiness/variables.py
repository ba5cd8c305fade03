"""Environment variables: which nothing reads, and which must be equal on all ranks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allranks.findings import Row, ok, warning
from allranks.names.variables import IMAGES, MEANT, NAMES, PLUGINS, nearest

# These change what is computed, or how ranks talk: they must be equal.
_DECISIVE = ("JAX_", "XLA_", "TORCH_", "NCCL_", "GLOO_", "LIBTPU_", "FLAX_", "NVTE_", "CUBLAS_", "PYTORCH_")
# These change how fast and in which order.
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
# These are each rank's or host's own.
_OWN = frozenset(
    [
        *("JAX_PROCESS_INDEX", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", "JAX_COORDINATOR_BIND_ADDRESS"),
        *("JAX_SLICE_INDEX", "JAX_PARTITION_INDEX", "JAX_CUDA_VISIBLE_DEVICES", "JAX_ROCM_VISIBLE_DEVICES"),
        *("CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_HOSTID"),
        *("NCCL_TOPO_FILE", "NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    ]
)


def unread(environ: Mapping[str, str], read: Callable[[str], bool]) -> Row:
    """Return which variables nothing reads; ``read`` says whether a name that is not known stands in what is installed.

    Only names with the prefixes of JAX, XLA, torch, NCCL and Gloo are looked at.
    """
    found = [name for name in sorted(environ) if _strange(name, environ) and not read(name)]
    if not found:
        return ok("environment", "every JAX_, XLA_, TORCH_, NCCL_ and GLOO_ variable is read")
    return warning("environment", f"nothing reads {', '.join(found)}", remedy="; ".join(map(_instead, found)) + ".")


def _strange(name: str, environ: Mapping[str, str]) -> bool:
    if name in ("JAX_PROCESS_COUNT", "JAX_PROCESS_INDEX") and "ALLRANKS_RANK" in environ:
        return False  # `allranks run` sets them, for programs
    known = next((names for prefix, names in NAMES.items() if name.startswith(prefix)), None)
    return known is not None and name not in known and not name.startswith(PLUGINS + IMAGES)


def _instead(name: str) -> str:
    if name in MEANT:
        return f"for {name}: {MEANT[name]}"
    close = nearest(name)
    return f"did you mean {close}" if close else f"unset {name}, or nobody will know that it does nothing"


def decisive(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be equal on all ranks."""
    return _chosen(environ, _DECISIVE)


def others(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that had better be equal."""
    return _chosen(environ, _OTHERS)


def _chosen(environ: Mapping[str, str], prefixes: Iterable[str]) -> dict[str, str]:
    start = tuple(prefixes)
    return {name: environ[name] for name in sorted(environ) if name.startswith(start) and name not in _OWN}
