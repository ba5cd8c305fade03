"""What a rehearsal draws: the timeline of a trace, the HTML page with it, and the trace for Perfetto.

Perfetto's trace processor is downloaded by its package when it is first used, so the document is checked against the
rules of the Trace Event Format instead.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Script

from allranks.cli.rehearse_report import write_trace
from allranks.findings import Finding
from allranks.rehearse.judge import all_findings
from allranks.rehearse.judge.base import place_of
from allranks.rehearse.perfetto import trace_events
from allranks.rehearse.timeline import lines_seen, timeline_of
from allranks.report.base import Report
from allranks.report.forms import render
from allranks.report.timeline import RehearsalFacts, RunSummary, Timeline


def timeline(script: Script) -> Timeline:
    return timeline_of(
        script.trace(),
        "quiet",
        locate=lambda event: place_of(event.where),
        name=lambda path: path.removeprefix("/p/"),
    )


def race(ranks: int = 2, steps: int = 3) -> tuple[Timeline, list[Finding]]:
    """Return a run in which rank 0 writes a file that the others read, and then all make steps."""
    script = Script(ranks).barrier()
    script.file(0, "create", "config.json", line=3, existed=False)
    for rank in range(1, ranks):
        script.file(rank, "read", "config.json", line=5)
    for number in range(1, steps + 1):
        for rank in range(ranks):
            script.add(rank, "batch", 8, loader=0, epoch=0, number=number, samples=[f"{rank}/{number}"])
        script.barrier()
        for rank in range(ranks):
            script.add(rank, "step", 9, optimizer=0, number=number)
            script.steps[rank] = number
    script.add(0, "enter", 12, key="last", name="barrier", way="all", root=None, members=[0, 1])
    return timeline(script), [one for one in all_findings(script.case()) if one.code == "AR405"]


def report(timelines: tuple[Timeline, ...], findings: list[Finding], **facts: Any) -> Report:
    known = RehearsalFacts("train.py", "/p", 2, (RunSummary("quiet", "ok", 1.0, 3),), timelines=timelines, **facts)
    return Report(tuple(findings), (), 1, 1, "0.1.0", tool="allranks rehearse", subject="1 run", rehearsal=known)


def test_a_timeline_has_steps_collectives_and_file_calls() -> None:
    found, _ = race()
    steps = [(span.rank, span.name) for span in found.spans if span.kind == "step"]
    assert sorted(steps) == [(rank, f"step {number}") for rank in (0, 1) for number in (1, 2, 3)]
    last = [span for span in found.spans if span.is_open]
    assert [(span.rank, span.name, span.end) for span in last] == [(0, "barrier", found.end)]
    marks = [(mark.rank, mark.kind, mark.name, mark.place and mark.place.line) for mark in found.marks]
    assert marks == [(0, "write", "create config.json", 3), (1, "read", "read config.json", 5)]
    assert len({span.key for span in found.spans if span.kind == "collective"}) == 5


def checked(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a document of the Trace Event Format, after a check of its rules."""
    events = json.loads(json.dumps(document))["traceEvents"]
    slices = defaultdict(list)
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] in "XiMstf"
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "i" or event["s"] == "t"
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for times in slices.values():
        for a, b in times:
            assert not [1 for c, d in times if a < c < b < d - 0.002], "slices of a thread overlap, and are not nested"
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            assert any(a <= event["ts"] <= b for a, b in slices[event["pid"], event["tid"]]), "an arrow from nowhere"
            flows[event["cat"], event["id"]].append(event)
    for arrow in flows.values():
        phases = "".join(event["ph"] for event in arrow)
        assert re.fullmatch("st*f", phases)
        assert [event["ts"] for event in arrow] == sorted(event["ts"] for event in arrow)
        assert arrow[-1]["bp"] == "e"
    return events


def test_a_backward_pass_in_which_gradients_are_reduced_is_a_collective() -> None:
    script = Script(2)
    for rank in (0, 1):
        script.add(rank, "reduction", 7, key="reduction/1", name="DistributedDataParallel: gradients", began=-0.5)
    spans = timeline(script).spans
    assert [(span.rank, span.kind, span.start, span.key) for span in spans] == [
        (rank, "collective", -0.5, "reduction/1") for rank in (0, 1)
    ]


def test_a_rank_is_a_process_and_arrows_join_collectives_and_conflicts(tmp_path: Path) -> None:
    found, findings = race()
    write_trace(report((found,), findings), tmp_path / "t.json.gz")
    events = checked(json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())))
    assert {event["pid"] for event in events} == {0, 1}
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0", "rank 1"]
    arrows = {(event["cat"], event["id"], event["ph"]): event["pid"] for event in events if event["ph"] in "sf"}
    assert (arrows["finding", "0/finding 0", "s"], arrows["finding", "0/finding 0", "f"]) == (0, 1)
    assert sum(category == "collective" and phase == "s" for category, _, phase in arrows) == 4
    (call,) = [event for event in events if event["name"] == "read config.json"]
    assert call["args"] == {"step": 0, "line": "/p/train.py:5"}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("file"), st.integers(0, 2), st.sampled_from(["read", "write", "rename"])),
            st.tuples(st.sampled_from(["enter", "leave"]), st.integers(0, 2), st.sampled_from("abc")),
            st.tuples(st.just("step"), st.integers(0, 2), st.integers(1, 3)),
        ),
        max_size=30,
    )
)
def test_every_trace_gives_a_valid_document_and_a_page(calls: list[tuple[str, int, Any]]) -> None:
    """Also where collectives overlap, as asynchronous ones do, and steps repeat."""
    script = Script(3)
    for kind, rank, what in calls:
        if kind == "file":
            script.file(rank, what, "a", "b") if what == "rename" else script.file(rank, what, "a")
        elif kind == "step":
            script.add(rank, "step", optimizer=0, number=what)
        else:
            script.add(rank, kind, key=what, name="all_reduce")
    found = timeline(script)
    checked(trace_events([found, replace(found, title="again")], []))
    assert render(report((found,), []), "html")


class Page(HTMLParser):
    """Reads the tags of a page; fails for a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag in ("svg", "a", "details", "section", "article", "title", "text"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("svg", "a", "details", "section", "article", "title", "text"):
            assert self.open.pop() == tag


def test_the_page_has_the_verdict_first_and_the_conflict_marked() -> None:
    found, findings = race()
    text = render(report((found,), findings), "html")
    page = Page(text)
    assert not page.open
    headings = re.findall(r"<h[12][^>]*>([^<]*)<", text)
    assert headings == ["This program would go wrong on a cluster: 1 error", "1 finding", "Timeline", "Runs"]
    links = [attributes["href"] for tag, attributes in page.found if tag == "a"]
    assert links == ["#timeline", "#finding-1"]
    assert [attributes["id"] for tag, attributes in page.found if tag == "article"] == ["finding-1"]
    assert sum(tag == "circle" for tag, _ in page.found) == 2
    assert not re.search(r'(src|href)="(http|//)', text)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [({"failure": "rank 1 failed"}, "The program fails by itself"), ({}, "Nothing wrong was seen")],
)
def test_the_verdict(facts: dict[str, str], verdict: str) -> None:
    assert f">{verdict}</h1>" in render(report((race()[0],), [], **facts), "html")


@pytest.mark.parametrize("form", ["full", "markdown", "html", "json"])
def test_forms_for_people_and_programs_have_the_replay(form: str) -> None:
    found, findings = race()
    findings = [replace(one, replay="allranks rehearse train.py") for one in findings]
    assert "allranks rehearse train.py" in render(report((found,), findings), form).replace("\\", "")


def test_a_page_of_8_ranks_and_20_steps_stays_small() -> None:
    found, findings = race(ranks=8, steps=20)
    text = render(report((found,), findings), "html")
    assert len(text) < 300_000
    many = replace(found, spans=found.spans * 100)
    assert len(render(report((many,), findings), "html")) < 2_000_000
    assert "reads and collectives are not drawn" in render(report((many,), findings), "html")


def test_lines_are_counted_by_rank() -> None:
    script = Script(2).file(0, "read", "a", line=3).file(1, "read", "a", line=3).file(1, "read", "b", line=7)
    assert lines_seen([script.trace()], "/p") == {"train.py": {3: 2, 7: 1}}
    assert lines_seen([script.trace()], "/elsewhere") == {}
    document = json.loads(render(report((), [], lines={"train.py": {3: 2, 7: 1}}), "json"))["rehearsal"]
    assert document["lines"] == {"complete": False, "files": {"train.py": {"2": [3], "1": [7]}}}
    assert document["runs"] == [{"run": "quiet", "made": True, "end": "ok", "seconds": 1.0, "steps": 3}]
