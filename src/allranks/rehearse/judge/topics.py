"""Make the table at the end of a rehearsal. For each topic it says what was found, or correct, or not seen.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.findings import Finding, Note, Row, Verdict
from allranks.rehearse.accelerator.names import summary
from allranks.rehearse.trace import UNWATCHED, Trace


@dataclass(frozen=True, slots=True)
class Topic:
    """A row of the table.

    - ``codes``: prefixes of the codes of its findings.
    - ``kinds``: the kinds of events that are counted.
    - ``evidence``: the text of a row without findings, with the number of these events.
    - ``absent``: the text of a row without such events.
    """

    name: str
    codes: tuple[str, ...]
    kinds: tuple[str, ...]
    evidence: str
    absent: str


TOPICS = (
    Topic(
        "files",
        ("AR101", "AR102", "AR104", "AR106", "AR107", "AR108", "AR109", "AR110", "AR401", "AR405"),
        ("file",),
        "{} file calls",
        "the program touched no file of its own",
    ),
    Topic("checkpoints", ("AR403", "AR010"), ("saved",), "{} saves", "no array was saved"),
    Topic(
        "data",
        ("AR30", "AR312"),
        ("batch", "input", "global", "arguments"),
        "{} batches",
        "no loader, no forward pass in training and no global array was seen",
    ),
    Topic(
        "weights",
        ("AR501", "AR502", "AR702", "AR003", "AR004", "AR011", "AR016"),
        ("weights", "arguments"),
        "{} comparisons",
        "no optimizer step was seen",
    ),
    Topic(
        "gradients",
        ("AR705", "AR024", "AR026"),
        ("weights",),
        "{} comparisons",
        "no step of a torch optimizer was seen",
    ),
    Topic("random numbers", ("AR701",), ("weights", "draw"), "{} comparisons", "no random number was drawn"),
    Topic(
        "collectives",
        ("AR2", "AR013", "AR014", "AR601", "AR605"),
        ("enter",),
        "{} synchronisations",
        "the ranks never waited for each other",
    ),
    Topic(
        "decisions",
        ("AR203", "AR209"),
        ("branch",),
        "{} decisions by floats",
        "no branch that all ranks reached depends on a float",
    ),
    Topic("exits", ("AR008", "AR009", "AR015"), ("left",), "{} ranks ended", "no rank ended by itself"),
    Topic("metrics", ("AR310",), ("logged",), "{} logged values", "no value was logged to a tracker"),
    Topic("trackers", ("AR103",), ("tracker",), "{} runs begun", "no tracker was used"),
    Topic("output", ("AR012",), ("printed",), "{} lines", "the program printed nothing"),
    Topic("hosts", ("AR105", "AR606"), (), "", ""),
    Topic("resume", ("AR005", "AR006", "AR311"), (), "", ""),
    Topic("faults", ("AR021", "AR022", "AR023"), (), "", ""),
    Topic("worlds", ("AR025",), (), "", ""),
)


# The topics of scenarios that run only when they are named.
_OPTIONAL = ("faults", "worlds")


def rows(
    traces: Iterable[Trace], findings: Sequence[Finding], scenarios: Mapping[str, str], doubt: str = ""
) -> tuple[Row, ...]:
    """Return one row of the table for each topic.

    ``scenarios`` has, for the topics hosts and resume, why they were not judged, or "" if they were. A topic that is
    missing in ``scenarios`` was not requested. ``doubt`` says what is wrong with this machine's own collectives.
    """
    counts: dict[str, int] = {}
    missing: dict[str, None] = {}
    mapped: dict[str, None] = {}
    for trace in traces:
        missing |= dict.fromkeys(unseen_parts(trace))
        mapped |= dict.fromkeys(event.data["name"] for event in trace.of("replaced"))
        for event in trace.events:
            counts[event.kind] = counts.get(event.kind, 0) + 1
    asked = [topic for topic in TOPICS if topic.name not in _OPTIONAL or topic.name in scenarios]
    made = tuple(_row(topic, counts, findings, scenarios) for topic in asked)
    if mapped or doubt:
        notes = [*([summary(mapped)] if mapped else []), *([doubt] if doubt else [])]
        made += (Row("accelerator", "warning" if doubt else "ok", tuple(map(Note, notes))),)
    return (*made, Row("probes", "not seen", tuple(map(Note, missing)))) if missing else made


def unseen_parts(trace: Trace) -> list[str]:
    """Return what the probes of a run could not look at, each with the reason."""
    kernel = [f"{UNWATCHED}: {event.data['why']}" for event in trace.of("unwatched")]
    modules = [f"{event.data['module']}: {event.data['error']}" for event in trace.of("unattached")]
    kept = [f"{event.data['path']} was changed, and cannot be put back" for event in trace.of("kept")]
    return [*dict.fromkeys([*trace.notes, *kernel, *modules, *kept])]


def _row(topic: Topic, counts: Mapping[str, int], findings: Sequence[Finding], scenarios: Mapping[str, str]) -> Row:
    found = [one for one in findings if one.code.startswith(topic.codes)]
    if found:
        worst = {one.severity for one in found}
        verdict: Verdict = "error" if "error" in worst else "warning" if "warning" in worst else "ok"
        return Row(topic.name, verdict, tuple(Note(one.message, one.place) for one in found))
    if topic.kinds:
        number = sum(counts.get(kind, 0) for kind in topic.kinds)
        if number:
            return Row(topic.name, "ok", (Note(topic.evidence.format(f"{number:,}")),))
        return Row(topic.name, "not seen", (Note(topic.absent),))
    why = scenarios.get(topic.name, "the scenario did not run")
    if why:
        return Row(topic.name, "not seen", (Note(why),))
    return Row(topic.name, "ok", (Note(_SCENARIOS[topic.name]),))


_SCENARIOS = {
    "hosts": "the ranks ran on pretended hosts",
    "resume": "the run went on after two interruptions as it did without",
    "worlds": "N ranks train as one rank does with the same samples",
    "faults": "each failure was shown, and each restart went on",
}
