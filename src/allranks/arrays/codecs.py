"""Encode objects of registered types as arrays and JSON, and decode them again."""

from __future__ import annotations

import datetime
import decimal
import enum
import io
import pathlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.leaves.numpy import DTYPES
from allranks.arrays.saved_tree import Node, SavedArray
from allranks.arrays.walk import DeferredChild, OpenedNode, Opener
from allranks.errors import AllranksError, CannotStore, DoesNotFit
from allranks.failure import text_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """The functions that encode objects of a type as a tree of arrays and JSON values, and decode them from it.

    ``encode(value)``: return the tree, which a state may hold.
    ``decode(tree, like)``: return the value; ``like`` is the template's value.
    ``fixed``: whether a saved tree has the same arrays and keys as the tree of ``like``.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any, Any], Any]
    fixed: bool = True


def _as_bytes(value: Any) -> Any:
    return np.frombuffer(value, np.uint8) if value else np.zeros(0, np.uint8)


def _as_file(array: Any, _: Any) -> Any:
    return io.BytesIO(array.tobytes())


def _as_text(value: object) -> str:
    return str(value)


def _of_text(text: str, like: Any) -> Any:
    return type(like)(text)


def _of_name(name: str, like: Any) -> Any:
    members = type(like).__members__
    if name not in members:
        raise ValueError(f"expected one of {', '.join(members)}, found {name!r}")
    return members[name]


def _of_iso(text: str, like: Any) -> Any:
    return type(like).fromisoformat(text)


_ISO = TypeCodec(lambda moment: moment.isoformat(), _of_iso)
_TEXT = TypeCodec(_as_text, _of_text)
_BYTES = TypeCodec(_as_bytes, lambda array, like: type(like)(array.tobytes()), fixed=False)
_REGISTERED: dict[type, TypeCodec] = {}
_BUILT_IN: dict[type, TypeCodec] = {
    enum.Flag: TypeCodec(lambda flag: flag.value, _of_text),
    enum.Enum: TypeCodec(lambda member: member.name, _of_name),
    datetime.datetime: _ISO,
    datetime.date: _ISO,
    datetime.time: _ISO,
    datetime.timedelta: TypeCodec(
        lambda span: {"days": span.days, "seconds": span.seconds, "microseconds": span.microseconds},
        lambda parts, like: type(like)(**parts),
    ),
    pathlib.PurePath: _TEXT,
    decimal.Decimal: _TEXT,
    uuid.UUID: _TEXT,
    complex: TypeCodec(np.complex128, lambda number, like: type(like)(number)),
    bytes: _BYTES,
    bytearray: _BYTES,
    io.BytesIO: TypeCodec(lambda file: _as_bytes(file.getvalue()), _as_file, fixed=False),
}


def register_type(
    kind: type[T], encode: Callable[[T], Any], decode: Callable[[Any, T], T], *, fixed: bool = True
) -> None:
    """Let checkpoints hold objects of a type and its subclasses. Call it before the first save and restore.

    ``encode(value)``: return a tree of arrays and JSON values; it may contain objects of other registered types.
    ``decode(tree, like)``: return the object, from the tree as filled from a checkpoint, and the template's object.
    ``fixed``: if True, paths, shapes and dtypes of the saved tree must be those of the template's object. If False, the
    tree is as it was saved, of any length; it may then hold arrays and JSON values only.

    Examples:
        >>> register_type(Vocabulary, lambda v: {"tokens": v.tokens}, lambda tree, _: Vocabulary(tree["tokens"]))
    """
    if not isinstance(kind, type):
        raise AllranksError(f"register_type: {kind!r:.80}: expected a type.")
    _REGISTERED[kind] = TypeCodec(encode, decode, fixed)
    is_registered.cache_clear()
    _codec_of.cache_clear()


@lru_cache(maxsize=1 << 12)
def is_registered(kind: type) -> bool:
    """Return whether the program has registered a type or one of its bases. Frameworks do not open such a type."""
    return any(base in _REGISTERED for base in kind.__mro__)


@lru_cache(maxsize=1 << 12)
def _codec_of(kind: type) -> TypeCodec | None:
    """Return the codec for objects of a type; None if the type is not registered."""
    known = _BUILT_IN | _REGISTERED
    return next((known[base] for base in kind.__mro__ if base in known), None)


def find_opener(node: Any, context: OpenContext) -> Opener | None:
    """Return the function that opens an object of a registered type; None for any other object."""
    codec = _codec_of(type(node))  # type: ignore[arg-type]
    return None if codec is None else partial(_open_registered, context)


def _open_registered(context: OpenContext, node: Any) -> OpenedNode:
    codec = _codec_of(type(node))  # type: ignore[arg-type]
    assert codec is not None
    kind = f"{type(node).__module__}.{type(node).__qualname__}".removeprefix("builtins.")
    at = ""

    def encoded(path: str) -> object:
        nonlocal at
        at = path
        try:
            tree = codec.encode(node)
        except Exception as error:
            raise CannotStore(f"'{path}': {_failure_text('encode', kind, error)}", leaf=path) from error
        if type(tree) is type(node):
            raise CannotStore(
                f"'{path}': encode of {kind} returned a {kind}: expected arrays and JSON values.", leaf=path
            )
        if not codec.fixed and (inner := _registered_type_in(tree)):
            words = f"encode of {kind}, which is registered with fixed=False, returned a tree with a {inner}"
            raise CannotStore(f"'{path}': {words}: expected arrays and JSON values. Encode this value, too.", leaf=path)
        saved = None if codec.fixed or context.saved is None else context.saved.part_below(path)
        return tree if saved is None else _template_as_saved(tree, saved)

    def make(children: list[object]) -> object:
        try:
            return codec.decode(children[0], node)
        except Exception as error:
            raise DoesNotFit(f"'{at}': {_failure_text('decode', kind, error)}", differences=()) from error

    return OpenedNode(None, (DeferredChild(encoded, follows_checkpoint=not codec.fixed),), make, decodes=True)


def _registered_type_in(tree: Any) -> str:
    """Return the name of a registered type in a tree; "" if there is none."""
    if isinstance(tree, dict | list | tuple):
        inside = tree.values() if isinstance(tree, dict) else tree
        return next(filter(None, map(_registered_type_in, inside)), "")
    kind: Any = type(tree)
    return "" if _codec_of(kind) is None else str(kind.__qualname__)


def _failure_text(what: str, kind: str, error: Exception) -> str:
    return f"{what} of {kind} failed: {text_of(error)}"


def _template_as_saved(tree: Any, saved: Node) -> Any:
    """Return a template that has the structure of ``saved``, with arrays of the same framework as those of ``tree``."""
    if isinstance(saved, dict):
        if isinstance(tree, list | tuple) or (tree is None and saved.keys() == {str(at) for at in range(len(saved))}):
            items = dict(enumerate(tree or ()))
            return [_template_as_saved(items.get(int(key)), saved[key]) for key in sorted(saved, key=int)]
        known = tree if isinstance(tree, dict) else {}
        return {key: _template_as_saved(known.get(key), node) for key, node in saved.items()}
    if not isinstance(saved, SavedArray):
        return saved
    return array_like_saved(tree, saved)


def array_like_saved(array: Any, saved: SavedArray) -> Any:
    """Return an array of the saved shape, of the framework of ``array``; ``array`` itself if it has that shape."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        return np.empty(saved.shape, DTYPES[saved.dtype])
    if tuple(array.shape) == saved.shape:
        return array
    return array.new_empty(saved.shape) if hasattr(array, "new_empty") else np.empty(saved.shape, array.dtype)
