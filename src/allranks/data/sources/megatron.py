"""Read the .idx file that Megatron writes beside a .bin file of tokens: its type of tokens, and its documents."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.data.sources.file import FileBytes
from allranks.data.sources.token_file import MEGATRON_MAGIC, TokenLayout, token_file_error

_HEAD = struct.Struct("<QBQQ")  # version, type, sequences, documents + 1
_BEGIN = len(MEGATRON_MAGIC) + _HEAD.size
_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_AT_ONCE = 1 << 20  # sequences that are checked at a time


@dataclass(frozen=True, slots=True)
class MegatronIndex:
    """An .idx file: ``sequences`` sequences of tokens in ``tokens``, and ``documents`` documents of these sequences."""

    file: FileBytes
    tokens: TokenLayout
    sequences: int
    documents: int

    @property
    def _documents_at(self) -> int:
        return _BEGIN + 12 * self.sequences

    def document_bounds(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the first token of documents ``begin`` to ``end``, and then the end of the last one.

        Raises DataError unless the documents are stored one after the other, inside of the file.
        """
        numbers = self._read("<i8", self._documents_at, begin, end + 1)
        first, last = int(numbers[0]), int(numbers[-1])
        if not first >= 0 or last > self.sequences or (np.diff(numbers) < 0).any():
            raise self._error(self._documents_at + 8 * begin, f"documents {begin:,} to {end:,} do not ascend")
        bounds = self._sequence_bounds(first, last)
        found: NDArray[np.int64] = bounds[numbers - first]
        return found

    def check(self) -> None:
        """Raise DataError unless every sequence is where the one before ends, and the last ends with the file.

        The documents must have all sequences: others would never be read.
        """
        end = 0
        for at in range(0, self.sequences, _AT_ONCE):
            bounds = self._sequence_bounds(at, min(at + _AT_ONCE, self.sequences))
            if bounds[0] != end:
                raise self._error(
                    _BEGIN + 4 * self.sequences + 8 * at, f"sequence {at:,} does not follow the one before"
                )
            end = int(bounds[-1])
        first, last = (int(self._read("<i8", self._documents_at, at, at + 1)[0]) for at in (0, self.documents))
        if (first, last) != (0, self.sequences):
            why = f"its documents are of sequences {first:,} to {last:,}: expected 0 to {self.sequences:,}"
            raise self._error(self._documents_at, why)
        if end != self.tokens.count:
            raise self._error(_BEGIN, f"its sequences have {end:,} tokens, and the .bin file {self.tokens.count:,}")

    def _sequence_bounds(self, begin: int, end: int) -> NDArray[np.int64]:
        if begin == end:
            return np.zeros(1, np.int64)
        sizes = self._read("<i4", _BEGIN, begin, end).astype(np.int64)
        places, odd = np.divmod(self._read("<i8", _BEGIN + 4 * self.sequences, begin, end), self.tokens.dtype.itemsize)
        bounds = np.concatenate([places, places[-1:] + sizes[-1:]])
        wrong = (sizes < 0) | (odd != 0) | (np.diff(bounds) != sizes) | (places < 0) | (bounds[1:] > self.tokens.count)
        if wrong.any():
            at = begin + int(wrong.argmax())
            raise self._error(_BEGIN + 4 * at, f"sequence {at:,} is not where the one before ends, or not in the .bin")
        return bounds

    def _read(self, kind: str, base: int, begin: int, end: int) -> NDArray[np.int64]:
        width = np.dtype(kind).itemsize
        return np.frombuffer(self.file.read(base + begin * width, (end - begin) * width), kind)

    def _error(self, at: int, why: str) -> Exception:
        return token_file_error(self.file, at, why)


def open_megatron_index(index: FileBytes, file: FileBytes) -> MegatronIndex:
    """Return the index of a .bin file. Raises DataError if the .idx file is cut off, or not of Megatron."""
    head = index.read(0, min(_BEGIN, index.nbytes))
    if not head.startswith(MEGATRON_MAGIC) or len(head) < _BEGIN:
        raise token_file_error(index, 0, "it does not begin as an .idx file of Megatron")
    version, kind, sequences, bounds = _HEAD.unpack_from(head, len(MEGATRON_MAGIC))
    if version != 1 or kind not in _TYPES:
        raise token_file_error(
            index, len(MEGATRON_MAGIC), f"version {version}, type {kind}: expected version 1 and integers"
        )
    # Files of several modalities also have a byte for each sequence.
    if not bounds or index.nbytes not in (size := _BEGIN + 12 * sequences + 8 * bounds, size + sequences):
        raise token_file_error(index, 18, f"{sequences:,} sequences and {bounds:,} bounds of documents do not fit")
    dtype = np.dtype(_TYPES[kind]).newbyteorder("<")
    if file.nbytes % dtype.itemsize:
        raise token_file_error(file, file.nbytes, f"the file ends in the middle of a token of {dtype.itemsize} bytes")
    return MegatronIndex(index, TokenLayout(dtype, 0, file.nbytes // dtype.itemsize), sequences, bounds - 1)
