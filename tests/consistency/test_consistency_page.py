"""docs/consistency.md is true."""

from __future__ import annotations

from pathlib import Path

import pages


def test_the_snippets_of_the_page_about_agreement_run(tmp_path: Path) -> None:
    """They print the error that the page shows, the repaired state, and that there is one digest."""
    out = pages.printed("consistency.md", tmp_path, snippets=3)
    assert "leaf 'w', float32[512, 64], on rank 2 against ranks 0-1, 3 [rank 2: 1 element, first [7, 3]: 1.00048" in out
    assert "([0.0, 0.0, 0.0, 0.0], (2,))" in out
    assert out.endswith("\n1\n")


def test_the_page_about_agreement_is_short() -> None:
    pages.check_links("consistency.md", most_lines=180)
