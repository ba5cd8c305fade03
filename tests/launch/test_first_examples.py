"""The example of the README, and the first of every page, run as they stand: on one rank, and on two."""

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


@pytest.mark.needs("jax|torch")
def test_the_example_of_the_readme_runs_on_two_ranks(tmp_path: Path) -> None:
    """Twice: what is there from the first time does not stop it."""
    [found] = examples(ROOT / "README.md")
    assert found == FIRST["index"]
    for _ in range(2):
        run(found, tmp_path, 2)


@pytest.mark.soak
@pytest.mark.needs("torch", "jax", "lightning")
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", sorted(FIRST))
def test_an_example_runs_as_it_stands(name: str, ranks: int, tmp_path: Path) -> None:
    run(FIRST[name], tmp_path, ranks)
