"""Turn text into tokens, with the tokenizer that an argument means; a library is imported only for its own file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allranks.errors import DataError

Tokens = NDArray[np.int32]
Encode = Callable[[Sequence[str]], Sequence[Tokens]]


@dataclass(frozen=True, slots=True)
class Tokenize:
    """A function for ``Map``: in a dict it replaces ``column`` by ``into``, of a str it makes a dict with ``into``.

    Takes a list of samples, too, and is ``batched``. Raises DataError where a sample has no text.
    """

    encode: Encode
    column: str
    into: str
    keep: bool
    batched: ClassVar[bool] = True

    def __call__(self, samples: Any) -> Any:
        if not isinstance(samples, list):
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


def utf8(texts: Sequence[str]) -> list[Tokens]:
    """Return the UTF-8 bytes of texts: 256 tokens, which can encode any text (lone surrogates pass)."""
    return [np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32) for text in texts]


@dataclass(frozen=True, slots=True)
class Each:
    """Encodes by a function of one text, which returns ids, or a mapping with ``input_ids`` as transformers do."""

    ids_of: Callable[[str], Any]

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        return [_tokens(self.ids_of(text)) for text in texts]


def _tokens(found: Any) -> Tokens:
    ids = np.asarray(found["input_ids"] if isinstance(found, Mapping) else found)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise DataError(f"the tokenizer returned {ids.dtype} of shape {ids.shape}; expected a list of integers.")
    return ids.astype(np.int32, copy=False)


_KNOWN = (
    'Give "bytes", a tokenizer.json (or the folder that has it), a tokenizers.Tokenizer, a tiktoken encoding, or a '
    "function from text to ids."
)


def tokenizer(
    which: Any, *, column: str = "text", into: str = "tokens", keep: bool = False, add_special_tokens: bool = True
) -> Tokenize:
    """Return a function for ``map`` that replaces a text by its tokens, an int32 array.

    ``which``: "bytes" (UTF-8), the path of a tokenizer.json or of its folder, a ``tokenizers.Tokenizer`` (or a
    transformers tokenizer that has one), a tiktoken encoding (special tokens in the text are text to it), or any
    function from a text to ids. Nothing is downloaded. ``keep`` keeps the text, too. ``add_special_tokens`` is for
    Hugging Face's: the tokens that the tokenizer adds at both ends; its padding is switched off.
    """
    return Tokenize(_encode(which, add_special_tokens), column, into, keep)


def _encode(which: Any, add_special_tokens: bool) -> Encode:
    if isinstance(which, str | os.PathLike):
        return utf8 if which == "bytes" else _hugging_face(_path(which), add_special_tokens)
    which = getattr(which, "backend_tokenizer", which)
    library = type(which).__module__.partition(".")[0]
    if library == "tokenizers":
        return _hugging_face(which, add_special_tokens)
    if library == "tiktoken":
        return Each(which.encode_ordinary)
    if callable(which):
        return Each(which)
    raise DataError(f"expected a tokenizer, found {which!r}.", remedy=_KNOWN)


def _path(which: str | os.PathLike[str]) -> str:
    path = os.fspath(which)
    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    if os.path.isfile(path):
        return path
    remedy = f"{_KNOWN} For a tiktoken encoding by name: tiktoken.get_encoding({path!r})."
    raise DataError(f"there is no tokenizer file {path}.", path=path, remedy=remedy)


def _hugging_face(which: Any, add_special_tokens: bool) -> Encode:
    try:
        import allranks.data.tokenizers.huggingface as huggingface
    except ModuleNotFoundError as error:
        if error.name != "tokenizers":
            raise
        remedy = 'Install it: pip install "allranks[tokenizers]"'
        raise DataError(f"{which} needs tokenizers, which is not installed.", remedy=remedy) from error
    found = huggingface.read(which) if isinstance(which, str) else which
    return huggingface.HuggingFace(huggingface.unpadded(found), add_special_tokens)
