"""What is said about a program that fails by itself: its last lines, the cause where it is a common one, what to do."""

from __future__ import annotations

import pytest

from allranks.rehearse.advice import CAUSES, cause_of, explained

# As the libraries print it.
OUTPUTS = {
    "arguments": "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data",
    "hydra": "hydra.errors.ConfigCompositionException: Could not override 'model'.",
    "gated": "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
    "tracker": "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
    "network": "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    "memory": "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory",
    "kernels": "ModuleNotFoundError: No module named 'flash_attn'",
    "module": "ModuleNotFoundError: No module named 'einops'",
    "lightning": "    return self.parallel_devices[self.local_rank]\nIndexError: list index out of range",
    "unused": "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
    "devices": "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1]",
    "cuda": "AssertionError: Torch not compiled with CUDA enabled",
    "world": "AssertionError: world_size 2 must be divisible by tp_size 4",
    "disk": "OSError: [Errno 28] No space left on device: 'out/step.pt'",
    "port": "RuntimeError: The server socket has failed to listen. EADDRINUSE",
    "stdin": "EOFError: EOF when reading a line",
    "permission": "PermissionError: [Errno 13] Permission denied: '/data'",
    "data": "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
}


def test_every_cause_is_recognised_by_what_a_library_prints() -> None:
    assert set(OUTPUTS) == {one.name for one in CAUSES}
    assert {name: getattr(cause_of(text), "name", None) for name, text in OUTPUTS.items()} == {n: n for n in OUTPUTS}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries: NameResolutionError", "network"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "network"),
        ("RuntimeError: CUDA error: invalid device ordinal", "devices"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "cuda"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "cuda"),
        ("rank 1 (host a) failed: killed by SIGKILL", "memory"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory", "memory"),
        ("allranks.MissingRanks: init_process_group: expected a world of at most 2, found 4", "world"),
        ("Error: No such option: --n-gpu", "arguments"),
        ("RuntimeError: Dataset not found or corrupted. You can use download=True to download it", "data"),
        ("ValueError: bad row", None),
        ("ZeroDivisionError: division by zero", None),
    ],
)
def test_variants_of_a_cause(text: str, name: str | None) -> None:
    assert getattr(cause_of(text), "name", None) == name


def test_the_explanation_has_the_last_lines_and_what_to_do_next() -> None:
    lines = explained("rank 1 (host a) failed at train.py:3: MemoryError", ["Traceback", "MemoryError"], "train.py")
    assert lines[0] == "the program fails by itself: rank 1 (host a) failed at train.py:3: MemoryError"
    assert lines[1:4] == [
        "  | Traceback",
        "  | MemoryError",
        "  why: the memory of this machine is used up: all ranks are on it",
    ]
    assert lines[-1] == "  next: allranks rehearse --suggest train.py proposes arguments for it"
    assert max(map(len, lines)) <= 120
    unknown = explained("rank 0 (host a) failed: ValueError: bad row", [], "")
    assert len(unknown) == 2
    assert "a rehearsal needs a run that ends without an error" in unknown[1]
