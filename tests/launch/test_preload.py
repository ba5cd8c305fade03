"""What a script will import, and what forbids to import it first, is read from its text."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from allranks.launch import fork_server_main, forked_rank
from allranks.launch.job import Command, Script
from allranks.launch.preload import PreloadPlan, plan_preload

LOCAL = {
    "model": "import flax.linen as nn\nfrom data import rows",
    "data": "from torch.utils import data",
    "saving": "from allranks import Checkpointer\ndef make(): return Checkpointer('run')",
    "pkg": "",
    "pkg.layers": "from . import norm\nfrom .norm import scale\nimport optax",
    "pkg.norm": "import scipy.special",
}


def read(source: str, *, name: str = "__main__", **env: str) -> PreloadPlan:
    return plan_preload(source, name=name, find=LOCAL.get, env=env)


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import jax, os", ("jax",)),
        ("import jax.numpy as jnp", ("jax", "jax.numpy")),
        (
            "from jax.experimental import multihost_utils",
            ("jax", "jax.experimental", "jax.experimental.multihost_utils"),
        ),
        ("def main():\n    import torch", ("torch",)),
        ("import wandb, transformers", ()),
        ("import model", ("flax", "flax.linen", "torch", "torch.utils", "torch.utils.data")),
        ("from pkg import layers", ("optax", "scipy", "scipy.special")),
    ],
)
def test_the_frameworks_that_a_script_and_its_own_modules_import_are_found(
    source: str, modules: tuple[str, ...]
) -> None:
    assert read(source) == PreloadPlan(modules)


@pytest.mark.parametrize(
    ("source", "makes"),
    [
        ("import allranks\nckpt = allranks.Checkpointer('run')", True),
        ("import os, saving\nos.environ['JAX_ENABLE_X64'] = '1'", True),  # an obstacle to the imports
        ("from allranks.integrations.lightning import Ranks\ncallbacks = [Ranks(verify_every=9)]", True),
        ("import allranks\nallranks.init()", False),
        ("import orbax.checkpoint as ocp\nckpt = ocp.Checkpointer(handler)", False),
    ],
)
def test_a_script_that_makes_what_saves_at_sigterm_is_told_by_its_text(source: str, makes: bool) -> None:
    assert read(source).makes_saver == makes


@pytest.mark.parametrize("words", [("bash", "-c", "python train.py; exit $?"), ("python", "-O", "train.py")])
def test_the_script_of_a_command_is_read_too(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import allranks\nckpt = allranks.Checkpointer('run')")
    assert forked_rank.plan_for(Command(words), cwd=str(tmp_path)).makes_saver
    assert forked_rank.plan_for(Command(("true",)), cwd=str(tmp_path)) == PreloadPlan(())


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        ("os.environ['JAX_ENABLE_X64'] = '1'", "JAX_ENABLE_X64"),
        ("os.environ['OMP_NUM_THREADS'] = str(n)", "OMP_NUM_THREADS"),
        ("environ.setdefault('MKL_NUM_THREADS', '1')", "MKL_NUM_THREADS"),
        ("os.putenv('JAX_PLATFORMS', 'cpu')", "JAX_PLATFORMS"),
        ("os.environ.update({'JAX_DEBUG_NANS': '1'})", "JAX_DEBUG_NANS"),
        ("os.environ.update(JAX_DEBUG_NANS='1')", "JAX_DEBUG_NANS"),
        ("os.environ[name] = '1'", ""),
        ("os.environ.update(variables)", ""),
    ],
)
def test_a_script_that_sets_what_a_framework_reads_at_its_import_is_an_obstacle(line: str, variable: str) -> None:
    found = read(f"import os\n{line}\nimport jax")
    unknown = "environment variables by names that its text does not show"
    told = f"{variable}, which a framework reads when it is imported" if variable else unknown
    assert found == PreloadPlan((), f"the script sets {told}")


def test_installed_packages_are_not_followed_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wandb is, which sets variables: a user's site-packages, or those that a virtual environment shares."""
    (tmp_path / "train.py").write_text("import tracker, numpy")
    for folder in ("site-packages", "mine"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tracker.py").write_text("import os\nos.environ[os.name] = '1'")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    assert forked_rank.plan_for(Script("train.py"), cwd=str(tmp_path)) == PreloadPlan(("numpy",))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine")])
    assert "tracker sets environment variables" in forked_rank.plan_for(Script("train.py"), cwd=str(tmp_path)).obstacle


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['WANDB_MODE'] = 'offline'",
        "os.environ['JAX_PLATFORMS'] = 'cpu'",
        "os.environ.setdefault('JAX_PLATFORMS', 'tpu')",
        "os.environ['JAX_COORDINATOR_ADDRESS'] = address",
        "settings['JAX_PLATFORMS'] = 'tpu'",
    ],
)
def test_what_changes_nothing_for_a_framework_is_no_obstacle(line: str) -> None:
    assert read(f"import os\n{line}\nimport jax", JAX_PLATFORMS="cpu") == PreloadPlan(("jax",))


def test_text_that_is_no_python_is_an_obstacle() -> None:
    """The rank itself shows the SyntaxError."""
    assert read("def").obstacle == "the script is not valid Python"


def test_a_module_without_a_spec_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.backends is, which a module stands in for."""
    monkeypatch.setitem(sys.modules, "torch_backends", ModuleType("torch_backends"))
    monkeypatch.setattr(fork_server_main, "_freeze_imports", str)
    monkeypatch.setattr(fork_server_main, "why_not_forkable", str)
    assert fork_server_main.preload(PreloadPlan(("torch_backends",))) == (("torch_backends",), "")
