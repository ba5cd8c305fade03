"""Ways that look as if processes parted, and where they answer each other. Pure.

**Served.** One side goes round an endless loop that begins with what another process sends: there it waits for
commands, and what follows each of them, the other side does too, from wherever it is called.

**Told what comes.** Both sides begin with the same broadcast, then branch, and can come to the same meetings: the
receivers choose by what the sender has sent.

**In one piece.** What gathers a model in parts is no meeting where a setting says that the model is not in parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from allranks.check.interpret.state import Trace, TraceNode
from allranks.check.interpret.truth import TRUE, decides
from allranks.check.survey.marks import first_meeting
from allranks.check.survey.sequence import Items, flat, named

_SENT = re.compile(r"(?i)broadcast|bcast|recv|receive")
_GATHER_PARTS = {
    "fsdp": frozenset(["state_dict", "optim_state_dict", "full_optim_state_dict", "summon_full_params", "full_tensor"]),
    "zero": frozenset(["consolidated state dict"]),
}
_IN_PARTS = {"fsdp": re.compile(r"(?i)fsdp\w*(\(\))?$"), "zero": re.compile(r"(?i)zero_?3|stage_?3")}
_IN_ONE_PIECE = re.compile(r"\bNO_SHARD\b")


def serves(node: TraceNode) -> bool:
    """Whether the rank decides at a branch who waits for commands, and who gives them."""
    return decides(node[1]) and _follows(node[3]) != _follows(node[4])


def _follows(trace: Trace) -> bool:
    """Whether whom it meets first, it meets at the top of an endless loop, where something is received."""
    for node in trace:
        if node[0] == "loop" and node[1] == TRUE:
            meeting = first_meeting(node[3][:1])
            return meeting is not None and _SENT.search(meeting.op) is not None
        if node[0] in ("call", "around") and _follows(node[1].result.trace):
            return True
        if node[0] == "branch" and _follows(node[3]) and _follows(node[4]):
            return True
        if first_meeting((node,)) is not None:
            return False
    return False


def tells_what_comes(sides: Collection[Items]) -> bool:
    """Whether all sides begin with the same broadcast and then choose among the same meetings."""
    first, ops = {next(flat(items), "") for items in sides}, {frozenset(flat(items)) for items in sides}
    return len(first) == len(ops) == 1 and all(map(_SENT.search, first)) and all(map(_chooses, sides))


def _chooses(items: Items) -> bool:
    return any(isinstance(item, tuple) and item[0] == "if" for item in items)


def says_how_it_lies(condition: str) -> bool:
    """Whether a condition asks whether, or how, the program's model lies in parts."""
    return _IN_ONE_PIECE.search(condition) is not None or any(one.search(condition) for one in _IN_PARTS.values())


def in_one_piece(items: Items, known: tuple[tuple[str, bool], ...]) -> Items:
    """Return the sequence without what meets nobody, for all that is known of how the model lies."""
    gone = {op for condition, held in known for op in _apart(condition, held)}
    return _without(items, gone) if gone else items


def _apart(condition: str, held: bool) -> frozenset[str]:
    if " and " in condition or " or " in condition:
        return frozenset()
    holds = held == (named(condition) == condition)
    if _IN_ONE_PIECE.search(condition):
        return _GATHER_PARTS["fsdp"] if holds else frozenset()
    asked = [kind for kind, words in _IN_PARTS.items() if words.search(condition)]
    return frozenset() if holds else frozenset().union(*(_GATHER_PARTS[kind] for kind in asked))


def _without(items: Items, gone: set[str]) -> Items:
    kept: list[Any] = []
    for item in items:
        if isinstance(item, tuple) and item[0] in ("if", "loop", "except"):
            kept.append((item[0], *(_without(part, gone) if isinstance(part, tuple) else part for part in item[1:])))
        elif item not in gone:
            kept.append(item)
    return tuple(kept)
