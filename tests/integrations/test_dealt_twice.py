"""What others would deal out among the ranks once more, or skip once more: without us, and with us."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import accelerate.accelerator as prepared_by
import harness
import pytest
import torch
from accelerate.data_loader import prepare_data_loader as theirs
from accelerate.data_loader import skip_first_batches
from torch.utils.data import DataLoader
from worlds import on

import allranks
from allranks import Dataset, World
from allranks.errors import DataError
from allranks.integrations.torch import Batches, BatchSampler

SAMPLES, BATCH = 32, 8
ROWS = [{"x": one} for one in range(SAMPLES)]
KINDS = ["Batches", "BatchSampler"]


def make(kind: str, world: World, state: Any = None, workers: int = 0) -> Any:
    """A DataLoader of ours on one of the ranks."""
    if kind == "Batches":
        ours = Batches(Dataset.sequence(ROWS, seed=1).batch(BATCH), world, state=state)
        return DataLoader(ours, batch_size=None, num_workers=workers)
    sampler = BatchSampler(ROWS, world, global_batch=BATCH, state=state)
    return DataLoader(ROWS, batch_sampler=sampler, num_workers=workers)


def samples(loader: Any) -> list[int]:
    return [int(x) for batch in loader for x in batch["x"]]


def divided(world: World, **how: Any) -> dict[str, Any]:
    """How an Accelerator of so many processes prepares."""
    return {"num_processes": world.size, "process_index": world.rank, "put_on_device": True, **how}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"split_batches": True}, {"dispatch_batches": True}], ids=str)
def test_a_prepared_loader_is_dealt_out_once(kind: str, how: dict[str, Any]) -> None:
    """Accelerate's own function would read half; ``accelerator.prepare`` reads each sample once, epoch after epoch."""

    def halved(world: World) -> list[int]:
        return samples(theirs(make(kind, world), **divided(world, even_batches=False, dispatch_batches=False)))

    def whole(world: World) -> list[list[int]]:
        loader = prepared_by.prepare_data_loader(make(kind, world), device=torch.device("cpu"), **divided(world, **how))
        return [samples(loader) for _ in range(2)]

    if how == {}:
        outcome = allranks.SimulatedWorld(2).run(halved)
        assert not outcome.results
        assert all("would deal out among 2 processes" in str(error) for error in outcome.errors.values())
    first, second = (sorted(chain.from_iterable(epoch)) for epoch in zip(*on(2, whole), strict=True))
    assert first == second == list(range(SAMPLES))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_skipped_once(kind: str) -> None:
    """A Trainer that resumes skips what the state of the same step skips; of another step, it is refused."""

    def resumed(world: World) -> list[int]:
        fresh = make(kind, world)
        ours = fresh.dataset if kind == "Batches" else fresh.batch_sampler
        state = ours.state(3).gathered()
        rest = samples(fresh)[3 * BATCH :]
        prepared = prepared_by.prepare_data_loader(make(kind, world, state), **divided(world, device=None))
        assert samples(skip_first_batches(prepared, 3)) == rest
        prepared = prepared_by.prepare_data_loader(make(kind, world, state), **divided(world, device=None))
        with pytest.raises(DataError, match="skips 2 batches of epoch 0, but the state continues after batch 3"):
            samples(skip_first_batches(prepared, 2))
        return rest

    assert len(on(1, resumed)[0]) == BATCH


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_what_is_fetched_ahead_is_not_taken(kind: str) -> None:
    """Accelerate holds one batch back, and workers make more: ``state()`` says what the loop has."""

    def stopped(world: World) -> Any:
        loader = make(kind, world, workers=2)
        ours = loader.dataset if kind == "Batches" else loader.batch_sampler
        loader = prepared_by.prepare_data_loader(loader, **divided(world, device=None))
        list(islice(loader, 2))
        return ours.state().gathered()["depth"], ours.state(2).gathered()["depth"]

    assert len(set(on(1, stopped)[0])) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_a_data_set_in_a_checkpoint_goes_on(tmp_path: Path, workers: int) -> None:
    """As any object with ``state_dict``; what its workers have made ahead is read again."""

    def program(world: World) -> None:
        data = Dataset.sequence(ROWS, seed=1).batch(BATCH)
        wanted = samples(Batches(data, world))
        batches, fresh = Batches(data, world), Batches(data, world)
        with allranks.Checkpointer(tmp_path, world, on_sigterm=False) as ckpt:
            list(islice(DataLoader(batches, batch_size=None, num_workers=workers), 2))
            ckpt.save(2, {"data": batches}, block=True)
            ckpt.restore(like={"data": fresh})
        assert samples(fresh) == wanted[2 * BATCH :]

    on(1, program)


@pytest.mark.soak
@pytest.mark.needs("transformers")
def test_generators_of_ranks_that_are_new_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The Trainer has a file of each rank; new ranks begin with the seed, and it says so at level INFO."""
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    for rank in range(2):
        (folder / f"rng_state_{rank}.pth").touch()
    arguments, resumed = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(global_step=2)
    for size in (2, 4):
        world = SimpleNamespace(size=size, is_main=True)
        import_module("allranks.integrations.huggingface")._warn_of_generators(arguments, resumed, world)
    assert caplog.text.count("is of 2 ranks: with 4, random generators of ranks 2-3 begin anew") == 1


PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.soak
@pytest.mark.needs("accelerate", "torchdata")
@pytest.mark.parametrize("parts", [["prepare"], ["save", "load"]], ids=str)
def test_accelerate_on_real_ranks(tmp_path: Path, parts: list[str]) -> None:
    """Each way of preparing; a state of two ranks on four."""
    for part in parts:
        program = ["-W", "ignore", str(PROGRAMS / "accelerate_data.py"), str(tmp_path), part]
        job = harness.run(4 if part == "load" else 2, program, patience=300)
        assert all("kept" in rank.out for rank in job.ranks), job


@pytest.mark.soak
@pytest.mark.needs("transformers")
@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_on_real_ranks(tmp_path: Path, kind: str) -> None:
    """Epochs are complete and differ; resumed by the Trainer alone, or with the state of the step, it skips once."""
    job = harness.run(2, ["-W", "ignore", str(PROGRAMS / "hf_data.py"), str(tmp_path), kind], patience=300)
    assert all("kept" in rank.out for rank in job.ranks), job


@pytest.mark.soak
@pytest.mark.needs("lightning", "torchdata")
@pytest.mark.parametrize("kind", ["Loader", "Batches", "DataLoader", "StatefulDataLoader", "BatchSampler"])
def test_lightning_on_real_ranks(tmp_path: Path, kind: str) -> None:
    """Epochs are complete and differ; a checkpoint of any step goes on, on another number of ranks, too."""
    for ranks, part in ((2, "train"), (1, "resume")):
        program = ["-W", "ignore", str(PROGRAMS / "lightning_data.py"), str(tmp_path), kind, part]
        job = harness.run(ranks, program, patience=300)
        assert all("kept" in rank.out for rank in job.ranks), job
        seen = json.loads((tmp_path / "seen.json").read_text())
        assert seen["epochs"] == 3
