"""What is known of a value: a constant, an object, or nothing but what it was made of; the same for all roles or not.

The four *roles* stand for all ranks: ``first`` is rank 0, ``node`` is local rank 0 of another host, ``peer`` is another
rank that is the first of its model-parallel group, ``other`` is none of these. A value that differs between roles is a
`ByRole` of four values. All other values are the same on every rank, as far as their *taint* does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import ast

EVERY = 0b1111  # roles as bits, the first role in the lowest
# What an unknown value depends on. RANK: which rank this is. FILES: whether this process finds a file. CLOCK, RANDOM:
# unseeded. IDENTITY: process id, host name, uuid, temporary names. DATA: the rows that this process was given. ORDER:
# an order that nothing fixes (a listing, a set). SEEN: it was made of what files say, or files decided which of several
# values it is; as far as all ranks see the same files, it is the same on all. SPREAD: an array over all processes.
# NEXT: the number after those that a listing has, which another process may have taken meanwhile.
RANK, FILES, CLOCK, RANDOM, IDENTITY, DATA, ORDER, SEEN, SPREAD, NEXT = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512
# What may differ between processes of one role.
DIFFERS = RANK | FILES | CLOCK | RANDOM | IDENTITY | DATA


@dataclass(slots=True, unsafe_hash=True)
class Unknown:
    """A value of which only the taint is known. ``true``: it is certainly true (a rank that is not 0, a size).
    ``name``: what the program calls it. ``kind``: what else is known ("size": how many processes there are)."""

    taint: int = 0
    true: bool = False
    name: str = ""
    kind: str = ""


@dataclass(slots=True)
class Const:
    """A constant of Python: None, a bool, a number, a text or bytes."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(slots=True, unsafe_hash=True)
class Text:
    """A text of which parts are known. ``shape``: with ``{}`` for each unknown part."""

    shape: str
    taint: int = 0


@dataclass(slots=True, unsafe_hash=True)
class Library:
    """A module, function or class of a library, by its documented name."""

    name: str


@dataclass(slots=True, unsafe_hash=True)
class Made:
    """An object of a library's class, or what a library's function returned. ``about``: what it was made of (the model
    in a wrapper, the path of an open file). ``line``: where it was made. ``arguments``: what it was given."""

    cls: str
    taint: int = 0
    about: Value | None = None
    path: str = ""
    line: int = 0
    arguments: tuple[tuple[str, Value], ...] = ()


@dataclass(slots=True, eq=False)
class Function:
    """A function of the project. ``scope``: the `Frame` in which it was defined, if that is a function's. ``receiver``:
    the object of a bound method. ``bound``, ``named``: arguments that functools.partial gave. ``only``: the roles that
    run it (a decorator lets the others return None)."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: ModuleObject
    scope: Any = None
    owner: Class | None = None
    receiver: Value | None = None
    bound: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    only: int = EVERY
    no_grad: bool = False  # a decorator switches gradients off in it
    compiled: str = ""  # by JAX: "all" for the devices of all processes, "spread" for those that its arguments are on

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")

    def with_receiver(self, receiver: Value | None) -> Function:
        """Return the function as a method of an object."""
        made = Function(self.node, self.module, self.scope, self.owner, receiver)
        made.bound, made.named, made.only, made.no_grad = self.bound, self.named, self.only, self.no_grad
        made.compiled = self.compiled
        return made

    def _key(self) -> tuple[object, ...]:
        return self.node, self.scope, self.owner, self.receiver, self.bound, self.named, self.only, self.compiled

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.node, self.owner, self.receiver, self.only))


@dataclass(slots=True, eq=False)
class Class:
    """A class of the project. ``bases``: values, those of libraries too. ``members``: what its body binds."""

    node: ast.ClassDef
    module: ModuleObject
    scope: Any = None
    bases: tuple[Value, ...] = ()
    members: dict[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    def lineage(self) -> Iterator[Class]:
        """Yield the class and its bases of the project, each once, nearest first."""
        seen: set[int] = set()
        waiting: list[Value] = [self]
        while waiting:
            one = waiting.pop(0)
            if isinstance(one, Class) and id(one) not in seen:
                seen.add(id(one))
                yield one
                waiting[:0] = one.bases

    def library_bases(self) -> tuple[str, ...]:
        """Return the names of the library's classes that it inherits from."""
        return tuple(base.name for one in self.lineage() for base in one.bases if isinstance(base, Library))

    def find(self, name: str) -> Value | None:
        """Return a member of the class or of a base."""
        return next((one.members[name] for one in self.lineage() if name in one.members), None)


@dataclass(slots=True, eq=False)
class Object:
    """An object of a class of the project: one for each place that makes such objects."""

    cls: Class
    path: str = ""
    line: int = 0


@dataclass(slots=True, eq=False)
class ModuleObject:
    """A module of the project; a folder without ``__init__.py`` has no ``tree``."""

    path: str
    name: str = ""
    done: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Items:
    """A tuple, list or set whose elements are known."""

    items: tuple[Value, ...]
    kind: str = "tuple"


@dataclass(slots=True, unsafe_hash=True)
class Table:
    """A dictionary with these constant keys. ``open``: it may have others, too."""

    items: tuple[tuple[object, Value], ...]
    open: bool = False

    def get(self, key: object) -> Value | None:
        return next((value for name, value in self.items if name == key and type(name) is type(key)), None)


@dataclass(slots=True, unsafe_hash=True)
class Either:
    """One of several values, the same choice on all ranks."""

    options: tuple[Value, ...]


@dataclass(slots=True, unsafe_hash=True)
class ByRole:
    """A value for each role."""

    roles: tuple[Value, Value, Value, Value]


Value: TypeAlias = (
    Unknown | Const | Text | Library | Made | Function | Class | Object | ModuleObject | Items | Table | Either | ByRole
)

ANYTHING = Unknown()
NONE, TRUE, FALSE = Const(None), Const(True), Const(False)
SHARE = Const("<share>")  # what a range is that begins and ends by the rank


def of_role(value: Value, role: int) -> Value:
    """Return what a value is for one role (0 to 3)."""
    return value.roles[role] if isinstance(value, ByRole) else value


def by_role(values: Iterable[Value]) -> Value:
    """Return four values as one: a ByRole only if they differ."""
    first, node, peer, other = values
    if first == node == peer == other:
        return first
    return ByRole((first, node, peer, other))


def number(kind: str) -> Value:
    """Return the rank of ``kind``: for the roles that are the first of their kind it is 0."""
    zero = {"global": 0b0001, "local": 0b0011, "node": 0b0001, "group": 0b0101}[kind]
    some = Unknown(RANK, true=True, kind=kind)
    return by_role(Const(0) if zero >> role & 1 else some for role in range(4))


def is_first(kind: str) -> Value:
    """Return the truth "I am the first of my kind"."""
    zero = {"global": 0b0001, "local": 0b0011, "node": 0b0001, "group": 0b0101}[kind]
    return by_role(TRUE if zero >> role & 1 else FALSE for role in range(4))


def is_last() -> Value:
    """Return the truth "I am the last of all": unknown, and different from rank to rank."""
    return by_role((FALSE, *(Unknown(RANK),) * 3))


def taint(value: Value | None) -> int:
    """Return what a value depends on."""
    if value is None:
        return 0
    if isinstance(value, Unknown | Text):
        return value.taint
    if isinstance(value, Made):
        return value.taint | (taint(value.about) if value.cls in ("file", "pathlib.Path") else 0)
    if isinstance(value, ByRole):
        return RANK | taint(value.roles[0]) | taint(value.roles[1]) | taint(value.roles[2]) | taint(value.roles[3])
    if isinstance(value, Items):
        return _taints(value.items)
    if isinstance(value, Table):
        return _taints(item for _, item in value.items)
    if isinstance(value, Either):
        return _taints(value.options)
    return 0


def _taints(values: Iterable[Value]) -> int:
    found = 0
    for value in values:
        found |= taint(value)
    return found


def unknown(*values: Value | None, also: int = 0) -> Unknown:
    """Return a value of which nothing is known but that it was made of these."""
    found = also
    for value in values:
        found |= taint(value)
    agreed = not found and any(isinstance(value, Unknown) and value.kind == "agreed" for value in values)
    return Unknown(made_of(found)) if found else Unknown(kind="agreed") if agreed else ANYTHING


def made_of(found: int) -> int:
    """Return the taint of what is made of values with this taint: "is it there?" becomes "what is there?"."""
    return found & ~FILES | SEEN if found & FILES else found


# A truth has a letter for each role: T, F; U: unknown, but the same on all ranks; D: it may differ between processes.
Truth: TypeAlias = str


def truth(value: Value) -> Truth:
    """Return whether a value is true, for each role."""
    if isinstance(value, ByRole):
        return "".join(_letter(one) for one in value.roles)
    return _letter(value) * 4


def _letter(value: Value) -> str:
    if isinstance(value, Const):
        return "T" if value.value else "F"
    if isinstance(value, Unknown):
        return "T" if value.true else "D" if value.taint & DIFFERS else "U"
    if isinstance(value, Text):
        return "T" if value.shape.replace("{}", "") else "D" if value.taint & DIFFERS else "U"
    if isinstance(value, Items):
        return "T" if value.items else "F"
    if isinstance(value, Table):
        return "T" if value.items else "U"
    if isinstance(value, Either):
        letters = {_letter(option) for option in value.options}
        return letters.pop() if len(letters) == 1 else "D" if "D" in letters else "U"
    if isinstance(value, Made):
        return "T" if value.cls not in ("", "match") else "D" if value.taint & DIFFERS else "U"
    return "T"


@cache
def roles_where(letters: Truth, wanted: str) -> int:
    """Return the roles whose letter is one of ``wanted``, as bits."""
    return sum(1 << role for role, letter in enumerate(letters) if letter in wanted)


def letters_of(roles: int, yes: str = "T", no: str = "F") -> Truth:
    """Return the truth with the letter ``yes`` for these roles (bits), and ``no`` for the others."""
    return "".join(yes if roles >> role & 1 else no for role in range(4))


def negate(letters: Truth) -> Truth:
    """Return the truth of ``not``."""
    return letters.translate(_NEGATED)


_NEGATED = str.maketrans("TF", "FT")


def lift(do: Callable[..., Value], *values: Value) -> Value:
    """Return ``do`` of values: role by role where one of them is a `ByRole`.

    If nothing is known of the result for roles that were given different values, it may be different for them, too.
    """
    if not any(isinstance(value, ByRole) for value in values):
        return do(*values)
    inputs = [tuple(of_role(value, role) for value in values) for role in range(4)]
    made = [do(*given) for given in inputs]
    open_for = {given for given, one in zip(inputs, made, strict=True) if isinstance(one, Unknown)}
    if len(open_for) > 1:
        made = [
            Unknown(one.taint | RANK, one.true, one.name, one.kind) if isinstance(one, Unknown) else one for one in made
        ]
    return by_role(made)


def options(value: Value) -> tuple[Value, ...]:
    """Return what a value may be, of which a setting picks one."""
    return value.options if isinstance(value, Either) else (value,)
