"""Read the tensors in torch's pickles without running anything that they name. This module does no I/O.

A pickle names callables, and a usual reader imports and calls them: so a file can run code. Here only the few callables
that make tensors are known, and each is replaced by a function of this file. Any other name (a class of
hyperparameters, ``os.system``) becomes an inert object that remembers its name. Nothing is imported.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from allranks.loading.formats.base import Value
from allranks.loading.formats.pickle_machine import Global, InertObject, PickleMachine, ordered_dict
from allranks.storage import limits

_STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Untyped": "uint8",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    # Quantized: there are no numbers in it without a scale.
    **dict.fromkeys(("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4"), ""),
}
# The remedies for names of torch that this file does not read.
_ADVICE = {
    "torch._utils._rebuild_qtensor": "save its dequantize()",
    "torch._utils._rebuild_sparse_tensor": "save its to_dense()",
    "torch._utils._rebuild_nested_tensor": "save the tensors that it is of",
    "torch._utils._rebuild_wrapper_subclass": "of DTensors, save the full_tensor()",
}
# All paths of leaves may have one character for so many of the metadata limit's bytes.
_BYTES_PER_CHARACTER = 4
# The operations of a pickle: one for so many of the metadata limit's bytes.
_BYTES_PER_OPERATION = 8
# The most leaves of a pickle, beside one for each byte: a node may contain another one many times.
_MOST_LEAVES = 1 << 17
# The most characters that are shown of the name of a skipped object.
_LONGEST_KIND = 200


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """A storage of torch: the record ``key`` of the archive, with ``count`` elements of ``dtype``."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class StridedTensor:
    """A tensor: elements of the storage ``of``, from element ``offset`` on.

    ``stride``: for each dimension, the distance of neighbours, in elements.
    """

    of: StorageRecord
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def _make_global(module: str, name: str) -> Global | InertObject:
    full = f"{module}.{name}"
    return _KNOWN.get(full) or InertObject(full)


def _load_persistent(key: Any) -> StorageRecord:
    match key:
        case ("storage", InertObject() as kind, str(name), _, int(count)) if 0 <= count < limits.NUMBER:
            return StorageRecord(name, _storage_dtype(kind.named), count)
    what = f"a tuple of {len(key)} parts" if isinstance(key, tuple) else f"a {type(key).__name__}"
    raise pickle.UnpicklingError(f"it refers to {what}, which is not a storage")


def _storage_dtype(named: str) -> str:
    kind = named.rpartition(".")[2].removesuffix("Storage")
    if kind not in _STORAGES:
        raise pickle.UnpicklingError(f"a storage has the unknown type {named!r:.80}")
    return _STORAGES[kind]


def _rebuild_tensor(*args: Any) -> StridedTensor:
    """Return a StridedTensor, in place of ``torch._utils._rebuild_tensor_v2``.

    Its 7th argument, metadata that changes values, must be empty.
    """
    match args:
        case [StorageRecord() as of, offset, tuple(shape), tuple(stride), *rest] if of.dtype:
            pass
        case _:
            raise pickle.UnpicklingError("a tensor is not a plain view of a storage")
    if len(shape) != len(stride) or (len(rest) > 2 and rest[2]):
        raise pickle.UnpicklingError("a tensor is not a plain view of a storage")
    if len(shape) > limits.DIMENSIONS:
        raise pickle.UnpicklingError(f"a tensor has {len(shape):,} dimensions: expected at most {limits.DIMENSIONS}")
    numbers = (offset, *shape, *stride)
    if not all(type(number) is int and 0 <= number < limits.NUMBER for number in numbers):
        told = ", ".join(str(n) if type(n) is int and n.bit_length() < 64 else type(n).__name__ for n in numbers[:8])
        raise pickle.UnpicklingError(
            f"a tensor has the offset, shape and strides ({told}): expected integers from 0 to 2**63 - 1"
        )
    return StridedTensor(of, of.dtype, offset, shape, stride)


def _rebuild_tensor_with_dtype(*args: Any) -> StridedTensor:
    """Return a StridedTensor, in place of torch's ``_rebuild_tensor_v3``, whose 7th argument is the dtype."""
    tensor = _rebuild_tensor(*args[:6], *args[7:])
    dtype = args[6] if len(args) > 6 else None
    return replace(tensor, dtype=dtype.named.removeprefix("torch.") if isinstance(dtype, InertObject) else "")


def _rebuild_without_type(*args: Any) -> Any:
    """Replace ``torch._tensor._rebuild_from_type_v2``: return a tensor that has attributes without these attributes."""
    match args:
        case [Global() as function, _, tuple(values), *_] if function is not _WITHOUT_TYPE:
            return function.function(*values)
        case [InertObject() as kind, _, tuple(values), *_]:
            return InertObject(kind.named, values)
    return InertObject("torch._tensor._rebuild_from_type_v2", args)


def _first(*args: Any) -> Any:
    if not args:
        raise pickle.UnpicklingError("a parameter has no tensor")
    return args[0]


def _size(*args: Any) -> tuple[Any, ...]:
    """Return a tuple, in place of ``torch.Size``."""
    match args:
        case [] | [[]]:
            return ()
        case [tuple(values)]:
            return values
        case [list(values)] if len(values) <= limits.DIMENSIONS:
            return tuple(values)
    raise pickle.UnpicklingError("a torch.Size is made from something else than numbers")


_WITHOUT_TYPE = Global(_rebuild_without_type)
_KNOWN: dict[str, Global] = {
    "collections.OrderedDict": Global(ordered_dict),
    "torch._utils._rebuild_tensor_v2": Global(_rebuild_tensor),
    "torch._utils._rebuild_tensor_v3": Global(_rebuild_tensor_with_dtype),
    "torch._utils._rebuild_parameter": Global(_first),
    "torch._utils._rebuild_parameter_with_state": Global(_first),
    "torch._tensor._rebuild_from_type_v2": _WITHOUT_TYPE,
    "torch.Size": Global(_size),
}


def unpickle_inertly(data: bytes) -> Any:
    """Decode a pickle to containers, plain values, StridedTensors and InertObjects. Raises pickle.UnpicklingError."""
    machine = PickleMachine(
        data,
        make_global=_make_global,
        load_persistent=_load_persistent,
        limit=limits.metadata_limit() // _BYTES_PER_OPERATION,
    )
    return machine.load()


@dataclass(frozen=True, slots=True)
class FlatLeaves:
    """The leaves of an unpickled tree by path: tensors, JSON values, and descriptions of other leaves (``skipped``)."""

    tensors: dict[str, StridedTensor]
    values: dict[str, Value]
    skipped: dict[str, str]


def flatten_leaves(tree: Any, *, pickle_bytes: int) -> FlatLeaves:
    """Return the leaves of a tree from a pickle of ``pickle_bytes`` bytes.

    The number of visited nodes is limited, because a node may contain another one many times. Raises
    pickle.UnpicklingError for a tree that is too large or too deep, or has two leaves with one path.
    """
    found = FlatLeaves({}, {}, {})
    most_nodes, room = _MOST_LEAVES + pickle_bytes, limits.metadata_limit() // _BYTES_PER_CHARACTER
    for visited, (path, node) in enumerate(_leaves_below(tree, "", 0)):
        room -= len(path)
        if visited >= most_nodes or room < 0:
            raise pickle.UnpicklingError(
                f"it has too many leaves, or too long names: expected at most {most_nodes:,} leaves. "
                f"{limits.advice_on_limit()}"
            )
        if path in found.tensors or path in found.values:
            raise pickle.UnpicklingError(f"two leaves have the path {path!r:.200}")
        if isinstance(node, StridedTensor):
            found.tensors[path] = node
        elif node is None or isinstance(node, bool | int | float | str):
            found.values[path] = node
        elif not isinstance(node, dict | list | tuple):
            found.skipped[path] = _describe_skipped(node)
    return found


def _describe_skipped(node: Any) -> str:
    """Return a description of a skipped leaf, with what the user can do about it."""
    kind = node.named[:_LONGEST_KIND] if isinstance(node, InertObject) else type(node).__name__
    if isinstance(node, InertObject) and isinstance(node.of("_parameters"), dict):
        return f"{kind}: a module, save its state_dict()"
    return f"{kind}: {_ADVICE[kind]}" if kind in _ADVICE else kind


def _leaves_below(node: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > limits.DEPTH:
        raise pickle.UnpicklingError(f"it is nested too deeply: expected at most {limits.DEPTH} levels")
    if len(path) > limits.NAME:
        raise pickle.UnpicklingError(
            f"the name {path[:80]!r}... has {len(path):,} characters: expected at most {limits.NAME:,}"
        )
    children: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(node, dict):
        children = iter(node.items())
    elif isinstance(node, list | tuple):
        children = iter(enumerate(node))
    yield path, node
    for key, child in children:
        yield from _leaves_below(child, f"{path}/{_key_text(key)}" if path else _key_text(key), depth + 1)


def _key_text(key: Any) -> str:
    return key.named if isinstance(key, InertObject) else str(key)
