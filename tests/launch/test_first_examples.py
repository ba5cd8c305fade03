"""The examples of the README, and the first of every page, run as they stand: alone, and on two ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import command, environment

ROOT = Path(__file__).parents[2]


def examples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


FIRST = {page.stem: found[0] for page in (ROOT / "docs").glob("*.md") if (found := examples(page))}


def run(text: str, folder: Path, ranks: int) -> None:
    (folder / "train.py").write_text(text)
    words = [sys.executable] if ranks == 1 else command("-q", "--timeout", "100", "-n", str(ranks))
    done = subprocess.run(
        [*words, "train.py"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_the_readme_run_on_two_ranks(tmp_path: Path) -> None:
    """One after the other, in one program."""
    found = examples(ROOT / "README.md")
    assert len(found) == 3
    run("\n".join(found), tmp_path, 2)


@pytest.mark.soak
@pytest.mark.needs("torch", "jax", "lightning")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", [*(f"README {number}" for number in range(3)), *sorted(FIRST)])
def test_an_example_runs_as_it_stands(name: str, ranks: int, tmp_path: Path) -> None:
    """Those of the README again, too: what is there from the first time does not stop them."""
    run(FIRST.get(name) or examples(ROOT / "README.md")[int(name[-1])], tmp_path, ranks)
    if name not in FIRST:
        run(examples(ROOT / "README.md")[int(name[-1])], tmp_path, ranks)
