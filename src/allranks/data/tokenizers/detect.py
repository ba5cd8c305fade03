"""Make a tokenizer from a name, path, object or function. A library is imported only if it is needed."""

from __future__ import annotations

import os
from typing import Any

from allranks.data.tokenizers.base import Encode, EncodeEach, TokenizeSamples, encode_utf8
from allranks.errors import DataError

_KNOWN = (
    'Give "bytes", a tokenizer.json (or the folder that has it), a tokenizers.Tokenizer, a tiktoken encoding, or a '
    "function from text to ids."
)


def tokenizer(
    which: Any, *, column: str = "text", into: str = "tokens", keep: bool = False, add_special_tokens: bool = True
) -> TokenizeSamples:
    """Return a function for ``map`` that replaces a text by its tokens, an int32 array. Nothing is downloaded.

    ``which`` is one of these:

    - "bytes": the UTF-8 bytes are the tokens.
    - the path of a tokenizer.json or of its folder.
    - a ``tokenizers.Tokenizer``, or a transformers tokenizer that has one.
    - a tiktoken encoding. Special tokens in the text are treated as text.
    - any function from a text to ids.

    ``keep`` keeps the text, too. ``add_special_tokens`` is for Hugging Face tokenizers: it adds the tokens that the
    tokenizer puts at both ends. Padding is switched off.
    """
    return TokenizeSamples(_choose_encoder(which, add_special_tokens), column, into, keep)


def _choose_encoder(which: Any, add_special_tokens: bool) -> Encode:
    if isinstance(which, str | os.PathLike):
        return encode_utf8 if which == "bytes" else _hugging_face(_tokenizer_path(which), add_special_tokens)
    which = getattr(which, "backend_tokenizer", which)
    library = type(which).__module__.partition(".")[0]
    if library == "tokenizers":
        return _hugging_face(which, add_special_tokens)
    if library == "tiktoken":
        return EncodeEach(which.encode_ordinary)
    if callable(which):
        return EncodeEach(which)
    raise DataError(f"expected a tokenizer, found {which!r}.", remedy=_KNOWN)


def _tokenizer_path(which: str | os.PathLike[str]) -> str:
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
    found = huggingface.read_tokenizer(which) if isinstance(which, str) else which
    return huggingface.HuggingFace(huggingface.disable_padding(found), add_special_tokens)
