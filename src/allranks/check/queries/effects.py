"""Effects that all ranks have on one thing: files, folders, trackers."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.analysis import Analysis, Root
from allranks.check.simulate.arithmetic import shape_of
from allranks.check.simulate.values import CLOCK, DATA, IDENTITY, RANDOM, RANK, Library, Made, Unknown, options, taint
from allranks.check.traces.walk import Reach

# A path made of it is this process' own.
PRIVATE = RANK | IDENTITY | DATA


def ungated(analysis: Analysis, *kinds: str) -> Iterator[tuple[Root, Reach]]:
    """Yield effects of these kinds that every rank has on the same thing, in code that runs as several processes."""
    for root, reach in analysis.reached(*kinds):
        shared = root.is_shared(reach) and reach.everyone and not reach.ordered and not root.finds_done(reach)
        if shared and not is_own(analysis, reach):
            yield root, reach


def by_nodes(analysis: Analysis, *kinds: str) -> Iterator[tuple[Root, Reach]]:
    """Yield effects of these kinds that one process of each node has."""
    for root, reach in analysis.reached(*kinds):
        of_nodes = (
            root.is_shared(reach) and reach.certain == 0b0011 and not reach.ordered and not is_own(analysis, reach)
        )
        if of_nodes and not analysis.simulator.knowledge.is_node_local(path_of(reach)):
            yield root, reach


def is_own(analysis: Analysis, reach: Reach) -> bool:
    """Return whether what an effect is on belongs to the process that has it."""
    where = reach.call.where
    if where is not None and taint(where) & PRIVATE:
        return True
    if where == Library("os.devnull") or path_of(reach).startswith(analysis.simulator.knowledge.private):
        return True
    return any(isinstance(one, Made) and one.cls.startswith(("io.", "tempfile.")) for one in _values(where))


def holds_state(analysis: Analysis, reach: Reach) -> bool:
    """Return whether a file is a checkpoint, by its name or by that of the function that writes it."""
    says = analysis.simulator.knowledge.says
    if reach.call.name.startswith(("json.", "yaml.")):
        return False
    shape = path_of(reach) if is_known(reach) else reach.call.target
    mode = reach.call.given.argument(1, "mode")
    is_text = reach.call.name in ("open", "io.open") and "b" not in (shape_of(mode) if mode is not None else "")
    return not is_text and (says("file", shape) or says("writer", reach.call.symbol.rpartition(".")[2]))


def _values(where: object) -> tuple[object, ...]:
    return options(where) if where is not None else ()  # type: ignore[arg-type]


def path_of(reach: Reach) -> str:
    """Return what is known of the path of an effect; empty if it has none."""
    return shape_of(reach.call.where) if reach.call.where is not None else ""


def differs(reach: Reach) -> bool:
    """Return whether each rank names the path for itself: after the clock, or random numbers."""
    return reach.call.where is not None and bool(taint(reach.call.where) & (CLOCK | RANDOM))


def is_known(reach: Reach) -> bool:
    """Return whether anything is known of the path."""
    return reach.call.where is not None and not isinstance(reach.call.where, Unknown)
