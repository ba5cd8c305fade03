"""What people wrote down as the fix of their multi-process bug: the wrong ones are found, the right ones are not."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def codes(text: str, *, select: tuple[str, ...] | None = None, path: str = "train.py") -> set[str]:
    return {f.code for f in check({path: text.encode()}, Settings(select=select)).findings}


RENDEZVOUS = "import os\n\nos.environ['XLA_RENDEZVOUS_WAIT_SECONDS'] = '120'\nimport jax\n"
RETURN_GENERATOR = """\
from typing import Iterator

from datasets import load_dataset


def iterate_synth_sharded(max_samples=None, tokenize=True, tok=None):
    import jax

    for i, item in enumerate(load_dataset("PleIAs/SYNTH", split="train", streaming=True)):
        if i % jax.process_count() != jax.process_index():
            continue
        yield item


def iterate_synth(max_samples=None, tokenize=True, tok=None, shard_data: bool = True) -> Iterator:
    if shard_data:
        try:
            import jax

            if jax.process_count() > 1:
                return iterate_synth_sharded(max_samples, tokenize, tok)
        except:
            pass
    for item in load_dataset("PleIAs/SYNTH", split="train", streaming=True):
        yield item
"""
SETUP = """\
import os
import pytorch_lightning as pl
import torch


class Module(pl.LightningModule):
    def setup(self, stage: str):
        if stage == "fit" and self._checkpoint_path_to_load is not None:
            local_rank = int(os.environ.get("LOCAL_RANK", 0))
            checkpoint = torch.load(self._checkpoint_path_to_load, map_location="cpu")
            result = self.load_state_dict(checkpoint["state_dict"], strict=False)
            if local_rank == 0:
                if result.missing_keys:
                    print(f"Missing keys (randomly initialized): {len(result.missing_keys)}")
"""
DISCARDED = """\
import torch

checkpoint = torch.load(path, map_location="cpu")
model.load_state_dict(checkpoint["state_dict"], strict=False)
trainer.fit(model, data_module)
"""


def test_the_variable_that_does_not_exist_is_named() -> None:
    """With the advice that leads to the true flags."""
    (finding,) = check({"train.py": RENDEZVOUS.encode()}, Settings(select=("AR604",))).findings
    assert "XLA_RENDEZVOUS_WAIT_SECONDS" in finding.message
    assert "rendezvous-timeout" in finding.advice


def test_returning_a_generator_from_a_generator_is_found_with_its_repair() -> None:
    """The document's own fix made the data set empty."""
    (finding,) = check({"dataset.py": RETURN_GENERATOR.encode()}, Settings(select=("AR309",))).findings
    assert finding.place.line == 21
    assert finding.fix is not None
    assert finding.fix.safe


def test_the_repaired_generator_is_clean() -> None:
    """The fix that the finding carries, applied by hand."""
    indent = " " * 16
    call = "iterate_synth_sharded(max_samples, tokenize, tok)"
    fixed = RETURN_GENERATOR.replace(f"return {call}", f"yield from {call}\n{indent}return")
    assert codes(fixed, select=("AR309",)) == set()


def test_a_partial_load_that_nobody_looks_at_is_found() -> None:
    """With high confidence where the program trains on several ranks."""
    (finding,) = check({"train.py": DISCARDED.encode()}, Settings(select=("AR502",))).findings
    assert finding.place.line == 4


def test_a_result_that_is_tested_is_a_result_that_is_looked_at() -> None:
    assert codes(SETUP, select=("AR502", "AR504")) == set()


@pytest.mark.parametrize(
    "text",
    [
        "import jax\n\nstep = jax.pmap(lambda x: x, axis_name='i')\n",  # in_axes=0 is the default
        "import os\n\nos.environ['XLA_FLAGS'] = '--xla_cpu_collective_timeout_seconds=120'\nimport jax\n",
        "import jax\n\njax.distributed.initialize()\nprint(jax.devices())\n",
    ],
)
def test_what_was_never_wrong_is_silent(text: str) -> None:
    """Fixes that change nothing, and the ones that are right."""
    assert codes(text) == set()
