"""How often a rule was right in code that nobody had seen: told, and asked for by ``--precision``."""

from __future__ import annotations

import pytest

from allranks.check import measured as home
from allranks.check.config import Config
from allranks.check.judge import judge
from allranks.check.measured import ENOUGH, Measured, measured
from allranks.check.registry import all_rules, rule
from allranks.check.results.page import facts

# AR101, AR109, and AR902: what the check says of itself.
TRAIN = b"""
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.save(torch.nn.Linear(2, 2).state_dict(), "last.pt")
os.remove("old.pt")
x = 1  # allranks: ignore
"""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """AR101 was right once in ten times, AR109 nine times."""
    numbers = {"AR101": Measured(1, 10), "AR109": Measured(9, 10)}
    monkeypatch.setattr(home, "_all", lambda: numbers)


def codes(**options: object) -> tuple[list[str], int]:
    judged = judge({"train.py": TRAIN}, Config().with_(**options))
    return [finding.code for finding in judged.findings], judged.unsure


def test_only_rules_of_which_it_is_known_are_measured() -> None:
    assert set(home._all()) <= {rule.code for rule in all_rules()}
    assert all(0 <= one.right <= one.read for one in home._all().values())


def test_few_findings_say_nothing() -> None:
    assert Measured(ENOUGH, ENOUGH).precision == 1.0
    assert Measured(ENOUGH - 1, ENOUGH - 1).precision is None
    assert measured("AR999").precision is None


def test_what_was_read_last_counts_and_of_what_was_read_before_as_much_as_is_needed(monkeypatch) -> None:
    """A rule that was wrong once and has been mended is told as it is."""
    monkeypatch.setattr(home, "_AT_FIRST_SIGHT", "AR101 0/90 10/5 - 10/0\nAR109 0/9 20/0 -\nAR201 1/2 3/1 -")
    home._all.cache_clear()
    found = dict(home._all())
    home._all.cache_clear()
    assert found == {"AR101": Measured(20, 25), "AR109": Measured(20, 20), "AR201": Measured(4, 7)}


@pytest.mark.usefixtures("known")
def test_precision_shows_the_rules_that_are_measured_to_have_it() -> None:
    assert codes() == (["AR101", "AR109", "AR902"], 0)
    assert codes(precision=0.5) == (["AR109", "AR902"], 1)
    assert codes(precision=0.95) == (["AR902"], 2)
    assert codes(precision=0.9, select=("AR1",)) == (["AR109"], 1)
    assert codes(precision=0.95, extend_select=("AR101",)) == (["AR101", "AR902"], 1)


@pytest.mark.usefixtures("known")
def test_nothing_speaks_for_the_row_of_what_is_not_shown() -> None:
    """The save is as wrong as it was, and one line more that would be right does not make it good."""
    program = TRAIN + b"if dist.get_rank() == 0:\n    torch.save({}, 'best.pt')\n"
    asked = [judge({"train.py": program}, Config(precision=part, ignore=("AR109",))) for part in (0.0, 0.95)]
    verdicts = [{row.topic: row.verdict for row in judged.rows}["checkpoint save"] for judged in asked]
    assert verdicts == ["error", "not determined"]


@pytest.mark.usefixtures("known")
def test_a_rules_page_tells_it() -> None:
    told = {code: facts(found) for code in ("AR101", "AR102") if (found := rule(code))}
    assert told["AR101"].endswith("In the newest unread code 1 of 10 findings were right.")
    assert "nobody had seen" not in told["AR102"]
