"""What a model that DistributedDataParallel wraps is asked for: the wrapper hands on nothing but the call itself.

The program wraps it, or Accelerate does where it prepares a model that is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame, Seen, Span
from allranks.check.interpret.values import ANYTHING, MANY, ONE_OF, Value, replace
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, body_of, calls_below
from allranks.check.tables.data import BARE, OF_OTHERS, OF_WRAPPER, WRAPPER
from allranks.check.tables.effects import Effect

# The flag of a model in a wrapper of Accelerate's.
BEHIND = "behind Accelerate"
PREPARES = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_model")
_MODEL = re.compile(
    r"(?i)(^|[._])(\w*model|\w*net|transformer|\w*encoder|\w*decoder|generator|discriminator|policy|critic|\w*former)$"
)
_FREEZES = re.compile(r"(?i)freez|requires_grad|no_grad")


def prepared(name: str, given: Given, facts: FunctionFacts) -> Value:
    """Return what Accelerate gives back in a function, where nothing puts models in parts: what is called a model, in a
    wrapper, but for one that the function freezes: of that nothing is to be averaged."""
    calls = [*calls_below(body_of(facts))] if name in PREPARES else []
    return given_back(name, given, BEHIND, lambda one: bool(_MODEL.search(one)) and not _is_frozen(one, calls))


def given_back(name: str, given: Given, flag: str, is_meant: Callable[[str], bool]) -> Value:
    """Return what Accelerate gives back for all that it is given to prepare: with a flag what is meant, as written."""
    if name not in PREPARES or any(argument[0] == "star" for argument in given.node[2]):
        return ANYTHING
    marked = Value(flags=frozenset({flag}))
    made = tuple(marked if is_meant(one) else ANYTHING for one in map(render, given.node[2]))
    return made[0] if len(made) == 1 else Value(elements=made)


def _is_frozen(model: str, calls: Iterable[Node]) -> bool:
    """``model.requires_grad_(False)``, ``freeze([model, other])``"""
    itself = re.compile(rf"(?<![\w.]){re.escape(model)}(?![\w.])")
    for call in calls:
        function = render(call[1])
        if function == f"{model}.requires_grad_" and call[2] == (("const", False),):
            return True
        if _FREEZES.search(function.rpartition(".")[2]) and any(itself.search(render(given)) for given in call[2]):
            return True
    return False


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
