"""What a model that DistributedDataParallel wraps is asked for: the wrapper hands on nothing but the call itself.

The program wraps it, or Accelerate does where it prepares a model that is trained."""

from __future__ import annotations

import re
from collections.abc import Callable

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame, Seen, Span
from allranks.check.interpret.values import ANYTHING, MANY, ONE_OF, Value, replace
from allranks.check.summaries.render import render
from allranks.check.tables.data import BARE, OF_OTHERS, OF_WRAPPER, WRAPPER
from allranks.check.tables.effects import Effect

# The flag of a model in a wrapper of Accelerate's.
BEHIND = "behind Accelerate"
PREPARES = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_model")
_MODEL = re.compile(
    r"(?i)(^|[._])(\w*model|\w*net|transformer|\w*encoder|\w*decoder|generator|discriminator|policy|critic|\w*former)$"
)


def prepared(name: str, given: Given) -> Value:
    """Return what Accelerate gives back, where nothing puts models in parts: what is called a model, in a wrapper."""
    if name not in PREPARES or any(argument[0] == "star" for argument in given.node[2]):
        return ANYTHING
    behind = Value(flags=frozenset({BEHIND}))
    made = [behind if _MODEL.search(render(argument)) else ANYTHING for argument in given.node[2]]
    return made[0] if len(made) == 1 else Value(elements=tuple(made))


def is_wrapper(value: Value) -> bool:
    """Whether a model is wrapped for certain where there are several processes."""
    behind = not value.instance and BEHIND in value.flags
    return (behind or value.instance == WRAPPER) and not value.flags & ONE_OF


def is_inside(wrapper: Value, name: str) -> bool:
    """Whether ``name`` is something of the model inside, which the wrapper around it has not."""
    return is_wrapper(wrapper) and not _is_of_wrapper(name) and name not in OF_OTHERS


def inside(wrapper: Value) -> Value:
    """Return what an attribute is looked for in: the model that Accelerate has wrapped is of any class."""
    return replace(wrapper, flags=wrapper.flags - {BEHIND}) if BEHIND in wrapper.flags else wrapper


def has(wrapper: Value, name: str) -> Value | None:
    """Return what ``hasattr`` gives of a model that is wrapped where there are several processes; None of others."""
    return Value(constant=_is_of_wrapper(name), flags=MANY) if is_wrapper(wrapper) else None


def asked(name: str, wrapper: Value, classes: Value | None, lineage: Callable[[str], tuple[str, ...]]) -> Value | None:
    """Return what built-in functions give of a wrapper: a part of the model for a name that is made up, itself for its
    type, where attributes are put, and that it is of no class of the project; None of others."""
    if not is_wrapper(wrapper):
        return None
    if name == "getattr":
        return Value(instance=BARE)
    if name == "type":
        return wrapper
    kinds = (classes.elements or (classes,)) if name == "isinstance" and classes is not None else ()
    other = bool(kinds) and all("::" in one.reference and WRAPPER not in lineage(one.reference) for one in kinds)
    return Value(constant=False, flags=MANY) if other else None


def note(frame: Frame, wrapper: Value, text: str, name: str, span: Span) -> None:
    """Record that a wrapper is asked for what the model inside has, or for that model; who catches the error is ready
    for it."""
    seen = Seen(
        name=f"{wrapper.instance or PREPARES[0]}.{name}",
        entry=Effect("*", "inside"),
        span=span,
        arguments=(),
        keywords=(),
        receiver=None,
        mask=frame.mask,
        may=frame.may,
        ordered=bool(frame.forgiving),
        target=text,
        under=frame.implicit,
        met=len(frame.result.meetings),
        looped=bool(frame.loops),
        guard=frame.guard,
        arms=frame.arms,
    )
    frame.result.seen.append(seen)


def _is_of_wrapper(name: str) -> bool:
    return name in OF_WRAPPER or name.startswith("_")
