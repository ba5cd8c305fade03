"""What a test needs that may not be installed: the core works with no framework, with either and with both."""

from __future__ import annotations

import gc
from importlib.util import find_spec

import pytest
from hypothesis import settings

# How long an example takes is the machine's business.
settings.register_profile("allranks", deadline=None)
settings.load_profile("allranks")

NEEDED = (
    *("jax", "torch", "equinox", "obstore", "moto", "transformers"),
    *("msgpack", "safetensors", "flax", "orbax"),
    *("lightning", "accelerate", "tensorboard", "wandb", "mlflow"),
    *("pyarrow", "orjson", "zstandard", "cloudpickle", "tokenizers", "tiktoken", "datasets", "grain", "torchdata"),
)
MISSING = [module for module in NEEDED if find_spec(module) is None]
# Files that import a framework themselves, or run a program that does from their first line on.
FILES = {
    "jax": [
        "arrays/test_jax.py",
        "arrays/test_open_tree_jax.py",
        "checkpoint/test_trip_jax.py",
        "consistency/test_verify_jax.py",
        "data/test_rows_jax.py",
        "gate/test_stepped.py",
        "integrations/test_jax_states.py",
        "loading/test_foreign_files.py",
        "testing/test_plugin.py",
    ],
    "torch": [
        "arrays/test_torch.py",
        "arrays/test_open_tree_torch.py",
        "checkpoint/test_trip_torch.py",
        "consistency/test_verify_torch.py",
        "data/test_rows_torch.py",
        "integrations/test_loader_contract.py",
        "integrations/test_dealt_twice.py",
        "integrations/test_torch_loading.py",
        "integrations/test_torch_sharded.py",
        "loading/test_foreign_files.py",
        "loading/test_hostile.py",
    ],
    "lightning": ["integrations/test_lightning_io.py", "integrations/test_lightning_ranks.py"],
    "accelerate": ["integrations/test_accelerate_ranks.py"],
    "msgpack": ["loading/test_foreign_files.py", "loading/test_hostile.py"],
    "safetensors": [
        "loading/test_foreign_files.py",
        "loading/test_hostile.py",
        "loading/test_load_ranks.py",
        "integrations/test_jax_states.py",
    ],
    "orjson": ["data/test_loader.py", "data/test_packed.py", "data/test_torture.py"],
    "cloudpickle": ["data/test_loader.py", "data/test_workers.py"],
    "datasets": ["integrations/test_streaming.py"],
    "grain": ["integrations/test_grain.py"],
    "equinox": ["arrays/test_open_tree_pytrees.py", "checkpoint/test_trip_jax.py", "integrations/test_jax_states.py"],
    "flax": ["integrations/test_jax_states.py"],
    "orbax": ["integrations/test_jax_states.py"],
}

collect_ignore = [file for module in MISSING for file in FILES.get(module, [])]
if {"jax", "torch", "equinox"} & set(MISSING):
    collect_ignore.append("examples")


def pytest_report_header() -> str:
    left_out = f"; left out: {', '.join(collect_ignore)}" if collect_ignore else ""
    return f"not installed: {', '.join(MISSING) or 'nothing that a test needs'}{left_out}"


def pytest_collection_finish() -> None:
    """What the imports of all tests have made is there to stay: Python's collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for module in marker.args:
            if module in MISSING:
                pytest.skip(f"{module} is not installed")
