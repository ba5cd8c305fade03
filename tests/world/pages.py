"""Pages under docs/ are true: their snippets run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness import clean_environ

DOCS = Path(__file__).parents[2] / "docs"


def printed(page: str, folder: Path, *, snippets: int) -> str:
    """Run the snippets of a page, of which there must be so many, in one program in an empty folder; what it prints."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(found) == snippets
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(found)],
        cwd=folder,
        env=clean_environ({"JAX_PLATFORMS": "cpu"}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_links(page: str, *, most_lines: int) -> None:
    """A page is short, and its links to other pages lead somewhere."""
    text = (DOCS / page).read_text()
    assert text.count("\n") < most_lines
    for link in re.findall(r"\]\(([a-z-]+\.md)\)", text):
        assert (DOCS / link).is_file(), link
