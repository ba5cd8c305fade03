"""Words in the names that people give to their own things, as `knowledge/words.toml` lists them."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

from allranks.check import knowledge
from allranks.check.tree.syntax import words_of

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@cache
def table(name: str) -> frozenset[str]:
    """Return the words of a table."""
    text = files(knowledge).joinpath("words.toml").read_text("utf-8")
    return frozenset(tomllib.loads(text)[name])


@lru_cache(50_000)
def parts(name: str) -> frozenset[str]:
    """Return the words of a name in lower case: ``{"val", "loader"}`` of ``val_loader``; ``top1`` counts as one."""
    found = [part.lower() for part in _PART.findall(name)]
    joined = (one + other for one, other in itertools.pairwise(found) if other.isdigit())
    return frozenset([*found, *joined])


def says(name: str, *tables: str) -> bool:
    """Return whether a name has a word of these tables."""
    return any(not parts(name).isdisjoint(table(one)) for one in tables)


def ends(node: ast.AST) -> Iterator[str]:
    """Yield the names and texts in an expression; of an attribute only the last part."""
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Subscript):
        yield from ends(node.slice if isinstance(node.slice, ast.Constant) else node.value)
    elif isinstance(node, ast.Call):
        yield from (word for one in (*node.args, *(k.value for k in node.keywords)) for word in ends(one))
    else:
        yield from (word for one in ast.iter_child_nodes(node) for word in ends(one))


def mentions(node: ast.AST | None, *tables: str) -> bool:
    """Return whether a name, an attribute or a text in ``node`` has a word of these tables."""
    return node is not None and any(says(word, *tables) for word in words_of(node))
