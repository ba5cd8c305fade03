"""Functions that go round and round, and begin again with what they are given."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.summaries.project import Project
from allranks.check.summaries.summary import FunctionFacts, Node, body_of, nodes_in, statements_in


def beginning_again(project: Project) -> frozenset[str]:
    """Return the files with a function that gives what is in one of its parameters for ever: ``while True: yield from
    loader``."""
    functions = ((path, f) for path, summary in project.summaries.items() for f in summary.functions.values())
    return frozenset(path for path, one in functions if one.positional and goes_round(one) and _begins_again(one))


def gives_for_ever(function: FunctionFacts) -> bool:
    return goes_round(function) and any(node[0] == "yield" for node in nodes_in(body_of(function)))


def _begins_again(function: FunctionFacts) -> bool:
    """``yield from loader``, ``for batch in loader: yield batch``"""
    given = [("name", name) for name in function.positional]
    nodes = list(nodes_in(body_of(function)))
    if any(node[0] == "yield" and node[1][:2] in given for node in nodes if len(node) == 2 and node[1]):
        return True
    loops = (node for node in nodes if node[0] == "for" and len(node) > 3)
    return any(node[3][:2] in given for node in loops) and any(node[0] == "yield" for node in nodes)


def goes_round(function: FunctionFacts) -> bool:
    return any(True for _ in endless_loops(function))


def endless_loops(function: FunctionFacts) -> Iterator[Node]:
    """``while True:``"""
    whiles = (at for at in statements_in(body_of(function)) if at[0] == "while")
    return (at for at in whiles if at[2][:2] in (("const", True), ("const", 1)))
