"""Sequences of collectives of one role, made of the nodes of a trace. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from allranks.check.traces.nodes import WAITED, Branch, Call, Enter, Exit, Loop, Node, Span, Try

# The collectives of one role: ("collective", op) · ("choice", then, orelse) · ("loop", items) · ("exit", kind).
Sequence_: TypeAlias = tuple[Any, ...]
_CHANGES = ("file", "checkpoint", "mkdir", "folder", "moved", "delete", "download", "append")
_DEEPEST = 4  # calls down, in which a change of files is looked for
LEAVES = ("return", "break", "continue")


def choice(then: Sequence_, orelse: Sequence_) -> list[Any]:
    """Return a condition that all ranks take alike, as one item; nothing if neither side has a collective."""
    shared = 0
    while shared < min(len(then), len(orelse)) and then[-1 - shared] == orelse[-1 - shared]:
        shared += 1
    if then == orelse:
        return list(then)
    if shared and then[-1][0] != "exit":
        return [*choice(then[:-shared], orelse[:-shared]), *then[-shared:]]
    return [("choice", then, orelse)] if then or orelse else []


def without_end(items: Sequence_, kinds: tuple[str, ...] = LEAVES) -> Sequence_:
    """Return items without the exit at their end."""
    return items[:-1] if items and items[-1][0] == "exit" and items[-1][1] in kinds else items


def plain(items: Sequence_) -> Sequence_:
    """Return the collectives, without exits and without choices that have none."""
    found: list[Any] = []
    for item in items:
        if item[0] == "collective":
            found.append(item)
        elif item[0] == "loop" and (inside := plain(item[1])):
            found.append(("loop", inside))
        elif item[0] == "choice":
            sides = (plain(item[1]), plain(item[2]))
            if sides[0] == sides[1]:
                found += sides[0]
            elif any(sides):
                found.append(("choice", *sides))
    return tuple(found)


def ops_of(items: Sequence_) -> tuple[str, ...]:
    """Return the ops of items in order, the first few."""
    found: list[str] = []
    for item in items:
        if item[0] == "collective":
            found.append(item[1])
        else:
            for part in item[1:]:
                found += ops_of(part)
    return tuple(found[:4])


def position(items: Sequence_, at: int) -> int:
    """Return how many calls are in the items before one."""
    return sum(_count(item) for item in items[:at])


def _count(item: Any) -> int:
    return 1 if item[0] == "collective" else sum(_count(inner) for part in item[1:] for inner in part)


def changes_files(nodes: Sequence[Node], depth: int = 0) -> bool:
    """Whether some role makes, writes or deletes files in nodes."""
    return any(_changes_file(node, depth) for node in nodes)


def _changes_file(node: Node, depth: int) -> bool:
    if isinstance(node, Call):
        return node.kind in _CHANGES
    if isinstance(node, Enter):
        return depth < _DEEPEST and changes_files(node.result.trace, depth + 1)
    if isinstance(node, Branch):
        return changes_files((*node.then, *node.orelse), depth)
    return isinstance(node, Loop | Try) and changes_files((*node.body, *node.orelse), depth)


def fails(nodes: Sequence[Node]) -> bool:
    """Whether a side ends with an exception: that is no way that a job goes on."""
    return bool(nodes) and isinstance(nodes[-1], Exit) and nodes[-1].kind == "raise"


def located(nodes: Sequence[Node], role: int, at: Span | None = None, depth: int = 0) -> list[tuple[Call, Span]]:
    """Return the collectives that a role reaches in nodes, each with where the function of the nodes leads to it."""
    found: list[tuple[Call, Span]] = []
    for node in nodes:
        if isinstance(node, Call):
            if node.kind in WAITED and not node.group and node.live >> role & 1:
                found.append((node, at or node.span))
        elif isinstance(node, Enter):
            if node.live >> role & 1 and depth < 40:
                found += located(node.result.trace, role, at or node.span, depth + 1)
        elif isinstance(node, Branch):
            letter = node.letters[role]
            if letter != "F":
                found += located(node.then, role, at, depth)
            if letter != "T":
                found += located(node.orelse, role, at, depth)
        elif isinstance(node, Loop):
            found += located((*node.body, *node.orelse), role, at, depth)
        elif isinstance(node, Try):
            found += located((*node.body, *node.orelse, *node.final), role, at, depth)
        elif isinstance(node, Exit):
            break
    return found
