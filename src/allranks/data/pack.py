"""Pack the token sequences (documents) of one stream into rows of a fixed length.

The rows of a stream depend only on its documents, in the order of their depths. How many documents are pushed at once
does not matter. There are two methods:

- ``split``: the documents one after the other, cut when a row is full. Only the last row has padding.
- ``best-fit``: complete documents, each in the open row with the least space in which it fits. A row is finished when
  it is full. If a new row is needed and ``open_rows`` are open, the fullest row is finished. First-fit leaves more
  padding, and its search is slower.

A document's piece in a row is a segment. Segments are numbered from 1 in each row; the number is 0 for padding.
Positions count from 0 in each segment, also if a document continues in the next row. So attention does not reach back
over the start of a row, and no position exceeds a model's ``length``. Padding has position 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_choice, check_number
from allranks.data.index import DECODE_ERRORS
from allranks.errors import DataError

Method = Literal["split", "best-fit"]
Long = Literal["split", "truncate"]
Tokens = NDArray[np.int32]
_LARGEST_TOKEN = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PackingOptions:
    """How documents become rows of ``length`` tokens.

    ``eos_id`` ends every document that has a token. A document longer than a row is split. With best-fit and
    ``long="truncate"`` it is cut to one row instead, without eos_id.
    """

    length: int
    method: Method = "split"
    pad_id: int = 0
    eos_id: int | None = None
    long: Long = "split"
    open_rows: int = 16

    def __post_init__(self) -> None:
        check_number("length", self.length, "the tokens of a row", least=1, most=_LARGEST_TOKEN)
        check_number("open_rows", self.open_rows, "a number of rows", least=1)
        for name, token in (("pad_id", self.pad_id), ("eos_id", 0 if self.eos_id is None else self.eos_id)):
            check_number(name, token, "a token", least=-_LARGEST_TOKEN, most=_LARGEST_TOKEN)
        for name, value, known in (
            ("method", self.method, ("split", "best-fit")),
            ("long", self.long, ("split", "truncate")),
        ):
            check_choice(name, value, known)
        if self.method == "split" and self.long == "truncate":
            raise DataError(
                'long="truncate" works only with method="best-fit".',
                remedy='method="split" splits every document that is too long.',
            )


@dataclass(frozen=True, slots=True)
class RowCarry:
    """The state of the packing between two rows, which is stored in a checkpoint.

    - ``depth``: the depth of the next document to push; ``offset``: how many of its tokens are in earlier rows.
    - ``open``: for each open row, the depths of its documents, which must be read again.
    - ``skip``: how many of the rows that follow were taken already.
    """

    depth: int = 0
    offset: int = 0
    open: tuple[tuple[int, ...], ...] = ()
    skip: int = 0

    @property
    def depths_to_read_again(self) -> list[int]:
        """The depths of the documents to read again, in ascending order."""
        return sorted(depth for row in self.open for depth in row)

    def to_json(self) -> list[Any]:
        return [self.depth, self.offset, [list(row) for row in self.open], self.skip]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> RowCarry:
        """Decode the result of ``to_json``. Raises DataError for any other value."""
        try:
            depth, offset, rows, skip = value
            carry = cls(int(depth), int(offset), tuple(tuple(map(int, row)) for row in rows), int(skip))
            numbers = [carry.depth, carry.offset, carry.skip, *carry.depths_to_read_again]
            if min(numbers) < 0 or max(numbers) >> 62:
                raise ValueError("expected numbers of at least 0")
        except DECODE_ERRORS as error:
            raise DataError(f"{value!r:.200} is not a state of a packing: {error}.") from error
        return carry


@dataclass(frozen=True, slots=True, eq=False)
class PackedRow:
    """A packed row; ``tokens``, ``segment_ids`` and ``positions`` have the packing's length.

    ``ids`` are those of the samples that end in the row, so that each sample is counted once. ``padding`` is the number
    of positions without a token. ``carry`` is the state of the packing after the row.
    """

    tokens: Tokens
    segment_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    ids: NDArray[np.int64]
    padding: int
    carry: RowCarry


class DocumentPacker(Protocol):
    """Packs the documents of one stream into rows."""

    def push_documents(self, depths: Sequence[int], ids: Sequence[int], documents: Sequence[Tokens]) -> list[PackedRow]:
        """Add documents at the next depths, in order; return the rows that these complete.

        A masked sample is pushed as a document without tokens, so that only its id is in some row. It is far cheaper to
        push some hundreds at once. Raises DataError for a document that is not an array of integers.
        """

    def flush_rows(self) -> list[PackedRow]:
        """Return the remaining rows, padded, at the end of the stream."""


def make_packer(
    packing: PackingOptions,
    carry: RowCarry = RowCarry(),
    *,
    ids: Sequence[int] = (),
    documents: Sequence[Tokens] = (),
) -> DocumentPacker:
    """Return a packer that continues at ``carry``. Then push the documents from ``carry.depth`` on.

    ``documents`` are those at the depths ``carry.depths_to_read_again``, and ``ids`` are their ids.
    """
    if packing.method == "split":
        return _Splitter(packing, carry)
    again = dict(zip(carry.depths_to_read_again, zip(ids, documents, strict=True), strict=True))
    return _Fitter(packing, carry, again)


class _Splitter:
    """The packer for ``split``.

    It holds the tokens of the row that is not full. For each document that has not ended in an earlier row, it holds a
    column (depth, id, begin, end) of a table.
    """

    def __init__(self, packing: PackingOptions, carry: RowCarry) -> None:
        self._packing, self._next, self._offset = packing, carry.depth, carry.offset
        self._tokens: Tokens = np.empty(0, np.int32)
        self._table = np.empty((4, 0), np.int64)

    def push_documents(self, depths: Sequence[int], ids: Sequence[int], documents: Sequence[Tokens]) -> list[PackedRow]:
        if not len(documents):
            return []
        tokens, ends = _join_documents(self._packing, documents, ids)
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        shift = len(self._tokens) - self._offset
        if self._offset > ends[0]:
            raise DataError(f"sample {ids[0]} has {ends[0]} tokens now, and had more than {self._offset} before.")
        table = np.stack([np.asarray(depths, np.int64), np.asarray(ids, np.int64), begins + shift, ends + shift])
        self._table = np.concatenate([self._table, table], axis=1)
        self._tokens = np.concatenate([self._tokens, tokens[self._offset :]])
        self._next, self._offset = int(depths[-1]) + 1, 0
        return self._take_rows(len(self._tokens) // self._packing.length)

    def flush_rows(self) -> list[PackedRow]:
        if not self._table.size:
            return []
        fill, length = len(self._tokens), self._packing.length
        self._tokens = np.pad(self._tokens, (0, length - fill), constant_values=self._packing.pad_id)
        return self._take_rows(1, fill)

    def _take_rows(self, many: int, fill: int | None = None) -> list[PackedRow]:
        """Remove and return the first ``many`` complete rows; with ``fill``, the last row, which has only that many
        tokens.
        """
        if not many:
            return []
        length = self._packing.length
        depths, ids, begins, ends = self._table
        cuts = np.arange(1, many + 1) * length
        # A document without tokens is in the row where it would begin.
        done = np.searchsorted(np.maximum(ends, begins + 1), cuts, side="right")
        tokens, self._tokens = self._tokens[: cuts[-1]].reshape(many, length), self._tokens[cuts[-1] :].copy()
        fills = np.full(many, length if fill is None else fill)
        starts = begins[(ends > begins) & (begins >= 0) & (begins < cuts[-1])]
        segments, positions = _segments_and_positions(starts, fills, length)
        carries = [
            RowCarry(int(depths[at]), max(0, int(cut - begins[at]))) if at < len(depths) else RowCarry(self._next)
            for at, cut in zip(done.tolist(), cuts.tolist(), strict=True)
        ]
        ends_here = np.split(ids, done)
        self._table = self._table[:, done[-1] :] - np.array([[0], [0], [cuts[-1]], [cuts[-1]]])
        rows = zip(tokens, segments, positions, ends_here, (length - fills).tolist(), carries, strict=False)
        return [PackedRow(*row) for row in rows]


@dataclass(slots=True, eq=False)
class _OpenRow:
    """A row that is not finished: more documents may be added."""

    tokens: Tokens
    fill: int = 0
    starts: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def add_document(self, depth: int, name: int, tokens: Tokens) -> None:
        end = self.fill + len(tokens)
        self.tokens[self.fill : end] = tokens
        if len(tokens):
            self.starts.append(self.fill)
        self.depths.append(depth)
        self.ids.append(name)
        self.fill = end


class _Fitter:
    """The packer for ``best-fit``: the open rows, the fullest first, and the free space of each."""

    def __init__(self, packing: PackingOptions, carry: RowCarry, again: dict[int, tuple[int, Tokens]]) -> None:
        self._packing, self._next, self._skip = packing, carry.depth, carry.skip
        self._open: list[_OpenRow] = []
        for depths in carry.open:
            row = self._open_new_row()
            for depth in depths:
                name, document = again[depth]
                row.add_document(depth, name, self._split_document(_join_documents(packing, [document], [name])[0])[-1])
            self._open.append(row)
        self._space = [packing.length - row.fill for row in self._open]

    def push_documents(self, depths: Sequence[int], ids: Sequence[int], documents: Sequence[Tokens]) -> list[PackedRow]:
        if not len(documents):
            return []
        tokens, ends = _join_documents(self._packing, documents, ids)
        done: list[_OpenRow] = []
        before, begin = self._make_carry(), 0
        for depth, name, end in zip(_as_ints(depths), _as_ints(ids), ends.tolist(), strict=True):
            self._place_document(depth, name, tokens[begin:end], done)
            begin = end
        self._next = int(depths[-1]) + 1
        return self._make_packed_rows(done, before)

    def flush_rows(self) -> list[PackedRow]:
        before, done = self._make_carry(), self._open
        self._open, self._space = [], []
        return self._make_packed_rows(done, before)

    def _make_carry(self) -> RowCarry:
        return RowCarry(self._next, open=tuple(tuple(row.depths) for row in self._open))

    def _open_new_row(self) -> _OpenRow:
        return _OpenRow(np.full(self._packing.length, self._packing.pad_id, np.int32))

    def _split_document(self, tokens: Tokens) -> list[Tokens]:
        """Return a document as pieces for rows: those that fill a row, and the rest."""
        length = self._packing.length
        if len(tokens) <= length:
            return [tokens]
        if self._packing.long == "truncate":
            return [tokens[:length]]
        return [tokens[begin : begin + length] for begin in range(0, len(tokens), length)]

    def _place_document(self, depth: int, name: int, tokens: Tokens, done: list[_OpenRow]) -> None:
        """Put a document into the row in which it leaves the least space; append the finished rows to ``done``."""
        if len(tokens) > self._packing.length:
            *whole, tokens = self._split_document(tokens)
            done += [_OpenRow(piece.copy(), len(piece), [0]) for piece in whole]
        at = bisect_left(self._space, len(tokens))
        if at < len(self._space):
            row, space = self._open.pop(at), self._space.pop(at)
        else:
            if len(self._open) == self._packing.open_rows:
                del self._space[0]
                done.append(self._open.pop(0))
            row, space = self._open_new_row(), self._packing.length
        row.add_document(depth, name, tokens)
        space -= len(tokens)
        if not space:
            done.append(row)
            return
        at = bisect_left(self._space, space)
        self._open.insert(at, row)
        self._space.insert(at, space)

    def _make_packed_rows(self, rows: list[_OpenRow], before: RowCarry) -> list[PackedRow]:
        if not rows:
            return []
        length, skip = self._packing.length, min(self._skip, len(rows))
        fills = np.fromiter((row.fill for row in rows), np.int64, len(rows))
        starts = np.array([at * length + start for at, row in enumerate(rows) for start in row.starts], np.int64)
        segments, positions = _segments_and_positions(starts, fills, length)
        self._skip -= skip
        return [
            PackedRow(
                row.tokens,
                segments[at],
                positions[at],
                np.array(row.ids, np.int64),
                length - row.fill,
                RowCarry(before.depth, open=before.open, skip=at + 1),
            )
            for at, row in enumerate(rows)
        ][skip:]


def _as_ints(values: Iterable[int]) -> list[int]:
    return np.asarray(values).tolist()  # type: ignore[no-any-return]


def _join_documents(
    packing: PackingOptions, documents: Sequence[Tokens], ids: Sequence[int]
) -> tuple[Tokens, NDArray[np.int64]]:
    """Return the tokens of all documents in one array, including eos_id, and the end of each document in it."""
    try:
        _refuse_wide_tokens(documents, ids)
        tokens = np.concatenate(documents, dtype=np.int32, casting="same_kind")
        sizes = np.fromiter(map(len, documents), np.int64, len(documents))
    except (TypeError, ValueError, AttributeError) as error:
        raise _no_tokens(documents, ids) from error
    if tokens.shape != (sizes.sum(),):
        raise _no_tokens(documents, ids)
    if packing.eos_id is not None:
        tokens = np.insert(tokens, np.cumsum(sizes)[sizes > 0], packing.eos_id)
        sizes += sizes > 0
    return tokens, np.cumsum(sizes)


def _refuse_wide_tokens(documents: Sequence[Tokens], ids: Sequence[int]) -> None:
    """Raise DataError for a token that does not fit int32, because a cast would change it."""
    for dtype in {one.dtype for one in documents}:
        if dtype.kind not in "iu" or np.can_cast(dtype, np.int32):
            continue
        same = [(one, name) for one, name in zip(documents, ids, strict=True) if one.dtype == dtype and one.size]
        tokens = np.concatenate([one for one, _ in same]) if same else np.zeros(1, dtype)
        low, high = int(tokens.min()), int(tokens.max())
        if low < -_LARGEST_TOKEN or high > _LARGEST_TOKEN:
            odd = high if high > _LARGEST_TOKEN else low
            name = next(name for one, name in same if (one == odd).any())
            raise DataError(
                f"sample {name} has the token {odd}: expected tokens that fit int32.",
                sample=int(name),
                remedy="Does the tokenizer return ids? Packed rows hold int32.",
            )


def _no_tokens(documents: Sequence[Any], ids: Sequence[int]) -> DataError:
    """Return the error that names the first document that is not a sequence of tokens."""
    told = [(int(name), np.asarray(document)) for name, document in zip(ids, documents, strict=True)]
    name, found = next(((name, one) for name, one in told if one.ndim != 1 or one.dtype.kind not in "iu"), told[0])
    return DataError(
        f"the tokens of sample {name} are an array of {found.dtype} with the shape {found.shape}.",
        sample=name,
        remedy="Expected a one-dimensional array of integers.",
    )


def _segments_and_positions(
    starts: NDArray[np.int64], fills: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return segment_ids and positions of rows.

    ``fills`` is the number of tokens of each row; ``starts`` are the starts of documents, counted over all rows.
    """
    many = len(fills)
    firsts = np.arange(many) * length
    pads = (firsts + fills)[fills < length]
    every = np.unique(np.concatenate([starts, firsts, pads]))
    sizes = np.diff(every, append=many * length)
    numbers = np.arange(1, len(every) + 1) - np.searchsorted(every, firsts)[every // length]
    numbers[np.searchsorted(every, pads)] = 0
    segments = np.repeat(numbers.astype(np.int32), sizes)
    positions = np.arange(many * length, dtype=np.int32) - np.repeat(every.astype(np.int32), sizes)
    positions[segments == 0] = 0
    return segments.reshape(many, length), positions.reshape(many, length)
