"""Collections of the project's own objects: of what class those are that are in one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce

from allranks.check.interpret.held import is_partial
from allranks.check.interpret.spread import KEYED, SPREAD
from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import ANYTHING, NO_CONSTANT, ONE_OF, PROCESS, RANKS, Value, join, known
from allranks.check.summaries.summary import Node
from allranks.check.tables.passing import ADDING

# What a collection is an instance of. What is in it, and under which keys, is in its ``bound``, as pairs.
COLLECTION = "collections.abc.Collection"
DICT = frozenset({"dict"})
_LISTING = frozenset(["list", "tuple", "set", "sorted", "reversed", "iter"])
_OTHER = KEYED | SPREAD | ONE_OF | {"choice"}


def collection(pairs: Iterable[tuple[Value, Value]], taint: int, flags: frozenset[str]) -> Value | None:
    """Return a collection of these; None if one of them has nothing of the project's own in it, and none in a
    dictionary is a name that this process alone has."""
    kept = tuple(pairs)
    named = flags & DICT and any(value.private and not (value.number or value.truth) for _, value in kept)
    if not kept or not (named or all(_has_own(value) for _, value in kept)):
        return None
    bound = tuple(Value(elements=(key, value.passed())) for key, value in kept)
    return Value(taint, instance=COLLECTION, bound=bound, flags=flags)


def named(keywords: Iterable[tuple[str, Value]], parameters: Collection[str]) -> Value:
    """Return what a function finds in its ``**kwargs``: of what is no parameter, that which says who this process is,
    is its own, or of a class of the project."""
    kept = [(known(name), value) for name, value in keywords if name not in parameters and name != "**"]
    bound = tuple(Value(elements=(key, value.passed())) for key, value in kept if _tells(value))
    return Value(instance=COLLECTION, bound=bound, flags=DICT) if bound else ANYTHING


def keywords(name: str | None, value: Value) -> list[tuple[str, Value]]:
    """Return an argument by its name; without one (``**kwargs``) also what is known of what is in it."""
    if name:
        return [(name, value)]
    inside = _pairs(value) if value.instance == COLLECTION and value.flags & DICT else []
    return [*((str(key.constant), one) for key, one in inside if isinstance(key.constant, str)), ("**", value)]


def _tells(value: Value) -> bool:
    return value.private or value.says_who or _has_own(value) or is_partial(value)


def through(frame: Frame, node: Node, value: Value) -> Value | None:
    """Return one of those that a loop over ``node`` goes through; None if nothing tells of what class they are. To what
    has a name others may be added: to a variable in its function, to a list in an attribute anywhere. Methods of those
    are found by their names then; functions that are in it are called whatever else is."""
    if node[0] == "name" and not ADDING.isdisjoint(frame.facts.words):
        return None
    functions = bool(value.elements) and all("::" in one.reference for one in value.elements or ())
    return each(value, written=node[0] != "attr" or functions)


def each(value: Value, *, written: bool = False) -> Value | None:
    """Return one of those in a collection, or in a list that is ``written`` down; None if nothing tells of what class
    they are."""
    if value.instance == COLLECTION:
        found = [] if value.flags & DICT else [one for _, one in _pairs(value)]
    else:
        found = list(value.elements or ()) if written and not value.flags & _OTHER else []
    if not found or not all(map(_has_own, found)):
        return None
    return reduce(join, [_classes(one, value.taint & (RANKS | PROCESS)) for one in found])


def at(value: Value, index: Value, *, sliced: bool) -> Value | None:
    """Return what is at an index or under a key; None if nothing tells its class, or each rank has another."""
    if index.ranked or value.instance != COLLECTION:
        return None
    if sliced:
        return value
    pairs = [(key.constant, one) for key, one in _pairs(value)]
    same = [one for key, one in pairs if key == index.constant and key is not NO_CONSTANT]
    found = same or [one for key, one in pairs if NO_CONSTANT in (key, index.constant)]
    return reduce(join, found) if found else None


def method(value: Value, name: str, given: tuple[Value, ...]) -> Value | None:
    """Return what a method of a collection gives; None for those that say nothing of what is in it."""
    of_dict = bool(value.flags & DICT)
    if name == "copy":
        return value
    if name in ("get", "pop", "setdefault") and of_dict and given:
        return at(value, given[0], sliced=False)
    if name in ("pop", "popleft"):
        return each(value)
    if name in ("values", "items") and of_dict:
        kept = [(key, one if name == "values" else Value(elements=(key, one))) for key, one in _pairs(value)]
        return collection(((ANYTHING, one) for _, one in kept), value.taint, value.flags - DICT)
    return None


def passed_on(name: str, given: tuple[Value, ...]) -> Value | None:
    """Return what a function of Python's own gives of collections; None for other functions and values."""
    ones = [each(value) for value in given] if name in _LISTING | {"next", "enumerate", "zip"} else []
    first = next((one for one in ones if one is not None), None)
    if first is None or (name != "zip" and ones[0] is None):
        return None
    if name == "next":
        return first
    parts = [
        Value(value.taint & (RANKS | PROCESS)) if one is None else one for one, value in zip(ones, given, strict=True)
    ]
    made = Value(elements=(ANYTHING, first)) if name == "enumerate" else Value(elements=tuple(parts))
    taint = 0
    for value in given:
        taint |= value.taint
    return collection([(ANYTHING, first if name in _LISTING else made)], taint, given[0].flags - DICT)


def _pairs(value: Value) -> list[tuple[Value, Value]]:
    pairs = [one.elements for one in value.bound if one.elements is not None]
    return [(key, one) for key, one in pairs]


def _is_own(value: Value) -> bool:
    return "::" in value.instance + value.reference or value.instance == COLLECTION


def _has_own(value: Value) -> bool:
    """Whether an object of a class of the project, or a function, is it, or in it."""
    if _is_own(value):
        return True
    return bool(value.elements) and not value.flags & (KEYED | SPREAD) and any(map(_has_own, value.elements or ()))


def _classes(value: Value, taint: int) -> Value:
    """Return no more of what is in a collection than what objects there are in it."""
    if _is_own(value) or (value.flags & ONE_OF and _has_own(value)):
        return value
    if value.elements is not None and _has_own(value):
        return Value(taint, elements=tuple(_classes(one, taint) for one in value.elements))
    return Value(taint) if taint else ANYTHING
