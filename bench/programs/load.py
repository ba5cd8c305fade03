"""One load of a foreign checkpoint into a model that is there: by a library's own loader, or by ours.

``load.py make KIND FOLDER`` writes the files; ``load.py WAY KIND FOLDER`` loads one, and tells seconds and extra bytes.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ckpt_limits import forget_peak, resident
from told import tell

warnings.simplefilter("ignore")
SHAPES = {
    "large": {f"layers.{n}.weight": (2048, 2048) for n in range(64)},
    "many": {f"layers.{n // 50}.{n % 50}.weight": (64, 64) for n in range(4000)},
    "quick": {f"layers.{n}.weight": (256, 256) for n in range(16)},
}


def model(kind: str, *, fill: float | None) -> torch.nn.Module:
    """A module of these weights: noise, or all ``fill``; its memory has been touched."""
    made = torch.nn.Module()
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal(1 << 22, np.float32))
    for number, (name, shape) in enumerate(SHAPES[kind].items()):
        weight = torch.empty(shape)
        weight.copy_(noise[: weight.numel()].view(shape) + number) if fill is None else weight.fill_(fill)
        layer = made
        for part in name.split(".")[:-1]:
            if part not in dict(layer.named_children()):
                layer.add_module(part, torch.nn.Module())
            layer = layer.get_submodule(part)
        layer.register_parameter("weight", torch.nn.Parameter(weight))
    return made


def make(kind: str, folder: Path) -> None:
    import msgpack
    import orbax.checkpoint as ocp
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file

    state = model(kind, fill=None).state_dict()
    save_file(state, folder / "a.safetensors")
    torch.save(state, folder / "a.pt")
    dcp.save(dict(state), checkpoint_id=folder / "dcp", no_dist=True)
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as saver:
        saver.save(folder / "orbax", arrays)
    packed = {
        name: msgpack.ExtType(1, msgpack.packb((array.shape, array.dtype.name, array.tobytes())))
        for name, array in arrays.items()
    }
    (folder / "a.msgpack").write_bytes(msgpack.packb(packed))


def safetensors(folder: Path, into: torch.nn.Module) -> None:
    from safetensors.torch import load_file

    into.load_state_dict(load_file(folder / "a.safetensors"))


def torch_load(folder: Path, into: torch.nn.Module) -> None:
    into.load_state_dict(torch.load(folder / "a.pt", weights_only=True))


def torch_mmap(folder: Path, into: torch.nn.Module) -> None:
    into.load_state_dict(torch.load(folder / "a.pt", weights_only=True, mmap=True))


def dcp(folder: Path, into: torch.nn.Module) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.load(into.state_dict(), checkpoint_id=folder / "dcp", no_dist=True)


def orbax(folder: Path, into: torch.nn.Module) -> None:
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as saver:
        arrays = saver.restore(folder / "orbax")
    into.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def msgpack(folder: Path, into: torch.nn.Module) -> None:
    """As ``flax.serialization.msgpack_restore`` does it."""
    import msgpack

    def array(code: int, data: bytes) -> Any:
        assert code == 1
        shape, dtype, buffer = msgpack.unpackb(data, raw=True)
        return torch.from_numpy(np.frombuffer(buffer, dtype.decode(), count=-1).reshape(shape).copy())

    with open(folder / "a.msgpack", "rb") as file:
        into.load_state_dict(msgpack.unpackb(file.read(), ext_hook=array, raw=False))


def ours(name: str) -> Callable[[Path, torch.nn.Module], None]:
    def load(folder: Path, into: torch.nn.Module) -> None:
        allranks.load(folder / name, into, world=WORLD)

    return load


WAYS = {
    "safetensors": safetensors,
    "torch": torch_load,
    "torch mmap": torch_mmap,
    "DCP": dcp,
    "Orbax": orbax,
    "msgpack": msgpack,
    **{f"ours {name}": ours(name) for name in ("a.safetensors", "a.pt", "dcp", "orbax", "a.msgpack")},
}

if __name__ == "__main__":
    way, kind, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if way == "make":
        make(kind, folder)
        sys.exit()
    import allranks
    from allranks.world.detect import single_world

    WORLD = single_world()
    logging.getLogger("allranks").addHandler(logging.NullHandler())
    small = folder.parent / "quick"  # imports, and what is made once, are nobody's time
    WAYS[way](small, model("quick", fill=0.0))
    into = model(kind, fill=0.0)
    base, _ = resident("VmRSS"), forget_peak()
    begin = time.perf_counter()
    WAYS[way](folder, into)
    seconds = time.perf_counter() - begin
    extra = resident("VmHWM") - base
    expected = model(kind, fill=None).state_dict()
    assert all(torch.equal(one, expected[name]) for name, one in into.state_dict().items()), "other weights"
    tell(seconds=seconds, memory=extra, nbytes=sum(tensor.nbytes for tensor in expected.values()))
