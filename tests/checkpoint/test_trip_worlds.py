"""Saved by one job, restored by another of another size, sharding or framework, bit by bit; all ranks are real."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
import trip_jobs as jobs
from trip_jobs import RunJob

pytestmark = [pytest.mark.needs("jax", "torch")]
JAX = {str(number): layout for number, layout in enumerate(("fsdp", "tp", "2d", "partly", "replicated"), 1)}
TORCH = {str(number): layout for number, layout in enumerate(jobs.TORCH_LAYOUTS, 11)}


@pytest.fixture(scope="module")
def by_jax(run_job: RunJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps saved by four ranks of two devices."""
    folder = tmp_path_factory.mktemp("jax")
    run_job(4, "save_jax", folder, devices=2, steps=JAX)
    return folder


@pytest.fixture(scope="module")
def by_torch(run_job: RunJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps saved by four ranks of torch."""
    folder = tmp_path_factory.mktemp("torch")
    run_job(4, "save_torch", folder, steps=TORCH)
    return folder


def pairs(steps: Iterable[str], layouts: Iterable[str]) -> list[tuple[int, str]]:
    """Each layout from two steps: all pairs that differ in what they meet, not all there are."""
    found = list(map(int, steps))
    return [(found[(number + k) % len(found)], layout) for number, layout in enumerate(layouts) for k in (1, 3)]


@pytest.mark.parametrize(("n", "devices"), [(3, 2), pytest.param(2, 1, marks=pytest.mark.soak), (1, 8)])
def test_jax_restores_on_any_world(run_job: RunJob, by_jax: Path, n: int, devices: int) -> None:
    """4 x 2 devices -> 3 x 2, 2 x 1, 1 x 8; the template says how what is made is sharded."""
    run_job(n, "restore_jax", by_jax, devices=devices, pairs=pairs(JAX, jobs.LAYOUTS))


@pytest.mark.parametrize("n", [3, pytest.param(2, marks=pytest.mark.soak), 1])
def test_torch_restores_on_any_world(run_job: RunJob, by_torch: Path, n: int) -> None:
    """4 ranks -> 3, 2, 1: cut by rows (uneven, and none for some ranks), columns, both, replicated, plain; in place."""
    layouts = jobs.TORCH_LAYOUTS if n > 1 else ("plain",) * 3
    run_job(n, "restore_torch", by_torch, pairs=pairs(TORCH, layouts))


def test_torch_restores_what_jax_saved(run_job: RunJob, by_jax: Path) -> None:
    """The same paths, shapes and dtypes are the same checkpoint, whoever made it."""
    run_job(2, "restore_torch", by_jax, pairs=pairs(JAX, jobs.TORCH_LAYOUTS))


def test_jax_restores_what_torch_saved(run_job: RunJob, by_torch: Path) -> None:
    """bfloat16 and float8 too."""
    run_job(2, "restore_jax", by_torch, devices=2, pairs=pairs(TORCH, jobs.LAYOUTS))


@pytest.mark.soak
def test_every_layout_from_every_layout(run_job: RunJob, by_jax: Path, by_torch: Path) -> None:
    """The whole table, on more ranks and on fewer than had saved."""
    for n in (2, 3, 6):
        for folder, steps in ((by_jax, JAX), (by_torch, TORCH)):
            run_job(n, "restore_torch", folder, pairs=list(product(map(int, steps), jobs.TORCH_LAYOUTS)))
            run_job(n, "restore_jax", folder, devices=2, pairs=list(product(map(int, steps), jobs.LAYOUTS)))


@pytest.mark.parametrize("folder", ["by_jax", "by_torch"])
def test_what_is_on_disk_is_written_once_and_evenly(request: pytest.FixtureRequest, folder: str) -> None:
    """Every element of every leaf is in one shard only, and the files of replicated states are of nearly one size."""
    total = sum(jobs.whole(name).nbytes for name in jobs.LEAVES)
    steps = sorted(request.getfixturevalue(folder).glob("checkpoint-*"))
    assert len(steps) in (len(JAX), len(TORCH))
    for step in steps:
        manifest = json.loads((step / "manifest.json").read_text())
        sizes = [file["bytes"] for file in manifest["files"]]
        assert sorted(f["name"] for f in manifest["files"]) == sorted(p.name for p in step.glob("*.safetensors"))
        assert len(sizes) == 4
        assert total <= sum(sizes) <= total + 4 * 8192, step
        if TORCH.get(step.name.partition("-")[2]) != "hsdp":  # whose pieces here are too small to be cut
            assert max(sizes) - min(sizes) < 0.06 * total, (step, sizes)


@pytest.mark.parametrize("n", [3, 1])
def test_a_model_under_fsdp_restores_on_any_world(
    run_job: RunJob, tmp_path_factory: pytest.TempPathFactory, n: int
) -> None:
    """Model, AdamW and schedule as objects, 4 -> 3 and 1 ranks; they and their parameters stay the same objects."""
    folder = tmp_path_factory.getbasetemp() / "fsdp"
    if not folder.exists():
        folder.mkdir()
        run_job(4, "save_fsdp", folder)
    run_job(n, "restore_fsdp", folder)
