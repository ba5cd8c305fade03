"""``[tool.allranks.rehearse]``: what it may hold, what is refused, and what the command makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.check.results.baseline import Baseline
from allranks.cli import rehearse, rehearse_run
from allranks.cli.baseline import read_baseline
from allranks.cli.rehearse_report import report_of
from allranks.errors import AllranksError
from allranks.findings import Finding, Place
from allranks.launch.job import Module, Script
from allranks.rehearse.config import Allowed, read
from allranks.rehearse.plan import Plan, replay_command
from allranks.rehearse.rehearsal import Rehearsal
from allranks.rehearse.scenario import Scenario
from allranks.report.base import Report, summary
from allranks.report.forms import FORMS

TABLE = """\
[tool.allranks.rehearse]
command = "train.py --data d"
ranks = 2
steps = 5
hosts = 3
only = "quiet, resume"
local-paths = ["cache"]
allow = [{code = "AR405", path = "train*.py", reason = "one host only"}]
"""


def planned(argv: list[str]) -> Plan:
    """Return what the command would rehearse in the working folder."""
    seen: list[Plan] = []

    def stop(plan: Plan, **_: object) -> None:
        seen.append(plan)
        raise AllranksError("planned")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearse_run, "rehearse", stop)
        assert rehearse.main(argv) == 2
    return seen[0]


def exit_code(argv: list[str]) -> object:
    """Return the exit code of the command, also where the parser ends the process."""
    with pytest.raises(SystemExit) as end:
        raise SystemExit(rehearse.main(argv))
    return end.value.code


def test_the_command_line_wins_over_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a script, the command of the settings runs, in the folder of pyproject.toml."""
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(TABLE)
    Path("train.py").write_text("")
    Path("sub").mkdir()
    plan = planned([])
    assert plan.target == Script("train.py", ("--data", "d"))
    assert (plan.ranks, plan.steps, plan.hosts, plan.names) == (2, 5, 3, ("quiet", "resume"))
    assert plan.local == (str(tmp_path / "cache"),)
    plan = planned(["-n", "4", "--steps", "0", "--only", "quiet", "train.py", "--x"])
    assert (plan.target, plan.ranks, plan.steps) == (Script("train.py", ("--x",)), 4, 0)
    assert plan.names == ("quiet",)
    monkeypatch.chdir("sub")
    plan = planned(["--resume-args", "--resume 'a b'"])
    assert plan.target == Script("train.py", ("--data", "d"))
    assert Path.cwd() == tmp_path
    assert plan.resume_arguments == ("--resume", "a b")


def test_arguments_are_for_a_program_that_is_named_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text('[tool.allranks.rehearse]\nranks = 2\narguments = ["--tiny"]\n')
    Path("train.py").write_text("")
    assert planned(["train.py"]).target == Script("train.py", ("--tiny",))
    assert planned(["train.py", "--large"]).target == Script("train.py", ("--large",))
    assert planned(["-m", "package.train"]).target == Module("package.train", ("--tiny",))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"rank": 2}, "has no option 'rank'. Is 'ranks' meant?"),
        ({"args": []}, "Is 'arguments' meant?"),
        ({"colour": 1}, "There are: accelerator, allow, arguments, "),
        ({"ranks": 0}, "ranks must be a whole number of at least 1, not 0"),
        ({"steps": True}, "steps must be a whole number of at least 0, not True"),
        ({"budget": 0}, "budget must be a number of seconds above 0, not 0"),
        ({"only": ["quick"]}, "only must be one of quiet, perturbed, "),
        ({"output-format": "pdf"}, "output-format must be one of full, "),
        ({"local-paths": "cache"}, "local-paths must be a list of texts, not 'cache'"),
        ({"command": 3}, "command must be a list of texts, not 3"),
        ({"command": "train.py 'x"}, "command is no command line: No closing quotation"),
        ({"allow": [{"code": "AR405"}]}, "has no reason. Write [{code"),
        ({"allow": [{"code": "AR405", "reason": "x", "line": "3"}]}, "allow: there is no key 'line'"),
        ({"allow": ["AR405"]}, "allow must be a list such as"),
        ([], "[tool.allranks.rehearse] is not a table"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(table: object, words: str) -> None:
    with pytest.raises(AllranksError) as error:
        read(table, "pyproject.toml", FORMS)
    assert words in str(error.value)
    assert str(error.value).startswith("pyproject.toml: ")


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        ('[tool.allranks.rehearse]\nranks = 2\nbaseline = "known.json"', ["train.py"], "known.json cannot be read"),
        ("[tool.allranks.rehearsal]\n", ["train.py"], "Did you mean [tool.allranks.rehearse]?"),
        ("", ["train.py"], "how many ranks? Give -n N, or set ranks"),
        ("", ["train.py", "-n", "2"], "Give -n N before the script: what is behind it belongs to the script"),
        ("", ["--nproc_per_node", "2", "train.py"], "no option --nproc_per_node: write -n 2"),
        ("", ["-n", "2", "--buget", "9", "train.py"], "no option --buget: did you mean --budget?"),
        ("", ["-n", "2"], "nothing to run: name a script"),
        ("", ["-n", "2", "--only", "quick", "train.py"], "'quick' is no scenario"),
        ("", ["-n", "2", "--seeds", "0", "train.py"], "--seeds"),
        ("", ["-n", "2", "--steps", "-1", "train.py"], "--steps"),
        ("", ["-n", "2", "--local", ".", "train.py"], "the working folder is in it"),
        ("", ["-n", "2", "--output-file", "no/where", "train.py"], "no/where cannot be written: there is no folder no"),
        ("", ["-n", "2", "--baseline", "none.json", "train.py"], "none.json cannot be read"),
    ],
)
def test_a_wrong_command_line_is_2(
    text: str, argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(text)
    Path("train.py").write_text("")
    assert exit_code(argv) == 2
    assert words in capsys.readouterr().err


def found(path: str, line: int) -> Finding:
    place = Place(path, line, 1, line, 1)
    return Finding("AR405", "missing-barrier", "error", "read before it is written", place, "main", "", "")


def test_an_allowed_finding_is_of_a_code_in_a_file() -> None:
    entry = Allowed("AR405", "train*.py", "one host only")
    assert entry.covers(found("train_small.py", 1))
    assert not Allowed("AR405", "other.py", "").covers(found("train.py", 1))
    assert not Allowed("AR101", "*", "").covers(found("train.py", 1))


def test_accepted_findings_are_counted_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """By a comment, by the settings, or by the baseline, which knows a finding by its statement, not by its line."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("x = 1\nread()\nopen()  # allranks: ignore[AR405] it is there\n  save()\n")
    findings = [found("train.py", line) for line in (1, 2, 3)] + [found("other.py", 1), found("train.py", 4)]

    def report(*allow: Allowed, baseline: Baseline | None = None) -> Report:
        return report_of(Rehearsal(findings=[*findings]), Plan(Script("train.py"), 2), allow, baseline)

    shown = report(Allowed("AR405", "other.py", "small"))
    assert [one.place.line for one in shown.findings] == [1, 2, 4]
    assert (shown.findings[2].place.column, shown.findings[2].place.end_column) == (3, 9)
    assert (shown.allowed, shown.suppressed, shown.hidden) == (1, 1, 0)
    text = "\n1 finding allowed by the settings, not shown.\n1 finding suppressed by comments, not shown."
    assert summary(shown).endswith(text)
    assert rehearse_run._write_baseline(tmp_path / "known.json", shown.findings[:2], shown.prints) == 0
    assert capsys.readouterr().out == "Wrote 2 findings to known.json.\n"
    Path("train.py").write_text("\nx = 1\nread()\n\n")
    findings = [found("train.py", line) for line in (2, 3, 4)]
    shown = report(baseline=read_baseline("known.json"))
    assert ([one.place.line for one in shown.findings], shown.hidden) == ([4], 2)


def test_the_replay_command_has_what_differs_from_the_defaults() -> None:
    plan = Plan(Script("train.py", ("--tiny", "a b")), 4, 2, steps=3, resume_arguments=("--resume",))
    expected = (
        "allranks rehearse -n 4 --only perturbed --seed 7 -d 2 --steps 3 --resume-args=--resume train.py --tiny 'a b'"
    )
    assert replay_command(plan, Scenario("perturbed", 7)) == expected
    assert replay_command(Plan(Module("p.t"), 2), Scenario("quiet")) == "allranks rehearse -n 2 --only quiet -m p.t"
