"""Find out what ended a run: a rank that failed, or collectives that did not match."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.failure import Failure
from allranks.findings import Finding
from allranks.launch.result import JobResult
from allranks.rehearse.judge.base import Kind, finding
from allranks.rehearse.judge.devices import MISSING
from allranks.rehearse.judge.partial import ONE_RANK, partial_call, partial_calls
from allranks.rehearse.trace import Event, Frame, Trace

RACE = Kind(
    "AR405",
    "missing-barrier",
    "error",
    "It fails on a cluster where this rank is faster, or another one slower, than here.",
    "Put a barrier between the two, on all ranks; or let one rank check and act.",
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
POLLS = Kind(
    "AR013",
    "wait-without-end",
    "error",
    "If the rank that should make the file fails, the others wait until the job's time limit.",
    "Give the loop a deadline, or wait in a barrier: it ends if a rank fails. Let the rank that cannot make the file "
    "raise its error.",
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
    ("HANG", HANG),
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
    if polls := _polls(failed, trace):
        path = polls[-1].data["paths"][0].rpartition("/")[2]
        text = f"rank {failed.rank} waits for {path}, which no rank makes, and has no deadline"
        checks = [(f"rank {failed.rank} has checked {len(polls)} times", polls[-1])]
        checks += [(f"rank {event.rank} waits in {event.data['name']}", event) for event in _waiting(trace)]
        yield from filter(None, [finding(POLLS, text, polls[-1], checks)])
        return
    if kind in (ONE_RANK, ORDER, HANG) and "waits for rank" not in failed.what and (events := partial_calls(trace)):
        yield from filter(None, [partial_call(trace, events, text)])
        return
    evidence: list[tuple[str, Event | Frame | None]] = [(f"rank {failed.rank} (host {failed.host})", frame_of(failed))]
    evidence += [(f"rank {event.rank} waits in {event.data['name']}", event.where) for event in _waiting(trace)]
    yield from filter(None, [finding(kind, text, _caller(failed, trace) or frame_of(failed), evidence)])


_ONLY = re.compile(r"only ranks? (\d+)[^ ]* makes? the call")


def _caller(failed: Failure, trace: Trace) -> Frame | None:
    """Return the line of a call that only some ranks make, from the text of the error; None if it does not say.

    The error may be raised on a rank that does not make the call.
    """
    if (only := _ONLY.search(failed.what)) is None or int(only[1]) == failed.rank:
        return None
    found = re.search(rf"rank {only[1]}: [^;]*?\(([^() ]+):(\d+)\)", failed.what)
    if found is None:
        return None
    paths = (frame.path for event in trace.events for frame in event.place)
    full = next((path for path in paths if path == found[1] or path.endswith("/" + found[1])), found[1])
    return Frame(full, int(found[2]), "<module>")


def _polls(failed: Failure, trace: Trace) -> list[Event]:
    """Return the checks for a file with which a rank that hangs has spent its last seconds, or []."""
    mine = [event for event in trace.of("file", "enter", "leave", "step") if event.rank == failed.rank]
    last = mine[-_FEWEST_CHECKS:]
    is_polling = len(last) == _FEWEST_CHECKS and all(
        event.kind == "file" and event.where == last[0].where and not event.data["existed"] for event in last
    )
    return [event for event in mine if event.where == last[0].where] if "HANG" in failed.what and is_polling else []


# A rank that has checked for a file so often, and has done nothing else since, waits for it.
_FEWEST_CHECKS = 8


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
