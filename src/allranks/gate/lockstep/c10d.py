"""List the collectives of torch.distributed and the arguments that must be equal on all ranks, and describe a call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.errors import name_ranks

# What torch writes where the program describes no group.
_NO_DESCRIPTIONS = ("", "undefined")


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """A kind of collective operation.

    ``name`` is its public name. ``tensors`` are the arguments whose tensors must have equal shapes and dtypes on all
    ranks. ``is_symmetric``: all ranks have the same role, so all ranks start it from one line.
    """

    name: str
    tensors: tuple[str, ...] = ()
    is_symmetric: bool = True


KINDS = {
    "allreduce_": CollectiveKind("all_reduce", ("tensors",)),
    "allreduce_coalesced_": CollectiveKind("all_reduce_coalesced", ("tensors",)),
    "allgather_": CollectiveKind("all_gather", ("output_tensors",)),
    "allgather_coalesced_": CollectiveKind("all_gather_coalesced", ("output_lists",)),
    "_allgather_base_": CollectiveKind("all_gather_into_tensor", ("output_tensor", "input_tensor")),
    "allgather_into_tensor_coalesced_": CollectiveKind("all_gather_into_tensor_coalesced", ("outputs", "inputs")),
    "reduce_scatter_": CollectiveKind("reduce_scatter", ("input_tensors",)),
    "_reduce_scatter_base_": CollectiveKind("reduce_scatter_tensor", ("output_tensor", "input_tensor")),
    "reduce_scatter_tensor_coalesced_": CollectiveKind("reduce_scatter_tensor_coalesced", ("outputs", "inputs")),
    "alltoall_": CollectiveKind("all_to_all"),
    "alltoall_base_": CollectiveKind("all_to_all_single"),
    "broadcast_": CollectiveKind("broadcast", ("tensors",), is_symmetric=False),
    "reduce_": CollectiveKind("reduce", ("tensors",), is_symmetric=False),
    "gather_": CollectiveKind("gather", ("input_tensors",), is_symmetric=False),
    "scatter_": CollectiveKind("scatter", ("output_tensors",), is_symmetric=False),
    "barrier": CollectiveKind("barrier", is_symmetric=False),
    "monitored_barrier_": CollectiveKind("monitored_barrier", is_symmetric=False),
}


def describe_operation(
    name: str, reduction_name: str, root_rank: int | None, tensors: Sequence[Any], *, group_text: str
) -> tuple[str, list[str]]:
    """Return the description of an operation, e.g. ``all_reduce sum float32[17]``, and a line for each of many tensors.

    ``tensors`` holds a dtype and a shape in turn. ``root_rank`` is the rank from or to which data goes; None for none.
    ``group_text`` describes the group; it is "" for all ranks. With at most two tensors there are no lines.
    """
    shapes = [_describe_tensor(dtype, shape) for dtype, shape in zip(tensors[::2], tensors[1::2], strict=True)]
    many = len(shapes) > 2
    words = [
        KINDS[name].name,
        reduction_name,
        "" if root_rank is None else f"from or to rank {root_rank}",
        f"{shapes[0]}, ... ({len(shapes)} tensors)" if many else ", ".join(shapes),
        f"in {group_text}" if group_text else "",
    ]
    listed = [f"tensor {number} is {shape}" for number, shape in enumerate(shapes, 1)] if many else []
    return " ".join(filter(None, words)), listed


def describe_group(name: str, description: str, ranks: Iterable[int]) -> str:
    """Return a description of a group, e.g. ``group 2 'tensor parallel' (ranks 0-1)``.

    Torch numbers groups in the order in which they are created.
    """
    number = f"group {name}" if name.isdigit() else "a group"
    words = [number, "" if description in _NO_DESCRIPTIONS else repr(description), f"({name_ranks(sorted(ranks))})"]
    return " ".join(filter(None, words))


def _describe_tensor(dtype: Any, shape: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"
