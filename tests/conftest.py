"""What a test needs that may not be installed: the core works with no framework, with either and with both."""

from __future__ import annotations

import ast
import gc
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's business.
settings.register_profile("allranks", deadline=None)
settings.load_profile("allranks")

NEEDED = (
    *("jax", "torch", "equinox", "obstore", "moto", "transformers"),
    *("msgpack", "safetensors", "flax", "orbax"),
    *("lightning", "accelerate", "tensorboard", "wandb", "mlflow"),
    *("kubernetes", "kubernetes_validate", "kubeflow_trainer_api", "yaml", "sky", "ray"),
    *("pyarrow", "orjson", "zstandard", "cloudpickle", "tokenizers", "tiktoken", "datasets", "grain", "torchdata"),
    *("array_record", "lance"),
)
MISSING = [module for module in NEEDED if find_spec(module) is None]
# Files whose helpers import it, or that run a program which does from its first line on.
FILES = {
    "jax": ["gate/test_lockstep_function.py", "testing/test_plugin.py"],
    "torch": ["integrations/test_loader_contract.py"],
    "msgpack": ["loading/test_foreign_files.py"],
    "safetensors": ["cli/test_ckpt_export_formats.py"],
    "orjson": ["data/test_found.py", "data/test_loader.py", "data/test_packed.py", "data/test_torture.py"],
    "cloudpickle": ["data/test_loader.py", "data/test_workers.py"],
    "datasets": ["integrations/test_streaming.py"],
}

collect_ignore = [file for module in MISSING for file in FILES.get(module, [])]
if {"jax", "torch", "equinox"} & set(MISSING):
    collect_ignore.append("examples")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files that import at their top what is not installed."""
    if not MISSING or collection_path.suffix != ".py":
        return None
    tops = ast.parse(collection_path.read_text()).body
    names = [alias.name for one in tops if isinstance(one, ast.Import) for alias in one.names]
    names += [one.module or "" for one in tops if isinstance(one, ast.ImportFrom)]
    return True if {name.partition(".")[0] for name in names} & set(MISSING) else None


def pytest_report_header() -> str:
    left_out = f"; left out: {', '.join(collect_ignore)}" if collect_ignore else ""
    return f"not installed: {', '.join(MISSING) or 'nothing that a test needs'}{left_out}"


def pytest_collection_finish() -> None:
    """What the imports of all tests have made is there to stay: Python's collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = [module for marker in item.iter_markers("needs") for module in marker.args]
    needed += [marker.kwargs.get("backend") for marker in item.iter_markers("world")]
    for alternatives in filter(None, needed):
        if all(module in MISSING for module in alternatives.split("|")):
            pytest.skip(f"{alternatives} is not installed")
