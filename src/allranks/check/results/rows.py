"""The readiness report: what was looked at, the verdict, the evidence. No tick without a place in the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from allranks.check.interpret.truth import ROLES
from allranks.check.program import Event, Program, short
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import LOADERS, OWN_ROWS, SAMPLERS, SPLITTERS, SPLITTING_FRAMEWORKS, WRAPPERS
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import INITIALISERS, STARTERS, TRAINERS
from allranks.check.tables.receivers import is_trainer
from allranks.check.tables.seeds import KEYS
from allranks.check.tables.shown import SAVERS, SEEDS, SHARDINGS, WRAPPED_BY
from allranks.findings import ROWS, Finding, Note, Place, Row, Verdict

MOST = 5
_FIRST, _EVERY = frozenset({"first"}), frozenset(ROLES)
_LOADS = (
    *("load", "load_checkpoint", "load_state", "load_state_dict", "restore", "checkpoint load", "checkpoint restore"),
    *("checkpoint load_state_dict", "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"),
)
# What loads and saves under a framework, which meets somebody where models lie in parts alone.
_FRAMEWORK_SAVES = re.compile(r"^accelerate\..*\.(save_state|save_model)$|Trainer\.save_model$")
_FRAMEWORK_LOADS = re.compile(r"^accelerate\..*\.load_state$")
_RESUMES = ("resume_from_checkpoint", "ckpt_path")
_TIMEOUTS = ("timeout", "initialization_timeout", "heartbeat_timeout_seconds")
# What is saved and loaded as checkpoints are, and belongs to the data, by how it or its maker is called.
_OF_DATA = re.compile(
    r"(?i)vocab|\btok\b|token(s|ize\w*)?\b|token_?(map|ids?)|processor|extractor|label|(^|[_/'\"])(index|cache|stats)\b|lookup"
)
_OF_STATE = re.compile(r"(?i)ckpt|checkpoint|\.(msgpack|pth?|safetensors|pkl|npz|eqx|bin)\b")
Lines = Mapping[str, list[str]]


def _rank_0_saves(event: Event) -> bool:
    return _is_checkpoint(event) and event.roles == _FIRST and not event.per_process


def _some_save(event: Event) -> bool:
    alone = event.roles in (_FIRST, _EVERY, frozenset())
    return _is_checkpoint(event) and not alone and not event.per_process


def _each_saves(event: Event) -> bool:
    """Not into a temporary folder: nobody reads that again."""
    return _is_checkpoint(event) and event.per_process and not (event.path and "temporary" in event.path.flags)


def _is_checkpoint(event: Event) -> bool:
    kind = event.entry.kind if isinstance(event.entry, Effect) else ""
    return kind == "checkpoint" or (kind == "file" and event.holds_state)


def _all_save(event: Event) -> bool:
    if event.name.startswith("ray."):
        return event.op == "report" and _gives(event, ("checkpoint",))
    return isinstance(event.entry, Collective) and event.entry.hidden and "save" in event.entry.op


def _framework_saves(event: Event) -> bool:
    return bool(_FRAMEWORK_SAVES.search(event.name)) and event.everyone


def _framework_loads(event: Event) -> bool:
    return bool(_FRAMEWORK_LOADS.match(event.name)) and event.everyone


def _gated(event: Event) -> bool:
    """What is read on one rank does no harm there, and no good: the others may miss it."""
    kind = event.entry.kind if isinstance(event.entry, Effect) else ""
    return kind not in ("", "moved", "read", "load", "restore") and event.roles == _FIRST


def _meets(event: Event) -> bool:
    return isinstance(event.entry, Collective) and not event.entry.hidden and event.everyone


def _meets_hidden(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.everyone and event.name.rpartition(".")[2][:1].islower()


def _all_load(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.entry.op in _LOADS


def _resumes(event: Event) -> bool:
    return isinstance(event.entry, Collective) and event.op in ("train", "fit") and _gives(event, _RESUMES)


def _gives(event: Event, names: tuple[str, ...]) -> bool:
    return any(
        name in names and value.constant is not None and value.constant is not False for name, value in event.keywords
    )


def _each_loads(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.entry.kind == "restore" and event.everyone


def _rank_0_publishes(event: Event) -> bool:
    """A file gets the name of a checkpoint there: whatever has written it is not known."""
    moved = isinstance(event.entry, Effect) and event.entry.kind == "moved"
    return moved and event.roles == _FIRST and bool(_OF_STATE.search(event.target))


def _each_reads(event: Event) -> bool:
    return isinstance(event.entry, Effect) and event.entry.kind == "load" and event.everyone


def _deals(event: Event) -> bool:
    """Whether what a loader is given differs from rank to rank."""
    own = any(value.ranked or "own" in value.flags for value in (*event.arguments, *(v for _, v in event.keywords)))
    return event.name in LOADERS and own


def _seeds(event: Event) -> bool:
    """Of JAX's keys only those that all processes have in common, as arrays on all of them need it."""
    own = event.name in KEYS and any(value.ranked for value in event.arguments)
    return event.name in SEEDS and not own


def _has_timeout(event: Event) -> bool:
    return any(name in _TIMEOUTS for name, _ in event.keywords)


def _named(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.name in names


def _trains(event: Event) -> bool:
    return event.name in TRAINERS or event.name == "accelerate.Accelerator.prepare" or is_trainer(event.name)


# Topic -> what speaks for it, and how the note says so.
_GOOD: Mapping[str, tuple[tuple[Callable[[Event], bool], str], ...]] = {
    "initialisation": (
        (_named(*INITIALISERS), "starts with {}"),
        (_trains, "{} joins the processes"),
        (_named(*STARTERS), "{} starts the processes"),
    ),
    "sharding": (
        (_named(*WRAPPERS, *SHARDINGS), "{}"),
        (_named(*WRAPPED_BY), "{} wraps the model"),
        (_trains, "{} wraps the model"),
    ),
    "data": (
        (_named(*SAMPLERS, *SPLITTERS, *SPLITTING_FRAMEWORKS), "data is split by {}"),
        (lambda e: is_trainer(e.name) or e.name in TRAINERS, "data is split by {}"),
        (_deals, "{} gets what depends on the rank"),
        (_named(*OWN_ROWS), "each process gives {} its own rows"),
    ),
    "checkpoint save": (
        (_rank_0_saves, "{}: only rank 0 writes"),
        (_some_save, "{}: not every rank writes"),
        (_each_saves, "{}: each process writes its own file"),
        (_all_save, "{}: all ranks take part"),
        (_framework_saves, "{}: every rank calls it"),
        (_named(*SAVERS), "{} saves for all ranks"),
    ),
    "checkpoint load": (
        (_all_load, "{}: all ranks take part"),
        (_each_loads, "{} on every rank"),
        (_framework_loads, "{}: every rank calls it"),
        (_resumes, "{}: resumes on every rank"),
    ),
    "gating": ((_gated, "{} on rank 0 only"),),
    "collectives": ((_meets, "{} is reached by all ranks"),),
    "timeouts": ((_has_timeout, "{} has a timeout"),),
    "randomness": ((_seeds, "seeded by {}"),),
}
# What is told where nothing else speaks for a row.
_OTHERWISE: Mapping[str, tuple[tuple[Callable[[Event], bool], str], ...]] = {
    "checkpoint save": ((_rank_0_publishes, "{}: only rank 0 writes"),),
    "checkpoint load": ((_each_reads, "{} on every rank"),),
    "collectives": ((_meets_hidden, "{} is reached by all ranks"),),
}
# What a row is about: of a finding at one of these the row tells too, whatever the rule's own row.
_ABOUT: Mapping[str, Callable[[Event], bool]] = {
    "checkpoint save": lambda e: _is_checkpoint(e) or _all_save(e) or _framework_saves(e),
    "checkpoint load": lambda e: _all_load(e) or _each_loads(e) or _framework_loads(e),
}
_IF = "{}: no rank is seen to leave it out"


def rows(
    program: Program,
    findings: Iterable[Finding],
    topics: Mapping[str, str],
    lines: Lines,
    doubted: Iterable[Finding] = (),
    unsure: Iterable[Finding] = (),
) -> tuple[Row, ...]:
    """Return the report. ``topics``: code of a rule -> row; findings decide before anything that speaks for a row.
    ``doubted``: what is not shown, for it is not sure enough: what stands there speaks for nothing. ``unsure``: those
    of them that the user wants of surer rules alone: nothing speaks for their rows."""
    against: dict[str, list[Finding]] = {}
    findings = [f for f in findings if f.severity != "info"]
    for finding in findings:
        against.setdefault(topics.get(finding.code, ""), []).append(finding)
    events = [event for event in program.events if event.active]
    if events:  # who starts the processes does it before there are several
        events += [event for event in program.events if event.name in STARTERS and not event.active]
    for topic, about in _ABOUT.items():
        places = {_start(e.place) for e in events if about(e) and not _is_of_data(e, lines)}
        more = [f for f in findings if _start(f.place) in places and f not in against.get(topic, ())]
        against.setdefault(topic, []).extend(more)
    wrong = frozenset(line for f in (*findings, *doubted) if f.severity != "info" for line in _lines(f.place))
    seen = [event for event in events if not _lines(event.place) & wrong]
    known = {topic: _row(topic, seen, against.get(topic, []), lines) for topic in ROWS}
    for finding in unsure:
        topic = topics.get(finding.code, "")
        if topic in known and known[topic].verdict not in ("error", "warning"):
            hidden = Note(f"{finding.code} is less precise than --precision requires, and not shown", finding.place)
            known[topic] = Row(topic, "not determined", (hidden,))
    return tuple(known.values())


def _row(topic: str, seen: list[Event], against: list[Finding], lines: Lines) -> Row:
    """Return a row. ``seen``: what may speak for it, nothing of a line of which something is found."""
    if against:
        worst: Verdict = "error" if any(f.severity == "error" for f in against) else "warning"
        return Row(topic, worst, tuple(Note(f"{f.code} {f.message}", f.place) for f in against[:MOST]))
    for speaking in (_GOOD[topic], _OTHERWISE.get(topic, ())):
        told = _notes(topic, seen, speaking, lines)
        # The same words for one line once: a call may stand there twice.
        if notes := {(note.text, note.place and _start(note.place)): note for note in told}:
            return Row(topic, "ok", tuple(notes.values())[:MOST])
    return Row(topic, "not seen", ())


def _notes(
    topic: str, seen: list[Event], speaking: tuple[tuple[Callable[[Event], bool], str], ...], lines: Lines
) -> Iterator[Note]:
    for event in seen:
        words = next((words for speaks, words in speaking if speaks(event)), "")
        if not words or (topic.startswith("checkpoint") and _is_of_data(event, lines)):
            continue
        if topic == "collectives" and _is_under_a_condition(event, lines):
            words = _IF
        yield Note(words.format(short(event.told).removesuffix(" to")), event.place)


def _is_of_data(event: Event, lines: Lines) -> bool:
    """Whether what is saved or loaded belongs to the data, by its name or its maker's: a vocabulary, a tokenizer."""
    told = (event.target, event.symbol.rpartition(".")[2], _text(event.place, lines).partition("(")[0])
    return any(map(_OF_DATA.search, told))


def _is_under_a_condition(event: Event, lines: Lines) -> bool:
    """Whether it stands under a condition on the way, beside that which asks whether a file is run as a program."""
    places = [*(step.place for step in event.chain), event.place]
    return any(
        "__name__" not in lines.get(place.path, [])[line - 1]
        for place, arms in zip(places, event.arms, strict=False)
        for (line, *_), _side in arms
        if line <= len(lines.get(place.path, []))
    )


def _text(place: Place, lines: Lines) -> str:
    here = lines.get(place.path, [])
    return here[place.line - 1][place.column - 1 :] if place.line <= len(here) else ""


def _start(place: Place) -> tuple[str, int]:
    return place.path, place.line


def _lines(place: Place) -> frozenset[tuple[str, int]]:
    return frozenset((place.path, line) for line in range(place.line, place.end_line + 1))
