"""The collectives of torch.distributed: what of them must be alike on all ranks, and how they are told to people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A collective operation: its public ``name``, the arguments whose tensors must be alike on all ranks, and whether
    all ranks have one part in it, so that all start it from one line."""

    name: str
    tensors: tuple[str, ...] = ()
    one_part: bool = True


KINDS = {
    "allreduce_": Kind("all_reduce", ("tensors",)),
    "allreduce_coalesced_": Kind("all_reduce_coalesced", ("tensors",)),
    "allgather_": Kind("all_gather", ("output_tensors",)),
    "allgather_coalesced_": Kind("all_gather_coalesced", ("output_lists",)),
    "_allgather_base_": Kind("all_gather_into_tensor", ("output_tensor", "input_tensor")),
    "allgather_into_tensor_coalesced_": Kind("all_gather_into_tensor_coalesced", ("outputs", "inputs")),
    "reduce_scatter_": Kind("reduce_scatter", ("input_tensors",)),
    "_reduce_scatter_base_": Kind("reduce_scatter_tensor", ("output_tensor", "input_tensor")),
    "reduce_scatter_tensor_coalesced_": Kind("reduce_scatter_tensor_coalesced", ("outputs", "inputs")),
    "alltoall_": Kind("all_to_all"),
    "alltoall_base_": Kind("all_to_all_single"),
    "broadcast_": Kind("broadcast", ("tensors",), one_part=False),
    "reduce_": Kind("reduce", ("tensors",), one_part=False),
    "gather_": Kind("gather", ("input_tensors",), one_part=False),
    "scatter_": Kind("scatter", ("output_tensors",), one_part=False),
    "barrier": Kind("barrier", one_part=False),
    "monitored_barrier_": Kind("monitored_barrier", one_part=False),
}


def in_words(
    name: str, reduction: str, root: int | None, tensors: Sequence[Any], *, among: str
) -> tuple[str, list[str]]:
    """Return ``all_reduce sum float32[17]`` for an operation, and a line for each tensor where there are many.

    ``tensors`` are dtype and shape, dtype and shape, ...; ``among`` the name of a group that is not all ranks.
    """
    shapes = [_tensor(dtype, shape) for dtype, shape in zip(tensors[::2], tensors[1::2], strict=True)]
    many = len(shapes) > 2
    words = [
        KINDS[name].name,
        reduction,
        "" if root is None else f"from or to rank {root}",
        f"{shapes[0]}, ... ({len(shapes)} tensors)" if many else ", ".join(shapes),
        f"in group {among!r}" if among else "",
    ]
    listed = [f"tensor {number} is {shape}" for number, shape in enumerate(shapes, 1)] if many else []
    return " ".join(filter(None, words)), listed


def _tensor(dtype: Any, shape: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"
