"""docs/data.md is true: its snippets run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import clean_environ

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.mark.needs("jax", "orjson")
def test_the_snippets_of_the_page_about_data_run(tmp_path: Path) -> None:
    """In one program, in an empty folder; the last one prints the error that it is about."""
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) == 9
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(snippets)],
        cwd=tmp_path,
        env=clean_environ({"JAX_PLATFORMS": "cpu"}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "a global batch of 24 rows does not divide over 5 ranks. It does over 1, 2, 3, 4, 6, 8, 12, 24" in done.stdout
    )


def test_every_link_of_the_page_about_data_leads_somewhere() -> None:
    text = PAGE.read_text()
    assert text.count("\n") < 300
    for link in re.findall(r"\]\(([a-z-]+\.md)\)", text):
        assert (PAGE.parent / link).is_file(), link
