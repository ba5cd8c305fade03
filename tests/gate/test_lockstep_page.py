"""docs/lockstep.md is true."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest


@pytest.mark.needs("jax")
def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    pages.printed("lockstep.md", tmp_path, snippets=3)


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    pages.check_links("lockstep.md", most_lines=230)
