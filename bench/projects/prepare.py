"""Make the small data that each public program reads, in its own folder, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.projects import tiny


def nanogpt(root: Path) -> None:
    tiny.characters(root / "data/shakespeare_char")


def imagenet(root: Path) -> None:
    tiny.images(root / "imagenet/imagenet")


def nanochat(root: Path) -> None:
    """Write parquet files of text, and train the tokenizer with the project's own script."""
    import pyarrow
    import pyarrow.parquet

    folder = root / "base/base_data_climbmix"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        rows = [" ".join(sentences) for sentences in _groups(tiny.sentences(1600, seed=number), 4)]
        pyarrow.parquet.write_table(
            pyarrow.table({"text": rows}), folder / f"shard_{number:05d}.parquet", row_group_size=50
        )
    environ = {**os.environ, "NANOCHAT_BASE_DIR": "base"}
    command = [sys.executable, "-m", "scripts.tok_train", "--vocab-size", "512"]
    subprocess.run(command, cwd=root, env=environ, check=True, stdout=subprocess.DEVNULL)


def accelerate(root: Path) -> None:
    tiny.bert(root / "examples/bert-base-cased")
    tiny.glue(root / "examples")


def lightning(root: Path) -> None:
    folder = root / "examples/pytorch/basics/data"
    folder.mkdir(exist_ok=True)
    (folder / "wikitext-2.txt").write_text("\n".join(tiny.sentences(20_000)))


def trl(root: Path) -> None:
    tiny.llama(root / "tiny-llama")
    rows = [{"text": text} for text in tiny.sentences(400)]
    tiny.lines(root / "tiny-text/train.jsonl", rows)


def dit(root: Path) -> None:
    """Write images, and a VAE whose latents are an eighth of the image."""
    from diffusers import AutoencoderKL

    tiny.images(root / "images")
    blocks = 4
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        block_out_channels=(8,) * blocks,
        norm_num_groups=4,
        latent_channels=4,
    ).save_pretrained(root / "stabilityai/sd-vae-ft-ema")


def torchtitan(root: Path) -> None:
    tiny.lines(root / "tests/assets/c4_test/data.json", [{"text": text} for text in tiny.sentences(2000)])


def midgpt(root: Path) -> None:
    """Write the data, and a small configuration beside those of the project."""
    tiny.characters(root / "data/shakespeare_char")
    text = (root / "src/configs/shakespeare_char.py").read_text()
    for old, new in (
        ("block_size=256", "block_size=32"),
        ("n_layer=6, n_head=6, n_embd=384", "n_layer=2, n_head=2, n_embd=32"),
        ("batch_size=64", "batch_size=8"),
        ("max_steps=5000", "max_steps=16"),
        ("eval_interval=2000", "eval_interval=5"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (root / "src/configs/tiny.py").write_text(text + _REMOVED)


def gemma(root: Path) -> None:
    """Write the data set lm1b with invented text, and a small configuration beside those of the project."""
    import tensorflow_datasets as tfds

    class Lm1b(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc, no-any-unimported]
        """The data set of this name, with other text."""

        name = "lm1b"
        VERSION = tfds.core.Version("1.1.0")

        def _info(self) -> object:
            features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, _: object) -> dict[str, object]:
            rows = {"train": tiny.sentences(1500), "test": tiny.sentences(200, seed=1)}
            return {name: enumerate({"text": text} for text in texts) for name, texts in rows.items()}

        def _generate_examples(self) -> None:
            """All rows are in the splits."""

    folder = root / "examples/gemma"
    Lm1b(data_dir=str(folder / "tfds"), file_format="array_record").download_and_prepare()
    (folder / "configs/rehearsed.py").write_text(_GEMMA)


_GEMMA = """
from configs import tiny

SIZES = dict(num_layers=2, embed_dim=32, hidden_dim=64, num_heads=2, head_dim=16, num_kv_heads=1)
SMALL = dict(vocab_size=300, max_corpus_chars=20_000, prefetch_num_workers=0, prompts=("bab beb",), warmup_steps=4)
BATCH = dict(per_device_batch_size=4, eval_per_device_batch_size=4, max_target_length=32, max_eval_target_length=32)
STEPS = dict(num_train_steps=16, num_eval_steps=2, num_predict_steps=2, eval_every_steps=6, checkpoint_every_steps=5)

def get_config():
    config = tiny.get_config()
    model = {**config.transformer_params, **SIZES, "attention_types": (1, 1)}
    return config.replace(transformer_params=model, **SMALL, **BATCH, **STEPS)
"""
# Names that midGPT uses, and that newer versions of jax and wandb no longer have.
_REMOVED = """
import jax, wandb
jax.tree_map = jax.tree.map
wandb.util.generate_id = lambda: "tiny"
"""


def _groups(rows: list[str], size: int) -> list[list[str]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
