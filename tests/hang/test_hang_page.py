"""docs/hang.md is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pages

from allranks.hang.diagnose import Verdict
from allranks.hang.start import DEFAULT_HANG_AFTER
from allranks.world.base import DEFAULT_TIMEOUT


def test_the_page_runs_and_names_every_verdict(tmp_path: Path) -> None:
    """Its snippet, its links, its defaults, and what a person may read in a report."""
    pages.printed("hang.md", tmp_path, snippets=1)
    pages.check_links("hang.md", most_lines=242)
    text = (pages.DOCS / "hang.md").read_text()
    assert f"| `hang_after` | {DEFAULT_HANG_AFTER:g} |" in text
    assert f"`timeout` ({DEFAULT_TIMEOUT:g})" in text
    verdicts = set(get_args(Verdict)) - {"healthy", "waiting"}
    assert verdicts <= set(re.findall(r"`(\w+)`", text))
