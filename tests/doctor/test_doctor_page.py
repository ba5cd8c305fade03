"""docs/doctor.md is true."""

from __future__ import annotations

import re

import pages

from allranks.cli import doctor
from allranks.findings import VERDICTS


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    pages.check_links("doctor.md", most_lines=150)


def test_the_page_knows_all_verdicts_and_options() -> None:
    text = (pages.DOCS / "doctor.md").read_text()
    assert all(f"`{verdict}`" in text for verdict in VERDICTS)
    for page in ("doctor.md", "commands.md"):
        options = set(re.findall(r"--[a-z]+", (pages.DOCS / page).read_text()))
        assert {"--path", "--size", "--timeout", "--json"} <= options
    usage = doctor.parser().format_help()
    assert all(option in usage for option in ("--path", "--size", "--timeout", "--json", "--stacks", "--watch"))
