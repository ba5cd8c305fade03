"""Find the tokens in a file: flat binary files (nanoGPT, llm.c), .npy, and the .bin of Megatron with its .idx."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.data.sources.file import FileBytes, incomplete_file_error
from allranks.errors import DataError
from allranks.failure import one_line, text_of

SUFFIXES = (".bin", ".npy")
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = 256 * 4  # of llm.c: 256 int32
_NPY_HEAD = 1 << 14
_LLM_C = {(20240520, 1): "uint16", (20240801, 7): "uint32"}  # magic number and version
_MAGICS = frozenset(magic for magic, _ in _LLM_C)
_PEEK = 1 << 12  # bytes in which a flat file shows whether its tokens may be wider than uint16
_LEAST_PEEK = 64  # bytes below which nothing is concluded
_UPPER_HALVES = 16  # above the upper half of a uint32 token: vocabularies of up to 2**20 tokens


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """Where the tokens of a file are: ``count`` numbers of type ``dtype``, from byte ``offset`` on."""

    dtype: np.dtype[np.integer]
    offset: int
    count: int

    def read(self, file: FileBytes, begin: int, end: int) -> NDArray[np.integer]:
        """Return the tokens ``begin`` to ``end`` of the file."""
        width = self.dtype.itemsize
        return np.frombuffer(file.read(self.offset + begin * width, (end - begin) * width), self.dtype)


def find_tokens(file: FileBytes, dtype: str | None, vocab_size: int | None) -> TokenLayout:
    """Return where the tokens of a file are. ``dtype`` is that of a flat file; None for uint16.

    Raises DataError if the file is cut off, or if its header does not fit. Without ``dtype``, raises DataError for a
    flat file whose tokens may be wider than uint16, or whose ``vocab_size`` needs a wider type.
    """
    if file.name.endswith(".npy"):
        return _find_in_npy(file)
    head = file.read(0, min(_PEEK, file.nbytes))
    if head.startswith(MEGATRON_MAGIC):
        raise token_file_error(file, 0, "this is an index of Megatron", "Give the .bin file that is beside it.")
    words = np.frombuffer(head[:12], "<i4").tolist() if len(head) >= 12 else [0]
    if words[0] in _MAGICS:
        return _find_behind_header(file, words)
    kind = np.dtype(dtype or "uint16").newbyteorder("<")
    if dtype is None:
        _check_uint16(file, head, vocab_size)
    if file.nbytes % kind.itemsize:
        raise token_file_error(file, file.nbytes, f"the file ends in the middle of a token of {kind.itemsize} bytes")
    return TokenLayout(kind, 0, file.nbytes // kind.itemsize)


def _check_uint16(file: FileBytes, head: bytes, vocab_size: int | None) -> None:
    """Raise DataError if the tokens of a flat file of unknown type may be wider than uint16."""
    remedy = 'Pass dtype="uint32" if the file was written so, or else dtype="uint16".'
    if vocab_size is not None and vocab_size > 1 << 16:
        raise DataError(
            f"{file.path} has no header, so its tokens are read as uint16: expected a type that holds the tokens of "
            f"vocab_size={vocab_size:,}, found one that ends at 65,535.",
            path=file.path,
            remedy=remedy,
        )
    if len(head) > _LEAST_PEEK and _may_be_uint32(np.frombuffer(head[: len(head) // 4 * 4], "<u2")):
        why = f"every second number is below {_UPPER_HALVES}, so its tokens may be uint32"
        raise token_file_error(file, 0, why, remedy)


def _may_be_uint32(numbers: NDArray[np.uint16]) -> bool:
    """Return whether numbers look like the lower and upper halves of uint32 tokens, of at most 2**20 tokens.

    Upper halves are small, and some are 0. Lower halves reach much higher numbers. In a text of uint16 tokens, about
    one token of five is below 16 (punctuation), so 17 of 17 are by a chance of 10^-12. A vocabulary of a few characters
    has no numbers that are high enough.
    """
    lower, upper = numbers[::2], numbers[1::2]
    most = int(upper.max())
    return most < _UPPER_HALVES and not upper.all() and int(lower.max()) >= 256 * most


def _find_behind_header(file: FileBytes, words: list[int]) -> TokenLayout:
    magic, version, count = words
    if (magic, version) not in _LLM_C:
        raise token_file_error(file, 4, f"version {version} of a file with the number {magic}: expected a known one")
    kind = np.dtype(_LLM_C[magic, version]).newbyteorder("<")
    if count < 0 or file.nbytes != _HEADER + count * kind.itemsize:
        raise token_file_error(
            file, 8, f"the header counts {count:,} tokens, which need {_HEADER + count * kind.itemsize:,} bytes"
        )
    return TokenLayout(kind, _HEADER, count)


def _find_in_npy(file: FileBytes) -> TokenLayout:
    head = io.BytesIO(file.read(0, min(_NPY_HEAD, file.nbytes)))
    try:
        version = np.lib.format.read_magic(head)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(head)
    except Exception as error:  # NumPy raises many kinds for damaged headers
        raise token_file_error(file, 0, f"it has no header of NumPy ({one_line(text_of(error)):.200})") from error
    if len(shape) != 1 or kind.kind not in "iu":
        why = f"it holds {kind}{list(shape)}, and not one dimension of integers"
        raise token_file_error(
            file, 0, why, "Write one row of integers: np.save(path, tokens.astype(np.uint32).ravel())."
        )
    offset = head.tell()
    if shape[0] < 0 or file.nbytes != offset + shape[0] * kind.itemsize:
        raise token_file_error(
            file, 0, f"the header counts {shape[0]:,} tokens, which need {offset + shape[0] * kind.itemsize:,} bytes"
        )
    return TokenLayout(kind, offset, shape[0])


def token_file_error(file: FileBytes, at: int, why: str, *remedy: str) -> DataError:
    """Return the error for a file that is not a complete file of tokens."""
    return incomplete_file_error(file, "file of tokens", at, why, *remedy)
