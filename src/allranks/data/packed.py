"""Make batches of packed rows. They are the same on every world size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BadSample
from allranks.data.batch import Batch
from allranks.data.pack import PackedRow, PackingOptions, RowCarry, make_packer
from allranks.data.pipeline import Submit, submit_samples
from allranks.data.plan import SamplePlan, streams_of
from allranks.data.sample_columns import Column
from allranks.data.step_chunks import SampleDecoder, StreamReader, join_samples
from allranks.errors import DataError

_MOST_STEPS = 32  # that all ranks agree about at once
_MOST_DOCUMENTS = 4096
_NONE = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class CountedPackedBatch:
    """A batch of packed rows, with what the ledger counts.

    - ``ids``: for every row, the samples that end in it.
    - ``bad``: for every row, how many of these samples could not be used.
    - ``carries``: for every stream, its position after this batch.
    """

    batch: Batch
    ids: tuple[NDArray[np.int64], ...]
    bad: tuple[int, ...]
    carries: Mapping[int, RowCarry]


@dataclass(frozen=True, slots=True)
class StepGroup:
    """The packed batches of some consecutive steps on one rank.

    This rank has a row for the first ``have`` steps. In the other steps its rows are padding.
    """

    steps: tuple[CountedPackedBatch, ...]
    have: int

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class TokenWork:
    """How documents are transformed before they are packed.

    ``submit`` hands samples to the transforms, in ``workers`` processes. Afterwards the tokens are in ``column`` of a
    sample, or they are the sample itself.
    """

    packing: PackingOptions
    column: str
    submit: Submit
    workers: int


def packed_step_groups(
    plan: SamplePlan,
    rows: Sequence[int],
    begin: int,
    *,
    open_stream: Callable[[int], StreamReader],
    token_work: TokenWork,
    row_carries: Mapping[int, RowCarry],
) -> Iterator[StepGroup]:
    """Yield groups of packed batches from step ``begin`` on, without end. After the last document all rows are padding.

    The first groups are short, on all ranks. Their lengths depend only on ``begin``.
    """
    many = plan.layout.depth_of_step
    owned = streams_of(rows, many)
    tokenized = _DocumentReader(plan.epoch, token_work)
    streams = {
        stream: _PackedStream(
            plan, stream, open_stream(stream), token_work.packing, row_carries.get(stream, RowCarry())
        )
        for stream in owned
    }
    tokenized.fetch_documents(
        list(streams.values()),
        [stream.depths_to_read_again() for stream in streams.values()],
        _PackedStream.start_packing,
    )
    length = 1
    while True:
        tokenized.fill_streams(list(streams.values()), length * many)
        have = max(min(-(-len(stream.ready) // many), length) for stream in streams.values())
        steps = tuple(
            _take_batch(plan, rows, step, owned, streams, token_work.packing) for step in range(begin, begin + length)
        )
        yield StepGroup(steps, have)
        begin += length
        length = min(2 * length, _MOST_STEPS)


class _PackedStream:
    """The documents of one stream, and its packed rows that are not taken yet."""

    def __init__(
        self, plan: SamplePlan, stream: int, reader: StreamReader, packing: PackingOptions, carry: RowCarry
    ) -> None:
        self.reader = reader
        self.ready: deque[PackedRow] = deque()
        self.carry = carry
        self._length = plan.stream_length(stream)
        self._packing = packing
        self._next = carry.depth
        self._bad: set[int] = set()
        self._ended = False

    def depths_to_read_again(self) -> NDArray[np.int64]:
        """Return the depths of the documents that must be read again before any other document."""
        return np.array(self.carry.depths_to_read_again, np.int64)

    def start_packing(self, _depths: NDArray[np.int64], ids: NDArray[np.int64], documents: list[Any]) -> None:
        """Start packing at the position of the carry, with the documents that were read again."""
        tokens = self._tokens(ids, documents)
        self._packer = make_packer(self._packing, self.carry, ids=ids.tolist(), documents=tokens)

    def depths_for_rows(self, rows: int, mean: float) -> NDArray[np.int64]:
        """Return the depths of the documents to read next, about as many as fill ``rows`` rows.

        ``mean`` is the mean number of tokens of a document. If no document is left, flush the packer and return
        nothing.
        """
        missing = rows - len(self.ready)
        if missing <= 0 or self._ended:
            return np.empty(0, np.int64)
        if self._next == self._length:
            self._ended = True
            self.ready += self._packer.flush_rows()
            return np.empty(0, np.int64)
        many = int(np.clip(missing * self._packing.length / max(mean, 1.0) + 1, 8, _MOST_DOCUMENTS))
        depths = np.arange(self._next, min(self._next + many, self._length))
        self._next = int(depths[-1]) + 1
        return depths

    def push_documents(self, depths: NDArray[np.int64], ids: NDArray[np.int64], documents: list[Any]) -> None:
        self.ready += self._packer.push_documents(depths.tolist(), ids.tolist(), self._tokens(ids, documents))

    def take_rows(self, row_count: int) -> list[tuple[PackedRow, int]]:
        """Return the next ``row_count`` rows, fewer at the end, each with the number of unusable samples that end in
        it.
        """
        taken = []
        for _ in range(min(row_count, len(self.ready))):
            row = self.ready.popleft()
            unusable = self._bad.intersection(row.ids.tolist()) if self._bad else set()
            self._bad -= unusable
            self.carry = row.carry
            taken.append((row, len(unusable)))
        if self._ended and not self.ready:
            self.carry = RowCarry(self._length)
        return taken

    def _tokens(self, ids: NDArray[np.int64], documents: list[Any]) -> list[Any]:
        self._bad |= {
            int(one)
            for one, document in zip(ids, documents, strict=True)
            if isinstance(document, BadSample) and not document.filtered
        }
        return [_NONE if isinstance(document, BadSample) else document for document in documents]


class _DocumentReader:
    """Reads documents of several streams at once, and applies their transforms."""

    def __init__(self, epoch: int, work: TokenWork) -> None:
        self._epoch, self._work = epoch, work
        self._documents, self._tokens = 1, work.packing.length // 8

    def fill_streams(self, streams: Sequence[_PackedStream], rows: int) -> None:
        """Read documents until every stream has ``rows`` rows, or all rows that it can have."""
        while True:
            mean = self._tokens / self._documents
            wanted = [(stream, stream.depths_for_rows(rows, mean)) for stream in streams]
            some = [(stream, depths) for stream, depths in wanted if len(depths)]
            if not some:
                return
            self.fetch_documents(
                [stream for stream, _ in some], [depths for _, depths in some], _PackedStream.push_documents
            )

    def fetch_documents(
        self,
        streams: Sequence[_PackedStream],
        depths: Sequence[NDArray[np.int64]],
        push: Callable[[_PackedStream, NDArray[np.int64], NDArray[np.int64], list[Any]], None],
    ) -> None:
        """Read the documents at these depths of each stream, and pass them to ``push`` with their stream."""
        for stream, some in zip(streams, depths, strict=True):
            stream.reader.prefetch_blocks(some)
        found = join_samples([stream.reader.locate_samples(some) for stream, some in zip(streams, depths, strict=True)])
        done = iter(
            self._transformed(SampleDecoder(found.blocks).decode_samples(found.keys, found.positions), found.ids)
        )
        ends = np.cumsum([len(some) for some in depths])
        for stream, some, ids in zip(streams, depths, np.split(found.ids, ends[:-1]), strict=True):
            push(stream, some, ids, list(islice(done, len(some))))

    def _transformed(self, samples: Sequence[Any], ids: NDArray[np.int64]) -> list[Any]:
        parts = submit_samples(self._work.submit, samples, ids, self._epoch, workers=self._work.workers)
        found = [
            _tokens_of_sample(sample, self._work.column, int(one))
            for sample, one in zip((one for part in parts for one in part.result()), ids, strict=True)
        ]
        self._documents += len(found)
        self._tokens += sum(len(one) for one in found if not isinstance(one, BadSample))
        return found


def _tokens_of_sample(sample: Any, column: str, one: int) -> Any:
    """Return a sample's tokens; a BadSample unchanged. Raises DataError if there are no tokens in ``column``."""
    if isinstance(sample, BadSample | np.ndarray):
        return sample
    if isinstance(sample, dict) and isinstance(sample.get(column), np.ndarray):
        return sample[column]
    found = f"the columns {sorted(sample)}" if isinstance(sample, dict) else f"a {type(sample).__name__}"
    raise DataError(
        f"sample {one} cannot be packed: expected an array of tokens in column {column!r}, found {found}.",
        sample=one,
        remedy="Tokenize before .pack (.map(tokenizer(...))), or name the column (.pack(..., column=...)).",
    )


def _take_batch(
    plan: SamplePlan,
    rows: Sequence[int],
    step: int,
    owned: Mapping[int, tuple[int, ...]],
    streams: Mapping[int, _PackedStream],
    packing: PackingOptions,
) -> CountedPackedBatch:
    """Take the rows of one step from the streams, and return the batch."""
    shape = (len(rows), packing.length)
    tokens, segments, positions = (np.full(shape, fill, np.int32) for fill in (packing.pad_id, 0, 0))
    mask = np.zeros(len(rows), np.bool_)
    ids, bad = [np.empty(0, np.int64)] * len(rows), [0] * len(rows)
    at = 0
    for number, offsets in owned.items():
        taken = streams[number].take_rows(plan.layout.depth_of_step)
        for offset in offsets:
            if offset < len(taken):
                row, bad[at] = taken[offset]
                tokens[at], segments[at], positions[at] = row.tokens, row.segment_ids, row.positions
                mask[at], ids[at] = row.padding < packing.length, row.ids
            at += 1
    columns: dict[str, Column] = {"tokens": tokens, "segment_ids": segments, "positions": positions}
    batch = Batch(columns, mask, np.concatenate(ids), rows, plan.epoch, step, plan.layout.global_batch)
    return CountedPackedBatch(
        batch, tuple(ids), tuple(bad), {number: stream.carry for number, stream in streams.items()}
    )
