"""Effects that all ranks have on one thing: files, folders, trackers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from allranks.check.analysis import Analysis
from allranks.check.roots import Root
from allranks.check.simulate.arithmetic import shape_of
from allranks.check.simulate.values import (
    CLOCK,
    DATA,
    FILES,
    IDENTITY,
    NEXT,
    RANDOM,
    RANK,
    SEEN,
    Library,
    Made,
    Unknown,
    Value,
    options,
    taint,
)
from allranks.check.traces.walk import Reach

Written: TypeAlias = Literal["checkpoint", "download", "file"]
# A path made of it is this process' own.
PRIVATE = RANK | IDENTITY | DATA
_LONGEST_PATH = 4096


def ungated(analysis: Analysis, *kinds: str) -> Iterator[tuple[Root, Reach]]:
    """Yield effects of these kinds that every rank has on the same thing, in code that runs as several processes."""
    for root, reach in analysis.reached(*kinds):
        shared = root.is_shared(reach) and reach.everyone and not reach.ordered and not root.finds_done(reach)
        if shared and not is_own(analysis, reach) and not ("download" in kinds and _is_done(root, reach)):
            yield root, reach


def _is_done(root: Root, reach: Reach) -> bool:
    """Whether rank 0 has done the same before all have met, so that they find it."""
    call = reach.call
    same = (one for one in root.reached if one.call.name == call.name and one.call.where == call.where)
    return any(one.certain & 1 and one.collectives < reach.collectives for one in same if not one.everyone)


def is_there(root: Root, reach: Reach) -> bool:
    """Return whether a folder was made before on the way: by every rank, or by some before all have met."""
    where = reach.call.where
    for before in root.reached:
        if before is reach:
            return False
        done = before.everyone or before.collectives < reach.collectives
        if done and before.call.kind in ("folder", "mkdir") and _covers(before.call.where, where):
            return True
    return False


def _covers(made: Value | None, wanted: Value | None) -> bool:
    """Whether a folder is another, or is inside it, so that both are there."""
    if made is None or wanted is None:
        return False
    one, other = shape_of(made).rstrip("/"), shape_of(wanted).rstrip("/")
    known = one.replace("{}", "").strip("/") != ""
    return made == wanted or (known and (one == other or one.startswith(f"{other}/")) and other.strip("{}/") != "")


def by_nodes(analysis: Analysis, *kinds: str) -> Iterator[tuple[Root, Reach]]:
    """Yield effects of these kinds that one process of each node has."""
    for root, reach in analysis.reached(*kinds):
        of_nodes = (
            root.is_shared(reach) and reach.certain == 0b0011 and not reach.ordered and not is_own(analysis, reach)
        )
        if of_nodes and _handle(reach) is None and not analysis.simulator.knowledge.is_node_local(path_of(reach)):
            yield root, reach


def writes(analysis: Analysis) -> Iterator[tuple[Root, Reach, Written]]:
    """Yield the files that every rank writes, each once, where it is opened, and what is written: a checkpoint, what
    was downloaded, or another file."""
    checkpoints = list(ungated(analysis, "checkpoint"))
    files = list(ungated(analysis, "file", "append"))
    opened = {handle for _, reach in checkpoints if (handle := _handle(reach)) is not None}
    inside: dict[tuple[str, int], list[Reach]] = {}
    for _, reach in files:
        if (handle := _handle(reach)) is not None:
            inside.setdefault(handle, []).append(reach)
    yield from ((root, reach, "checkpoint") for root, reach in checkpoints)
    moved = ((root, reach) for root, reach in ungated(analysis, "moved") if holds_state(analysis, reach))
    yield from ((root, reach, "checkpoint") for root, reach in moved)
    for root, reach in files:
        at = (reach.call.path, reach.call.span[0])
        if at in opened or _handle(reach) is not None:
            continue
        state = any(holds_state(analysis, one) for one in (reach, *inside.get(at, ())))
        yield root, reach, "download" if _downloads(analysis, reach) else "checkpoint" if state else "file"


def _downloads(analysis: Analysis, reach: Reach) -> bool:
    """Whether a file is written by a function that downloads it, as its name says."""
    names = [step[0] for step in reach.chain[-1:]] + [reach.call.symbol]
    says = analysis.simulator.knowledge.named
    return any(says("effect", name.rpartition(".")[2]) == "download" for name in names)


def named_by_each(analysis: Analysis, *kinds: str) -> Iterator[tuple[Root, Reach]]:
    """Yield effects of these kinds that every rank has on a path that it names for itself: after a clock, or random
    numbers, and not after its rank."""
    folders, functions = list[str](), set[str]()
    for root, reach in analysis.reached(*kinds, "path"):
        found = taint(reach.call.where)
        of_run = reach.call.kind in ("mkdir", "folder", "tracker") and found & (RANDOM | NEXT)  # its name or number
        by_chance = found & (CLOCK | RANDOM) or of_run
        by_chance = by_chance and not found & (RANK if of_run else RANK | IDENTITY)
        if by_chance and root.is_shared(reach) and reach.everyone and not root.finds_done(reach):
            known = reach.call.symbol in functions or path_of(reach).startswith(tuple(f"{one}/" for one in folders))
            if not known:  # one finding a folder, and a function
                yield root, reach
            folders.append(path_of(reach))
            functions.add(reach.call.symbol)


def named(reach: Reach) -> str:
    """Return what an effect is on, as the source names it; else what is called."""
    for value in _values(reach.call.where):
        if isinstance(value, Made) and value.cls == "file" and (path := shape_of(value)):
            return repr(path)
    return reach.call.target or reach.call.name.removeprefix("*.")


def tested(reach: Reach) -> bool:
    """Return whether a process looks for files on the way to an effect."""
    return bool(reach.under & (FILES | SEEN))


def _handle(reach: Reach) -> tuple[str, int] | None:
    """Return where the file was opened that is written to; None if it is written by its name."""
    for value in _values(reach.call.where):
        if isinstance(value, Made) and value.cls == "file":
            return value.path, value.line
    return None


def is_own(analysis: Analysis, reach: Reach) -> bool:
    """Return whether what an effect is on belongs to the process that has it."""
    where = reach.call.where
    if where is not None and taint(where) & PRIVATE:
        return True
    knowledge, path = analysis.simulator.knowledge, path_of(reach)
    if where == Library("os.devnull") or path.startswith(knowledge.private) or path.endswith(knowledge.locks):
        return True
    return any(isinstance(one, Made) and one.cls.startswith(("io.", "tempfile.")) for one in _values(where))


def holds_state(analysis: Analysis, reach: Reach) -> bool:
    """Return whether a file is a checkpoint, by its name or by that of the function that writes it."""
    says = analysis.simulator.knowledge.says
    if reach.call.name.startswith(("json.", "yaml.")):
        return False
    shape = path_of(reach) if is_known(reach) else reach.call.target
    if says("text", shape.rstrip("'\")")):
        return False
    mode = reach.call.given.argument(1, "mode")
    is_text = reach.call.name in ("open", "io.open") and "b" not in (shape_of(mode) if mode is not None else "")
    return not is_text and (says("file", shape) or says("writer", reach.call.symbol.rpartition(".")[2]))


def _values(where: object) -> tuple[object, ...]:
    return options(where) if where is not None else ()  # type: ignore[arg-type]


def path_of(reach: Reach) -> str:
    """Return what is known of the path of an effect; empty if it has none."""
    return shape_of(reach.call.where)[:_LONGEST_PATH] if reach.call.where is not None else ""


def is_known(reach: Reach) -> bool:
    """Return whether anything is known of the path."""
    return reach.call.where is not None and not isinstance(reach.call.where, Unknown)
