"""Encode texts with Hugging Face's `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from allranks.data.tokenizers.base import Tokens
from allranks.errors import DataError


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """Encodes many texts in one call, on all cores; in worker processes on one core."""

    tokenizer: Tokenizer
    add_special_tokens: bool

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        found = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=self.add_special_tokens)
        return [np.array(one.ids, np.int32) for one in found]


def read_tokenizer(path: str) -> Tokenizer:
    """Return the tokenizer from a tokenizer.json. Raises DataError for any other file."""
    try:
        return Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{path} is not a tokenizer.json: {error}.", path=path) from error


def disable_padding(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer without padding, because padding depends on which texts are encoded together."""
    if tokenizer.padding is None:
        return tokenizer
    own: Tokenizer = Tokenizer.from_str(tokenizer.to_str())
    own.no_padding()
    return own
