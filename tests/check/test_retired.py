"""A retired rule may still be named: in comments, settings, a baseline, and by who wants to know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allranks.check.config import Config
from allranks.check.judge import judge
from allranks.check.registry import all_rules
from allranks.check.results.baseline import written
from allranks.check.retired import CODES, RETIRED
from allranks.cli.check import main
from allranks.cli.explain_rule import explain

PROGRAM = "import torch\n\nx = torch.zeros(1)  # allranks: ignore[AR609] it is ours\n"
REMARK = "AR609 host-fetch-of-global-array is retired"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_no_code_and_no_name_is_given_twice() -> None:
    rules = {text for rule in all_rules() for text in (rule.code, rule.name)}
    assert not rules & {text for one in RETIRED for text in (one.code, one.name)}
    assert len(CODES) == len(RETIRED)
    assert all(re.fullmatch(r"AR\d{3}", code) for code in CODES)


def test_a_comment_about_a_retired_rule_is_neither_refused_nor_unused() -> None:
    judged = judge({"train.py": PROGRAM.encode()}, Config())
    assert (judged.findings, judged.retired) == ((), ("AR609",))


@pytest.mark.parametrize("option", [("--ignore", "AR801"), ("--extend-select", "AR801"), ("--select", "AR101,AR801")])
@pytest.mark.usefixtures("project")
def test_a_setting_is_understood_and_reported_once(capsys: pytest.CaptureFixture[str], option: tuple[str, str]) -> None:
    """So is the comment of the file."""
    assert main([*option, "--no-cache", "--output-format", "concise"]) == 0
    told = capsys.readouterr().err
    assert told.count("AR801 no-timeout is retired") == 1
    assert told.count(REMARK) == 1


def test_a_baseline_may_hold_what_a_retired_rule_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"fingerprint": "0" * 24, "code": "AR601", "path": "train.py", "symbol": "train", "count": 1}
    (project / "known.json").write_text(written([], {}, [entry]))
    assert main(["--baseline", "known.json", "--no-cache"]) == 0
    assert capsys.readouterr().err.count("AR601 missing-distributed-init is retired") == 1


def test_it_is_explained_by_code_and_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["AR609", "no-timeout"], as_json=False) == 0
    told = capsys.readouterr().out
    assert "# AR609 host-fetch-of-global-array\n\nRetired" in told
    assert "# AR801 no-timeout\n\nRetired" in told
