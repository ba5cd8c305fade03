"""Compare a run of one rank with a run of N ranks: with the same samples in a step, both must train alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from allranks.findings import Finding
from allranks.rehearse.judge.base import Kind, finding
from allranks.rehearse.judge.scaling import SCALED
from allranks.rehearse.trace import Event, Trace

DIFFERS = Kind(
    "AR025",
    "world-changes-training",
    "error",
    "What is learned depends on the number of ranks: results of one rank cannot be reproduced on N.",
    "Compute loss, gradients, clipping and learning rate from the samples of all ranks together.",
)
# How far sums of floating-point numbers may be apart, relative to the larger one.
_TOLERANCE = 2e-3
# Gradients that are smaller than this part of the largest one are not compared.
_NEGLIGIBLE = 1e-4


def judge(single: Trace, several: Trace) -> Iterator[Finding]:
    """Yield a finding if a run of N ranks computes other gradients or weights than a run of one rank."""
    if unseen(single, several):
        return
    ones, many = _norms(single), _norms(several)
    first = min(ones.keys() & many.keys())
    one, other = ones[first], many[first]
    ratio = _ratio(one.data["gradients"], other.data["gradients"])
    evidence = [
        (f"1 rank: the norms of the gradients are {_few(one.data['gradients'])}", one),
        (f"{several.ranks} ranks: {_few(other.data['gradients'])}", other),
    ]
    step = f"at step {first + 1}, with the same samples,"
    if ratio is not None and _is_near(ratio, 1.0):
        yield from filter(None, [_later(ones, many, several.ranks)])
    elif ratio is not None and any(_is_near(ratio, n) for n in (several.ranks, 1 / several.ranks)):
        how = "summed over the ranks, not averaged" if ratio > 1 else "divided by the number of ranks once too often"
        text = f"{step} the gradients of {several.ranks} ranks are {ratio:.3g} times those of one: they are {how}"
        yield from filter(None, [finding(SCALED, text, other, evidence)])
    else:
        text = f"{step} {several.ranks} ranks have other gradients than one rank"
        yield from filter(None, [finding(DIFFERS, text, other, evidence)])


def unseen(single: Trace, several: Trace) -> str:
    """Return why the runs cannot be compared, or "" if they can."""
    ones, many = _norms(single), _norms(several)
    if not ones.keys() & many.keys():
        return "no step of a torch optimizer was seen with both numbers of ranks"
    first = min(ones.keys() & many.keys())
    one, other = ones[first], many[first]
    if one.data["parts"] or other.data["parts"] or len(one.data["weights"]) != len(other.data["weights"]):
        return "the ranks hold parts of the model, which are not compared with a whole one"
    for module in (*one.data["random"], *other.data["random"]):
        return f"{module} makes results depend on the number of ranks"
    if not all(_is_near(a, b) for a, b in zip(one.data["weights"], other.data["weights"], strict=True)):
        return "the first weights depend on the number of ranks, or are random in each run"
    if _samples(single) != _samples(several):
        return (
            f"one rank gets other samples in its first step than {several.ranks} ranks together. It must draw the same "
            "ones: --global-batch-arg names the option for the batch of a rank, and no seed may depend on the rank"
        )
    return ""


def _later(ones: dict[int, Event], many: dict[int, Event], ranks: int) -> Finding | None:
    """Return a finding at the first step before which the weights differ."""
    for step in sorted(ones.keys() & many.keys()):
        one, other = ones[step], many[step]
        pairs = zip(one.data["weights"], other.data["weights"], strict=True)
        if not all(_is_near(a, b) for a, b in pairs):
            text = (
                f"with {ranks} ranks the weights after step {step} are others than with one rank, though the gradients "
                f"of the first step are equal"
            )
            before = max(number for number in ones.keys() & many.keys() if number < step)
            rates = [
                (f"{name}: the learning rates are {e.data['rates']}", e)
                for name, e in (("1 rank", ones[before]), (f"{ranks} ranks", many[before]))
            ]
            return finding(DIFFERS, text, many[before], rates)
    return None


def _norms(trace: Trace) -> dict[int, Event]:
    """Return, by step of the first optimizer, the norms that rank 0 recorded."""
    return {e.data["number"]: e for e in trace.of("norms") if e.rank == 0}


def _samples(trace: Trace) -> Counter[str]:
    """Return the samples that all ranks together got before their first step."""
    return Counter(sample for e in trace.of("input") if e.step == 0 for sample in e.data["samples"])


def _ratio(ones: Sequence[float], many: Sequence[float]) -> float | None:
    """Return the number by which all norms differ, or None if they differ by several."""
    least = _NEGLIGIBLE * max(ones, default=0.0)
    ratios = sorted(b / a for a, b in zip(ones, many, strict=True) if a > least)
    if not ratios or not _is_near(ratios[0], ratios[-1]):
        return None
    return ratios[len(ratios) // 2]


def _is_near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=1e-12)


def _few(norms: Sequence[float]) -> str:
    return ", ".join(f"{norm:.4g}" for norm in norms[:3]) + (", ..." if len(norms) > 3 else "")
