"""Which steps of a run are there, which are given up, which the policy keeps: rank 0 knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allranks.checkpoint import audit, holds, paths
from allranks.checkpoint.removal import obstacles, remove_replaced, remove_step
from allranks.checkpoint.retention import Policy, Saved, choose, lacks_metric
from allranks.errors import AllranksError, Damaged, NewerFormat, StepExists, StorageError
from allranks.gate.log import log
from allranks.storage.base import Storage


class Keeping:
    """The steps of a run, for the job that owns it. ``check_owner`` raises where it owns it no more.

    A step is given up where an older one was restored: its branch ends, and the next save removes it.
    """

    def __init__(self, storage: Storage, policy: Policy, *, check_owner: Callable[[], None]) -> None:
        self._storage = storage
        self._policy = policy
        self._check_owner = check_owner
        self._metrics: dict[int, Mapping[str, float]] = {}
        self._given_up: set[int] = set()
        self._reported: dict[int, str] = {}
        self.steps = set(audit.steps(storage))

    def has(self, step: int) -> bool:
        """Return whether a step is there, and to stay."""
        return step in self.steps - self._given_up

    def is_given_up(self, step: int) -> bool:
        """Return whether a step is there, and may be replaced."""
        return step in self._given_up

    def resume(self, step: int) -> None:
        """Take note that the run goes on from ``step``."""
        later = {one for one in self.steps if one > step}
        self._given_up = self._removable(later, held={})  # a training does not wait for readers of another branch
        if self._given_up:
            told = ", ".join(map(str, sorted(self._given_up)))
            log("allranks: the run goes on from step %d; the next save removes step %s.", step, told, level=30)

    def make_way(self) -> None:
        """Right before a manifest is put: nothing that is given up may stand above it.

        The newest goes first: whoever comes after a crash sees a step of the old branch, or the restored one.
        """
        self._check_owner()
        for step in sorted(self._given_up, reverse=True):
            self._storage.delete(paths.manifest_path(step))

    def committed(self, step: int, metrics: Mapping[str, float], *, replaced: bool) -> None:
        """After a commit: remove what is left of the branch that was given up, and what the policy does not keep."""
        self.steps.add(step)
        self._metrics[step] = metrics
        try:
            if replaced:
                self._check_owner()  # a newer owner may be writing this very step
                remove_replaced(self._storage, step)
            given_up, self._given_up = self._given_up - {step}, set()
            self._remove(given_up)
            self.steps -= given_up  # also those of which a reader still holds the files
            self._remove(self._not_kept(self.steps - given_up, newest=step))
        except AllranksError as error:  # the save itself is done
            log("allranks: after the save of step %d: %s", step, error, level=30)

    def _remove(self, steps: Iterable[int]) -> None:
        steps = set(steps)
        for step in sorted(self._removable(steps, held=holds.held(self._storage) if steps else {})):
            self._check_owner()
            left = remove_step(self._storage, step)
            if left is None:
                continue
            self.steps.discard(step)
            if left:
                names = ", ".join(left)
                log("allranks: step %d is removed; not ours, and left in its folder: %s.", step, names, level=30)

    def _not_kept(self, steps: Iterable[int], *, newest: int) -> tuple[int, ...]:
        """Return the steps that the policy does not keep; none where it cannot know which are the best."""
        saved = [Saved(step, self._metrics_of(step)) for step in steps]
        metric = lacks_metric(saved, self._policy)
        if not metric:
            return tuple(step for step in choose(saved, self._policy) if step != newest)
        there = ", ".join(map(repr, self._metrics[newest])) or "none"
        text = "allranks: keep_best: no step has the metric %r, so nothing is removed. The metrics of step %d are: %s."
        log(text, metric, newest, there, level=30)
        return ()

    def _removable(self, steps: set[int], *, held: Mapping[int, str]) -> set[int]:
        """Return those of the steps that may be removed. Why another one must stay is reported once."""
        found = obstacles(self._storage, steps, held=held) if steps else {}
        for step, why in found.items():
            if self._reported.get(step) != why:
                log("allranks: step %d of %s is not removed: %s.", step, self._storage.url, why, level=30)
        self._reported |= found
        return steps - found.keys()

    def _metrics_of(self, step: int) -> Mapping[str, float]:
        """Return a step's metrics, an earlier job's too; none where nobody asks or its manifest cannot be read."""
        if self._policy.keep_best is None:
            return {}
        if step not in self._metrics:
            try:
                self._metrics[step] = audit.load(self._storage, step).metrics
            except (Damaged, NewerFormat, StorageError):
                self._metrics[step] = {}
        return self._metrics[step]


def refusal(step: int, keeping: Keeping | None, *, url: str) -> AllranksError | None:
    """Return why a rank will not save a step into a run. Rank 0, which has the ``keeping``, knows what there is."""
    if type(step) is not int or step < 0:
        return AllranksError(f"a step is an int from 0 on, and this is {step!r}.")
    if keeping is not None and keeping.has(step):
        remedy = "Save another step or into another directory; or restore an older step in a new Checkpointer first."
        return StepExists(f"{url} has a step {step} already.", step=step, remedy=remedy)
    return None
