"""Plan the steps of a rank for another library's loader, which makes the batches in its own processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from allranks.data.batch import Batch, BatchCollator
from allranks.data.detect import rows_of_process
from allranks.data.index import DatasetIndex
from allranks.data.ledger import SampleSum, planned_sum
from allranks.data.open_loader import open_data, planner_of_indexes, slice_indexes
from allranks.data.pipeline import collate_samples, make_batches
from allranks.data.plan import SamplePlan
from allranks.data.recipe import DatasetRecipe
from allranks.data.snapshot import ResumePosition, Snapshot
from allranks.data.start import sample_facts, shared_index, start_on_all_ranks
from allranks.errors import DataError
from allranks.world.base import World


class LoaderSteps:
    """The rows of the global batches that this rank takes, from a step on. **Every rank must make one.**

    - ``plan(epoch)``: returns the plan of an epoch.
    - ``rows`` and ``state``: as for ``Dataset.loader``, with the same errors.
    - ``compared``: more facts that must be equal on all ranks.

    The attributes ``epoch`` and ``step`` say where to begin. The object must stay in the process that made it, because
    it holds the world.
    """

    def __init__(
        self,
        plan: Callable[[int], SamplePlan],
        world: World,
        *,
        rows: object,
        state: Mapping[str, Any] | None,
        compared: Mapping[str, str],
    ) -> None:
        self.plan = lru_cache(maxsize=2)(plan)
        first = self.plan(0)
        facts, layout = first.facts(), first.layout
        self.rows = rows_of_process(rows, global_batch=layout.global_batch, world=world)
        resume = ResumePosition.from_optional_state(state, facts, layout, rank=world.rank)
        self.epoch, self.step = resume.epoch, resume.step
        shares = start_on_all_ranks(
            world, {**facts, **resume.as_facts, **compared}, self.rows, global_batch=layout.global_batch
        )
        self._world, self._counted = world, shares.counted
        self._seen: SampleSum | None = resume.seen
        self._length = first.steps

    def __len__(self) -> int:
        """Return the number of steps of an epoch, on every rank."""
        return self._length

    def first_step(self, epoch: int) -> int:
        """Return the first step of an epoch: 0, except for the epoch in which the state continues."""
        return self.step if epoch == self.epoch else 0

    def continue_after(self, epoch: int, step: int) -> None:
        """Continue after the first ``step`` steps of an epoch. Nothing checks that all ranks took these steps."""
        self.epoch, self.step, self._seen = epoch, step, None

    def state(self, epoch: int, step: int) -> Snapshot:
        """Return the state after the first ``step`` steps of an epoch, as ``Loader.state()`` does.

        Nothing checks that these steps were taken, because batches of other loaders are not counted. Raises DataError
        if ``step`` is not a step of the epoch.
        """
        begin, plan = self.first_step(epoch), self.plan(epoch)
        if not begin <= step <= plan.steps:
            raise DataError(
                f"rank {self._world.rank}: {step} steps of epoch {epoch} cannot have been taken: it began with step "
                f"{begin} of {plan.steps}.",
                remedy="Count the batches that the loop took, from the one on that the epoch began with.",
            )
        if self._seen is None:
            rows = range(plan.layout.global_batch)
            self._seen = planned_sum(self.plan(self.epoch), rows, 0, self.step)
        seen = self._seen if epoch == self.epoch else SampleSum()
        taken = planned_sum(plan, self._counted, begin, step)
        return Snapshot(self._world, epoch, step * plan.layout.depth_of_step, plan.facts(), taken, seen)


@dataclass(frozen=True, slots=True)
class StepMaker:
    """Makes the batches of these rows for any steps. It can be sent to another process."""

    recipe: DatasetRecipe
    indexes: tuple[DatasetIndex, ...]
    rows: tuple[int, ...]

    def make_batches(self, epoch: int, begin: int, *, stride: int = 1) -> Iterator[Batch]:
        """Yield the batch of every ``stride``-th step of an epoch, from step ``begin`` on.

        It reads the blocks of these steps, although other steps need some of these blocks, too. With ``stride`` above
        1, this process runs the maps.
        """
        recipe = self.recipe if stride == 1 else replace(self.recipe, workers=0)
        opened_data = open_data(recipe, self.indexes, planner_of_indexes(recipe, self.indexes))
        try:
            plan = opened_data.plan(epoch)
            samples = opened_data.transformed_samples(plan, self.rows, range(begin, plan.steps, stride))
            for taken in make_batches(
                collate_samples(samples, BatchCollator(opened_data.find_example)), plan, self.rows
            ):
                yield taken.batch
        finally:
            opened_data.close()


def open_steps(
    data: DatasetRecipe, world: World, *, rows: object, state: Mapping[str, Any] | None
) -> tuple[LoaderSteps, StepMaker]:
    """Open a data set for another library's loader. **Every rank must call.** Raises what ``Dataset.loader`` raises."""
    if data.packing is not None:
        raise DataError(
            "packed rows are made one after the other, so no workers can share their steps.",
            remedy="Iterate over .loader(world): its batches are ready, and its map(workers=...) keep their order.",
        )
    indexes = slice_indexes(data, [shared_index(part.source, world) for part in data.parts])
    compared = sample_facts((part.source for part in data.parts), world)
    steps = LoaderSteps(planner_of_indexes(data, indexes), world, rows=rows, state=state, compared=compared)
    return steps, StepMaker(data, indexes, steps.rows)
