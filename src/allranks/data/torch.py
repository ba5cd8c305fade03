"""Make tensors from batches, and find the rows that a DeviceMesh gives to this rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.device_mesh import DeviceMesh

from allranks.data.plan import rows_of_part
from allranks.errors import DataError


def rows_of_process(where: object, *, global_batch: int, rank: int) -> range | None:
    """Return the rows of this rank's coordinate along the mesh dimensions that divide the batch.

    Several dimensions count as one, in which the last named dimension varies fastest. None if ``where`` is neither a
    torch DeviceMesh, nor a pair of a DeviceMesh and names.
    """
    mesh, names = where if isinstance(where, tuple) and len(where) == 2 else (where, None)
    if not isinstance(mesh, DeviceMesh):
        return None
    dims = _mesh_dimensions(mesh, names, rank)
    place = mesh.get_coordinate()
    if place is None:
        raise DataError(f"rank {rank} is not in the mesh {mesh}, so it holds no rows.")
    part = 0
    for dim in dims:
        part = part * mesh.size(dim) + place[dim]
    return rows_of_part(part, math.prod(mesh.size(dim) for dim in dims), global_batch, rank=rank)


def _mesh_dimensions(mesh: DeviceMesh, names: str | Sequence[str] | None, rank: int) -> tuple[int, ...]:
    if names is None and mesh.ndim == 1:
        return (0,)
    known, wanted = mesh.mesh_dim_names or (), (names,) if isinstance(names, str) else names
    if wanted is None or not set(wanted) <= set(known):
        raise DataError(
            f"rank {rank}: the mesh has {mesh.ndim} dimensions, called {', '.join(known) or 'nothing'}"
            f"{f', and not {wanted}' if wanted else ''}.",
            remedy="Name those that cut the batch: (mesh, 'dp').",
        )
    return tuple(known.index(name) for name in wanted)


def to_training(batch: Any, device: Any) -> dict[str, Any]:
    """Return a batch on the device. Raises DataError if no gradients are computed."""
    if not torch.is_grad_enabled():
        raise DataError(
            "a Dataset.loader continues where it was stopped, so an evaluation that was interrupted (Lightning's "
            "sanity check) would be followed by one of the rest alone.",
            remedy="For evaluations, use allranks.integrations.torch.Batches(data, world), which begins anew each "
            "time.",
        )
    found: dict[str, Any] = batch.to_torch(device)
    return found


@contextmanager
def seeded_generator() -> Iterator[None]:
    """Seed torch's CPU generator equally on all ranks in this block, and restore the generator afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def to_torch(
    columns: Mapping[str, NDArray[Any]],
    device: torch.device | str | int | None = None,
    *,
    pin_memory: bool = False,
) -> dict[str, Any]:
    """Return a batch as tensors; they share the columns' memory if ``device`` is None and nothing is pinned.

    With ``pin_memory`` a copy to ``device`` may still be in progress on return. Columns of text, bytes and objects are
    returned unchanged.
    """
    return {
        name: column if column.dtype.kind in "OSUMmV" else _tensor_of_column(column, device, pin_memory)
        for name, column in columns.items()
    }


def placement(device: Any, pin_memory: bool | None, mask: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function that copies a batch to a device in any thread, as the calling thread would do it.

    A thread has its own current GPU and stream. ``pin_memory``: None for a copy through pinned memory to a GPU.
    """
    where = torch.device("cpu" if device is None else device)
    if where.type != "cuda":
        return lambda batch: batch.to_torch(device, pin_memory=bool(pin_memory), mask=mask)
    number: int | None = where.index  # None: the current one
    gpu = torch.device("cuda", torch.cuda.current_device() if number is None else number)
    stream = torch.cuda.current_stream(gpu)
    pinned = pin_memory is not False

    def placed(batch: Any) -> dict[str, Any]:
        with torch.cuda.device(gpu), torch.cuda.stream(stream):
            found: dict[str, Any] = batch.to_torch(gpu, pin_memory=pinned, mask=mask)
            return found

    return placed


def _tensor_of_column(column: NDArray[Any], device: torch.device | str | int | None, pin_memory: bool) -> torch.Tensor:
    writable = column.flags.writeable and column.dtype.isnative and min(column.strides, default=0) >= 0
    tensor = torch.from_numpy(column if writable else np.array(column, column.dtype.newbyteorder("=")))
    if pin_memory:
        tensor = tensor.pin_memory()
    return tensor if device is None else tensor.to(device, non_blocking=pin_memory)
