"""What lies beside the weights of a model, by what it is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.sources.nodes import children
from allranks.check.sources.source import File

# What lies beside the weights and holds no tensors of a GPU.
BESIDE = re.compile(
    r"meta|manifest|config|args|rng|cache|vocab|tokenizer|index|progress|(train|recipe|trainer|random)_state|sched|scaler|"
    r"data_?(loader|set|module)|sampler|pre_?train|data_?dir|(train|val|test|dev|data)\.pth?\b|loss(es)?\b|steps?\b|metric|history|stats?\b|feat|embed|latent|queue",
    re.IGNORECASE,
)


def is_beside(call: ast.Call, file: File) -> bool:
    """It is told by its path, or by what it goes into, that it is no weights; or its path is written down: weights
    that came with the program."""
    above = next(file.parents(call), None)
    into = above.func.value if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) else None
    return isinstance(call.args[0], ast.Constant) or any(
        BESIDE.search(word) for part in (call.args[0], into) if part is not None for word in leaves(part)
    )


def leaves(node: ast.AST) -> Iterator[str]:
    """Yield the texts in an expression, and the last parts of the names in it."""
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        yield node.slice.value
    else:
        for part in [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else children(node):
            yield from leaves(part)


def named(path: str) -> list[str]:
    """Return `leaves` of a path as it stands in the source: what it is called, not in which settings it stands."""
    try:
        return list(leaves(ast.parse(path, mode="eval").body))
    except SyntaxError:  # cut off
        return [path]
