"""Track the step of a training, and decide whether it continues from a restored step, or only read that step.

Assume that a training at step 30 restores step 10. If it then reaches step 31, it has only read step 10. If it then
reaches step 11, it continues from step 10, and the run's steps after 10 belong to a branch that is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from allranks.arrays.base import OpenTree
from allranks.arrays.detect import open_tree
from allranks.errors import AllranksError
from allranks.world.base import World

Metrics = Mapping[str, float]


class TrainingPosition:
    """The position of a training, equal on every rank. ``last``: its step; None before the first.

    ``resumed``: the step from which it last continued; None if it began anew.
    ``has_branched``: whether that step must still be reported to the owner of the run's steps (``report_branch``).
    ``is_stored``: whether that step is in the run's storage, not only in memory.
    """

    def __init__(self) -> None:
        self.last: int | None = None
        self.resumed: int | None = None
        self.has_branched = False
        self.is_stored = True
        self._restored: dict[int, Metrics | None] = {}
        self._in_memory_only: set[int] = set()
        self._recorded: Metrics | None = None

    def note_restore(self, step: int, metrics: Metrics, *, is_stored: bool = True) -> None:
        """Record that a step was restored, for any purpose. ``is_stored``: False if it was only in memory."""
        self._restored[step] = metrics
        (self._in_memory_only.discard if is_stored else self._in_memory_only.add)(step)

    def advance_to(self, step: int) -> int | None:
        """Record that the training has done ``step`` steps; return the step before, or None if it is not known.

        The step before is the highest step, up to ``step``, that was restored or done.
        """
        base = max((one for one in self._restored if one <= step), default=None)
        done = self.last if self.last is not None and self.last <= step else None
        if base is not None and (done is None or base >= done):
            self.resumed, self.has_branched, self._recorded = base, True, self._restored[base]
            self.is_stored = base not in self._in_memory_only
            done = base
        self._restored.clear()
        self.last = step
        return done

    def report_branch(self, *receivers: Callable[[int], object]) -> None:
        """Call each of ``receivers`` with the step from which the training continued, once, before the first save."""
        if self.has_branched and self.resumed is not None:
            for report in receivers:
                report(self.resumed)
        self.has_branched = False

    def take_recorded_metrics(self) -> Metrics | None:
        """Return the saved metrics of the step from which the training continues.

        Returns None if unknown, and at later calls.
        """
        found, self._recorded = self._recorded, None
        step = max(self._restored, default=None)
        if step is not None and (self.last is None or step >= self.last):
            found, self._restored[step] = self._restored[step], None
        return found


def share_memory(state: object, other_state: object, world: World) -> bool:
    """Return whether two states share an array that a program can change, on any rank. **Every rank must call.**"""
    try:
        found = [
            set(_tensor_addresses(open_tree(tree, rank=world.rank, size=world.size, skip_unknown=True)))
            for tree in (state, other_state)
        ]
        shared = not found[0].isdisjoint(found[1])
    except AllranksError:  # a template that cannot be opened: the restore into it raises the reason
        shared = False
    return world.any(shared, name="restore into the state")


def _tensor_addresses(tree: OpenTree) -> Iterator[int]:
    for array in range(len(tree.declared_arrays)):
        for copy in tree.copies_of_array(array):
            if copy.framework == "torch" and copy.part.numel():
                yield copy.part.data_ptr()
            elif copy.framework == "numpy" and hasattr(copy.part, "ctypes") and copy.part.size:
                yield copy.part.ctypes.data
