"""What differs over the ranks on purpose: rank 0's is saved, or each rank's; and the error says how to choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import allranks
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import DoesNotFit, Mismatch
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld


class Net(torch.nn.Module):
    """Batch statistics, and a buffer of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        self.queue = torch.nn.Buffer(torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.world(n=2, backend="torch")
def test_batch_statistics_under_ddp_are_rank_0s(world: allranks.World, shared_tmp_path: Path) -> None:
    """Wrapped, bare, and as a plain state dict; DDP's other buffers, too, where it takes them from rank 0 itself."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Net())
    torch.manual_seed(world.rank)
    model(torch.randn(8, 4)).sum().backward()
    inner = model.module
    means = world.all_gather(inner.layers[1].running_mean.tolist())
    assert means[0] != means[1], "without us: rank 0's file has one, and the others' are lost"
    with Checkpointer(shared_tmp_path / "ddp", world) as ckpt:
        for step, state in enumerate([model, inner, model.state_dict(), {"a": {"net": inner}}]):
            ckpt.save(step, state, block=True)
            restored = ckpt.restore(state)
            assert restored is not None
        assert inner.layers[1].running_mean.tolist() == means[0]
        inner.queue += world.rank
        with pytest.raises(Mismatch, match=r"leaf 'queue'.*from_main=\['queue'\].*per_rank=\['queue'\] each rank's"):
            ckpt.save(8, inner, block=True)
        ckpt.save(9, model, block=True)
        ckpt.restore(model)
        assert inner.queue.sum() == 0
    each = [*(f"layers.1.{name}" for name in ("running_mean", "running_var")), "queue"]
    torch.manual_seed(world.rank)
    model(torch.randn(8, 4))
    inner.queue += world.rank
    mine = {name: inner.state_dict()[name].clone() for name in each}
    with Checkpointer(shared_tmp_path / "own", world, per_rank=["*running_*", "queue"]) as ckpt:
        ckpt.save(1, inner, block=True)
        with torch.no_grad():
            for name in each:
                inner.state_dict()[name].zero_()
        ckpt.restore(inner)
    assert all(torch.equal(inner.state_dict()[name], value) for name, value in mine.items())


def state_of(rank: int) -> dict[str, Any]:
    return {"w": np.ones(3, np.float32), "noise": np.full((2, 2), float(rank)), "lr": 0.1 + rank}


def save(folder: Path, ranks: int, **choices: Any) -> None:
    def job(world: World) -> None:
        with Checkpointer(folder, world, **choices, on_sigterm=False) as ckpt:
            ckpt.save(1, state_of(world.rank), block=True)

    SimulatedWorld(ranks).run(job).values()


def restored(folder: Path, ranks: int, **choices: Any) -> list[dict[str, Any]]:
    def job(world: World) -> dict[str, Any]:
        found = Checkpointer(folder, world, read_only=True, **choices).restore(state_of(-1))
        assert found is not None
        return found[0]

    return list(SimulatedWorld(ranks).run(job).values())


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_ranks_own_comes_back_to_it(tmp_path: Path, ranks: int) -> None:
    """On as many ranks, whatever the restoring program says; on others, rank 0's for all where that is said."""
    save(tmp_path, ranks, per_rank="noise", from_main=["lr"])
    for choices in ({}, {"per_rank": "noise"}):
        found = restored(tmp_path, ranks, **choices)
        assert [one["noise"].flat[0] for one in found] == list(range(ranks))
        assert {one["lr"] for one in found} == {0.1}
    for other in (1, 4):
        with pytest.raises(DoesNotFit, match=rf"one for each of the {ranks} ranks .*from_main=\['noise'\]"):
            restored(tmp_path, other)
        assert [one["noise"].flat[0] for one in restored(tmp_path, other, from_main="noise")] == [0] * other
    report = allranks.load(tmp_path, into=state_of(-1), world=single_world())
    assert report.state["noise"].tolist() == [[0, 0], [0, 0]]
    assert "'noise'" in "".join(report.notes)


def test_rank_0s_is_saved_once(tmp_path: Path) -> None:
    """No other rank writes a byte of it."""
    save(tmp_path, 2, from_main=["noise", "lr"])
    assert [one["noise"].flat[0] for one in restored(tmp_path, 3)] == [0, 0, 0]


def test_values_of_each_rank_come_back_to_it(tmp_path: Path) -> None:
    """A number, a text, no value, a whole tree of them; ``read`` shows all ranks'."""
    save(tmp_path, 3, per_rank=["lr", "noise"])
    assert [one["lr"] for one in restored(tmp_path, 3)] == [0.1, 1.1, 2.1]
    assert allranks.checkpoint.read(tmp_path)[0]["lr"] == [0.1, 1.1, 2.1]
    with pytest.raises(DoesNotFit, match=r"'lr' has one for each of the 3 ranks .*from_main=\['lr'\]"):
        restored(tmp_path, 2, from_main="noise")
    assert [one["lr"] for one in restored(tmp_path, 2, from_main=["noise", "lr"])] == [0.1, 0.1]
    report = allranks.load(tmp_path, into=state_of(-1), world=single_world())
    assert report.state["lr"] == 0.1
    assert "'lr'" in "".join(report.notes)


def test_ranks_that_have_a_value_under_other_paths_are_refused(tmp_path: Path) -> None:
    def job(world: World) -> None:
        with Checkpointer(tmp_path, world, per_rank="own/*", on_sigterm=False) as ckpt:
            ckpt.save(1, {"own": {"a" if world.is_main else "b": world.rank}}, block=True)

    with pytest.raises(Mismatch, match="own/"):
        SimulatedWorld(2).run(job).values()
