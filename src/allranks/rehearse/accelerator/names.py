"""Tables of the accelerator that the CPU replaces: mapped names, properties of a device, modules that need a GPU.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

# Functions of torch that make a tensor on their argument ``device``; the second table has those that draw numbers.
FACTORIES = (
    *("empty", "empty_permuted", "empty_strided", "zeros", "ones", "full", "eye", "arange", "range", "linspace"),
    *("logspace", "tensor", "as_tensor", "asarray", "scalar_tensor", "tril_indices", "triu_indices"),
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
    *("sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor", "sparse_csc_tensor"),
    *("sparse_bsr_tensor", "sparse_bsc_tensor", "empty_like", "zeros_like", "ones_like", "full_like"),
    *("fft.fftfreq", "fft.rfftfreq", "nested.nested_tensor"),
)
RANDOM_FACTORIES = ("rand", "randn", "randint", "randperm", "normal")
RANDOM_LIKE = ("rand_like", "randn_like", "randint_like")
# Methods of tensors with an argument ``device``.
METHODS = ("to", "new_tensor", "new_empty", "new_empty_strided", "new_full", "new_zeros", "new_ones")

# The answers of torch.cuda: those of an A100, for which no program takes a path of one GPU alone.
NAME = "NVIDIA A100-SXM4-80GB"
CAPABILITY = (8, 0)
MEMORY = 80 << 30
PROPERTIES = {
    "name": NAME,
    "major": CAPABILITY[0],
    "minor": CAPABILITY[1],
    "total_memory": MEMORY,
    "multi_processor_count": 108,
    "max_threads_per_multi_processor": 2048,
    "warp_size": 32,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 166912,
    "shared_memory_per_multiprocessor": 167936,
    "L2_cache_size": 40 << 20,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "gcnArchName": NAME,
}
CUDA_VERSION, CUDNN_VERSION, NCCL_VERSION = "12.8", 91002, (2, 27, 5)

# Functions of torch.cuda that return the same value whatever they are called with, by the module that has them.
CONSTANTS: dict[str, dict[str, object]] = {
    "torch.cuda": {
        **dict.fromkeys(["is_bf16_supported", "is_tf32_supported", "can_device_access_peer"], True),
        **dict.fromkeys(["init", "_lazy_init", "synchronize", "ipc_collect", "set_sync_debug_mode", "_sleep"]),
        **dict.fromkeys(["utilization", "temperature", "power_draw", "clock_rate", "memory_usage"], 0),
        **dict.fromkeys(["get_sync_debug_mode"], 0),
        "get_device_name": NAME,
        "get_device_capability": CAPABILITY,
        "get_arch_list": ["sm_80"],
        "get_gencode_flags": "-gencode compute=compute_80,code=sm_80",
    },
    "torch.cuda.memory": {
        **dict.fromkeys(["empty_cache", "set_per_process_memory_fraction", "reset_peak_memory_stats"]),
        **dict.fromkeys(["reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"]),
        **dict.fromkeys(["_record_memory_history", "_dump_snapshot"]),
        **dict.fromkeys(["memory_summary", "list_gpu_processes"], "(a rehearsal: the memory is that of the CPU)"),
        "memory_snapshot": [],
        "_snapshot": {"segments": [], "device_traces": []},
        "get_allocator_backend": "native",
        "get_per_process_memory_fraction": 1.0,
    },
    "torch.cuda.graphs": {"is_current_stream_capturing": False, "graph_pool_handle": (0, 0)},
    "torch.cuda.nvtx": dict.fromkeys(["range_push", "range_pop", "range_start", "range_end", "mark"], 0),
    "torch.cuda.profiler": dict.fromkeys(["start", "stop"]),
    "torch.cuda.nccl": {"version": NCCL_VERSION, "is_available": True},
    "torch.accelerator": {"synchronize": None},
    "torch.backends.cuda": {"is_built": True, "is_flash_attention_available": True},
    "torch.backends.cudnn": {"version": CUDNN_VERSION, "is_available": True},
}
# Functions that return how much memory the process has, in bytes: now, and at most so far.
MEMORY_NOW = ("memory_allocated", "memory_reserved", "memory_cached", "device_memory_used")
MEMORY_MOST = ("max_memory_allocated", "max_memory_reserved", "max_memory_cached")

# Modules of torch.compile. They compile for the CPU, so they must see no other device.
COMPILERS = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch._subclasses",
    "torch.fx",
    "torch.utils._tri",
)

# Packages of GPU kernels, and what a program can use without them.
_ATTENTION = "Choose PyTorch's own attention for the rehearsal, e.g. attn_implementation='sdpa'."
_OPTIONAL = "Make it an option of the program that the rehearsal's configuration turns off."
NEED_GPU = {
    "flash_attn": _ATTENTION,
    "flash_attn_interface": _ATTENTION,
    "xformers": _ATTENTION,
    "triton": _OPTIONAL,
    "apex": "Choose torch's optimizers, norms and autocast for the rehearsal.",
    "bitsandbytes": "Choose a torch.optim optimizer and no quantization for the rehearsal.",
    "transformer_engine": "Choose torch.nn layers and bf16 for the rehearsal.",
    **dict.fromkeys(["liger_kernel", "mamba_ssm", "causal_conv1d", "deep_ep", "deep_gemm", "cupy"], _OPTIONAL),
}
# Of these, the packages that need a GPU only when a kernel is started.
IMPORTABLE = ("triton",)


def needs_gpu(module: str) -> str:
    """Return the message for the import of a package that needs a GPU, or "" for any other package."""
    package = module.partition(".")[0]
    if package not in NEED_GPU:
        return ""
    return f"No module named {package!r} on the CPU: it needs a GPU. {NEED_GPU[package]}"


def cpu_backend(backend: str | None) -> str | None:
    """Return the backend of torch.distributed that replaces ``backend``: gloo for NCCL, alone or beside another."""
    if backend is None or "nccl" not in backend.lower():
        return backend
    return "gloo"


def cpu_platforms(platforms: str) -> str:
    """Return JAX's list of platforms (``cuda,cpu``) with the CPU in the place of every accelerator."""
    return ",".join(dict.fromkeys("cpu" if is_jax_accelerator(name) else name for name in platforms.split(",")))


def is_jax_accelerator(platform: object) -> bool:
    """Return whether this is the name of a platform of JAX that a rehearsal replaces."""
    return platform in ("gpu", "cuda", "rocm", "tpu")


def summary(mapped: Iterable[str]) -> str:
    """Return the line of the report that says what was replaced."""
    names = list(mapped)
    return f"this machine's CPU in the place of {', '.join(names)}. Times, memory and rounding are not those of a GPU"
