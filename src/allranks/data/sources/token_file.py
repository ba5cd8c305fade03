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


def find_tokens(file: FileBytes, dtype: str | None) -> TokenLayout:
    """Return where the tokens of a file are. ``dtype`` is that of a flat file; None for uint16.

    Raises DataError if the file is cut off, or if its header does not fit.
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
    if dtype is None and len(head) > 64 and not np.frombuffer(head[: len(head) // 4 * 4], "<u2")[1::2].any():
        raise token_file_error(
            file, 0, "every second number is 0, so its tokens may be uint32", 'Pass dtype="uint32", or dtype="uint16".'
        )
    if file.nbytes % kind.itemsize:
        raise token_file_error(file, file.nbytes, f"the file ends in the middle of a token of {kind.itemsize} bytes")
    return TokenLayout(kind, 0, file.nbytes // kind.itemsize)


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
        raise token_file_error(file, 0, f"it holds {kind}{list(shape)}, and not one dimension of integers")
    offset = head.tell()
    if shape[0] < 0 or file.nbytes != offset + shape[0] * kind.itemsize:
        raise token_file_error(
            file, 0, f"the header counts {shape[0]:,} tokens, which need {offset + shape[0] * kind.itemsize:,} bytes"
        )
    return TokenLayout(kind, offset, shape[0])


def token_file_error(file: FileBytes, at: int, why: str, *remedy: str) -> DataError:
    """Return the error for a file that is not a complete file of tokens."""
    return incomplete_file_error(file, "file of tokens", at, why, *remedy)
