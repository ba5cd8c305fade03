"""Findings in code that was read, beside what a rehearsal of it saw."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allranks.findings import Finding, Note, Place
from allranks.report.base import Report
from allranks.report.confirm import check_row, confirm_finding, read_rehearsal, with_rehearsal
from allranks.report.forms import render
from allranks.report.moved import rebase_report_paths
from allranks.settings import ConfigWrong


def place(line: int, last: int = 0, path: str = "train.py") -> Place:
    return Place(path, line, 1, last or line, 9)


def static(code: str, line: int, *notes: int, last: int = 0) -> Finding:
    noted = tuple(Note("on the way", place(each)) for each in notes)
    return Finding(code, "a-rule", "error", f"{code} at {line}", place(line, last), "main", "", "", noted)


def seen(code: str, line: int, *notes: int) -> dict[str, Any]:
    def document(number: int) -> dict[str, Any]:
        return {"path": "train.py", "line": number, "column": 1, "end_line": number, "end_column": 9}

    noted = [{"text": "", "place": document(each)} for each in notes] + [{"text": "", "place": None}]
    return {"code": code, "severity": "error", "message": f"seen {code}", **document(line), "notes": noted}


def rehearsal(*findings: dict[str, Any], root: str = "/p", complete: bool = True) -> dict[str, Any]:
    lines = {"complete": complete, "files": {"train.py": {"2": [1, 2, 3, 10], "1": [4]}}}
    runs = [{"run": "quiet", "made": True}, {"run": "hosts", "made": False}]
    return {"findings": [*findings], "rehearsal": {"root": root, "ranks": 2, "runs": runs, "lines": lines}}


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (static("AR405", 3), "confirmed"),
        (static("AR102", 3), "confirmed"),  # the same statement, called by another name
        (static("AR405", 20, 5), "confirmed"),  # they share a line of their evidence
        (static("AR102", 20, 5), "not run"),
        (static("AR101", 10), "not confirmed"),
        (static("AR101", 9, last=11), "not confirmed"),  # a statement of several lines
        (static("AR101", 4), "run by some ranks"),
        (static("AR101", 20), "not run"),
    ],
)
def test_the_states_of_a_finding(finding: Finding, state: str) -> None:
    found = read_rehearsal(rehearsal(seen("AR405", 3, 5)), "o.json", "/p")
    assert confirm_finding(finding, found).state == state


def test_without_all_lines_it_is_not_known_what_did_not_run() -> None:
    found = read_rehearsal(rehearsal(complete=False), "o.json", "/p")
    assert confirm_finding(static("AR101", 20), found).state == "not known to run"
    assert "--lines" in confirm_finding(static("AR101", 20), found).text


@pytest.mark.parametrize(
    ("root", "path"), [("/p", "train.py"), ("/p/sub", "sub/train.py"), ("/", "../train.py"), ("/else", "train.py")]
)
def test_paths_are_relative_to_the_project(root: str, path: str) -> None:
    """A rehearsal of another machine has another root, which is taken for the project's."""
    found = read_rehearsal(rehearsal(seen("AR405", 3), root=root), "o.json", "/p")
    assert found.faults[0].place.path == path
    assert list(found.lines) == [path]


@pytest.mark.parametrize("document", [[], {}, {"findings": []}, {"rehearsal": {}}, "x", None])
def test_another_document_is_refused(document: Any) -> None:
    with pytest.raises(ConfigWrong, match=r"o\.json: no report of a rehearsal"):
        read_rehearsal(document, "o.json", "/p")


def test_the_report_of_a_check_has_the_evidence_of_the_rehearsal() -> None:
    findings = (static("AR405", 3), static("AR101", 10), static("AR101", 20))
    report = Report(findings, (), 1, 20, "", prints={findings[0]: "abc"})
    shown = with_rehearsal(report, read_rehearsal(rehearsal(seen("AR405", 3), seen("AR005", 7)), "o.json", "/p"))
    document = json.loads(render(rebase_report_paths(shown, "/p", "/"), "json"))
    states = [(one["line"], one["rehearsal"], one["fingerprint"]) for one in document["findings"]]
    assert states == [(3, "confirmed", "abc"), (10, "not confirmed", None), (20, "not run", None)]
    (row,) = document["readiness"]
    assert (row["topic"], row["verdict"]) == ("rehearsal", "error")
    assert [note["text"] for note in row["evidence"]] == [
        "1 run of 2 ranks: 3 findings by reading the code: 1 confirmed, 1 not confirmed, 1 not run",
        "AR005 seen AR005 (seen by the rehearsal alone)",
    ]
    assert "note: not confirmed: all ranks of the rehearsal ran this line" in render(shown, "full")


def test_the_report_of_a_rehearsal_has_the_evidence_of_a_check() -> None:
    found = read_rehearsal(rehearsal(seen("AR405", 3)), "o.json", "/p")
    row = check_row([static("AR405", 3), static("AR101", 20)], found)
    assert (row.verdict, row.texts[0]) == ("warning", "2 findings by reading the code: 1 confirmed, 1 not run")
    assert check_row([], found).texts == ("0 findings by reading the code",)
