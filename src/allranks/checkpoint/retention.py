"""Track the steps of a run, and remove steps that the retention policies do not keep. Runs on rank 0 only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from allranks.checkpoint import holds, inventory, paths
from allranks.checkpoint.items import CannotReduce, items_in
from allranks.checkpoint.removal import (
    reduce_step,
    removal_obstacles,
    remove_memory_manifest,
    remove_replaced,
    remove_step,
)
from allranks.checkpoint.retention_policy import (
    Keep,
    RetentionDecision,
    RetentionPolicy,
    Saved,
    decide_retention,
    missing_metric,
)
from allranks.errors import AllranksError, BadArgument, Damaged, NewerFormat, NotThere, StepExists, StorageError
from allranks.failure import text_of
from allranks.gate.log import log
from allranks.storage.base import Storage

_NO_METRIC = "allranks: keep_best: no step has the metric %r, so no step is removed. Step %d has the metrics %s."
_STEP_LIMIT = 1 << 63
_NO_ITEM = "allranks: items: no step has the item %r, so no step is removed. Step %d has the items %s."


class RunRetention:
    """The steps of a run that this job writes. Only rank 0 has this object.

    A step is *given up* if the training continues from an older step. The next save removes it.
    ``policy``: decides which complete steps are kept. ``items``: for each item, a policy that may keep the item of
    other steps. ``check_owner``: raises if the job no longer owns the run.
    """

    def __init__(
        self,
        storage: Storage,
        policy: RetentionPolicy | Keep,
        items: Mapping[str, Keep] | None = None,
        *,
        check_owner: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._policy = policy
        self._items = items or {}
        self._check_owner = check_owner
        self._saved: dict[int, Saved] = {}
        self._reduced: dict[int, tuple[str, ...]] = {}
        self._unread: set[int] = set()
        self._given_up: set[int] = set()
        self._superseded: set[int] = set()
        self._memory_is_given_up = True  # until the run is resumed: a training that begins anew is also another branch
        self._is_continued = False
        self._lock = threading.Lock()
        self._reported: dict[int, str] = {}
        self.steps = set(inventory.complete_steps(storage))

    def has_step(self, step: int) -> bool:
        """Return whether a step exists, and is not given up."""
        return step in self.steps - self._given_up

    def is_given_up(self, step: int) -> bool:
        """Return whether a step exists, but is given up, so that a save may replace it."""
        return step in self._given_up

    def give_up_after(self, step: int) -> None:
        """Record that the training continues from ``step``, so that later steps are given up."""
        self._is_continued = True
        later = {one for one in self.steps if one > step}
        self._given_up = self._removable_steps(later, held={})  # readers of another branch do not stop a training
        with self._lock:
            self._superseded = set(self._given_up)
            self._memory_is_given_up = self._is_in_memory_after(step)
        if self._given_up:
            told = ", ".join(map(str, sorted(self._given_up)))
            log("allranks: the run continues from step %d. The next save removes step %s.", step, told, level=30)

    def before_commit(self) -> None:
        """Remove the manifests of steps that are given up. Call it immediately before a new manifest is written.

        The newest manifest is removed first. So after a crash, the newest step is either one that was given up, or the
        restored one.
        """
        with self._lock:  # a save to disk and a save into memory may both be about to publish
            self._check_owner()
            if self._memory_is_given_up:
                remove_memory_manifest(self._storage)
            for step in sorted(self._superseded, reverse=True):
                self._storage.delete(paths.manifest_path(step))
            self._superseded, self._memory_is_given_up = set(), False

    def _is_in_memory_after(self, step: int) -> bool:
        try:
            return inventory.load_from_memory(self._storage).step > step
        except (NotThere, NewerFormat):
            return False
        except Damaged:  # its step is not known
            return True

    def after_commit(self, saved: Saved, *, replaced: bool) -> None:
        """Remove the files of steps that were given up, and the steps and items that the policies do not keep."""
        step = saved.step
        if self.steps and not self._is_continued:
            text = "allranks: step %d is saved beside step %d, which was in %s already and was not restored."
            log(text, step, max(self.steps), self._storage.url, level=30)
        self._is_continued = True
        self.steps.add(step)
        self._saved[step] = saved
        self._reduced.pop(step, None)
        try:
            if replaced:
                self._check_owner()  # a newer owner may be writing this very step
                remove_replaced(self._storage, step)
            given_up, self._given_up = self._given_up - {step}, set()
            self._remove_steps(given_up)
            self.steps -= given_up  # also those of which a reader still holds the files
            decision = self._decide_removal(self.steps - given_up, newest=step)
            self._remove_steps(decision.remove)
            for one, names in decision.reduce.items():
                self._reduce_once(one, names)
        except AllranksError as error:  # the save itself is done
            log("allranks: after the save of step %d: %s", step, error, level=30)

    def _reduce_once(self, step: int, names: tuple[str, ...]) -> None:
        """Reduce a step to these items, unless that is done. If it is impossible, the step stays; logged once."""
        if self._reduced.get(step) == names:
            return
        try:
            self.reduce_to_items(step, names)
        except CannotReduce as error:
            self._reduced[step] = names
            log("allranks: %s", error, level=30)

    def reduce_to_items(self, step: int, names: tuple[str, ...]) -> None:
        """Remove everything of a step except these items, unless a reader holds the step."""
        if not self._removable_steps({step}, held=holds.held_steps(self._storage)):
            return
        self._check_owner()
        if reduce_step(self._storage, step, names):
            self._reduced[step] = names
            self._saved[step] = replace(self._saved_step(step), items=frozenset(names))

    def _remove_steps(self, steps: Iterable[int]) -> None:
        steps = set(steps)
        for step in sorted(self._removable_steps(steps, held=holds.held_steps(self._storage) if steps else {})):
            self._check_owner()
            try:
                left = remove_step(self._storage, step)
            except StorageError as error:  # the other steps can still be removed
                self._report_once(step, str(error))
                continue
            if left is None:
                continue
            self.steps.discard(step)
            if left:
                names = ", ".join(left)
                log("allranks: step %d is removed. Files of others stay in its folder: %s.", step, names, level=30)

    def _decide_removal(self, steps: Iterable[int], *, newest: int) -> RetentionDecision:
        """Return the steps that the policies do not keep; none if no step has the metric or item of a policy."""
        self._unread.clear()
        saved = [self._saved_step(step) for step in steps]
        for policy in (self._policy, *self._items.values()):
            if metric := missing_metric(saved, policy):
                there = ", ".join(map(repr, self._saved[newest].metrics)) or "none"
                log(_NO_METRIC, metric, newest, there, level=30)
                return RetentionDecision(())
        if lost := [name for name in self._items if not any(name in one.items for one in saved)]:
            there = ", ".join(map(repr, sorted(self._saved[newest].items))) or "none"
            log(_NO_ITEM, lost[0], newest, there, level=30)
            return RetentionDecision(())
        try:
            return decide_retention(saved, self._policy, self._items, kept_steps={newest, *self._unread})
        except Exception as error:  # of the program's own policy
            raise AllranksError(f"a retention policy of the program failed: {text_of(error)}") from error

    def _removable_steps(self, steps: set[int], *, held: Mapping[int, str]) -> set[int]:
        """Return the steps that may be removed. The reason why another step stays is logged once."""
        found = removal_obstacles(self._storage, steps, holders=held) if steps else {}
        for step, why in found.items():
            self._report_once(step, why)
        return steps - found.keys()

    def _report_once(self, step: int, why: str) -> None:
        """Log why a step stays, unless that was logged before."""
        if self._reported.get(step) != why:
            log("allranks: step %d of %s is not removed: %s.", step, self._storage.url, why.removesuffix("."), level=30)
        self._reported[step] = why

    def _saved_step(self, step: int) -> Saved:
        """Return a step with what the policies need to know of it: metrics and items, or only the number."""
        asks = self._items or not isinstance(self._policy, RetentionPolicy) or self._policy.keep_best is not None
        if step not in self._saved:
            if not asks:
                return Saved(step, {})
            try:
                manifest = inventory.load_manifest(self._storage, step)
                self._saved[step] = Saved(step, manifest.metrics, items_in(manifest))
            except (Damaged, NewerFormat, StorageError) as error:
                if self._items or isinstance(error, StorageError):
                    self._unread.add(step)  # it is not known what of it the policies keep
                return Saved(step, {})
        return self._saved[step]


def reason_to_refuse(step: int, retention: RunRetention | None, *, url: str) -> AllranksError | None:
    """Return the error if a step must not be saved into a run; None if it may. Only rank 0 has a ``retention``."""
    if type(step) is not int or not 0 <= step < _STEP_LIMIT:
        return BadArgument(f"step={step!r:.200}: expected an int from 0 on, below 2**63.")
    if retention is not None and retention.has_step(step):
        remedy = "Save another step, save into another directory, or first restore an older step in a new Checkpointer."
        return StepExists(f"{url} already has step {step}.", step=step, remedy=remedy)
    return None
