"""docs/check.md and the hook say what there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from allranks.check.config import CHOICES, NAMES, read
from allranks.check.registry import all_rules
from allranks.cli.check import parser
from allranks.report.forms import FORMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()


def test_every_option_of_the_configuration_is_on_the_page() -> None:
    assert [name for name in NAMES if f"`{name}`" not in PAGE] == []


def test_the_page_names_no_option_that_is_not_there() -> None:
    """On the command line; but for the tools that the examples call."""
    known = {word for action in parser()._actions for word in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - known <= {"--all"}


def test_every_form_is_on_the_page_and_can_be_chosen() -> None:
    assert CHOICES["output-format"] == FORMS
    assert [form for form in FORMS if f"`{form}`" not in PAGE] == []


def test_the_page_names_the_rules_that_are_off() -> None:
    """All of them, and none that runs."""
    (told,) = re.findall(r"They run only if you select them: ([^.]*)\.", PAGE)
    assert re.findall(r"AR\d+", told) == [rule.code for rule in all_rules() if not rule.default]


def test_the_example_of_a_configuration_is_read() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    config = read(tomllib.loads(text)["tool"]["allranks"]["check"], "docs/check.md")
    assert config.per_file_ignores == (("tools/**", ("AR102",)),)


def test_the_hook_checks_the_complete_project() -> None:
    """What a call reaches may stand in a file that did not change."""
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "entry: allranks check\n" in hook
    assert "pass_filenames: false" in hook
