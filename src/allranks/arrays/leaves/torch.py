"""Provide the adapter for PyTorch tensors, filled in place if they are on CPU, and for modules and optimizers."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from copy import copy
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from allranks.arrays.base import CellBytes, CellCopy, FillTarget
from allranks.arrays.codecs import array_like_saved
from allranks.arrays.leaves.base import ArraySpec, LeafFill, LeafRefused, OpenContext
from allranks.arrays.leaves.numpy import DTYPES, flat_bytes, rank_local_spec
from allranks.arrays.leaves.optimizer import torch as optimizer
from allranks.arrays.saved_tree import SavedArray
from allranks.arrays.walk import DeferredChild, OpenedNode, Opener, stateful_node
from allranks.extent import Extent

_NAMES = {dtype: name for name in DTYPES if isinstance(dtype := getattr(torch, name, None), torch.dtype)}
# Dtypes below one byte are only names in torch: it cannot compute with them or copy them.
_OPAQUE = {
    dtype: str(dtype)
    for name in dir(torch)
    if re.fullmatch("u?int[1-7]|float4_e2m1fn_x2", name) and isinstance(dtype := getattr(torch, name), torch.dtype)
}
_KINDS = {dtype: kind for dtype, kind in _OPAQUE.items() if dtype not in _NAMES}
_NAMES |= dict.fromkeys(_KINDS, "uint8")
_USUAL = frozenset({torch.Tensor, torch.nn.Parameter})
_LOADS = (torch.nn.Module._load_from_state_dict, _NormBase._load_from_state_dict)
_EXTRA_STATE = "_extra_state"
_HOOKS = ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
# The dtypes through which torch passes these bytes to NumPy.
_CARRIERS = {torch.bfloat16: torch.int16, torch.complex32: torch.int32} | {
    dtype: torch.uint8 for dtype, name in _NAMES.items() if name.startswith("float8") or dtype in _OPAQUE
}
_swap: Callable[[torch.Tensor, torch.Tensor], None] = torch.utils.swap_tensors  # it is not typed


def claims(kind: type) -> bool:
    return issubclass(kind, torch.Tensor)


def opener(node: object, context: OpenContext) -> Opener | None:
    if isinstance(node, torch.nn.Module):
        return lambda module: _open_module(module, context)
    if isinstance(node, torch.Generator):
        return lambda generator: stateful_node(generator, generator.get_state(), generator.set_state)
    return optimizer.opener(node, context)


def _open_module(module: torch.nn.Module, context: OpenContext) -> OpenedNode:
    plain = type(module).state_dict is torch.nn.Module.state_dict
    state = module.state_dict(keep_vars=True) if plain else module.state_dict()

    def load(filled: dict[str, Any]) -> None:
        in_place = plain and all(value is state[name] for name, value in filled.items())
        if in_place and _loads_by_copy(module):
            return
        on_meta = any(tensor.is_meta for tensor in chain(module.parameters(), module.buffers()))
        module.load_state_dict(filled, assign=on_meta)

    opened = state
    if extra := [name for name in state if name.endswith(_EXTRA_STATE)]:
        opened = copy(state)
        opened.update((name, DeferredChild(partial(_extra_state, state[name], context))) for name in extra)
    return stateful_node(
        module, DeferredChild(partial(_record_main_buffers, module, opened, context), follows_checkpoint=False), load
    )


def _extra_state(live: object, context: OpenContext, path: str) -> object:
    """Return the template for a module's extra state. If it is a tensor, it gets the saved shape."""
    saved = context.saved.part_below(path) if context.saved else None
    if isinstance(saved, SavedArray) and isinstance(live, torch.Tensor):
        return array_like_saved(live, saved)
    return live


def _record_main_buffers(
    module: torch.nn.Module, state: dict[str, Any], context: OpenContext, path: str
) -> dict[str, Any]:
    """Return ``state``, and record the buffers that DistributedDataParallel copies from rank 0 before every step."""
    if context.choose is not None:
        at = f"{path}/" if path else ""
        for name, part in module.named_modules():
            if isinstance(part, DistributedDataParallel) and part.broadcast_buffers:
                before = f"{name}.module." if name else "module."
                names = {name for name, _ in part.module.named_buffers()} - set(part.parameters_to_ignore)
                context.main.update(f"{at}{before}{name}" for name in names)
    return state


def _loads_by_copy(module: torch.nn.Module) -> bool:
    """Return whether loading a module's own tensors would do nothing but copy them onto themselves.

    This holds if the module has no hooks and no class overrides the methods. Loading can then be left out, because
    torch needs a time for it that grows with the square of the number of modules.
    """
    return type(module).load_state_dict is torch.nn.Module.load_state_dict and not any(
        any(getattr(part, name, True) for name in _HOOKS)
        or type(part)._load_from_state_dict not in _LOADS
        or type(part)._save_to_state_dict is not torch.nn.Module._save_to_state_dict
        or type(part).get_extra_state is not torch.nn.Module.get_extra_state
        for part in module.modules()
    )


def spec(leaf: torch.Tensor, context: OpenContext) -> ArraySpec:
    name = dtype_name(leaf, context)
    strides = () if leaf.is_contiguous() else zip(leaf.stride(), leaf.shape, strict=True)
    if context.for_restore and any(by == 0 and many > 1 for by, many in strides):
        raise LeafRefused("a view in which many elements share one number", "Store a copy of the tensor: clone().")
    return rank_local_spec(tuple(leaf.shape), name, context.size, dtype_kind(leaf))


def dtype_kind(leaf: torch.Tensor) -> str:
    """Return torch's name of a dtype that no other framework has; "" for all other dtypes."""
    return _KINDS.get(leaf.dtype, "")


def dtype_name(leaf: torch.Tensor, context: OpenContext) -> str:
    """Return the name of a tensor's dtype in a checkpoint. Raises LeafRefused for tensors that cannot be stored."""
    if type(leaf) not in _USUAL:
        _refuse_wrappers(leaf)
    name = _NAMES.get(leaf.dtype)
    if leaf.is_nested or leaf.layout is not torch.strided:
        raise LeafRefused(
            f"a {'nested' if leaf.is_nested else leaf.layout} tensor", "Store the dense tensors that it consists of."
        )
    if name is None:
        raise LeafRefused(f"a tensor of {leaf.dtype}", "View the tensor as torch.uint8, or dequantize it.")
    if leaf.is_meta and not context.for_restore:
        raise LeafRefused("a meta tensor, which holds no bytes", "Use a meta tensor only in a template.")
    return name


def _refuse_wrappers(leaf: Any) -> None:
    kind = f"a {type(leaf).__module__}.{type(leaf).__qualname__}"
    if is_lazy(leaf):
        raise LeafRefused(f"{kind}, which has no shape yet", "Run the model once before you save or restore.")
    wraps = is_traceable_wrapper_subclass(leaf) or hasattr(leaf, "__tensor_flatten__")
    if wraps and not hasattr(leaf, "to_local"):
        remedy = f"allranks.checkpoint.register_type({type(leaf).__qualname__}, encode, decode)"
        raise LeafRefused(f"{kind}, which wraps other tensors", f"Register how to encode it: {remedy}.")


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a DTensor, or any other tensor itself; detached from autograd."""
    to_local = getattr(tensor, "to_local", None)
    if to_local is None:
        return tensor.detach()
    with torch.no_grad():
        return cast(torch.Tensor, to_local())


def cell_bytes(leaf: torch.Tensor, _cell: int, _context: OpenContext) -> CellBytes:
    tensor = leaf.detach() if leaf.requires_grad else leaf
    if leaf.dtype in _OPAQUE:
        tensor = tensor.view(torch.uint8)
    if _is_plain_on_host(tensor) and tensor.is_contiguous():
        return CellBytes(flat_bytes(_numpy_view(tensor)), mutable=True)
    return CellBytes(flat_bytes(_numpy_view(tensor.cpu().resolve_conj().resolve_neg().contiguous())), mutable=False)


def copies(leaf: torch.Tensor, context: OpenContext) -> tuple[CellCopy, ...]:
    return () if leaf.is_meta else (make_cell_copy(leaf, 0, context),)


def make_cell_copy(part: torch.Tensor, cell: int, context: OpenContext) -> CellCopy:
    """Return the CellCopy of a cell whose data is ``part``, a tensor of this rank."""
    tensor = part.detach()
    return CellCopy(cell, str(tensor.device), "torch", tensor, tensor.is_cpu, partial(_bytes, tensor, context))


def _bytes(tensor: torch.Tensor, context: OpenContext) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return cell_bytes(tensor, 0, context).data


def _is_plain_on_host(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's values are in host memory as they are (not lazily conjugated or negated)."""
    return tensor.is_cpu and not tensor.is_conj() and not tensor.is_neg()


def _numpy_view(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a NumPy view of a CPU tensor's memory."""
    carrier = _CARRIERS.get(tensor.dtype)
    if carrier is None:
        return cast("np.ndarray[Any, Any]", tensor.numpy())
    return tensor.view(carrier).numpy().view(DTYPES[_NAMES[tensor.dtype]])


def _tensor_of_buffer(buffer: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        return torch.from_numpy(buffer)
    return torch.from_numpy(buffer.view(str(carrier).removeprefix("torch."))).view(dtype)


def from_stored(buffer: np.ndarray[Any, Any], kind: str) -> torch.Tensor:
    """Return a stored array as a CPU tensor that uses the buffer as its memory."""
    if kind.startswith("torch."):
        return _tensor_of_buffer(buffer, getattr(torch, kind.removeprefix("torch.")))
    name = buffer.dtype.name
    return _tensor_of_buffer(buffer, next((dtype for dtype, known in _NAMES.items() if known == name), torch.uint8))


def address(leaf: torch.Tensor) -> int:
    return leaf.data_ptr() or id(leaf)


def memory(leaf: torch.Tensor) -> Hashable:
    return memory_key_of_part(leaf, leaf)


def memory_key_of_part(leaf: torch.Tensor, part: torch.Tensor) -> Hashable:
    """Return a key, equal for leaves whose parts on this rank share one memory. An empty part shares none."""
    if part.is_meta or not part.numel():
        return id(leaf)
    return part.data_ptr(), part.device, part.dtype, leaf.shape, part.stride(), part.is_conj(), part.is_neg()


def leaf_fill(leaf: torch.Tensor, _context: OpenContext) -> LeafFill:
    return leaf_fill_of(leaf, leaf.detach(), Extent.of_shape(tuple(leaf.shape)), wrap=lambda filled: filled)


def leaf_fill_of(
    leaf: torch.Tensor, part: torch.Tensor, extent: Extent, *, wrap: Callable[[torch.Tensor], torch.Tensor]
) -> LeafFill:
    """Return the memory to fill for ``part``, this rank's part of ``leaf``. ``wrap`` returns a leaf for a new part."""
    if _is_plain_on_host(part):
        return LeafFill((FillTarget(extent, _numpy_view(part), live=True),), lambda: leaf)
    buffer = np.empty(extent.shape, DTYPES[_NAMES[leaf.dtype]])

    def done() -> object:
        filled = _tensor_of_buffer(buffer, leaf.dtype)
        if not leaf.is_meta:
            bytes_ = leaf.dtype in _OPAQUE
            (part.view(torch.uint8) if bytes_ else part).copy_(filled.view(torch.uint8) if bytes_ else filled)
            return leaf
        if isinstance(leaf, torch.nn.Parameter):
            return _swap_content(leaf, torch.nn.Parameter(wrap(filled), requires_grad=leaf.requires_grad))
        return _swap_content(leaf, wrap(filled).requires_grad_(leaf.requires_grad))

    return LeafFill((FillTarget(extent, buffer),), done)


def _swap_content(leaf: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Move the content of ``made`` into ``leaf``, a meta tensor, so that an optimizer keeps its reference to ``leaf``.

    Return ``leaf``, or ``made`` if torch cannot exchange the two.
    """
    made.__dict__.update(leaf.__dict__)
    try:
        _swap(leaf, made)
    except RuntimeError:
        return made
    return leaf
