"""``allranks explain`` for rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks.cli import explain


def test_a_code_or_a_name_gives_the_page(capsys) -> None:
    """The page of docs/rules, with examples."""
    assert explain.main(["AR901"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# AR901 unused-suppression\n")
    assert "# <-- found" in page
    assert explain.main(["unused-suppression"]) == 0
    assert capsys.readouterr().out == page


def test_codes_may_be_joined_by_commas(capsys) -> None:
    assert explain.main(["AR101,AR102"]) == 0
    out = capsys.readouterr().out
    assert "# AR101 " in out
    assert "# AR102 " in out


def test_a_family_and_all_give_a_table(capsys) -> None:
    """And as JSON, the pages."""
    assert explain.main(["ar9"]) == 0
    family = capsys.readouterr().out.splitlines()
    assert family[2].startswith("AR900  error")
    assert explain.main(["--all"]) == 0
    whole = [line.split() for line in capsys.readouterr().out.splitlines()]  # its columns may be wider
    assert all(line.split() in whole for line in family[2:])
    assert explain.main(["--all", "--json"]) == 0
    rules = {rule["code"]: rule for rule in json.loads(capsys.readouterr().out)}
    assert rules["AR902"]["page"].startswith("# AR902")


def test_what_is_neither_log_nor_rule_is_2(capsys, tmp_path: Path, monkeypatch) -> None:
    """With what may be meant. A log that is called like a rule is read."""
    monkeypatch.chdir(tmp_path)
    assert explain.main(["unused-suppresion"]) == 2
    assert "Is unused-suppression meant?" in capsys.readouterr().err
    assert explain.main(["rank-0.log"]) == 2
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "AR901").write_text("step 1\n")
    assert explain.main(["AR901"]) == 1
    with pytest.raises(SystemExit):
        explain.main([])
