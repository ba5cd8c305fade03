"""Small data and models that the public programs read, made on this machine without a network."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz .,\n"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>")
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdgklmnprst"]


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Return ``count`` sentences of 4 to 12 invented words."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(4, 13)))) + "." for _ in range(count)]


def characters(folder: Path) -> None:
    """Write train.bin, val.bin and meta.pkl in the form of nanoGPT's character data."""
    folder.mkdir(parents=True, exist_ok=True)
    number = {letter: index for index, letter in enumerate(LETTERS)}
    for name, count, seed in (("train", 3000, 0), ("val", 600, 1)):
        text = "\n".join(sentences(count, seed=seed))
        np.array([number[letter] for letter in text], dtype=np.uint16).tofile(folder / f"{name}.bin")
    meta = {"vocab_size": len(LETTERS), "stoi": number, "itos": dict(enumerate(LETTERS))}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def images(folder: Path, *, size: int = 64, count: int = 24) -> None:
    """Write ``count`` JPEG images of each of two classes into ``folder``/train and ``folder``/val."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            where = folder / part / name
            where.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                pixels = draw.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(where / f"{index}.jpg")


def word_tokenizer(folder: Path, *, words: int = 200) -> None:
    """Save a tokenizer of words with the special tokens of BERT and of GPT."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = dict(zip(("pad", "unk", "cls", "sep", "mask", "bos", "eos"), SPECIAL, strict=True))
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, ".", *WORDS[:words]])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {f"{name}_token": text for name, text in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)


def bert(folder: Path) -> None:
    """Save a BERT of two layers and its tokenizer."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertForSequenceClassification(BertConfig(vocab_size=208, **sizes)).save_pretrained(folder)
    word_tokenizer(folder)


def llama(folder: Path) -> None:
    """Save a Llama of two layers and its tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = LlamaConfig(vocab_size=208, bos_token_id=5, eos_token_id=6, pad_token_id=0, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    word_tokenizer(folder)


def lines(path: Path, rows: list[dict[str, object]]) -> None:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def glue(root: Path) -> None:
    """Write what ``load_dataset("nyu-mll/glue", "mrpc")`` and ``evaluate.load("glue")`` read in the working folder."""
    text = sentences(480)
    rows = [{"sentence1": text[2 * i], "sentence2": text[2 * i + 1], "label": i % 2, "idx": i} for i in range(240)]
    lines(root / "nyu-mll/glue/mrpc/train.jsonl", rows[:200])
    lines(root / "nyu-mll/glue/mrpc/validation.jsonl", rows[200:])
    (root / "nyu-mll/glue/README.md").write_text(
        "---\nconfigs:\n- config_name: mrpc\n  data_files:\n  - split: train\n    path: mrpc/train.jsonl\n"
        "  - split: validation\n    path: mrpc/validation.jsonl\n---\n"
    )
    (root / "glue").mkdir(exist_ok=True)
    (root / "glue/glue.py").write_text(METRIC)


METRIC = '''"""Accuracy, in the form that evaluate.load reads."""
import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int64")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        right = sum(p == r for p, r in zip(predictions, references)) / len(predictions)
        return {"accuracy": right, "f1": right}
'''
