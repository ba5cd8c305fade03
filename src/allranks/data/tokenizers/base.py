"""Define the transforms that replace text by tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allranks.data.sample_columns import SampleColumns
from allranks.errors import DataError

Tokens = NDArray[np.int32]
Encode = Callable[[Sequence[str]], Sequence[Tokens]]


@dataclass(frozen=True, slots=True)
class TokenizeSamples:
    """A function for ``Dataset.map`` that replaces text by tokens.

    In a dict it replaces ``column`` by ``into``; for a str it returns a dict with ``into``. It is ``batched``: it
    accepts a list of samples, too. Raises DataError if a sample has no text.
    """

    encode: Encode
    column: str
    into: str
    keep: bool
    batched: ClassVar[bool] = True

    def __call__(self, samples: Any) -> Any:
        if not isinstance(samples, list | SampleColumns):
            return self([samples])[0]
        tokens = self.encode([self._text(sample) for sample in samples])
        return [{**self._rest(sample), self.into: one} for sample, one in zip(samples, tokens, strict=True)]

    def _text(self, sample: Any) -> str:
        found = sample.get(self.column) if isinstance(sample, Mapping) else sample
        if isinstance(found, str):
            return found
        columns = f"; it has {', '.join(map(str, sample))}" if isinstance(sample, Mapping) else ""
        raise DataError(
            f"expected text in column {self.column!r}, found {type(found).__name__}{columns}.",
            remedy="Name the column: tokenizer(..., column=...).",
        )

    def _rest(self, sample: Any) -> dict[str, Any]:
        if not isinstance(sample, Mapping):
            return {self.column: sample} if self.keep else {}
        return {key: value for key, value in sample.items() if self.keep or key != self.column}


def encode_utf8(texts: Sequence[str]) -> list[Tokens]:
    """Return the UTF-8 bytes of each text as tokens: 256 tokens can encode any text, including lone surrogates."""
    return [np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32) for text in texts]


@dataclass(frozen=True, slots=True)
class EncodeEach:
    """Encodes texts one by one; ``ids_of(text)`` returns ids, or a mapping with ``input_ids`` as transformers does."""

    ids_of: Callable[[str], Any]

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        return [_token_array(self.ids_of(text)) for text in texts]


def _token_array(found: Any) -> Tokens:
    ids = np.asarray(found["input_ids"] if isinstance(found, Mapping) else found)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise DataError(f"the tokenizer returned {ids.dtype} of shape {ids.shape}; expected a list of integers.")
    return ids.astype(np.int32, copy=False)
