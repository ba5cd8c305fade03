"""What objects are made of, where some ranks make theirs in another way than others. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.check.interpret.given import Given
from allranks.check.interpret.held import is_guarded, only_here
from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import EVERY, FALSE, TRUE
from allranks.check.interpret.values import ANYTHING, NONE, OF_ONE, RANKS, Value, chosen
from allranks.check.summaries.summary import FunctionFacts, Node

_ENUMERATIONS = frozenset(f"enum.{kind}" for kind in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"))


def left_out(frame: Frame, names: tuple[str, ...], defaults: Iterable[tuple[str, Node]], given: Given) -> Given:
    """Return what a constructor is given that some ranks alone call, with what is None because they do not give it:
    others may give something."""
    keywords = {name for name, _ in given.keywords}
    if not is_guarded(frame) or "**" in keywords or any(node[0] == "star" for node in given.node[2]):
        return given
    told = keywords.union(names[: len(given.values)])
    none = only_here(frame, NONE)
    absent = tuple((name, none) for name, default in defaults if default == ("const", None) and name not in told)
    return Given(given.values, (*given.keywords, *absent), given.node)


def roles_of(frame: Frame, facts: FunctionFacts | None) -> tuple[int, int]:
    """Return which roles are known to run a function that is called here: of a constructor by another name, those that
    call it, as what it makes is theirs."""
    by_name = facts is not None and ("name", "classmethod") in facts.decorators
    return (frame.mask, frame.may) if by_name and frame.may else (EVERY, EVERY)


def storing(frame: Frame, facts: FunctionFacts | None) -> tuple[int, int]:
    """Return which roles have the objects that a method which is called here stores: those that call it."""
    stores = facts is not None and facts.owner and facts.stored and facts.name != "__init__"
    return (frame.mask, frame.may) if stores else (EVERY, EVERY)


def members(lineage: tuple[str, ...], body: dict[str, Value]) -> dict[str, Value]:
    """Return what the body of a class leaves: the members of an enumeration are told apart, whatever they stand for."""
    if _ENUMERATIONS.isdisjoint(lineage):
        return body
    return {
        name: value if value.reference else Value(none=FALSE, flags=frozenset({f"member {name}"}))
        for name, value in body.items()
    }


def outcome(outcomes: list[tuple[Value, int, int]]) -> Value:
    """Return what a function returns or yields: for each role what it may be there."""
    if not outcomes:
        return NONE
    value, roles, implicit = outcomes[0]
    reached = roles
    for other, may, more in outcomes[1:]:
        implicit |= more
        truth = "".join("T" if not may >> at & 1 else "F" if not reached >> at & 1 else "U" for at in range(4))
        if truth == TRUE and may == 0:
            continue
        ranked = "U" in truth and implicit & RANKS
        own = "U" in truth and implicit & OF_ONE
        letter = "D" if ranked else "P" if own else "U"
        value = chosen(truth.replace("U", letter), value, other, implicit or (RANKS if set(truth) != {"U"} else 0))
        reached |= may
    return value


def is_super(node: Node) -> bool:
    return bool(node[0] == "call" and node[1] == ("name", "super"))


def own_object(frame: Frame) -> Value:
    """Return the object whose method this is; of whatever class it is, also in a method that the class inherits."""
    return next((value for value in frame.env.values() if value.instance), ANYTHING) if frame.owner else ANYTHING
