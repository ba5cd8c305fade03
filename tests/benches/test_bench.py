"""The parts of the benches on which their figures and the machine depend."""

from __future__ import annotations

import importlib
import sys

import pytest

import bench.__main__ as benches
from bench.measure import run
from bench.page import placed, table

# A launcher that has an own session for its child, as torchrun has, and forgets it.
FORGETFUL = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True); {then}"


@pytest.mark.parametrize(("then", "code"), [("sys.exit(3)", 3), ("import time; time.sleep(60)", None)])
def test_nothing_is_left_of_a_command_that_ended_or_did_not(then: str, code: int | None) -> None:
    """What outlives the command, or its limit, is killed and counted."""
    ran = run([sys.executable, "-c", FORGETFUL.format(then=then)], limit=5 if code is None else 60)
    assert (ran.code, ran.left) == (code, 1)


def test_a_bench_renews_its_own_place_on_the_page() -> None:
    """Only what stands between the bench's own markers is replaced."""
    page = "# P\n<!-- bench: a -->\nold\n<!-- end: a -->\n<!-- bench: b -->\n<!-- end: b -->\n"
    assert placed(page, "a", r"new \1") == page.replace("old", r"new \1")
    with pytest.raises(ValueError, match="no place for the bench 'c'"):
        placed(page, "c", "new")


def test_figures_stand_to_the_right() -> None:
    """A column in which every cell is a figure is set to the right."""
    assert table(("what", "time"), [("a", "1.50 s"), ("b", "> 30 s")]).splitlines() == [
        "| what | time |",
        "| --- | ---: |",
        "| a | 1.50 s |",
        "| b | > 30 s |",
    ]


@pytest.mark.parametrize("name", benches.BENCHES)
def test_every_bench_is_there_and_has_a_place(name: str) -> None:
    """Each listed bench can make tables, and its page of figures has a place for them."""
    assert callable(importlib.import_module(f"bench.{benches.MODULES.get(name, name)}").tables)
    page = benches.PAGES.get(name, benches.PAGE)
    assert placed(page.read_text(), name, "")
