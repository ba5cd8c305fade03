"""What a model that DistributedDataParallel wraps is asked for: the wrapper hands on nothing but the call itself."""

from __future__ import annotations

from collections.abc import Callable

from allranks.check.interpret.state import Frame, Seen, Span
from allranks.check.interpret.values import MANY, ONE_OF, Value
from allranks.check.tables.data import BARE, OF_OTHERS, OF_WRAPPER, WRAPPER
from allranks.check.tables.effects import Effect


def is_inside(wrapper: Value, name: str) -> bool:
    """Whether ``name`` is something of the model inside, which the wrapper around it has not."""
    sure = wrapper.instance == WRAPPER and not wrapper.flags & ONE_OF
    return sure and not _is_of_wrapper(name) and name not in OF_OTHERS


def has(wrapper: Value, name: str) -> Value | None:
    """Return what ``hasattr`` gives of a model that is wrapped where there are several processes; None of others."""
    return Value(constant=_is_of_wrapper(name), flags=MANY) if wrapper.instance == WRAPPER else None


def asked(name: str, wrapper: Value, classes: Value | None, lineage: Callable[[str], tuple[str, ...]]) -> Value | None:
    """Return what built-in functions give of a wrapper: a part of the model for a name that is made up, itself for its
    type, where attributes are put, and that it is of no class of the project; None of others."""
    if wrapper.instance != WRAPPER:
        return None
    if name == "getattr":
        return Value(instance=BARE)
    if name == "type":
        return wrapper
    kinds = (classes.elements or (classes,)) if name == "isinstance" and classes is not None else ()
    other = bool(kinds) and all("::" in one.reference and WRAPPER not in lineage(one.reference) for one in kinds)
    return Value(constant=False, flags=MANY) if other else None


def note(frame: Frame, wrapper: str, name: str, span: Span) -> None:
    """Record that a wrapper is asked for what the model inside has, or for that model; who catches the error is ready
    for it."""
    seen = Seen(
        name=f"{WRAPPER}.{name}",
        entry=Effect("*", "inside"),
        span=span,
        arguments=(),
        keywords=(),
        receiver=None,
        mask=frame.mask,
        may=frame.may,
        ordered=bool(frame.forgiving),
        target=wrapper,
        under=frame.implicit,
        met=len(frame.result.meetings),
        looped=bool(frame.loops),
        guard=frame.guard,
        arms=frame.arms,
    )
    frame.result.seen.append(seen)


def _is_of_wrapper(name: str) -> bool:
    return name in OF_WRAPPER or name.startswith("_")
