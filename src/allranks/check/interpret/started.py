"""Functions that processes are started with: what is the number that they are given, do they join others, as whom?"""

from __future__ import annotations

from typing import Any

from allranks.check.interpret.below import deepest_first
from allranks.check.interpret.state import Frame, Result
from allranks.check.interpret.values import ANYTHING, COUNTER, rank
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, body_of


def is_told_its_gpu(facts: FunctionFacts | None) -> bool:
    """Whether the first thing that a function is given is one of the processes of a node: it adds those of the nodes
    before, ``rank = node * gpus + gpu``."""
    if facts is None or not facts.positional:
        return False
    return _adds(body_of(facts), ("name", facts.positional[0]))


def joins(result: Result) -> bool:
    """Whether what a process is started with joins others, in itself or in what it calls."""
    return any("initialise" in one.evidence for one in deepest_first(result, ()))


def joins_as(frame: Frame, call: Node) -> None:
    """Note that a number of which nothing is known is the rank, where a process joins with it:
    ``init_process_group("gloo", rank=i)``."""
    if call[0] != "call" or render(call[1]).rpartition(".")[2] != "init_process_group":
        return
    names = [value[1] for name, value in call[3] if name == "rank" and value[0] == "name"]
    for name in names:
        if (known := frame.env.get(name)) is not None and known in (ANYTHING, COUNTER):
            frame.env[name] = rank("global")


def _adds(node: Any, number: tuple[str, str]) -> bool:
    if not isinstance(node, tuple):
        return False
    if len(node) > 3 and node[0] == "op" and node[3] == "+" and number in (node[1], node[2]):
        other = node[1] if node[2] == number else node[2]
        if other[0] == "op" and other[3] == "*":
            return True
    return any(_adds(part, number) for part in node)
