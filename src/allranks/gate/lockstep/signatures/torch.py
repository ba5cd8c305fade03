"""Read the signature of a torch.distributed collective from the arguments of its operation or its method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist

from allranks.gate.lockstep.c10d import KINDS

_c10d: Any = dist.distributed_c10d

# What must be equal on all ranks: operation, reduction, root, then dtype and shape of every tensor; flat, hashable.
Signature = tuple[Any, ...]


def signature_of(name: str, arguments: Mapping[str, Any]) -> Signature:
    """Return the signature of an operation; ``arguments`` maps the names of its arguments to their values."""
    reduction = int(arguments["reduce_op"].op()) if "reduce_op" in arguments else None
    if name == "alltoall_base_":
        even = not (arguments["output_split_sizes"] or arguments["input_split_sizes"])
        tensors = [
            (t.dtype, t.shape if even else ("*", *t.shape[1:])) for t in (arguments["output"], arguments["input"])
        ]
    elif name == "alltoall_":
        tensors = [(t.dtype, "*") for t in arguments["input_tensors"]]
    else:
        tensors = [(t.dtype, t.shape) for one in KINDS[name].tensors for t in _flatten_tensors(arguments[one])]
    return name, reduction, arguments.get("root_rank"), *chain.from_iterable(tensors)


@dataclass(frozen=True, slots=True)
class MethodSignature:
    """How torch.distributed calls a method of ProcessGroup.

    ``options`` is the type of the last argument. ``form`` is a function that returns the signature of the arguments.
    """

    options: type
    form: Callable[..., Signature]


def _allreduce_signature(tensors: Any, options: Any) -> Signature:
    return "allreduce_", int(options.reduceOp.op), None, *_dtypes_and_shapes(tensors)


def _broadcast_signature(tensors: Any, options: Any) -> Signature:
    return "broadcast_", None, options.rootRank, *_dtypes_and_shapes(tensors)


def _allgather_signature(outputs: Any, _: Any, options: Any) -> Signature:
    del options
    return "allgather_", None, None, *chain.from_iterable([_dtypes_and_shapes(one) for one in outputs])


def _gather_into(output: Any, part: Any, options: Any) -> Signature:
    del options
    return "_allgather_base_", None, None, output.dtype, output.shape, part.dtype, part.shape


def _scatter_from(output: Any, part: Any, options: Any) -> Signature:
    reduction = int(options.reduceOp.op)
    return "_reduce_scatter_base_", reduction, None, output.dtype, output.shape, part.dtype, part.shape


def _dtypes_and_shapes(tensors: Sequence[Any]) -> tuple[Any, ...]:
    if len(tensors) == 1:
        return tensors[0].dtype, tensors[0].shape
    return tuple([fact for tensor in tensors for fact in (tensor.dtype, tensor.shape)])


# The methods that training loops call most; the others are seen in the dispatcher.
METHODS = {
    "allreduce": MethodSignature(_c10d.AllreduceOptions, _allreduce_signature),
    "broadcast": MethodSignature(_c10d.BroadcastOptions, _broadcast_signature),
    "allgather": MethodSignature(_c10d.AllgatherOptions, _allgather_signature),
    "_allgather_base": MethodSignature(_c10d.AllgatherOptions, _gather_into),
    "all_gather_single": MethodSignature(_c10d.AllgatherOptions, _gather_into),
    "_reduce_scatter_base": MethodSignature(_c10d.ReduceScatterOptions, _scatter_from),
    "reduce_scatter_single": MethodSignature(_c10d.ReduceScatterOptions, _scatter_from),
}


def _flatten_tensors(tensors: Any) -> Iterator[Any]:
    if isinstance(tensors, torch.Tensor):
        yield tensors
    else:
        for one in tensors:
            yield from _flatten_tensors(one)
