"""The prose check of `make lint` finds long sentences and words of the old dialect, and the docs have none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from prose import Config, configuration, docstring_faults, faults, main, pages, paragraphs
from sample import ROOT, Item, docstrings, draw, messages, names

MOST_IN_DOCSTRINGS = 0
CONFIG = Config(longest=5, replace={"told": "reported"}, pages=(), without=())


def found(text: str) -> list[tuple[int, str]]:
    return [(number, fault.split(":")[0]) for number, fault in faults(text, CONFIG)]


def test_the_docs_have_short_sentences_and_the_words_of_the_glossary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_docstrings_have_no_more_faults_than_before() -> None:
    """`python tools/prose.py --docstrings` lists them. Lower the number after a change."""
    assert len(docstring_faults(configuration())) <= MOST_IN_DOCSTRINGS


def test_all_pages_are_read_but_those_that_are_left_out() -> None:
    config = configuration()
    read = {page.name for page in pages(config)}
    assert {"README.md", "index.md", "hang.md"} <= read
    assert read.isdisjoint(page.rpartition("/")[2] for page in config.without)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("One two three four five.", []),
        ("One two three four five six.", [(1, "a sentence of 6 words, at most 5")]),
        ("First.\n\nOne two three\nfour five six.", [(3, "a sentence of 6 words, at most 5")]),
        ("One two **three.** Four (five) six. `Seven` eight.", []),
        ("- one two three\n- four five six", []),
        ("1. one two three four five\n   six", [(1, "a sentence of 6 words, at most 5")]),
        ("It is told.", [(1, "'told'")]),
        ("| a | told |", [(1, "'told'")]),
        ("| one | two three four five six seven |", []),
        ("`told` and ``told`` in [told.md](told.md)", []),
        ("[was told](page.md)", [(1, "'told'")]),
        ("```\ntold told told told told told\n```", []),
        ("```\ntold\n```\ntold", [(4, "'told'")]),
    ],
)
def test_a_fault_of_words_is_found(text: str, fault: list[tuple[int, str]]) -> None:
    assert found(text) == fault


def test_a_paragraph_has_the_number_of_its_first_line() -> None:
    text: Iterator[tuple[int, str, bool]] = paragraphs("# Title\n\nOne\ntwo\n| a |\nthree\n")
    assert list(text) == [(1, "# Title", False), (3, "One two", False), (5, "| a |", True), (6, "three", False)]


def test_a_sample_is_drawn_again_from_its_seed() -> None:
    items = [Item(f"file:{number}", "text") for number in range(50)]
    assert draw(items, 5, seed=1) == draw(items[::-1], 5, seed=1)
    assert draw(items, 5, seed=1) != draw(items, 5, seed=2)


def test_a_sample_holds_names_docstrings_and_messages() -> None:
    source = 'def load(path):\n    """Return it."""\n    raise ValueError(f"{path}: no file")\n'
    path, tree = ROOT / "part.py", ast.parse(source)
    assert [item.text for item in names(path, tree)] == ["module part", "function load", "argument path of load()"]
    assert [item.text for item in docstrings(path, tree)] == ["function load\nReturn it."]
    assert [item.text for item in messages(path, tree)] == ["ValueError(f'{path}: no file')"]
