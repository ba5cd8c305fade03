"""docs/rules is drawn from the rules."""

from __future__ import annotations

from pathlib import Path

from allranks.check.registry import all_rules
from allranks.check.results.page import summary
from allranks.check.results.pages import pages, write

FOLDER = Path(__file__).parents[2] / "docs" / "rules"


def test_the_pages_are_drawn_from_the_rules() -> None:
    """`make rules` draws them again."""
    assert {file.name: file.read_text() for file in FOLDER.glob("*.md")} == pages()


def test_a_page_of_a_rule_that_is_no_more_is_removed(tmp_path: Path) -> None:
    (tmp_path / "AR000.md").write_text("old")
    write(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(pages())


def test_a_page_shows_where_the_fault_is() -> None:
    """Lines of bad examples are marked, good ones are not."""
    page = pages()["AR902.md"]
    assert "x = 1  # allranks: ignore  # <-- found\n" in page
    assert "x = 1  # noqa\n" in page


def test_every_rule_says_what_it_does_in_a_sentence() -> None:
    """Reports and code scanning show it."""
    assert [rule.code for rule in all_rules() if not 10 < len(summary(rule)) < 300] == []
