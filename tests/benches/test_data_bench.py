"""The data bench judges ways to read by what comes out of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.measure import PROGRAMS, must, run

DOCUMENTS = 1_003


def told(way: str, folder: Path) -> Mapping[str, Any]:
    words = [PROGRAMS / "data_exact.py", way, folder, DOCUMENTS, "4,3", "4-3"]
    return must(run([sys.executable, *words])).told[0]


@pytest.mark.needs("orjson")
def test_the_judge_sees_what_a_way_loses(tmp_path: Path) -> None:
    """Ours is exact; a way that drops the tail of an epoch is told how much it lost."""
    for form in (["jsonl", tmp_path, DOCUMENTS, 5], ["offsets", tmp_path]):
        must(run([sys.executable, PROGRAMS / "data_corpus.py", *form]))
    ours, dropping = told("ours-jsonl", tmp_path), told("memory-map", tmp_path)
    exact = {"steps": [11, 11], "twice": 0, "lost": 0}
    assert (ours["worlds"], ours["same"]) == ({"4": exact, "3": exact}, 1)
    assert (ours["elastic"]["twice"], ours["elastic"]["lost"]) == (0, 0)
    short = {"steps": [10, 10], "twice": 0, "lost": DOCUMENTS % 96}
    assert dropping["worlds"] == {"4": short, "3": short}
