"""Find out what ended a run: a rank that failed, or collectives that did not match."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.failure import Failure
from allranks.findings import Finding
from allranks.launch.result import JobResult
from allranks.rehearse.judge.base import Kind, finding
from allranks.rehearse.judge.devices import MISSING
from allranks.rehearse.trace import Event, Frame, Trace

RACE = Kind(
    "AR405",
    "missing-barrier",
    "error",
    "It fails on a cluster where this rank is faster, or another one slower, than here.",
    "Put a barrier between the two, on all ranks; or let one rank check and act.",
)
ONE_RANK = Kind(
    "AR201",
    "collective-under-rank-guard",
    "error",
    "The ranks that call wait for those that do not: the job hangs.",
    "Let all ranks call it, or none.",
)
ORDER = Kind(
    "AR211",
    "collective-order-differs",
    "error",
    "Ranks that make different calls exchange the wrong values, or wait for one another for ever.",
    "Let all ranks make the same calls, in the same order, with the same shapes.",
)
HANG = Kind(
    "AR209",
    "rank-local-loop-exit",
    "error",
    "Ranks wait for one that does not come: the job hangs.",
    "Let all ranks decide alike: exchange what the decision depends on.",
)
REPLICAS = Kind(
    "AR702",
    "rank-divergent-init",
    "error",
    "Each rank trains another model, though they share their gradients.",
    "Seed all ranks alike before the model is made, or broadcast the weights of rank 0.",
)

_PLACE = re.compile(r"(.+):(\d+)")
# By how a failure's text begins, or what is in it: what it is a sign of.
_SIGNS: tuple[tuple[str, Kind], ...] = (
    ("CollectiveOnOneRank", ONE_RANK),
    ("replicas", REPLICAS),
    ("Mismatch", ORDER),
    ("BarrierTimeout", HANG),
    ("hang", HANG),
    ("left early", HANG),
)
_FILE_ERRORS = (
    *("FileNotFoundError", "FileExistsError", "NotADirectoryError", "IsADirectoryError", "PermissionError"),
    *("EOFError", "JSONDecodeError", "UnpicklingError", "BadZipFile", "SafetensorError", "OSError", "RuntimeError"),
    *("ValueError", "KeyError"),
)


def kind_of(failure: Failure) -> Kind | None:
    """Return the kind of fault between ranks that a failure indicates, or None for a fault of the program alone."""
    return next((kind for words, kind in _SIGNS if words in failure.what), None)


def collectives(result: JobResult, trace: Trace) -> Iterator[Finding]:
    """Yield a finding if the run ended because the ranks made different calls."""
    failed = result.first_failure
    if failed is None or (kind := kind_of(failed)) is None:
        return
    text = f"rank {failed.rank}: {' '.join(failed.what.split())}"
    waiting = _waiting(trace)
    evidence = [(f"rank {failed.rank} (host {failed.host})", frame_of(failed))]
    evidence += [(f"rank {event.rank} waits in {event.data['name']}", event.where) for event in waiting]
    one = finding(kind, text, frame_of(failed), evidence)
    if one is not None:
        yield one


def _waiting(trace: Trace) -> list[Event]:
    """Return, for each rank that waited for others when the run ended, the event at which it began to wait."""
    found = []
    for events in trace.by_rank("enter", "leave").values():
        last = events[-1] if events else None
        if last is not None and last.kind == "enter":
            found.append(last)
    return found


def race(result: JobResult, trace: Trace, how: str) -> Iterator[Finding]:
    """Yield a finding if a perturbed run failed, though the quiet run did not. ``how`` says what was perturbed."""
    failed = result.first_failure
    if failed is None:
        return
    kind = kind_of(failed) or (MISSING if "invalid device ordinal" in failed.what else RACE)
    text = f"rank {failed.rank} fails {how}: {' '.join(failed.what.split())}"
    evidence = [(f"{how}, rank {failed.rank} failed here", frame_of(failed))]
    evidence += [(f"rank {event.rank} waits in {event.data['name']}", event.where) for event in _waiting(trace)]
    one = finding(kind, text, frame_of(failed), evidence)
    if one is not None:
        yield one


def frame_of(failure: Failure) -> Frame | None:
    """Return the line at which a rank failed, or None if it is not known."""
    found = _PLACE.fullmatch(failure.where.split(" ")[0]) if failure.where else None
    return Frame(found[1], int(found[2]), "<module>") if found else None
