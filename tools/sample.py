"""Draw docstrings, names, messages and paragraphs at random, for a fresh reader to judge.

    python tools/sample.py [SEED] [--check]

Prints 30 docstrings, 25 names, 15 messages (the `raise` statements, and what findings say) and 10 paragraphs of the
pages. The reader does not know the project, and answers for each: is it clear at first reading? The same seed draws the
same sample from the same tree. With --check the sample is drawn from the package `check` and the pages of its rules,
else from everything else.
"""

from __future__ import annotations

import argparse
import ast
import random
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import prose

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "allranks"
SHORTEST_PARAGRAPH = 15
# The attributes of a rule of `check` whose texts are shown with each of its findings.
TEXTS_OF_FINDINGS = ("cluster", "advice")
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """What a reader judges: where it is, and its text."""

    place: str
    text: str


def kind_of(node: Definition) -> str:
    """Return the word for a definition."""
    return {"ClassDef": "class", "Module": "module"}.get(type(node).__name__, "function")


def name_of(node: Definition, path: Path) -> str:
    """Return the name of a class, a function, or the module at a path."""
    return path.stem if isinstance(node, ast.Module) else node.name


def docstrings(path: Path, tree: ast.Module) -> Iterator[Item]:
    """Yield the docstrings of a file, each under the name that it is about."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and (text := ast.get_docstring(node)):
            yield Item(f"{place(path, node)}", f"{kind_of(node)} {name_of(node, path)}\n{text}")


def names(path: Path, tree: ast.Module) -> Iterator[Item]:
    """Yield the names of a file's module, classes and functions, and the arguments of its public functions."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and not name_of(node, path).startswith("__"):
            yield Item(place(path, node), f"{kind_of(node)} {name_of(node, path)}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                if argument.arg not in ("self", "cls"):
                    yield Item(place(path, argument), f"argument {argument.arg} of {node.name}()")


def messages(path: Path, tree: ast.Module) -> Iterator[Item]:
    """Yield the `raise` statements of a file that make an error from words, and the texts of its rules' findings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and has_words(node.exc):
            yield Item(place(path, node), ast.unparse(node.exc))
        if isinstance(node, ast.Assign) and has_words(node.value):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in TEXTS_OF_FINDINGS:
                    yield Item(place(path, node), f"{target.id} = {ast.unparse(node.value)}")


def has_words(node: ast.AST) -> bool:
    """Return whether a text with more than one word is below a node."""
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return any(len(text.split()) > 1 for text in texts)


def paragraphs(path: Path) -> Iterator[Item]:
    """Yield the paragraphs of a page, each under its heading, without tables, code and HTML."""
    heading = ""
    for number, text, is_row in prose.paragraphs(path.read_text()):
        if text.startswith("#"):
            heading = text
        elif not is_row and not text.startswith("<") and len(text.split()) >= SHORTEST_PARAGRAPH:
            yield Item(f"{path.relative_to(ROOT)}:{number}", f"{heading}\n{text}")


def place(path: Path, node: ast.AST) -> str:
    """Return the file and the line of a node."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def sample(seed: int, *, check: bool) -> dict[str, list[Item]]:
    """Return what a seed draws, under a heading each."""
    files = [path for path in SOURCE.rglob("*.py") if (path.relative_to(SOURCE).parts[0] == "check") == check]
    trees = {path: ast.parse(path.read_text()) for path in sorted(files)}
    rows = {"Docstrings": (30, docstrings), "Names": (25, names), "Messages": (15, messages)}
    drawn = {}
    for heading, (count, items_of) in rows.items():
        drawn[heading] = draw([item for path, tree in trees.items() for item in items_of(path, tree)], count, seed)
    pages = [page for page in prose.pages(prose.configuration()) if (page.parent.name == "rules") == check]
    return {**drawn, "Paragraphs": draw([item for page in pages for item in paragraphs(page)], 10, seed)}


def draw(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Return ``count`` of the items in the order of the draw."""
    return random.Random(seed).sample(sorted(set(items)), count)


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", nargs="?", type=int, default=30)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for heading, items in sample(options.seed, check=options.check).items():
        print(f"## {heading}: {len(items)}\n")
        for number, item in enumerate(items, 1):
            print(f"{heading[0]}{number}. [{item.place}]")
            for line in item.text.splitlines():
                print(textwrap.indent(textwrap.fill(line, 110, break_long_words=False), "    "))
            print("    clear at first reading (yes / no): \n")


if __name__ == "__main__":
    main()
