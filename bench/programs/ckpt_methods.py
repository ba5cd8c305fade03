"""The ways to save and restore, by name. A way that cannot do what is asked fails, and the table says how.

A way holds the state as its framework does (``hold``): all of it or, where it is sharded, this rank's rows. ``save``
returns a call that waits until the way says that all is saved; ``durable`` says whether it then is, and ``behind``
whether the program may go on before. ``restore`` returns the restored state: in the memory of ``tree`` if ``in_place``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ckpt_state import State

Tree = dict[str, dict[str, Any]]


class Method(Protocol):
    in_place: bool
    durable: bool
    behind: bool

    def hold(self, state: State) -> Tree: ...
    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]: ...
    def restore(self, folder: Path, step: int, tree: Tree) -> Tree: ...
    def close(self) -> None: ...


def method(name: str, framework: str) -> Method:
    """Return a way by its name: ``torch.save``, ``dcp-2-threads``, ``orbax``, ``ours-async``..."""
    module = {"ours": "ckpt_ours", "orbax": "ckpt_orbax"}.get(name.partition("-")[0], "ckpt_torch")
    made: Method = importlib.import_module(module).make(name, framework)
    return made


def join(framework: str) -> Any:
    """Let this rank meet the others, as its framework wants it; return the world."""
    if framework == "torch":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
    import allranks

    return allranks.init(backend=framework)


def hold_torch(state: State) -> Tree:
    """Tensors over the arrays' memory; DTensors of rows where there are more ranks."""
    import torch

    def tensor(array: Any) -> Any:
        plain = array.dtype.kind == "f"
        return torch.from_numpy(array) if plain else torch.from_numpy(array.view("int16")).view(torch.bfloat16)

    tensors = [tensor(array) for array in state.arrays]
    if state.size > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cpu", (state.size,))
        tensors = [DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False) for tensor in tensors]
    return state.tree(tensors)


def hold_jax(state: State) -> Tree:
    """JAX arrays, sharded by rows where there are more ranks. The state lets go of its own arrays."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    spread = NamedSharding(Mesh(jax.devices(), "rank"), PartitionSpec("rank"))
    held = []
    for leaf, array in zip(state.leaves, state.arrays, strict=True):
        held.append(jax.make_array_from_process_local_data(spread, array, leaf.shape))
    jax.block_until_ready(held)
    state.arrays.clear()
    return state.tree(held)


HOLD = {"torch": hold_torch, "jax": hold_jax, "numpy": lambda state: state.tree(state.arrays)}
