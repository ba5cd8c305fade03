"""docs/integrations.md is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from harness import clean_environ


@pytest.mark.needs("lightning", "transformers", "accelerate", "tensorboard")
def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    """One after the other, in one program. (The frameworks warn of themselves, so warnings are no errors.)"""
    found = re.findall(r"```python\n(.*?)```", (pages.DOCS / "integrations.md").read_text(), re.DOTALL)
    assert len(found) == 6
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(found)],
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "elevation_alpha: float32[] (allowed by 'elevation_alpha')" in done.stderr
    assert sorted(one.name for one in (tmp_path / "runs/acc").iterdir()) == ["step-3", "step-6"]
    assert len(list((tmp_path / "runs/board").iterdir())) == 1


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    pages.check_links("integrations.md", most_lines=280)
