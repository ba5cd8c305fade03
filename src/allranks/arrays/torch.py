"""Describe trees of PyTorch tensors (a module, or nested mappings and sequences). Each rank has its own tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.distributed.tensor import DTensor

from allranks.arrays.base import Leaf
from allranks.errors import AllranksError


def owns(tree: object) -> bool:
    """Return whether the tree is a module or contains a tensor."""
    return isinstance(tree, torch.nn.Module) or any(True for _ in _tensors_by_path(tree))


def describe(tree: object) -> tuple[Leaf, ...]:
    """Return the tensors of the tree, each complete on its device. A rank may call it without the others."""
    return tuple(
        Leaf(path, tuple(tensor.shape), _dtype_name(tensor), (1,) * tensor.ndim, tensor.nbytes)
        for path, tensor in _tensors_by_path(tree)
    )


def _tensors_by_path(tree: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, DTensor):
        raise AllranksError(f"leaf '{path}' is a DTensor, which describe() does not support.", leaf=path)
    if isinstance(tree, torch.nn.Module):
        tree = tree.state_dict()
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from _tensors_by_path(branch, f"{path}/{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for number, branch in enumerate(tree):
            yield from _tensors_by_path(branch, f"{path}/{number}" if path else str(number))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
