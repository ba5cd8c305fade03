"""TensorBoard, wandb and MLflow under RankWriter: one run, written by rank 0, with the lines that all ranks run."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

import allranks


@pytest.mark.world(n=2, timeout=300)
@pytest.mark.needs("torch", "tensorboard", "wandb", "mlflow")
def test_what_all_ranks_log_is_written_once(
    world: allranks.World, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own objects, called on all ranks; arguments that need all ranks are computed on all."""
    warnings.simplefilter("ignore")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{shared_tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def mlflow() -> Any:
        module = importlib.import_module("mlflow")
        module.start_run()
        return module

    board = allranks.RankWriter(
        lambda: importlib.import_module("torch.utils.tensorboard").SummaryWriter(shared_tmp_path / "board")
    )
    run = allranks.RankWriter(
        lambda: importlib.import_module("wandb").init(mode="offline", dir=shared_tmp_path, project="x")
    )
    flow = allranks.RankWriter(mlflow)
    for step in range(3):
        loss = world.max(step + world.rank / 10)
        board.add_scalar("loss", loss, step)
        run.log({"loss": world.max(loss)})
        flow.log_metric("loss", world.max(loss), step=step)
    run.summary["best"] = 0.1
    board.close()
    run.finish()
    flow.end_run()
    world.barrier()
    assert len(list((shared_tmp_path / "board").iterdir())) == 1
    assert len(list((shared_tmp_path / "wandb").glob("offline-run-*"))) == 1
    [metric] = shared_tmp_path.glob("mlruns/*/*/metrics/loss")
    assert [line.split()[1] for line in metric.read_text().splitlines()] == ["0.1", "1.1", "2.1"]
