"""docs/checkpoint.md is true: its snippets run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "checkpoint.md"


@pytest.mark.needs("jax", "torch")
def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    """In one program, in an empty folder; the last one prints the error that it is about."""
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) == 6
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(snippets)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "checkpoint-1 131072" in done.stdout
    assert "1 missing, 2 unexpected" in done.stdout, done.stdout
    assert {path.name for path in (tmp_path / "runs" / "a").iterdir()} == {
        "checkpoint-10",
        "checkpoint-20",
        "checkpoint-25",
        "fence",
    }


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    """Under 200 lines; no link into nothing."""
    text = PAGE.read_text()
    assert text.count("\n") < 200
    for link in re.findall(r"\]\(([a-z-]+\.md)\)", text):
        assert (PAGE.parent / link).is_file(), link
