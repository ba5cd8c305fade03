"""The readiness report: what was looked at, the verdict, the evidence. No tick without a place in the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allranks.check.interpret.truth import ROLES
from allranks.check.program import Event, Program
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import SAMPLERS, SPLITTERS, SPLITTING_FRAMEWORKS, WRAPPERS
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import INITIALISERS
from allranks.check.tables.seeds import KEYS
from allranks.check.tables.shown import SEEDS, SHARDINGS
from allranks.findings import ROWS, Finding, Note, Place, Row, Verdict

MOST = 5
# They join the processes and wrap the model by themselves, and no `INITIALISERS` or `WRAPPERS` stand beside them.
_TRAINERS = ("lightning.pytorch.Trainer", "transformers.Trainer", "composer.Trainer", "accelerate.Accelerator.prepare")
_FIRST, _EVERY = frozenset({"first"}), frozenset(ROLES)
_LOADS = ("load", "load_checkpoint", "load_state", "load_state_dict", "restore", "checkpoint load")
_TIMEOUTS = ("timeout", "initialization_timeout", "heartbeat_timeout_seconds")


def _rank_0_saves(event: Event) -> bool:
    return _is_checkpoint(event) and event.roles == _FIRST and not event.per_process


def _some_save(event: Event) -> bool:
    alone = event.roles in (_FIRST, _EVERY, frozenset())
    return _is_checkpoint(event) and not alone and not event.per_process


def _each_saves(event: Event) -> bool:
    """Not into a temporary folder: nobody reads that again."""
    return _is_checkpoint(event) and event.per_process and not (event.path and "temporary" in event.path.flags)


def _is_checkpoint(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.entry.kind == "checkpoint"


def _all_save(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.entry.hidden and "save" in event.entry.op


def _gated(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.roles == _FIRST


def _meets(event: Event) -> bool:
    return isinstance(event.entry, Collective) and not event.entry.hidden and event.everyone


def _all_load(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.entry.op in _LOADS


def _each_loads(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.entry.kind == "restore" and event.everyone


def _seeds(event: Event) -> bool:
    """Of JAX's keys only those that all processes have in common, as arrays on all of them need it."""
    own = event.name in KEYS and any(value.ranked for value in event.arguments)
    return event.name in SEEDS and not own


def _has_timeout(event: Event) -> bool:
    return any(name in _TIMEOUTS for name, _ in event.keywords)


def _named(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.name in names


# Topic -> what speaks for it, and how the note says so.
_GOOD: Mapping[str, tuple[tuple[Callable[[Event], bool], str], ...]] = {
    "initialisation": ((_named(*INITIALISERS), "starts with {}"), (_named(*_TRAINERS), "{} joins the processes")),
    "sharding": ((_named(*WRAPPERS, *SHARDINGS), "{}"), (_named(*_TRAINERS), "{} wraps the model")),
    "data": ((_named(*SAMPLERS, *SPLITTERS, *SPLITTING_FRAMEWORKS), "data is split by {}"),),
    "checkpoint save": (
        (_rank_0_saves, "{}: rank 0 alone writes"),
        (_some_save, "{}: not every rank writes"),
        (_each_saves, "{}: each process writes a file of its own"),
        (_all_save, "{}: all ranks take part"),
    ),
    "checkpoint load": ((_all_load, "{}: all ranks take part"), (_each_loads, "{} on every rank")),
    "gating": ((_gated, "{} on rank 0 alone"),),
    "collectives": ((_meets, "{} is reached by all ranks"),),
    "timeouts": ((_has_timeout, "{} has a timeout"),),
    "randomness": ((_seeds, "seeded by {}"),),
}


def rows(program: Program, findings: Iterable[Finding], topics: Mapping[str, str]) -> tuple[Row, ...]:
    """Return the report. ``topics``: code of a rule -> row; findings decide before anything that speaks for a row."""
    against: dict[str, list[Finding]] = {}
    findings = list(findings)
    for finding in findings:
        against.setdefault(topics.get(finding.code, ""), []).append(finding)
    wrong = frozenset(line for f in findings if f.severity != "info" for line in _lines(f.place))
    return tuple(_row(topic, program, against.get(topic, []), wrong) for topic in ROWS)


def _row(topic: str, program: Program, against: list[Finding], wrong: frozenset[tuple[str, int]]) -> Row:
    """Return a row. ``wrong``: lines of which something is found, under whatever row: they speak for nothing."""
    serious = [f for f in against if f.severity != "info"]
    if serious:
        worst: Verdict = "bad" if any(f.severity == "error" for f in serious) else "warning"
        return Row(topic, worst, tuple(Note(f"{f.code} {f.message}", f.place) for f in serious[:MOST]))
    seen = (e for e in program.events if e.active and not _lines(e.place) & wrong)
    told = ((e, next((words for speaks, words in _GOOD[topic] if speaks(e)), "")) for e in seen)
    notes = tuple(Note(words.format(e.told.removeprefix("*.")), e.place) for e, words in told if words)[:MOST]
    return Row(topic, "good" if notes else "not seen", notes)


def _lines(place: Place) -> frozenset[tuple[str, int]]:
    return frozenset((place.path, line) for line in range(place.line, place.end_line + 1))
