"""Tensors, DTensors, modules and optimizers in checkpoints: filled in place, known by their state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from trees import carried, fill, wholes

import allranks
from allranks.arrays.base import RankSplit
from allranks.arrays.detect import open_tree
from allranks.errors import CannotStore

DTYPES = [
    "bool",
    "complex32",
    "uint8",
    "int64",
    "uint32",
    "float16",
    "bfloat16",
    "float64",
    "complex64",
    "float8_e4m3fn",
]


def model_of(seed: int, **options: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4, **options), torch.nn.BatchNorm1d(4, **options))


def trained(seed: int, steps: int = 3) -> dict[str, Any]:
    """A module, its optimizer and its schedule, after some steps."""
    model = model_of(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(steps):
        step(model, optimizer, schedule)
    return {"model": model, "opt": optimizer, "schedule": schedule, "rng": torch.get_rng_state()}


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> float:
    loss = (model(torch.arange(12.0).reshape(4, 3)) ** 2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    return float(loss.detach())


@pytest.mark.parametrize("steps", [0, 2], ids=["new", "used"])
def test_training_goes_on_as_if_nothing_had_happened(steps: int) -> None:
    """Into a new module and optimizer, whose state is still empty, or used ones; the same objects come back."""
    state, template = trained(1), trained(2, steps)
    weight = template["model"][0].weight
    grad = weight.grad
    back = carried(state, template)
    assert all(back[name] is template[name] for name in ("model", "opt", "schedule"))
    assert back["model"][0].weight is weight
    assert weight.grad is grad
    assert back["rng"].equal(state["rng"])
    expected = [step(state["model"], state["opt"], state["schedule"]) for _ in range(3)]
    assert [step(back["model"], back["opt"], back["schedule"]) for _ in range(3)] == expected


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_filled_in_place(dtype: str) -> None:
    """Contiguous or not, of no dimension or no element, parameters too; the tensors are the template's own."""
    values = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    state = {"flat": values, "turned": values.t(), "one": values[1, 1], "none": values[:0]}
    template = {name: torch.zeros_like(value) for name, value in state.items()}
    template["turned"] = torch.zeros_like(values).t()
    if values.is_floating_point():
        state["leaf"], template["leaf"] = values, torch.nn.Parameter(torch.zeros_like(values))
    back = carried(state, template)
    for name, value in state.items():
        assert back[name] is template[name]
        assert back[name].reshape(-1).view(torch.uint8).equal(value.reshape(-1).view(torch.uint8))
    assert open_tree(state, rank=0, size=1).declared_arrays[0].dtype == dtype


def test_what_is_held_is_the_tensor_itself_and_may_change() -> None:
    tensor = torch.nn.Parameter(torch.arange(4.0))
    held = open_tree(tensor, rank=0, size=1).cell_bytes(0, 0)
    assert (held.mutable, held.data.ctypes.data) == (True, tensor.data_ptr())
    turned = open_tree(torch.arange(6.0).reshape(2, 3).t(), rank=0, size=1).cell_bytes(0, 0)
    assert (turned.mutable, turned.data.view(np.float32).tolist()) == (False, [0, 3, 1, 4, 2, 5])
    conj = torch.tensor([1 + 2j]).conj()
    assert open_tree(conj, rank=0, size=1).cell_bytes(0, 0).data.view(np.complex64).tolist() == [1 - 2j]


def test_a_module_without_memory_gets_some() -> None:
    """On the meta device: parameters are made on CPU, trainable as they were."""
    state = model_of(1)
    back = carried(state, model_of(2, device="meta"))
    assert [name for name, _ in back.named_parameters()] == [name for name, _ in state.named_parameters()]
    assert all(one.equal(other) for one, other in zip(back.parameters(), state.parameters(), strict=True))
    assert all(parameter.requires_grad for parameter in back.parameters())
    with pytest.raises(CannotStore, match=r"'0\.weight' is a meta tensor, which holds no bytes"):
        open_tree(model_of(2, device="meta"), rank=0, size=1)


class Listens(torch.nn.Linear):
    """A module with its own way of loading."""

    def _load_from_state_dict(self, *args: Any, **known: Any) -> None:
        self.told = True
        super()._load_from_state_dict(*args, **known)


class Copies(torch.nn.Linear):
    """A module whose state is not its memory."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight.detach().clone()


def test_a_module_whose_state_is_a_copy_gets_it() -> None:
    """What is filled is not the module's own then."""
    state, into = (torch.nn.Sequential(Copies(3, 4)) for _ in range(2))
    assert carried(state, into)[0].weight.equal(state[0].weight)


def test_a_module_that_listens_is_told_that_it_was_loaded() -> None:
    """Its tensors are filled in place already; its hooks, and those of the modules in it, run all the same."""
    heard: list[str] = []
    back = torch.nn.Sequential(Listens(3, 4), torch.nn.Linear(4, 2))
    carried(back, back)
    assert back[0].told
    hooked = model_of(2)
    hooked[0].register_load_state_dict_post_hook(lambda *_: heard.append("post"))
    carried(model_of(1), hooked)
    assert heard == ["post"]
    assert hooked[0].weight.equal(model_of(1)[0].weight)


def test_the_state_of_an_optimizer_keeps_its_dtype() -> None:
    """Torch's load_state_dict casts it to the parameter's, in silence."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))

    def optimizer_with(value: float) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD([parameter], momentum=0.9)
        optimizer.state[parameter]["momentum_buffer"] = torch.full((2,), value)
        return optimizer

    back = carried(optimizer_with(1 / 3), optimizer_with(0.0))
    buffer = back.state[parameter]["momentum_buffer"]
    assert buffer.dtype == torch.float32
    assert buffer.tolist() == [torch.tensor(1 / 3).item()] * 2


class Extra(torch.nn.Module):
    """A module with a state that is no tensor, and a buffer that is not kept."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.tied = self.weight = torch.nn.Parameter(torch.full((2,), float(at)))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def get_extra_state(self) -> dict[str, int]:
        return {"at": self.at}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_modules_load_what_they_gave() -> None:
    """Extra state, tied parameters and the module's own hooks."""
    seen = []
    template = Extra(0)
    template.register_load_state_dict_post_hook(lambda module, _keys: seen.append(module))
    back = carried({"net": Extra(7)}, {"net": template})["net"]
    assert (back.at, back.weight.tolist(), seen) == (7, [7, 7], [template])
    assert back.tied is back.weight


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        (lambda: torch.eye(2).to_sparse(), "a torch.sparse_coo tensor"),
        (lambda: torch.nested.nested_tensor([torch.zeros(1)]), "a nested tensor"),
        (lambda: torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.qint8), "a tensor of torch.qint8"),
        (lambda: torch.nn.parameter.UninitializedParameter(), "UninitializedParameter, which has no shape yet"),
    ],
    ids=["sparse", "nested", "quantized", "lazy"],
)
@pytest.mark.filterwarnings("ignore")  # torch's, of what it calls prototypes
def test_tensors_that_are_no_array_are_refused(leaf: Any, says: str) -> None:
    with pytest.raises(CannotStore, match=f"'x' is (a .*)?{says}"):
        open_tree({"x": leaf()}, rank=0, size=1)


@pytest.mark.world(n=4, backend="torch")
def test_dtensors_are_parts_of_one_whole(world: allranks.World) -> None:
    """Uneven rows, two meshes, strided shards and replicas: all ranks agree, and each fills its part in place."""
    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    values = torch.arange(60.0).reshape(10, 6)
    cases: dict[str, tuple[Any, list[Any]]] = {
        "rows": (line, [Shard(0)]),
        "columns": (line, [Shard(1)]),
        "whole": (line, [Replicate()]),
        "both": (square, [Shard(0), Shard(1)]),
        "partly": (square, [Replicate(), Shard(0)]),
        "strided": (square, [_StridedShard(1, split_factor=2), Shard(1)]),
    }
    even = torch.arange(80.0).reshape(10, 8)
    whole = {name: even if name == "strided" else values for name in cases}
    state = {name: distribute_tensor(whole[name], *case) for name, case in cases.items()}
    opened = open_tree(state, rank=world.rank, size=world.size)
    splits = {leaf.path: leaf.split for leaf in opened.declared_arrays}
    world.agree([[path, split.cuts, split.holders] for path, split in splits.items()])
    assert splits["rows"] == RankSplit((4, 1), ((0,), (1,), (2,), (3,)))
    assert splits["columns"] == RankSplit((1, 4), ((0,), (1,), (2,), (3,)))
    assert splits["whole"] == RankSplit((1, 1), ((0, 1, 2, 3),))
    assert splits["both"] == RankSplit((2, 2), ((0,), (1,), (2,), (3,)))
    assert splits["partly"] == RankSplit((2, 1), ((0, 2), (1, 3)))
    assert splits["strided"] == RankSplit((1, 4), ((0,), (2,), (1,), (3,)))

    found = wholes(opened, world.rank)
    for name, array in found.items():  # every part is where it is in the whole, and together they are all of it
        assert ((array == whole[name].numpy()) | (array == 0)).all()
        parts = world.all_gather(array.tolist(), name=name)
        assert np.array_equal(np.max(np.array(parts), axis=0), whole[name].numpy())

    template = {name: distribute_tensor(torch.zeros_like(whole[name]), *case) for name, case in cases.items()}
    template["meta"] = DTensor.from_local(torch.empty(1, 6, device="meta"), line, [Shard(0)], run_check=False)
    into = open_tree(template, rank=world.rank, size=world.size, for_restore=True)
    fill(into, {name: value.numpy() for name, value in whole.items()} | {"meta": values[:4].numpy()})
    back: Any = into.rebuild_tree({})
    for name, value in whole.items():
        assert back[name] is template[name]
        assert back[name].full_tensor().equal(value)
    assert back["meta"].full_tensor().equal(values[:4])

    with pytest.raises(CannotStore, match="'sum' is a DTensor with Partial placements"):
        open_tree({"sum": DTensor.from_local(values, line, [Partial()])}, rank=world.rank, size=world.size)
    bad = distribute_tensor(values, square, [Shard(0), Shard(0)])
    with pytest.raises(CannotStore, match=f"rank {world.rank}: .* no grid of equal cells"):
        open_tree(bad, rank=world.rank, size=world.size)


@pytest.mark.world(n=2, backend="torch")
def test_a_sharded_module_goes_on_training(world: allranks.World) -> None:
    """FSDP2 with Adam, rows that do not divide, an optimizer that is new: every rank has its own part again."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))

    def state_of(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 5)
        fully_shard(model, mesh=mesh)
        return {"model": model, "opt": torch.optim.Adam(model.parameters(), lr=0.1)}

    def run(state: dict[str, Any]) -> float:
        loss = (state["model"](torch.ones(2, 3)) ** 2).sum()
        state["opt"].zero_grad()
        loss.backward()
        state["opt"].step()
        return float(loss.detach())

    state, template = state_of(1), state_of(2)
    run(state)
    opened = open_tree(state, rank=world.rank, size=world.size)
    weight = next(leaf for leaf in opened.declared_arrays if leaf.path == "model/weight")
    assert weight.split == RankSplit((2, 1), ((0,), (1,)))
    back = carried(state, template, rank=world.rank, size=world.size)
    assert back["model"] is template["model"]
    assert [run(back) for _ in range(2)] == [run(state) for _ in range(2)]
