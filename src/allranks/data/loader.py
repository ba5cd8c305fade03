"""Yield this rank's rows of every global batch, in order. A thread prepares them, and the ledger counts them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from allranks.data.arguments import check_number
from allranks.data.base import BadSample, Reader
from allranks.data.batch import Batch, BatchCollator
from allranks.data.device_iterator import DeviceIterator, LoaderAudit, place_ahead
from allranks.data.ledger import SampleSum
from allranks.data.mix import MixPlan
from allranks.data.pipeline import CountedBatch, Submit, collate_samples, make_batches, transform_samples
from allranks.data.plan import EpochPlan, SamplePlan
from allranks.data.prefetch import iterate_ahead
from allranks.data.random_plan import RandomPlan
from allranks.data.snapshot import ResumePosition
from allranks.data.step_chunks import StepSamples, StreamReader, decode_chunks, locate_step_chunks
from allranks.data.streams import MixStream, RandomStream, SampleStream
from allranks.errors import DataError

_MOST_LOOKED_AT = 1000
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class OpenedData:
    """The opened parts of a loader: readers, plan and transforms.

    - ``plan``: returns the plan of an epoch.
    - ``submit``: hands samples to the transforms, in ``workers`` processes.
    - ``sample_bytes``: the mean size of a sample in its file.
    - ``rest``: lets workers end that stay without work.
    - ``close``: ends threads and workers.
    """

    plan: Callable[[int], SamplePlan]
    readers: tuple[Reader, ...]
    pool: Executor
    submit: Submit
    workers: int
    sample_bytes: float
    rest: Callable[[], None]
    close: Callable[[], None]

    def stream_opener(self, plan: SamplePlan) -> Callable[[int], StreamReader]:
        """Return a function that opens a stream of a plan, given the stream's number."""

        def open_stream(stream: int) -> StreamReader:
            if isinstance(plan, MixPlan):
                return MixStream(plan, stream, readers=self.readers, pool=self.pool)
            if isinstance(plan, RandomPlan):
                return RandomStream(plan, self.readers[0])
            assert isinstance(plan, EpochPlan)
            return SampleStream(plan, stream, reader=self.readers[0], pool=self.pool)

        return open_stream

    def transformed_samples(self, plan: SamplePlan, rows: Sequence[int], steps: range) -> Iterator[StepSamples]:
        """Yield the transformed samples of these rows of the global batch, for these steps."""
        found = locate_step_chunks(
            plan, rows, steps, open_stream=self.stream_opener(plan), sample_bytes=self.sample_bytes
        )
        return transform_samples(
            decode_chunks(found, workers=self.workers, sample_bytes=self.sample_bytes),
            self.submit,
            epoch=plan.epoch,
            workers=self.workers,
        )

    def find_example(self) -> Any:
        """Return a usable sample. Raises DataError if none of the first thousand samples of an epoch can be used."""
        plan, seen = self.plan(0), list[Any]()
        for some in self.transformed_samples(plan, range(plan.layout.global_batch), range(plan.steps)):
            usable = next((sample for sample in some.samples if not isinstance(sample, BadSample)), None)
            if usable is not None:
                return usable
            seen += some.samples
            if len(seen) > _MOST_LOOKED_AT:
                break
        raise DataError(
            f"none of {len(seen)} samples can be used, so the columns are unknown; the first: {seen[0].why}."
        )


class BatchAudit(LoaderAudit, Protocol):
    """The audit of a loader's batches: see ``data/audit.py``."""

    def begin_epoch(self, plan: SamplePlan, step: int, earlier_sum: SampleSum) -> None:
        """Begin an epoch at a step; ``earlier_sum`` is the sum of the samples that earlier jobs took of it."""

    def record_batch(self, counted_batch: CountedBatch) -> None:
        """Count a batch that the loader yields."""


class Loader(DeviceIterator):
    """This rank's rows of the global batches; ``Dataset.loader`` returns it.

    Iterating yields the batches to the end of the epoch, the same number on every rank. Then it proves that the epoch
    was read once. Iterating again begins the next epoch, also after a loop that took the last batch but did not request
    the end. A batch is counted in ``state`` when it is yielded, however far the threads are ahead. So stopping anywhere
    loses nothing. ``len()`` is the number of steps of an epoch.
    """

    _audit: BatchAudit

    def __init__(
        self, opened_data: OpenedData, rows: Sequence[int], *, audit: BatchAudit, prefetch: int, resume: ResumePosition
    ) -> None:
        check_number("prefetch", prefetch, "a number of batches to prepare ahead, or 0 to prepare none")
        self.rows = rows
        self._opened_data, self._audit, self._prefetch = opened_data, audit, prefetch
        self._rest, self._close = opened_data.rest, opened_data.close
        self._collator = BatchCollator(opened_data.find_example)
        self._begin(resume.epoch, resume.step, resume.seen)

    def __len__(self) -> int:
        return self._plan.steps

    def state_dict(self) -> dict[str, Any]:
        """Return ``state().gathered()``, for a trainer that saves loaders (Lightning). **Every rank must call.**"""
        return self.state().gathered()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of a ``state_dict``. Every rank must call.

        Raises DataError for a state of other data.
        """
        rank = self.state().world.rank
        resume = ResumePosition.from_state(state, self._plan.facts(), self._plan.layout, rank=rank)
        self._begin(resume.epoch, resume.step, resume.seen)
        self._handed_out = True  # a trainer asks a loader that it has loaded for batches, and not for the proof

    def _place_each(self, place: Callable[[Batch], B], *, ahead: int) -> Generator[B, None, None]:
        if self._handed_out and self._step == self._plan.steps:  # by a loop that counted, and did not ask for the end
            self._end()
        samples = self._opened_data.transformed_samples(self._plan, self.rows, range(self._step, self._plan.steps))
        with iterate_ahead(collate_samples(samples, self._collator), self._prefetch) as made:
            counted_batches = make_batches(made, self._plan, self.rows)
            for counted, placed in place_ahead(
                counted_batches, lambda counted: place(counted.batch), batches_ahead=ahead
            ):
                self._step += 1
                self._handed_out = True
                self._audit.record_batch(counted)
                yield placed
        self._end()

    def _end(self) -> None:
        self._audit.verify_taken()
        self._begin(self.epoch + 1, 0, SampleSum())

    def _begin(self, epoch: int, step: int, seen: SampleSum) -> None:
        self._plan, self._step, self._handed_out = self._opened_data.plan(epoch), step, False
        self._audit.begin_epoch(self._plan, step, seen)
