"""Load this rank's rows of every global batch in order; a thread prepares them, and the ledger counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from allranks.data.base import BadSample, Reader
from allranks.data.batch import Batch, Collator
from allranks.data.device_iterator import DeviceIterator, LoaderAudit, in_flight
from allranks.data.ledger import Sum
from allranks.data.mix import MixPlan
from allranks.data.pipeline import CountedBatch, Submit, batches, collated, transform_samples
from allranks.data.plan import EpochPlan, Plan
from allranks.data.prefetch import prefetched
from allranks.data.snapshot import Resume
from allranks.data.step_chunks import Samples, StreamReader, decode_chunks, step_chunks
from allranks.data.streams import MixStream, Stream
from allranks.errors import DataError

_MOST_LOOKED_AT = 1000
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class OpenedData:
    """The opened parts of a loader: readers, plan and transforms.

    - ``plan``: returns the plan of an epoch.
    - ``submit``: hands samples to the transforms, in ``workers`` processes.
    - ``sample_bytes``: the mean size of a sample in its file.
    - ``close``: ends threads and workers.
    """

    plan: Callable[[int], Plan]
    readers: tuple[Reader, ...]
    pool: Executor
    submit: Submit
    workers: int
    sample_bytes: float
    close: Callable[[], None]

    def streams(self, plan: Plan) -> Callable[[int], StreamReader]:
        """Return a function that opens a stream of a plan, given the stream's number."""

        def open_stream(stream: int) -> StreamReader:
            if isinstance(plan, MixPlan):
                return MixStream(plan, stream, readers=self.readers, pool=self.pool)
            assert isinstance(plan, EpochPlan)
            return Stream(plan, stream, reader=self.readers[0], pool=self.pool)

        return open_stream

    def samples(self, plan: Plan, rows: Sequence[int], steps: range) -> Iterator[Samples]:
        """Yield the transformed samples of these rows of the global batch, for these steps."""
        found = step_chunks(plan, rows, steps, open_stream=self.streams(plan), sample_bytes=self.sample_bytes)
        return transform_samples(
            decode_chunks(found, workers=self.workers), self.submit, epoch=plan.epoch, workers=self.workers
        )

    def example(self) -> Any:
        """Return a usable sample. Raises DataError if none of the first thousand samples of an epoch can be used."""
        plan, seen = self.plan(0), list[Any]()
        for some in self.samples(plan, range(plan.layout.global_batch), range(plan.steps)):
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

    def begin(self, plan: Plan, step: int, seen: Sum) -> None:
        """Begin an epoch at a step; ``seen`` is the sum of the samples that earlier jobs took of it."""

    def record(self, counted: CountedBatch) -> None:
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
        self, opened_data: OpenedData, rows: Sequence[int], *, audit: BatchAudit, prefetch: int, resume: Resume
    ) -> None:
        if prefetch < 0:
            raise DataError(
                f"prefetch={prefetch}: expected a number of batches to prepare ahead, or 0 to prepare none."
            )
        self.rows = rows
        self._opened_data, self._audit, self._prefetch, self._close = opened_data, audit, prefetch, opened_data.close
        self._collator = Collator(opened_data.example)
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
        resume = Resume.from_state(state, self._plan.facts(), self._plan.layout, rank=rank)
        self._begin(resume.epoch, resume.step, resume.seen)
        self._handed_out = True  # a trainer asks a loader that it has loaded for batches, and not for the proof

    def _each(self, place: Callable[[Batch], B], *, ahead: int) -> Iterator[B]:
        if self._handed_out and self._step == self._plan.steps:  # by a loop that counted, and did not ask for the end
            self._end()
        samples = self._opened_data.samples(self._plan, self.rows, range(self._step, self._plan.steps))
        with prefetched(collated(samples, self._collator), self._prefetch) as made:
            counted_batches = batches(made, self._plan, self.rows)
            for counted, placed in in_flight(counted_batches, lambda counted: place(counted.batch), ahead=ahead):
                self._step += 1
                self._handed_out = True
                self._audit.record(counted)
                yield placed
        self._end()

    def _end(self) -> None:
        self._audit.verify()
        self._begin(self.epoch + 1, 0, Sum())

    def _begin(self, epoch: int, step: int, seen: Sum) -> None:
        self._plan, self._step, self._handed_out = self._opened_data.plan(epoch), step, False
        self._audit.begin(self._plan, step, seen)
