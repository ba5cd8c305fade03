"""docs/checkpoint.md and docs/preemption.md are true."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest


@pytest.mark.needs("jax", "torch")
def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    """The last one prints the error that it is about."""
    out = pages.printed("checkpoint.md", tmp_path, snippets=8)
    assert "checkpoint-1 131072" in out
    assert "1 missing, 2 unexpected" in out, out
    assert {path.name for path in (tmp_path / "runs" / "a").iterdir()} == {
        "checkpoint-10",
        "checkpoint-20",
        "checkpoint-25",
        "fence",
    }


def test_the_snippets_of_the_page_of_preemption_run(tmp_path: Path) -> None:
    pages.printed("preemption.md", tmp_path, snippets=2)
    assert {path.name for path in (tmp_path / "runs").glob("*/checkpoint-*")} == {"checkpoint-5", "checkpoint-1"}


def test_the_page_is_short_and_leads_to_pages_that_are_there() -> None:
    pages.check_links("checkpoint.md", most_lines=250)
    pages.check_links("preemption.md", most_lines=118)


def test_the_page_of_memory_runs(tmp_path: Path) -> None:
    pages.printed("checkpoint-memory.md", tmp_path, snippets=1)
    assert {path.name for path in (tmp_path / "runs" / "m").iterdir()} == {"checkpoint-25", "fence"}
    pages.check_links("checkpoint-memory.md", most_lines=100)


def test_the_page_of_items_runs(tmp_path: Path) -> None:
    out = pages.printed("checkpoint-items.md", tmp_path, snippets=3)
    assert out.splitlines() == ["(100, 200, 240, 250)", "['params'] 100.0", "(1000, 1002)", "['params']"], out
    pages.check_links("checkpoint-items.md", most_lines=100)


@pytest.mark.needs("jax")
def test_the_page_of_reading_runs(tmp_path: Path) -> None:
    out = pages.printed("reading.md", tmp_path, snippets=2)
    assert "3 {'row': 192} {'loss': 1.0} (512, 64)" in out, out
    assert "2 cpu:0 (8, 64) ArrayShape(shape=(512, 64), dtype='float32')" in out, out
    assert out.rstrip().endswith("evaluated 1\nevaluated 2\nevaluated 3")
    pages.check_links("reading.md", most_lines=80)


@pytest.mark.needs("torch")
def test_the_page_of_leaves_runs(tmp_path: Path) -> None:
    out = pages.printed("checkpoint-leaves.md", tmp_path, snippets=2)
    assert "['a', 'b'] {'vocabulary': {'tokens': {'0': 'a', '1': 'b'}}}" in out, out
    pages.check_links("checkpoint-leaves.md", most_lines=100)
