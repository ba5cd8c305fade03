"""The readiness report: what was looked at, the verdict, the evidence. No tick without a place in the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allranks.check.program import Event, Program
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import LOADERS, SAMPLERS, SPLITTERS, SPLITTING_FRAMEWORKS, UNSPLIT, WRAPPERS
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import INITIALISERS
from allranks.check.tables.seeds import ORDERS, SEEDERS, STATES
from allranks.findings import ROWS, Finding, Note, Row, Verdict

MOST = 5
_SHARDINGS = ("jax.sharding.NamedSharding", "jax.sharding.Mesh", "jax.make_mesh", "jax.device_put")
_SEEDS = ("jax.random.PRNGKey", "jax.random.key", *sorted(SEEDERS))
_LOADS = ("load", "load_checkpoint", "load_state", "load_state_dict", "restore", "checkpoint load")
_TIMEOUTS = ("timeout", "initialization_timeout", "heartbeat_timeout_seconds")
# Calls that the rows point to and that no other table has.
SHOWN: frozenset[str] = frozenset(
    [*_SHARDINGS, *_SEEDS, *SPLITTERS, *SPLITTING_FRAMEWORKS, *LOADERS, *UNSPLIT, *ORDERS, *STATES]
)


def _saves(event: Event) -> bool:
    if isinstance(event.entry, Effect):
        return event.entry.kind == "checkpoint" and (not event.everyone or event.per_process)
    return isinstance(event.entry, Collective) and event.entry.hidden and "save" in event.entry.op


def _gated(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.roles == frozenset({"first"})


def _meets(event: Event) -> bool:
    return isinstance(event.entry, Collective) and not event.entry.hidden


def _loads(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.entry.op in _LOADS


def _named(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.name in names


# Topic -> what speaks for it, and how the note says so.
_GOOD: Mapping[str, tuple[Callable[[Event], bool], str]] = {
    "initialisation": (_named(*INITIALISERS), "starts with {}"),
    "sharding": (_named(*WRAPPERS, *_SHARDINGS), "{}"),
    "data": (_named(*SAMPLERS, *SPLITTERS, *SPLITTING_FRAMEWORKS), "data is split by {}"),
    "checkpoint save": (_saves, "{}: one rank writes, or all take part"),
    "checkpoint load": (_loads, "{}: all ranks take part"),
    "gating": (_gated, "{} on rank 0 alone"),
    "collectives": (_meets, "{} is reached by all ranks"),
    "timeouts": (lambda event: any(name in _TIMEOUTS for name, _ in event.keywords), "{} has a timeout"),
    "randomness": (_named(*_SEEDS), "seeded by {}"),
}


def rows(program: Program, findings: Iterable[Finding], topics: Mapping[str, str]) -> tuple[Row, ...]:
    """Return the report. ``topics``: code of a rule -> row; findings decide before anything that speaks for a row."""
    against: dict[str, list[Finding]] = {}
    for finding in findings:
        against.setdefault(topics.get(finding.code, ""), []).append(finding)
    return tuple(_row(topic, program, against.get(topic, [])) for topic in ROWS)


def _row(topic: str, program: Program, against: list[Finding]) -> Row:
    serious = [f for f in against if f.severity != "info"]
    if serious:
        worst: Verdict = "bad" if any(f.severity == "error" for f in serious) else "warning"
        return Row(topic, worst, tuple(Note(f"{f.code} {f.message}", f.place) for f in serious[:MOST]))
    speaks, words = _GOOD[topic]
    seen = [e for e in program.events if speaks(e) and e.active and (topic != "collectives" or e.everyone)]
    notes = tuple(Note(words.format(e.name.removeprefix("*.")), e.place) for e in seen[:MOST])
    return Row(topic, "good" if notes else "not seen", notes)
