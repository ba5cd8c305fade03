"""What the ranks of a job do in test_trip_worlds.py: one state, whose every element is known from its path and place.

So any rank of any job, of either framework, can tell whether what it restored is what another job had saved.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import allranks

RunJob = Callable[..., None]

# Whole numbers of 24 go into the parts of any mesh here; 7 x 5 go into none, and torch cuts them all the same.
LEAVES: dict[str, tuple[tuple[int, ...], str]] = {
    "up": ((24, 48), "float32"),
    "embed": ((48, 24), "bfloat16"),
    "big": ((1200, 264), "float32"),
    "third": ((24, 3, 24), "float16"),
    "odd": ((7, 5), "float32"),
    "bias": ((24,), "float32"),
    "count": ((), "int32"),
    "empty": ((0, 24), "float32"),
    "mask": ((9,), "bool"),
    "small": ((24, 24), "float8_e4m3fn"),
    "wide": ((48,), "int64"),
}
VALUES = {"lr": 0.1, "name": "trip", "layers": [1, None, True], "limit": float("inf")}


def whole(name: str) -> np.ndarray[Any, Any]:
    """What a leaf holds: other bytes for every leaf and element."""
    shape, dtype = LEAVES[name]
    numbers = np.arange(math.prod(shape), dtype=np.int64) * 31 + zlib.crc32(name.encode())
    if dtype == "bool":
        return (numbers % 3 == 0).reshape(shape)
    if dtype == "float8_e4m3fn":
        return (numbers % 127).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(shape)
    return (numbers % 30_011).astype(getattr(ml_dtypes, dtype, dtype)).reshape(shape)


def same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def tree_of(make: Callable[[str], Any]) -> dict[str, Any]:
    return {"params": {name: make(name) for name in LEAVES}, "config": VALUES}


def prepare() -> None:
    """Import, before the fork, what every rank of every job needs, of what is installed."""
    for name in ("jax", "torch"):
        if find_spec(name) is not None:
            for module in _MODULES[name]:
                import_module(module)
    import_module("allranks.checkpoint.checkpointer")


_MODULES = {
    "jax": ("jax",),
    "torch": ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "allranks.world.torch"),
}


def run(name: str, folder: str, arguments: dict[str, Any]) -> None:
    """The body of every rank of a job."""
    globals()[name](Path(folder), **arguments)


# JAX.


def jax_world() -> allranks.World:
    import jax

    from allranks.testing.collected import _follow_environment

    _follow_environment()  # of a JAX that was imported before the fork
    world = allranks.init("jax")
    jax.devices()
    return world


def sharding_of(layout: str, shape: tuple[int, ...]) -> Any:
    """How a layout cuts an array over all devices; whole where it cannot be cut evenly."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = np.array(jax.devices())
    two = devices.reshape((-1, 2)) if len(devices) > 1 else devices.reshape(1, 1)
    flat, grid = Mesh(devices, ("all",)), Mesh(two, ("data", "model"))
    mesh, cuts = {
        "fsdp": (flat, ("all",)),
        "tp": (flat, (None, "all")),
        "2d": (grid, ("data", "model")),
        "crossed": (grid, ("model", "data")),
        "partly": (grid, ("data",)),
        "both": (grid, (("model", "data"),)),
        "replicated": (flat, ()),
    }[layout]
    cuts = cuts[: len(shape)]
    parts = [math.prod(mesh.shape[axis] for axis in ((cut,) if isinstance(cut, str) else cut or ())) for cut in cuts]
    fits = all(size % count == 0 for size, count in zip(shape, parts, strict=False))
    return NamedSharding(mesh, P(*cuts) if fits else P())


LAYOUTS = ("fsdp", "tp", "2d", "crossed", "partly", "both", "replicated")


def jax_tree(layout: str, *, blank: bool) -> dict[str, Any]:
    """The state, or a template of its shapes; int64 needs what JAX switches off."""
    import jax

    def make(name: str) -> Any:
        content = np.zeros_like(whole(name)) if blank else whole(name)
        if content.dtype == np.int64:
            return content
        return jax.make_array_from_callback(content.shape, sharding_of(layout, content.shape), lambda i: content[i])

    return tree_of(make)


def check_jax(tree: dict[str, Any], layout: str) -> None:
    for name, made in tree["params"].items():
        expected = whole(name)
        if isinstance(made, np.ndarray):
            assert same(made, expected), name
            continue
        assert (made.shape, made.dtype) == (expected.shape, expected.dtype), name
        assert made.sharding == sharding_of(layout, expected.shape), name
        for shard in made.addressable_shards:
            assert same(shard.data, expected[shard.index]), (name, shard.index)
    assert tree["config"] == VALUES


def save_jax(folder: Path, steps: dict[str, str]) -> None:
    """Save each step in its layout, the next one while the last is still being written."""
    with allranks.Checkpointer(folder, jax_world()) as ckpt:
        for step, layout in steps.items():
            ckpt.save(int(step), jax_tree(layout, blank=False), extra={"layout": layout}, metrics={"loss": 0.5})
        ckpt.wait()


def restore_jax(folder: Path, pairs: list[tuple[int, str]]) -> None:
    with allranks.Checkpointer(folder, jax_world()) as ckpt:
        for step, layout in pairs:
            restored = ckpt.restore(jax_tree(layout, blank=True), step=step)
            assert restored is not None
            check_jax(restored[0], layout)


# torch.


def torch_tensor(name: str, *, blank: bool) -> Any:
    import torch

    content = np.zeros_like(whole(name)) if blank else whole(name)
    carrier = {"bfloat16": np.int16, "float8_e4m3fn": np.uint8}.get(content.dtype.name)
    if carrier is None:
        return torch.from_numpy(content.copy())
    return torch.from_numpy(content.view(carrier).copy()).view(getattr(torch, content.dtype.name))


def bits(tensor: Any) -> np.ndarray[Any, Any]:
    import torch

    width = {1: torch.uint8, 2: torch.int16}.get(tensor.element_size())
    return tensor.detach().contiguous().view(width).numpy() if width else tensor.detach().contiguous().numpy()


def placed(layout: str, shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """The mesh and the placements of a layout."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    size = dist.get_world_size()
    if layout == "2d" and size % 2 == 0 and len(shape) > 1:
        return init_device_mesh("cpu", (size // 2, 2)), [Shard(0), Shard(1)]
    if layout == "hsdp" and size % 2 == 0 and shape:
        return init_device_mesh("cpu", (size // 2, 2)), [Replicate(), Shard(0)]
    last = len(shape) - 1
    place = {"rows": Shard(0), "columns": Shard(last)}.get(layout, Replicate()) if shape else Replicate()
    return init_device_mesh("cpu", (size,)), [place]


def torch_tree(layout: str, *, blank: bool) -> dict[str, Any]:
    from torch.distributed.tensor import distribute_tensor

    def make(name: str) -> Any:
        tensor = torch_tensor(name, blank=blank)
        if layout == "plain":
            return tensor
        return distribute_tensor(tensor, *placed(layout, tuple(tensor.shape)), src_data_rank=None)

    return tree_of(make)


def check_torch(tree: dict[str, Any], layout: str) -> None:
    expected = torch_tree(layout, blank=False)
    for name, made in tree["params"].items():
        mine, theirs = made, expected["params"][name]
        if layout != "plain":
            assert made.placements == theirs.placements, name
            mine, theirs = made.to_local(), theirs.to_local()
        assert mine.dtype == theirs.dtype, name
        assert same(bits(mine), bits(theirs)), name
    assert tree["config"] == VALUES


TORCH_LAYOUTS = ("rows", "columns", "2d", "hsdp", "replicated", "plain")


def torch_world() -> allranks.World:
    return allranks.init("torch")


def save_torch(folder: Path, steps: dict[str, str]) -> None:
    with allranks.Checkpointer(folder, torch_world()) as ckpt:
        for step, layout in steps.items():
            state = torch_tree(layout, blank=False)
            ckpt.save(int(step), state)
            for tensor in state["params"].values():  # what is saved is safe once save() has returned
                (tensor if layout == "plain" else tensor.to_local()).zero_()
        ckpt.wait()


def restore_torch(folder: Path, pairs: list[tuple[int, str]]) -> None:
    with allranks.Checkpointer(folder, torch_world()) as ckpt:
        for step, layout in pairs:
            template = torch_tree(layout, blank=True)
            tensors = dict(template["params"])
            restored = ckpt.restore(template, step=step)
            assert restored is not None
            check_torch(restored[0], layout)
            assert all(restored[0]["params"][name] is tensor for name, tensor in tensors.items()), "in place"


# A model under FSDP2, and its optimizer.


def fsdp(seed: int, *, train: bool) -> dict[str, Any]:
    import torch
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 5, bias=False))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for step in range(3 if train else 0):
        model(torch.arange(24.0).reshape(4, 6) + step).square().mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


def fulls(parts: dict[str, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Every tensor of a model and its optimizer, gathered."""
    states = [parts["model"].state_dict(), *parts["optimizer"].state_dict()["state"].values()]
    for state in states:
        for tensor in state.values():
            full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            yield full.detach().numpy()


def save_fsdp(folder: Path) -> None:
    world = torch_world()
    parts = fsdp(1, train=True)
    with allranks.Checkpointer(folder, world) as ckpt:
        ckpt.save(3, parts, block=True)
    whole_arrays = list(fulls(parts))
    if world.is_main:
        np.savez(folder / "whole.npz", *whole_arrays)


def restore_fsdp(folder: Path) -> None:
    parts = fsdp(2 + allranks.init("torch").rank, train=False)
    before = dict(parts["model"].named_parameters())
    with allranks.Checkpointer(folder) as ckpt:
        restored = ckpt.restore(parts)
    assert restored is not None
    assert restored[0]["model"] is parts["model"]
    assert all(p is before[name] for name, p in parts["model"].named_parameters())
    assert parts["schedule"].last_epoch == 3
    expected = np.load(folder / "whole.npz")
    made = list(fulls(parts))
    assert len(made) == len(expected.files)
    for one, name in zip(made, expected.files, strict=True):
        assert same(one, expected[name]), name


# JAX arrays on the devices of some processes only.


def subset_shardings(world: allranks.World, turn: int) -> dict[str, Any]:
    """Return a sharding a leaf; every ``turn`` puts them on other processes."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    def on(processes: set[int], *cuts: str | None) -> Any:
        devices = [device for device in jax.devices() if device.process_index in processes]
        return NamedSharding(Mesh(np.array(devices), ("x",)), P(*cuts))

    first, last, everyone = turn % world.size, (turn - 1) % world.size, set(range(world.size))
    grid = Mesh(np.array(jax.devices()[: 3 if world.size == 2 else 6]).reshape(-1, 3), ("a", "b"))
    return {
        "actor": on({first}, "x"),
        "actor_bias": on({first}),
        "learner": on({last}, None, "x"),
        "count": on({last}),
        "most": on(everyone - {first}, "x"),
        "most_bias": on(everyone - {last}),
        "all": on(everyone, "x"),
        "uneven": NamedSharding(grid, P("a")),
        "none": on({last}),
    }


SUBSETS: dict[str, tuple[tuple[int, ...], Any]] = {
    "actor": ((24, 2), np.float32),
    "actor_bias": ((5,), ml_dtypes.bfloat16),
    "learner": ((3, 24), np.float32),
    "count": ((), np.int32),
    "most": ((24, 3), np.int8),
    "most_bias": ((7,), np.float16),
    "all": ((48,), np.float32),
    "uneven": ((4, 2), np.float32),
    "none": ((0, 3), np.float32),
}


def subset_tree(world: allranks.World, turn: int, *, blank: bool) -> dict[str, Any]:
    import jax

    def make(name: str, sharding: Any) -> Any:
        shape, dtype = SUBSETS[name]
        content = np.arange(1, 1 + math.prod(shape)).astype(dtype).reshape(shape) * (not blank)
        return jax.make_array_from_callback(shape, sharding, lambda i: content[i], dtype=dtype)

    shardings = subset_shardings(world, turn)
    key = jax.make_array_from_callback(
        (2,), shardings["count"], lambda i: np.array([3, 4 * (not blank)], np.uint32)[i], dtype=np.uint32
    )
    return {**{name: make(name, one) for name, one in shardings.items()}, "key": jax.random.wrap_key_data(key)}


def save_subsets(folder: Path) -> None:
    world = jax_world()
    tree = subset_tree(world, 0, blank=False)
    with allranks.Checkpointer(folder, world) as ckpt:
        for step in (1, 2):
            ckpt.save(step, tree, block=True)
    check_subsets(world, folder, turn=1)


def restore_subsets(folder: Path) -> None:
    world = jax_world()
    for turn in (0, 1):
        check_subsets(world, folder, turn=turn)


def check_subsets(world: allranks.World, folder: Path, *, turn: int) -> None:
    """Restore onto other processes, into arrays and into descriptions; load; compare over all ranks."""
    import jax

    meant, template = (subset_tree(world, turn, blank=blank) for blank in (False, True))
    described = {k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=v.sharding) for k, v in template.items()}
    ckpt = allranks.Checkpointer(folder, world, read_only=True)
    restored = [ckpt.restore(template), ckpt.restore(described)]
    loaded = allranks.load(folder, template, world=world)
    assert loaded.coverage == 1
    digest = allranks.tree_digest(meant, world)
    for found in (*[one[0] for one in restored if one is not None], loaded.state):
        assert allranks.tree_digest(found, world) == digest
        for name, made in found.items():
            assert made.sharding == meant[name].sharding, name
            for one, other in zip(made.addressable_shards, meant[name].addressable_shards, strict=True):
                pair = [jax.random.key_data(x.data) if name == "key" else x.data for x in (one, other)]
                assert same(*pair), name
