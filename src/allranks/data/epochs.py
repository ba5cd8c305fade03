"""Infer which epoch and step an iteration over a loader reads, in the training loop of another library. No I/O.

Loops begin epochs in three ways: by ``set_epoch`` with the number of the data's epoch; by ``set_epoch`` with a number
that counts from 0 in every process, as Accelerate does; or only by another iteration. The rules, in this order:

1. ``set_epoch(n)`` names the epoch of the next iteration. In a resumed program, a first n of 0 means the epoch in which
   the state continues. Later numbers count from that epoch.
2. The first iteration continues at the position of the state; at the end of an epoch, with the next epoch. 3. An
iteration from which at most one batch was taken was a trial: the next iteration begins at the same position. At
   the end of an epoch no batch is left. There, an iteration was a trial if no batch was requested.
4. Every other iteration is followed by the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks.errors import DataError


def _always_true() -> bool:
    return True


class EpochTracker:
    """Tracks the epoch and the first step of each iteration on one rank.

    ``steps`` is an epoch's length. ``epoch`` and ``step`` are the position at which the state continues. ``place``
    stores the epoch and first step of the iteration: two integers, possibly in shared memory.
    """

    def __init__(self, steps: int, epoch: int, step: int, *, place: Any = None) -> None:
        self._steps = steps
        self._place = [0, 0] if place is None else place
        self.set_position(epoch, step)

    def set_position(self, epoch: int, step: int) -> None:
        """Continue after the first ``step`` steps of an epoch, whatever was read before."""
        self.resumed = (epoch, step)
        self._place[0], self._place[1] = epoch, step
        self._named: int | None = None  # the epoch of the next iteration, as set_epoch named it
        self._shift: int | None = None  # what is added to the numbers that set_epoch is given
        self._count_taken: Callable[[], int] | None = None  # how many batches the latest iteration has handed out
        self._has_started = _always_true  # whether it was asked for any

    @property
    def has_begun(self) -> bool:
        """Whether an iteration has begun."""
        return self._count_taken is not None

    @property
    def iteration_start(self) -> tuple[int, int]:
        """The epoch and the first step of the latest iteration."""
        return int(self._place[0]), int(self._place[1])

    @property
    def epoch(self) -> int:
        """The current epoch.

        It is the epoch of the next iteration, if that was named or is the first; else the epoch of the latest
        iteration.
        """
        return (
            self.next_iteration()[0]
            if self._named is not None or self._count_taken is None
            else self.iteration_start[0]
        )

    def set_epoch(self, epoch_number: int) -> None:
        """Set the epoch of the next iteration. Raises DataError if it is before the epoch of the state."""
        first = self.resumed[0]
        if self._shift is None:
            self._shift = self._after(*self.resumed)[0] if epoch_number == 0 < first else 0
        epoch = epoch_number + self._shift
        if epoch < first or epoch_number < 0:
            raise DataError(
                f"set_epoch({epoch_number}): the state continues in epoch {first}: expected this epoch or a later one.",
                remedy="Start the loop with the epoch of the state, `range(sampler.epoch, epochs)`, or count from 0.",
            )
        has_begun = self._count_taken is not None and epoch == self.iteration_start[0] and not self._count_taken()
        self._named = None if has_begun else epoch  # Lightning names an epoch once more after it has begun

    def next_iteration(self) -> tuple[int, int]:
        """Return the epoch and the first step of the next iteration."""
        if self._named is not None:
            return self._named, self.first_step(self._named)
        epoch, first = self.iteration_start
        if self._count_taken is None:
            return self._after(epoch, first)
        taken = self._count_taken()
        if taken < 2 and (first + taken < self._steps or not self._has_started()):
            return epoch, first
        return epoch + 1, 0

    def argument_of_set_epoch(self) -> int:
        """Return the argument of ``set_epoch`` that would name the next iteration's epoch."""
        return self.next_iteration()[0] - (self._shift or 0)

    def begin_iteration(
        self, count_taken: Callable[[], int], has_started: Callable[[], bool] | None = None
    ) -> tuple[int, int]:
        """Begin the next iteration, and return its epoch and first step.

        ``count_taken()`` returns how many batches the iteration has yielded. ``has_started()`` returns whether a batch
        was requested, if that is known.
        """
        self._place[0], self._place[1] = place = self.next_iteration()
        self._named, self._count_taken, self._has_started = None, count_taken, has_started or _always_true
        return place

    def follow_count(self, count_taken: Callable[[], int]) -> None:
        """Replace the function that counts the batches of the latest iteration."""
        self._count_taken = count_taken

    def current_position(self) -> tuple[int, int]:
        """Return the current epoch, and how many of its steps were taken."""
        if self._named is not None or self._count_taken is None:
            return self.next_iteration()
        epoch, first = self.iteration_start
        return epoch, min(first + self._count_taken(), self._steps)

    def epoch_after_step(self, step: int) -> int:
        """Return the epoch of which ``step`` steps were taken: the next epoch, if one has ended and ``step`` is 0."""
        ended = self._named is None and self._count_taken is not None and self.current_position()[1] >= self._steps
        return self.iteration_start[0] + 1 if ended and not step else self.epoch

    def first_step(self, epoch: int) -> int:
        """Return the first step of an epoch: 0, except for the epoch in which the state continues."""
        return self.resumed[1] if epoch == self.resumed[0] else 0

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_count_taken": None,
            "_has_started": _always_true,
        }  # another process counts for itself

    def _after(self, epoch: int, step: int) -> tuple[int, int]:
        return (epoch, step) if step < self._steps else (epoch + 1, 0)
