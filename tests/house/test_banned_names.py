"""Names use the glossary's words: a name with a banned word stands in a list that may only shrink.

`python tests/house/test_banned_names.py` takes out of the list what has been renamed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "allranks"
BANNED = Path(__file__).with_name("banned_words.txt")
REMAINING = Path(__file__).with_name("banned_names_remaining.txt")
# `check` has words of its own, which are looked at apart.
FILES = sorted(path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "check")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PROPER = re.compile(r"[Hh]ugging_?[Ff]ace")


def banned() -> set[str]:
    """Return the banned words: ``part: word`` for those of one part, ``= word`` for whole names."""
    found = set()
    for line in BANNED.read_text().splitlines():
        if not line.startswith("#"):
            scope, mark, words = re.fullmatch(r"(?:(\w*)(:|=) )?(.*)", line).groups()
            found |= {f"{scope or ''}{mark or ''} {word}".strip() for word in words.split()}
    return found


def is_banned(name: str, part: str, words: set[str]) -> bool:
    """Return whether a name of a part has a banned word in it, or is one."""
    plain = _PROPER.sub("", name)
    split = {word.lower() for word in _WORD.findall(plain)}
    scoped = {f"{part}: {word}" for word in split}
    return bool((split | scoped) & words) or f"= {plain.strip('_').lower()}" in words


def arguments_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Return the arguments of a public function, or the fields of a public class."""
    if node.name.startswith("_"):
        return []
    if isinstance(node, ast.ClassDef):
        fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
        return [field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_")]
    every = node.args
    return [one.arg for one in [*every.posonlyargs, *every.args, *every.kwonlyargs]]


def names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that a file defines, and how the list calls it: an argument as ``function(argument)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.name
            yield from ((argument, f"{node.name}({argument})") for argument in arguments_of(node))


def found(files: list[Path] = FILES) -> set[str]:
    """Return the names with banned words, each as ``part: name``; of modules with their file name."""
    words, result = banned(), set()
    for path in files:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        each = [(path.stem, path.name), *names(ast.parse(path.read_text()))]
        result |= {f"{part}: {shown}" for name, shown in each if is_banned(name, part, words)}
    return result


def listed() -> set[str]:
    return set(REMAINING.read_text().splitlines())


def test_no_new_name_has_a_banned_word() -> None:
    """The glossary has the word to use: docs/glossary.md."""
    assert sorted(found() - listed()) == []


def test_the_list_of_remaining_names_has_no_name_that_is_not_there() -> None:
    """Run this file as a program after a rename."""
    assert sorted(listed() - found()) == []


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("def told_to_one(): ...", ["told_to_one"]),
        ("class LaneOfRank: ...", ["LaneOfRank"]),
        ("def compare(here, *, told): ...", ["compare(here)", "compare(told)"]),
        ("def _compare(here, told): ...", []),
        ("class Report:\n    said: int", ["Report(said)"]),
        ("class HuggingFaceSource: ...", []),
        ("def is_known(known_names): ...", []),
    ],
)
def test_a_banned_name_is_found(source: str, shown: list[str]) -> None:
    assert [as_listed for name, as_listed in names(ast.parse(source)) if is_banned(name, "gate", banned())] == shown


def test_a_word_may_be_banned_in_one_part() -> None:
    assert is_banned("Image", "checkpoint", banned())
    assert not is_banned("Image", "data", banned())


if __name__ == "__main__":
    REMAINING.write_text("".join(f"{name}\n" for name in sorted(listed() & found())))
