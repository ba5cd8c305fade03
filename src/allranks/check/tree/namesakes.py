"""Calls that are named as collectives are, and move about what one process has: ``logits.gather(-1, ids)``. Pure."""

from __future__ import annotations

import ast

from allranks.check.tree.syntax import tail_of

_OF_SHAPES = frozenset(
    [
        *("broadcast_to", "broadcast_tensors", "broadcast_arrays", "broadcast_shapes", "broadcast_in_dim"),
        *("broadcasted_iota", "scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "segment_reduce"),
        *("convert_sync_batchnorm", "no_sync", "no_backward_sync", "SyncBatchNorm"),
    ]
)
_OF_ARRAYS = (
    "tf",
    "tensorflow",
    "K",
    "tf.math",
    "np.add",
    "np.maximum",
    "np.minimum",
    "np.logical_or",
    "np.logical_and",
)


def only_sounds(call: ast.Call) -> bool:
    """Whether a call that is named as if processes met in it is of this process alone."""
    name = tail_of(call)
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in _OF_SHAPES or name.startswith("async"):
        return True
    if name == "gather":
        named = any(word.arg == "index" for word in call.keywords)
        return named or owner == "torch" or (len(call.args) > 1 and _is_number(call.args[0]))
    if name == "synchronize":  # a device with its host
        return owner.rpartition(".")[2] in ("cuda", "npu", "xpu", "mps", "hpu")
    if name == "reduce":
        return owner in ("functools", "einops", *_OF_ARRAYS) or any(map(_is_recipe, call.args[:2]))
    return name.startswith("reduce_") and owner in _OF_ARRAYS


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _is_recipe(node: ast.expr) -> bool:
    """A function of two things, or what einops is told to do."""
    told = isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value
    return told or isinstance(node, ast.Lambda)
