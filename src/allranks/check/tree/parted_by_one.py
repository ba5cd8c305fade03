"""All that one rank alone has, sets or is told in a file, where every rank goes by it, and what is said of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.sources.source import File
from allranks.check.tree.decided_by_one import decided_by_one
from allranks.check.tree.given_by_one import changed_on_one, made_of_one
from allranks.check.tree.had_by_one import had_by_one, rated_by_one
from allranks.check.tree.one_rank import Parted, attributes_of_one, begun_on_one, bound_on_one, emptied_on_one
from allranks.check.tree.told_to_one import scheduled_on_one, told_to_one

# How the message ends where the rest of the program must be asked.
TOLD, HAS = ", which only one rank changes", ", which only one rank has"
_CHANGED = "every rank uses {}, which is changed on one rank only"
_IN_FUNCTIONS = (
    (bound_on_one, "{} is set on one rank only, and used on every rank"),
    (made_of_one, "every rank makes a model of {}, which is None on all ranks except one"),
    (changed_on_one, "every rank loads {}, of which only one rank has set a part"),
    *((find, _CHANGED) for find in (begun_on_one, decided_by_one, rated_by_one)),
    (emptied_on_one, "{} is gathered from every rank, and emptied on one rank only"),
)
_IN_FILES = (
    (attributes_of_one, "every rank uses {}, which is set on one rank only"),
    (had_by_one, f"every rank uses {{}}{HAS}"),
    (scheduled_on_one, "only one rank takes a step of {}, every rank's learning rate"),
)


def parted_by_one(scope: ast.AST, file: File) -> Iterator[tuple[Parted, str]]:
    """Yield what parts the ranks in a function, or at the top level and in the classes of a file, with its message."""
    for find, said in _IN_FUNCTIONS:
        yield from ((one, said.format(one.name)) for one in find(scope, file))
    if isinstance(scope, ast.Module):
        for look, said in _IN_FILES:
            yield from ((one, said.format(one.name)) for one in look(file))
        for told in told_to_one(file):
            does = "leaves the loop" if told.leaves else "makes its loss"
            yield told.parted, f"every rank {does} by {told.parted.name}{TOLD}"
