"""The rules that are no more: why they went, and what to use instead. Values alone.

A code is never given to another rule. A suppression, a baseline entry, or a selection of a retired code is no error;
`allranks check` says once that the rule is retired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retired:
    """A rule that is no more. ``why`` and ``instead`` are sentences."""

    code: str
    name: str
    why: str
    instead: str


_NO_FINDING = "It found no real fault in more than a thousand public programs."
_OFTEN_WRONG = "It was wrong more often than right."
_RUN = "Run the program with `allranks rehearse`, which reports this fault."

RETIRED = (
    Retired("AR104", "ungated-sample-generation", _NO_FINDING, "AR102 reports the files that all ranks write."),
    Retired("AR110", "read-modify-write-on-every-rank", _NO_FINDING, "AR102 reports the file that all ranks write."),
    Retired("AR305", "jax-host-input", _NO_FINDING, _RUN),
    Retired("AR313", "split-by-rank-alone", _NO_FINDING, "AR301 reports loaders that read all data on each rank."),
    Retired("AR402", "pickle-checkpoint", "It gave advice and found no fault.", "Save with `allranks.Checkpointer`."),
    Retired("AR404", "async-save-not-awaited", _OFTEN_WRONG, "Save with `allranks.Checkpointer`, which waits."),
    Retired("AR407", "incomplete-checkpoint", _NO_FINDING, "`allranks rehearse` compares a resumed run."),
    Retired("AR501", "load-on-one-rank", _OFTEN_WRONG, _RUN),
    Retired("AR505", "load-failure-swallowed", _OFTEN_WRONG, "AR502 reports a load whose result nobody reads."),
    Retired("AR601", "missing-distributed-init", _OFTEN_WRONG, _RUN),
    Retired("AR606", "single-node-assumption", _OFTEN_WRONG, _RUN),
    Retired("AR607", "fork-after-backend", _NO_FINDING, "JAX warns of a fork when it happens."),
    Retired("AR609", "host-fetch-of-global-array", _OFTEN_WRONG, "JAX raises when this happens; AR204 finds others."),
    Retired("AR613", "whole-parameters-of-sharded-model", _NO_FINDING, _RUN),
    Retired("AR801", "no-timeout", "It gave advice and found no fault.", "`allranks run` has `--hang-after`."),
)
CODES = frozenset(one.code for one in RETIRED)


def retired(code: str) -> Retired | None:
    """Return the retired rule of a code or a name, None if there is none."""
    return next((one for one in RETIRED if code in (one.code, one.name)), None)


def remarks(codes: Iterable[str]) -> Iterator[str]:
    """Yield what to print for these codes: a line for each one that is retired."""
    for one in RETIRED:
        if one.code in codes:
            yield f"{one.code} {one.name} is retired and finds nothing. {one.why} {one.instead}"
