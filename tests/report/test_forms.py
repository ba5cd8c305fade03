"""The forms of a report: what a person, an editor, GitHub and code scanning are given."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from reports import CALL, CELL, EMPTY, HANG, REPORT

from allranks.report.forms import FORMS, render
from allranks.report.moved import rebase_report_paths


def test_a_finding_in_full_shows_the_fault_the_guard_and_the_way() -> None:
    """Source with carets and secondary spans, what happens on the cluster, what to do, and where to read more."""
    assert """\
error[AR201] `all_gather` is reached by rank 0 only
  --> train.py:8:13
   |
 6 |     for step in range(10):
 7 |         if rank == 0:
   |         ------------ only rank 0 comes here
 8 |             save(model)
   |             ^^^^^^^^^^^
 9 |     print("</script><b>50%|*名前*")
   |
  ::: utils.py:2:5
   |
 1 | def save(m):
 2 |     all_gather(m)
   |     ------------- calls all_gather
   |
   = note: the others: no collective
   = on the cluster: Rank 0 waits in all_gather; the others go on. The job hangs.
   = to do: Move `save(model)` out of the `if`.
   = rule: collective-under-rank-guard; more: allranks explain AR201
""" in render(REPORT, "full")


def test_the_readiness_table_shows_evidence_and_ends_in_the_count() -> None:
    """A row without evidence is "not seen"; more than three pieces are counted."""
    assert render(REPORT, "full").endswith("""\
readiness                 evidence
--------------  --------  ----------------------------------------
initialisation  ok        train.py:1: jax.distributed.initialize()
collectives     error     train.py:7: rank 0 | alone
                          train.py:7: rank 1 | alone
                          train.py:7: rank 2 | alone
                          and 2 more
timeouts        not seen

Found 1 error, 1 warning and 1 remark in 3 files, 1,200 lines.
[*] 1 fixable with --fix.
In unread code 37 of 49 findings of these rules were right (--precision 0.7 shows surer ones). Not measured: 2 findings.
2 findings known to the baseline, not shown.
1 finding more of low confidence: --confidence low.
4 findings more of less precise or unmeasured rules: --precision 0.""")


def test_concise_is_one_line_a_finding() -> None:
    """As editors read them; what a terminal would act on is shown as text; cells of notebooks are named."""
    assert render(REPORT, "concise").splitlines()[:3] == [
        "a b.ipynb:cell 5:2:1: AR102 In a cell",
        "train.py:8:13: AR201 `all_gather` is reached by rank 0 only",
        r"train.py:9:5: AR102 [*] Every rank writes a <log>, 100%:\x1b[31m, here",
    ]


@pytest.mark.parametrize("form", ["full", "concise"])
def test_colour_changes_nothing_but_colour(form: str) -> None:
    """Without the escapes, a coloured report is the plain one."""
    coloured = render(REPORT, form, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(REPORT, form)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_lets_a_terminal_code_through(form: str) -> None:
    assert "\x1b" not in render(REPORT, form)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_a_report_without_findings(form: str) -> None:
    """Nothing found is said, or is an empty list."""
    text = render(EMPTY, form)
    assert text == "" if form == "github" else text


def test_the_json_document_holds_all_of_a_finding() -> None:
    """Its keys are a contract."""
    document = json.loads(render(REPORT, "json"))
    cell, hang, write = document["findings"]
    assert set(document) == {"tool", "version", "findings", "readiness", "summary"}
    assert (cell["path"], cell["cell"], cell["line"], cell["end_line"]) == ("a b.ipynb", 5, 2, 2)
    assert hang["notes"][0] == {
        "text": "only rank 0 comes here",
        "place": {"path": "train.py", "line": 7, "column": 9, "end_line": 7, "end_column": 21},
    }
    assert hang["fingerprint"] == "abc"
    assert write["fix"]["edits"][0]["text"] == "if rank == 0: "
    assert document["readiness"][2] == {
        "topic": "timeouts",
        "verdict": "not seen",
        "evidence": [],
        "remedy": "",
        "ranks": [],
    }
    assert document["summary"]["known"] == 2


def test_the_sarif_log_has_what_the_schema_requires() -> None:
    """SARIF 2.1.0: required properties, allowed levels, regions from 1, rule indices that lead to the rule."""
    log = json.loads(render(REPORT, "sarif"))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert all(rule["id"] and rule["shortDescription"]["text"] for rule in driver["rules"])
    assert len(run["results"]) == 3
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        for location in (*result["locations"], *result.get("relatedLocations", ())):
            physical = location["physicalLocation"]
            assert re.fullmatch(r"[\w./%-]+", physical["artifactLocation"]["uri"])
            assert all(value >= 1 for value in physical["region"].values())
        for fix in result.get("fixes", ()):
            for change in fix["artifactChanges"]:
                assert change["artifactLocation"]["uri"]
                assert all(one["deletedRegion"]["startLine"] for one in change["replacements"])
    assert run["results"][1]["partialFingerprints"] == {"allranks/v1": "abc"}
    assert [one["message"]["text"] for one in run["results"][1]["relatedLocations"]] == [
        "only rank 0 comes here",
        "calls all_gather",
    ]


def test_a_workflow_command_is_escaped() -> None:
    """Percent signs everywhere; colons and commas in properties; a notebook is named at line 1."""
    notebook, hang, write = render(REPORT, "github").splitlines()
    assert notebook.startswith("::notice title=AR102 ungated-file-write,file=a b.ipynb,line=1::")
    assert "file=train.py,line=8,endLine=8,col=13,endColumn=24::train.py:8:13: AR201" in hang
    assert "100%25:" in write


def test_markdown_takes_texts_literally() -> None:
    """Angle brackets and bars of a message or of evidence are no markup; source is fenced."""
    text = render(REPORT, "markdown")
    assert text.startswith("# Readiness of \\<lm\\> for several processes\n")
    assert "## AR102 Every rank writes a \\<log\\>" in text
    assert "rank 0 \\| alone" in text
    assert "```python\n            save(model)\n```" in text


class Page(HTMLParser):
    """What a browser would fetch, and which elements stay open."""

    VOID = ("meta", "br", "link", "img", "input")
    OPTIONAL = ("tr", "td", "th", "dt", "dd", "thead", "tbody", "html", "body", "head", "p")

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.scripts = 0
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.outside += [value or "" for name, value in attrs if name in ("src", "href", "action", "background")]
        if tag not in self.VOID + self.OPTIONAL:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.OPTIONAL:
            assert self.open.pop() == tag


def test_the_html_page_stands_alone_and_escapes() -> None:
    """One file: nothing is fetched, what the source says is text, every element is closed, codes can be filtered."""
    text = render(REPORT, "html")
    page = Page()
    page.feed(text)
    assert page.outside == []
    assert page.scripts == 1
    assert page.open == []
    assert "url(" not in text
    assert text.count("Readiness of &lt;lm&gt; for several processes</") == 2  # heading, and the browser's tab
    assert "&lt;/script&gt;&lt;b&gt;50%" in text
    assert '<button data-code="AR201"' in text
    assert "<mark>save(model)</mark>" in text
    assert "cell 5" in text


def test_paths_can_be_seen_from_another_folder() -> None:
    """Places, notes, evidence, sources and fingerprints move together."""
    seen = rebase_report_paths(REPORT, "/x/a", "/x/b")
    assert seen.where(seen.findings[1].place) == "../a/train.py:8:13"
    assert seen.findings[1].notes[0].place.path == "../a/train.py"
    assert seen.rows[0].evidence[0].place.path == "../a/train.py"
    assert seen.sources["../a/train.py"] is REPORT.sources["train.py"]
    assert seen.prints == {seen.findings[1]: "abc"}
    assert rebase_report_paths(REPORT, "/x", "/x") is REPORT
    assert REPORT.where(CALL) == "train.py:8:13"
    assert REPORT.spot(CELL.place) == (5, 2)
    assert HANG in REPORT.findings


def test_an_excerpt_stays_in_its_cell() -> None:
    """The line before is of another cell."""
    assert "  |\n1 | y = 2\n2 | f()\n  | ^^^\n" in render(REPORT, "full")
    assert "x = 1" not in render(REPORT, "full")
    assert "x = 1" not in render(REPORT, "html")
