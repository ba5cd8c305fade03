"""Decode a pickle without importing or running anything. This module does no I/O.

Python's own unpickler hashes the keys of dicts, calls what a pickle names, and changes objects in place. So a hundred
bytes can use a processor for ever, or change an object after it was checked. Here each operation does little work, and
only containers, plain values and what ``make_global`` returns exist.
"""

from __future__ import annotations

import codecs
import pickle
import pickletools
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from allranks.storage import limits

# The most parts of a tuple that is a key of a dict.
_KEY_PARTS = 16
_SCALARS = (str, int, float, bool, bytes, type(None))
_NAMES = {one.code.encode("latin-1")[0]: one.name for one in pickletools.opcodes}


class InertObject:
    """A placeholder for any object of a pickle that is not an array, and for a name that a pickle imports.

    It accepts every call and assignment, and does nothing. ``named``: the full name of its class or function.
    """

    __slots__ = ("args", "named", "state")

    def __init__(self, named: str, args: tuple[Any, ...] | None = None) -> None:
        self.named, self.args = named, args
        self.state: Any = None

    def of(self, name: str) -> Any:
        """Return an attribute of the replaced object by name; None if there is no such attribute."""
        return self.state.get(name) if isinstance(self.state, dict) else None

    @property
    def is_name(self) -> bool:
        """Whether this is a name that the pickle imports: nothing has called it."""
        return self.args is None


@dataclass(frozen=True, slots=True)
class Global:
    """A function that a pickle may call. A pickle cannot change it."""

    function: Callable[..., Any]


_SET = "builtins.set"


def ordered_dict(*args: Any) -> OrderedDict[Any, Any]:
    """Return an OrderedDict of pairs whose keys may be keys of a dict. Raises pickle.UnpicklingError."""
    found: OrderedDict[Any, Any] = OrderedDict()
    if len(args) > 1 or not all(isinstance(pairs, list | tuple) for pairs in args):
        raise pickle.UnpicklingError("an OrderedDict is made from something else than a list of pairs")
    for pair in args[0] if args else ():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise pickle.UnpicklingError("an OrderedDict is made from something else than pairs")
        found[_checked_key(pair[0])] = pair[1]
    return found


class PickleMachine:
    """Runs the operations of one pickle.

    ``make_global``: returns a Global or an InertObject for a module and a name.
    ``load_persistent``: returns the object for a persistent id.
    ``limit``: the most operations.
    """

    def __init__(
        self,
        data: bytes,
        *,
        make_global: Callable[[str, str], Any],
        load_persistent: Callable[[Any], Any],
        limit: int,
    ) -> None:
        self._data, self._at = data, 0
        self._make_global, self._load_persistent, self._limit = make_global, load_persistent, limit
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Return the object in the pickle. Raises pickle.UnpicklingError, which names the byte."""
        operations, data, stop = _OPERATIONS, self._data, pickle.STOP[0]
        begin = 0
        try:
            for _ in range(min(self._limit, len(data) + 1)):
                begin = self._at
                code = data[begin]
                self._at = begin + 1
                if code == stop:
                    return self._stack.pop()
                operations[code](self)
        except (KeyError, IndexError, ValueError, struct.error, pickle.UnpicklingError) as error:
            raise pickle.UnpicklingError(f"byte {begin}: {_reason(data, begin, error)}") from error
        raise pickle.UnpicklingError(
            f"byte {begin}: it has more than {self._limit:,} operations. {limits.advice_on_limit()}"
        )

    # Arguments of operations.

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"it ends in an argument of {size:,} bytes")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise ValueError("it ends in a line")
        found = self._data[self._at : end]
        self._at = end + 1
        return found

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _from_mark(self) -> list[Any]:
        found, self._stack = self._stack, self._below.pop()
        return found

    # Operations that are more than a line.

    def reduce(self) -> None:
        args = self._stack.pop()
        self._call(self._stack.pop(), args)

    def make_object(self) -> None:
        first, *args = self._from_mark()
        self._call(first, tuple(args))

    def make_instance(self) -> None:
        made = self._make_global(self._line().decode(), self._line().decode())
        self._call(made, tuple(self._from_mark()))

    def make_with_keywords(self) -> None:
        _, args, kind = self._stack.pop(), self._stack.pop(), self._stack.pop()
        self._call(kind, args)

    def _call(self, function: Any, args: Any) -> None:
        if not isinstance(args, tuple):
            raise ValueError(f"the arguments of a call are a {type(args).__name__}: expected a tuple")
        if isinstance(function, Global):
            self._stack.append(function.function(*args))
        elif isinstance(function, InertObject):
            self._stack.append(InertObject(function.named, args) if function.is_name else function)
        else:
            raise ValueError(f"it calls a {type(function).__name__}: expected a function")

    def build(self) -> None:
        """Give an object its attributes. Those of an OrderedDict are left out, as torch's ``_metadata``."""
        state, made = self._stack.pop(), self._stack[-1]
        if isinstance(made, InertObject):
            made.state = state
        elif not isinstance(made, OrderedDict):
            what = "a function that it names" if isinstance(made, Global) else f"a {type(made).__name__}"
            raise ValueError(f"it changes {what} after it was made")

    def extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, InertObject):
            raise ValueError(f"it appends to a {type(target).__name__}: expected a list")

    def set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, dict):
            keys = map(_checked_key, items[::2])
            target.update(zip(keys, items[1::2], strict=True))
        elif not isinstance(target, InertObject):
            raise ValueError(f"it sets items of a {type(target).__name__}: expected a dict")

    def add_items(self) -> None:
        self._from_mark()
        if not _is_set(self._stack[-1]):
            raise ValueError(f"it adds to a {type(self._stack[-1]).__name__}: expected a set")

    def make_frozenset(self) -> None:
        self._from_mark()
        self._stack.append(InertObject(_SET, ()))

    def make_dict(self) -> None:
        items = self._from_mark()
        self._stack.append({})
        self.set_items(items)

    def global_from_lines(self) -> None:
        self._stack.append(self._make_global(self._line().decode(), self._line().decode()))

    def global_from_stack(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("the name of a function is no text")
        self._stack.append(self._make_global(module, name))

    def pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._from_mark()

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def push_integer(self, size: int) -> None:
        if size * 8 > limits.INTEGER_BITS:
            raise ValueError(f"a number has {size:,} bytes: expected at most {limits.INTEGER_BITS // 8:,}")
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def push_line_integer(self) -> None:
        line = self._line()
        special = {b"00": False, b"01": True}
        self._stack.append(special[line] if line in special else int(line.removesuffix(b"L") or b"0"))

    def push_quoted(self) -> None:
        line = self._line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise ValueError("a text has no quotes around it")
        self._stack.append(codecs.escape_decode(line[1:-1])[0].decode())

    def push_tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise IndexError
        stack = self._stack
        stack[len(stack) - size :] = [tuple(stack[len(stack) - size :])]

    def load_persistent(self, key: Any) -> None:
        self._stack.append(self._load_persistent(key))

    def check_protocol(self) -> None:
        if (version := self._number(1)) > pickle.HIGHEST_PROTOCOL:
            raise ValueError(f"it has protocol {version}: expected at most {pickle.HIGHEST_PROTOCOL}")


def _is_set(value: Any) -> bool:
    return isinstance(value, InertObject) and value.named == _SET


def _checked_key(key: Any) -> Any:
    """Return a key of a dict. Raises pickle.UnpicklingError for an object whose hash is unknown, or much work."""
    if isinstance(key, _SCALARS) or (isinstance(key, InertObject) and not _is_set(key)):
        return key
    if isinstance(key, tuple):
        if len(key) <= _KEY_PARTS and all(isinstance(part, _SCALARS) for part in key):
            return key
        raise pickle.UnpicklingError(
            f"a key of a dict is a tuple of {len(key):,} parts: expected at most {_KEY_PARTS} texts and numbers"
        )
    raise pickle.UnpicklingError(f"a key of a dict is a {type(key).__name__}: expected a text or a number")


def _reason(data: bytes, at: int, error: Exception) -> str:
    """Return what is wrong with the operation at a byte."""
    if at >= len(data):
        return "it ends without STOP"
    name = _NAMES.get(data[at])
    if name is None or (data[at] not in _OPERATIONS and data[at] != pickle.STOP[0]):
        return f"{f'the operation {name}' if name else f'0x{data[at]:02x}'} is no operation of a checkpoint"
    if isinstance(error, KeyError | IndexError):
        return f"{name} uses an object that does not exist"
    return str(error)


def _operations() -> dict[int, Callable[[PickleMachine], None]]:
    """Return the functions of all operations by their codes. Operations that no checkpoint needs are left out."""
    machine = PickleMachine
    table: dict[bytes, Callable[[Any], Any]] = {
        pickle.MARK: machine.mark,
        pickle.POP: machine.pop,
        pickle.POP_MARK: lambda m: m._from_mark(),
        pickle.DUP: lambda m: m.push(m._stack[-1]),
        pickle.PROTO: machine.check_protocol,
        pickle.FRAME: lambda m: m._take(8),
        pickle.REDUCE: machine.reduce,
        pickle.NEWOBJ: machine.reduce,
        pickle.NEWOBJ_EX: machine.make_with_keywords,
        pickle.OBJ: machine.make_object,
        pickle.INST: machine.make_instance,
        pickle.BUILD: machine.build,
        pickle.GLOBAL: machine.global_from_lines,
        pickle.STACK_GLOBAL: machine.global_from_stack,
        pickle.PERSID: lambda m: m.load_persistent(m._line().decode()),
        pickle.BINPERSID: lambda m: m.load_persistent(m._stack.pop()),
        pickle.APPEND: lambda m: m.extend([m._stack.pop()]),
        pickle.APPENDS: lambda m: m.extend(m._from_mark()),
        pickle.SETITEM: lambda m: m.set_items([m._stack.pop(), m._stack.pop()][::-1]),
        pickle.SETITEMS: lambda m: m.set_items(m._from_mark()),
        pickle.ADDITEMS: machine.add_items,
        pickle.FROZENSET: machine.make_frozenset,
        pickle.LIST: lambda m: m.push(m._from_mark()),
        pickle.DICT: machine.make_dict,
        pickle.TUPLE: lambda m: m.push(tuple(m._from_mark())),
        pickle.EMPTY_LIST: lambda m: m.push([]),
        pickle.EMPTY_DICT: lambda m: m.push({}),
        pickle.EMPTY_SET: lambda m: m.push(InertObject(_SET, ())),
        pickle.GET: lambda m: m.get(int(m._line())),
        pickle.PUT: lambda m: m.put(int(m._line())),
        pickle.MEMOIZE: lambda m: m.put(len(m._memo)),
        pickle.LONG1: lambda m: m.push_integer(m._number(1)),
        pickle.LONG4: lambda m: m.push_integer(m._number(4)),
        pickle.BININT: lambda m: m.push_integer(4),
        pickle.INT: machine.push_line_integer,
        pickle.LONG: machine.push_line_integer,
        pickle.FLOAT: lambda m: m.push(float(m._line())),
        pickle.BINFLOAT: lambda m: m.push(struct.unpack(">d", m._take(8))[0]),
        pickle.STRING: machine.push_quoted,
        pickle.UNICODE: lambda m: m.push(m._line().decode("raw-unicode-escape").encode().decode()),
    }
    for size, code in enumerate([pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3]):
        table[code] = partial(machine.push_tuple, size=size)
    for value, code in ((None, pickle.NONE), (True, pickle.NEWTRUE), (False, pickle.NEWFALSE)):
        table[code] = partial(machine.push, value=value)
    for width, codes in _SIZED.items():
        for code, function in codes:
            table[code] = _with_number(width, function)
    for width, get, put in ((1, pickle.BINGET, pickle.BINPUT), (4, pickle.LONG_BINGET, pickle.LONG_BINPUT)):
        table[get], table[put] = _memo_operations(width)
    return {code[0]: function for code, function in table.items()}


def _with_number(width: int, function: Callable[[PickleMachine, int], None]) -> Callable[[PickleMachine], None]:
    """Return an operation whose argument is a number of ``width`` bytes. A number may be cut off at the end."""

    def operation(machine: PickleMachine) -> None:
        begin = machine._at
        machine._at = end = begin + width
        function(machine, int.from_bytes(machine._data[begin:end], "little"))

    return operation


def _memo_operations(width: int) -> tuple[Callable[[PickleMachine], None], Callable[[PickleMachine], None]]:
    """Return GET and PUT with places of ``width`` bytes: half of the operations of a pickle, so they call nothing."""

    def get(machine: PickleMachine) -> None:
        begin = machine._at
        machine._at = end = begin + width
        machine._stack.append(machine._memo[int.from_bytes(machine._data[begin:end], "little")])

    def put(machine: PickleMachine) -> None:
        begin = machine._at
        machine._at = end = begin + width
        machine._memo[int.from_bytes(machine._data[begin:end], "little")] = machine._stack[-1]

    return get, put


def _text(machine: PickleMachine, size: int) -> None:
    machine._stack.append(machine._take(size).decode())


def _bytes(machine: PickleMachine, size: int) -> None:
    machine.push(machine._take(size))


# Operations whose argument is a number of so many bytes, or so many bytes that give a length.
_SIZED: dict[int, Iterable[tuple[bytes, Callable[[PickleMachine, int], None]]]] = {
    1: [
        (pickle.BININT1, PickleMachine.push),
        (pickle.SHORT_BINUNICODE, _text),
        (pickle.SHORT_BINSTRING, _text),
        (pickle.SHORT_BINBYTES, _bytes),
    ],
    2: [(pickle.BININT2, PickleMachine.push)],
    4: [
        (pickle.BINUNICODE, _text),
        (pickle.BINSTRING, _text),
        (pickle.BINBYTES, _bytes),
    ],
    8: [(pickle.BINUNICODE8, _text), (pickle.BINBYTES8, _bytes), (pickle.BYTEARRAY8, _bytes)],
}
_OPERATIONS = _operations()
