"""Results that stand for a function: for one that a decorator has made another, for one that some ranks run. Pure."""

from __future__ import annotations

from allranks.check.interpret.state import Called, Result, Span
from allranks.check.interpret.truth import EVERY
from allranks.check.interpret.values import RANKS


def gated(result: Result, gate: str, why: str, span: Span) -> Result:
    """A function that only some roles run, called by nobody here: as if all ranks called it."""
    if not gate:
        return result
    around = Result(result.reference, meets=result.meets, evidence={"rank"}, gated=True)
    mask = sum(1 << at for at, letter in enumerate(gate) if letter == "T")
    called = Called((span[0], span[1], span[0], span[1] + 1), result, mask, mask)
    around.calls.append(called)
    if result.meets:
        around.trace = (("branch", gate, RANKS, (("call", called),), (), called.span, why, ""),)
    return around


def through(reference: str, result: Result, span: Span) -> Result:
    """Return what a function does that a decorator has made another one of, which is called for it."""
    called = Called((span[0], span[1], span[0], span[1] + 1), result, EVERY, EVERY)
    trace = (("call", called),) if result.meets else ()
    return Result(reference, result.value, trace, calls=[called], evidence=set(result.evidence), meets=result.meets)
