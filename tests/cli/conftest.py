"""A run on disk with two steps, saved by four ranks, and a way to call the commands on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from runs import Said, four_ranks, save

from allranks.cli.main import main
from allranks.storage.local import LocalStorage


@pytest.fixture
def ckpt(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Call ``allranks ckpt`` with these words."""

    def call(*words: object) -> Said:
        capsys.readouterr()
        code = main(["ckpt", *map(str, words)])
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    return {
        "model/wte": draw.standard_normal((512, 96)).astype(np.float32),
        "model/wq": draw.standard_normal((96, 96)).astype(ml_dtypes.bfloat16),
        "model/bias": draw.standard_normal(96).astype(np.float32),
        "opt/mu/wte": draw.standard_normal((512, 96)).astype(np.float32),
        "opt/count": np.array(1200, np.int32),
    }


@pytest.fixture
def run(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Steps 100 and 200: in between, five rows of ``model/wte``, the count and a value change."""
    where = tmp_path / "run"
    storage = LocalStorage(where)
    extra = {"config": {"model_type": "gpt2"}, "data": {"epoch": 1}}
    save(storage, 100, four_ranks(arrays, values={"lr": 0.1}), extra=extra, metrics={"loss": 2.5})
    later = {**arrays, "model/wte": arrays["model/wte"].copy(), "opt/count": np.array(1300, np.int32)}
    later["model/wte"][10:15] += 0.5
    save(storage, 200, four_ranks(later, values={"lr": 0.05}), extra=extra, metrics={"loss": 2.25})
    return where


@pytest.fixture
def shard_files(run: Path) -> list[Path]:
    """The files of step 200, by rank."""
    return sorted((run / "checkpoint-200").glob("*.safetensors"))
