"""docs/data.md is true."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest


@pytest.mark.needs("jax", "orjson", "datasets")
def test_the_snippets_of_the_page_about_data_run(tmp_path: Path) -> None:
    """The last one prints the error that it is about."""
    out = pages.printed("data.md", tmp_path, snippets=10)
    assert "a global batch of 24 rows does not divide over 5 ranks. Use 1, 2, 3, 4, 6, 8, 12, 24" in out


@pytest.mark.needs("torch")
def test_the_snippets_of_the_page_about_tokens_run(tmp_path: Path) -> None:
    pages.printed("data-tokens.md", tmp_path, snippets=2)
    pages.check_links("data-tokens.md", most_lines=100)


def test_every_link_of_the_page_about_data_leads_somewhere() -> None:
    pages.check_links("data.md", most_lines=328)
