"""torch trainings through a checkpoint: what comes back trains on as if nothing had happened; alone, and under DDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import allranks
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import CannotStore
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world


class Loader:
    """A data loader with a state of its own."""

    def __init__(self) -> None:
        self.row = 0

    def next(self) -> torch.Tensor:
        self.row += 4
        return torch.sin(torch.arange(self.row * 6.0, self.row * 6.0 + 24)).reshape(4, 6)

    def state_dict(self) -> dict[str, Any]:
        return {"row": self.row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.row = state["row"]


def training(optimizer: str, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    settings: dict[str, Any] = {"SGD": {"momentum": 0.9}, "AdamW": {"amsgrad": True}, "Adafactor": {}}[optimizer]
    chosen = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05, **settings)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        chosen,
        [
            torch.optim.lr_scheduler.LinearLR(chosen, total_iters=3),
            torch.optim.lr_scheduler.CosineAnnealingLR(chosen, 20),
        ],
        milestones=[3],
    )
    return {
        "model": model,
        "optimizer": chosen,
        "schedule": schedule,
        "ema": {name: p.detach().clone() for name, p in model.named_parameters()},
        "loader": Loader(),
        "random": torch.get_rng_state(),
        "half": torch.full((3,), 0.5, dtype=torch.bfloat16),
    }


def train(parts: dict[str, Any], steps: int) -> list[float]:
    losses = []
    torch.set_rng_state(parts["random"])
    for _ in range(steps):
        loss = parts["model"](parts["loader"].next()).square().mean()
        parts["optimizer"].zero_grad()
        loss.backward()
        parts["optimizer"].step()
        parts["schedule"].step()
        for name, p in parts["model"].named_parameters():
            parts["ema"][name].lerp_(p.detach(), 0.1)
        losses.append(loss.item())
    parts["random"].copy_(torch.get_rng_state())
    return losses


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adafactor"])
def test_a_training_goes_on_as_if_nothing_had_happened(optimizer: str) -> None:
    """The same losses, to the last bit, from other objects of another seed; and the training that saved is unharmed."""
    storage = MemoryStorage()
    first = training(optimizer, seed=1)
    train(first, 5)
    with Checkpointer(storage, single_world()) as ckpt:
        ckpt.save(5, first)
        expected = train(first, 6)

    second = training(optimizer, seed=2)
    tensors = dict(second["model"].named_parameters())
    with Checkpointer(storage.new_process(), single_world()) as ckpt:
        restored = ckpt.restore(second)
    assert restored is not None
    state = restored[0]
    assert all(state[name] is second[name] for name in ("model", "optimizer", "schedule", "loader", "random", "half"))
    assert all(p is tensors[name] for name, p in second["model"].named_parameters())
    assert second["optimizer"].param_groups[0]["params"][0] is second["model"][0].weight
    assert train(second, 6) == expected


def test_state_dicts_are_filled_like_their_objects() -> None:
    """The plain dicts that torch's own way saves: loaded back, they give the same training."""
    storage = MemoryStorage()
    first = training("AdamW", seed=1)
    train(first, 3)
    names = ("model", "optimizer", "schedule")
    with Checkpointer(storage, single_world()) as ckpt:
        ckpt.save(3, {name: first[name].state_dict() for name in names}, block=True)
    second = training("AdamW", seed=2)
    train(second, 1)
    with Checkpointer(storage.new_process(), single_world()) as ckpt:
        restored = ckpt.restore({name: second[name].state_dict() for name in names})
    assert restored is not None
    for name in names:
        second[name].load_state_dict(restored[0][name])
    second["loader"].row, second["random"] = first["loader"].row, first["random"].clone()
    assert train(second, 4) == train(first, 4)


def test_a_model_on_the_meta_device_is_a_template() -> None:
    """Nothing is allocated before the restore; then every parameter is there, with its gradient's switch."""
    model = training("SGD", seed=1)["model"]
    with torch.device("meta"):
        empty = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
        )
    empty[3].bias.requires_grad_(False)
    with Checkpointer(MemoryStorage(), single_world()) as ckpt:
        ckpt.save(1, {"model": model}, block=True)
        ckpt.restore({"model": empty})
        with pytest.raises(CannotStore, match=r"model/0\.weight.*meta"), torch.device("meta"):
            ckpt.save(2, {"model": torch.nn.Sequential(torch.nn.Linear(6, 8))})
    for (name, one), other in zip(model.state_dict().items(), empty.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert [p.requires_grad for p in empty.parameters()] == [True] * 5 + [False]


def test_tied_weights_are_tied_again() -> None:
    """Two names of one tensor: both are in the checkpoint, and after the restore they are still one."""
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    with Checkpointer(MemoryStorage(), single_world()) as ckpt:
        ckpt.save(1, model, block=True)
        with torch.no_grad():
            expected = model["embed"].weight.clone()
            model["embed"].weight.zero_()
        ckpt.restore(model)
    assert model["head"].weight is model["embed"].weight
    assert torch.equal(model["head"].weight, expected)


@pytest.mark.world(n=4, backend="torch")
def test_models_under_ddp_and_under_fsdp_over_tensor_parallel(world: allranks.World, shared_tmp_path: Path) -> None:
    """DDP: a quarter of the bytes by each rank, no more in all. FSDP over TP, with strided shards: as a whole model."""
    ddp(world, shared_tmp_path / "ddp")
    fsdp_over_tensor_parallel(world, shared_tmp_path / "tp")


def fsdp_over_tensor_parallel(world: allranks.World, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Partial
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}

    def build(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Linear(12, 8))
        parallelize_module(model, mesh["model"], plan)
        return fully_shard(model, mesh=mesh["data"])

    torch.manual_seed(1)
    expected = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)).state_dict()
    saved = build(seed=1)
    with allranks.Checkpointer(folder, world) as ckpt:
        ckpt.save(1, saved, block=True)
        whole = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
        other = build(seed=2)
        for template in (whole, other):
            assert ckpt.restore(template) is not None
        assert all(torch.equal(whole[name], tensor) for name, tensor in expected.items())
        for mine, theirs in zip(other.parameters(), saved.parameters(), strict=True):
            assert isinstance(mine, DTensor)
            assert isinstance(theirs, DTensor)
            assert torch.equal(mine.to_local(), theirs.to_local())
        sums = DTensor.from_local(torch.ones(3), mesh["data"], [Partial()])
        with pytest.raises(CannotStore, match="Partial"):
            ckpt.save(2, {"sums": sums})


def ddp(world: allranks.World, shared_tmp_path: Path) -> None:
    from torch.nn.parallel import DistributedDataParallel as Ddp

    torch.manual_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(700, 800), torch.nn.Linear(800, 700))
    model = Ddp(inner)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 700) + world.rank).sum().backward()
    optimizer.step()
    with allranks.Checkpointer(shared_tmp_path, world) as ckpt:
        ckpt.save(1, {"model": model, "optimizer": optimizer}, block=True)
        sizes = [path.stat().st_size for path in shared_tmp_path.glob("checkpoint-1/*.safetensors")]
        total = 3 * sum(p.nbytes for p in inner.parameters())
        assert len(sizes) == 4
        assert total < sum(sizes) < 1.01 * total
        assert max(sizes) < 1.1 * min(sizes)
        expected = inner[0].weight.detach().clone()
        with torch.no_grad():
            inner[0].weight.fill_(world.rank)
        restored = ckpt.restore({"model": model, "optimizer": optimizer})
    assert restored is not None
    assert torch.equal(inner[0].weight, expected)
