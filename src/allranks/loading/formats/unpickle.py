"""Read the tensors in torch's pickles without running anything that they name. This module does no I/O.

A pickle names callables, and a usual reader imports and calls them: so a file can run code. Here only the few callables
that make tensors are known, and each is replaced by a function of this file. Any other name (a class of
hyperparameters, ``os.system``) becomes an inert object that remembers its name. Nothing is imported.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from allranks.loading.formats.base import Value

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
_DEEPEST = 200
# For each operation of a pickle, the size of its argument, or how the size is given.
_SIZES = {ord(one.code): one.arg.n if one.arg else 0 for one in pickletools.opcodes}
_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_LINES = {pickle.GLOBAL[0]: 2, pickle.INST[0]: 2}
_PUT, _STOP = pickle.PUT[0], pickle.STOP[0]
_PUTS = frozenset([_PUT, pickle.BINPUT[0], pickle.LONG_BINPUT[0], pickle.MEMOIZE[0]])


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


class InertObject:
    """A placeholder for any object of a pickle that is not an array.

    It accepts every call and assignment, and does nothing.
    """

    named = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_: Any) -> InertObject:
        self = super().__new__(cls)
        self.args, self.state = args, None
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> InertObject:
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass

    def of(self, name: str) -> Any:
        """Return an attribute of the replaced object by name; None if there is no such attribute."""
        return self.state.get(name) if isinstance(self.state, Mapping) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._stand_ins: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in _KNOWN:
            return _KNOWN[full]
        return self._stand_ins.setdefault(full, type(name, (InertObject,), {"named": full}))

    def persistent_load(self, pid: Any) -> StorageRecord:
        match pid:
            case ("storage", kind, str(key), _, int(count)) if count >= 0:
                return StorageRecord(key, _storage_dtype(getattr(kind, "named", "")), count)
        raise pickle.UnpicklingError(f"it refers to {pid!r:.80}, which is not a storage")


def _storage_dtype(named: str) -> str:
    kind = named.rpartition(".")[2].removesuffix("Storage")
    if kind not in _STORAGES:
        raise pickle.UnpicklingError(f"a storage has the unknown type {named!r}")
    return _STORAGES[kind]


def _rebuild_tensor(of: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> StridedTensor:
    """Return a StridedTensor, in place of ``torch._utils._rebuild_tensor_v2``.

    Its 7th argument, metadata that changes values, must be empty.
    """
    if not isinstance(of, StorageRecord) or not of.dtype or len(shape) != len(stride) or (len(rest) > 2 and rest[2]):
        raise pickle.UnpicklingError("a tensor is not a plain view of a storage")
    numbers = (offset, *shape, *stride)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise pickle.UnpicklingError(
            f"a tensor has the offset, shape and strides {numbers!r:.80}: expected integers from 0 on"
        )
    return StridedTensor(of, of.dtype, offset, tuple(shape), tuple(stride))


def _rebuild_tensor_with_dtype(of: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> StridedTensor:
    """Return a StridedTensor, in place of torch's ``_rebuild_tensor_v3``, whose 7th argument is the dtype."""
    requires_grad, hooks, dtype, *metadata = rest
    tensor = _rebuild_tensor(of, offset, shape, stride, requires_grad, hooks, *metadata)
    return replace(tensor, dtype=str(getattr(dtype, "named", "")).removeprefix("torch."))


def _rebuild_without_type(function: Any, _kind: Any, args: Any, _state: Any) -> Any:
    """Replace ``torch._tensor._rebuild_from_type_v2``: return a tensor that has attributes without these attributes."""
    inert = isinstance(function, type) and issubclass(function, InertObject)
    return function(*args) if inert or function in _KNOWN.values() else InertObject(*args)


def _first(value: Any, *_: Any) -> Any:
    return value


class _AllowedFunction:
    """A function that a pickle can call, but whose attributes the pickle cannot change."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes a function that it names")


_KNOWN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _AllowedFunction(_rebuild_tensor),
    "torch._utils._rebuild_tensor_v3": _AllowedFunction(_rebuild_tensor_with_dtype),
    "torch._utils._rebuild_parameter": _AllowedFunction(_first),
    "torch._utils._rebuild_parameter_with_state": _AllowedFunction(_first),
    "torch._tensor._rebuild_from_type_v2": _AllowedFunction(_rebuild_without_type),
    "torch.Size": tuple,
}


def unpickle_inertly(data: bytes) -> Any:
    """Decode a pickle to containers, plain values, StridedTensors and InertObjects. Raises pickle.UnpicklingError."""
    try:
        _check_memo(data)
        return _Unpickler(data).load()
    except pickle.UnpicklingError:
        raise
    except (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise pickle.UnpicklingError(f"it is not a pickle of torch ({type(error).__name__}: {error})") from error


def _check_memo(data: bytes) -> None:
    """Raise pickle.UnpicklingError if the memo is not filled in order.

    Python allocates as much memory as the highest number in the memo requires, so a small file could ask for gigabytes.
    """
    count = at = 0
    while at < len(data):
        code = data[at]
        begin, at = at + 1, _end_of_operation(data, at)
        if code in _PUTS:
            text = data[begin:at]
            place = int(text) if code == _PUT else int.from_bytes(text, "little") if text else count
            if place > count:
                raise pickle.UnpicklingError(f"it puts object {place} into its memo after {count}")
            count += 1
        elif code == _STOP:
            break


def _end_of_operation(data: bytes, at: int) -> int:
    """Return the end of the operation that begins at ``at``. (``pickletools.genops`` takes ten times as long.)"""
    size = _SIZES.get(data[at])
    if size is None:
        raise pickle.UnpicklingError(f"byte {at} is not an operation of a pickle")
    at += 1
    if size >= 0:
        return at + size
    if size == pickletools.UP_TO_NEWLINE:
        for _ in range(_LINES.get(data[at - 1], 1)):
            at = data.index(b"\n", at) + 1
        return at
    width = _WIDTHS[size]
    length = int.from_bytes(data[at : at + width], "little", signed=size == pickletools.TAKEN_FROM_ARGUMENT4)
    if length < 0:
        raise pickle.UnpicklingError(f"the length at byte {at} is {length}: expected 0 or more")
    return at + width + length


@dataclass(frozen=True, slots=True)
class FlatLeaves:
    """The leaves of an unpickled tree by path: tensors, JSON values, and descriptions of other leaves (``skipped``)."""

    tensors: dict[str, StridedTensor]
    values: dict[str, Value]
    skipped: dict[str, str]


def flatten_leaves(tree: Any, *, max_nodes: int) -> FlatLeaves:
    """Return the leaves of a tree.

    At most ``max_nodes`` nodes are visited, because a node may contain another one many times. Raises
    pickle.UnpicklingError for a tree that is too large or too deep, or has two leaves with one path.
    """
    found = FlatLeaves({}, {}, {})
    for visited, (path, node) in enumerate(_leaves_below(tree, "", 0)):
        if visited >= max_nodes:
            raise pickle.UnpicklingError(f"it has too many leaves: expected at most {max_nodes:,}")
        if path in found.tensors or path in found.values:
            raise pickle.UnpicklingError(f"two leaves have the path {path!r}")
        if isinstance(node, StridedTensor):
            found.tensors[path] = node
        elif node is None or isinstance(node, bool | int | float | str):
            found.values[path] = node
        elif not isinstance(node, dict | list | tuple):
            found.skipped[path] = _describe_skipped(node)
    return found


def _describe_skipped(node: Any) -> str:
    """Return a description of a skipped leaf, with what the user can do about it."""
    kind = getattr(node, "named", type(node).__name__)
    if isinstance(node, InertObject) and isinstance(node.of("_parameters"), Mapping):
        return f"{kind}: a module, save its state_dict()"
    return f"{kind}: {_ADVICE[kind]}" if kind in _ADVICE else kind


def _leaves_below(node: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        raise pickle.UnpicklingError(f"it is nested too deeply: expected at most {_DEEPEST} levels")
    children: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(node, dict):
        children = iter(node.items())
    elif isinstance(node, list | tuple):
        children = iter(enumerate(node))
    yield path, node
    for key, child in children:
        yield from _leaves_below(child, f"{path}/{key}" if path else str(key), depth + 1)
