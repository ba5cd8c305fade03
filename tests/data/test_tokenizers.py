"""Tokenizers, by every name that they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks.data.base import BadSample
from allranks.data.tokenizers import tokenizer
from allranks.data.transform import MapOperation, TransformChain
from allranks.data.workers import start_workers
from allranks.errors import DataError

tokenizers = pytest.importorskip("tokenizers")
tiktoken = pytest.importorskip("tiktoken")

TEXTS = ["the theatre", "", "äther ", "that <|end|>"]


def hugging_face() -> Any:
    """One token a byte, but "th"; with padding on, as some files have it."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {sign: at for at, sign in enumerate(sorted(alphabet))} | {"th": 256}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("t", "h")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.enable_padding(pad_id=0)
    return made


def tik_token() -> Any:
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256}
    return tiktoken.Encoding("small", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 257})


def decoded_bytes(ids: list[int]) -> str:
    return bytes(ids).decode()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize(
    ("which", "decode"),
    [
        (hugging_face(), hugging_face().decode),
        (tik_token(), tik_token().decode),
        ("bytes", decoded_bytes),
        (lambda text: list(text.encode()), decoded_bytes),
        (lambda text: {"input_ids": np.frombuffer(text.encode(), np.uint8)}, decoded_bytes),
    ],
    ids=["tokenizers", "tiktoken", "bytes", "function", "transformers"],
)
def test_tokens_say_the_text(which: Any, decode: Callable[[list[int]], str], count: int) -> None:
    """In this process and in a worker, as int32, without padding, in the text's place; a bad sample stays."""
    chain = TransformChain((MapOperation(tokenizer(which)),))
    workers = start_workers(chain, count)
    try:
        samples = [*({"text": text, "n": 1} for text in TEXTS), BadSample("torn")]
        *done, bad = workers.submit(samples, np.arange(5), 0).result(60)
    finally:
        workers.close()
    assert bad == BadSample("torn")
    for text, sample in zip(TEXTS, done, strict=True):
        assert list(sample) == ["n", "tokens"]
        assert sample["tokens"].dtype == np.int32
        assert sample["tokens"].ndim == 1
        assert decode(sample["tokens"].tolist()) == text
    if which is not None and not isinstance(which, str) and hasattr(which, "encode"):
        assert 256 in done[0]["tokens"]


def test_a_tokenizer_of_a_file(tmp_path: Path) -> None:
    """By the file or its folder; a name that is no file is never looked up in the network."""
    hugging_face().save(str(tmp_path / "tokenizer.json"))
    want = hugging_face().encode(TEXTS[0]).ids
    for which in (tmp_path, str(tmp_path / "tokenizer.json")):
        assert tokenizer(which)(TEXTS[0])["tokens"].tolist() == want
    with pytest.raises(DataError, match=r"no tokenizer file gpt2.*tiktoken.get_encoding\('gpt2'\)"):
        tokenizer("gpt2")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"is not a tokenizer\.json"):
        tokenizer(tmp_path)
    with pytest.raises(DataError, match="expected a tokenizer, found 3"):
        tokenizer(3)


def test_a_sample_without_text_is_named() -> None:
    """And can be masked; the others in its strip are not touched."""
    samples = [{"text": "a"}, {"text": None}, {"body": "b"}, "c"]
    done = TransformChain((MapOperation(tokenizer("bytes", keep=True, into="ids"), on_error="mask"),)).apply(
        samples, np.arange(4), 0
    )
    assert (done[0]["text"], done[0]["ids"].tolist()) == ("a", [97])
    assert [type(one) for one in done[1:3]] == [BadSample, BadSample]
    assert "found NoneType; it has body" in done[2].why
    assert (done[3]["text"], done[3]["ids"].tolist()) == ("c", [99])
    with pytest.raises(DataError, match="sample 1 in epoch 0: expected text in column 'text'"):
        TransformChain((MapOperation(tokenizer("bytes")),)).apply(samples, np.arange(4), 0)
