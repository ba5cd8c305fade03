"""What findings say, and what they underline."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.findings import Finding

JOINED = """
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
"""
MODULE = """
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
class Model(L.LightningModule):
    @rank_zero_only
    def on_validation_epoch_end(self):
        self.all_gather(self.scores)
    def on_fit_start(self):
        self.helper()
    @rank_zero_only
    def helper(self):
        self.trainer.strategy.barrier()
"""


def found(text: str, code: str, **settings: str) -> list[Finding]:
    """Return what is found under a code."""
    outcome = check({"train.py": textwrap.dedent(text).encode()}, Settings(**settings))  # type: ignore[arg-type]
    return [finding for finding in outcome.findings if finding.code == code]


def parted(text: str) -> list[tuple[int, str, int, str]]:
    """Return where AR201 is found, what it hangs on, and where and how it is told that ranks part there."""
    told = []
    for one in found(text, "AR201"):
        guard = next(note for note in one.notes if note.place and note.text.startswith("here they part"))
        assert guard.place is not None
        told.append((one.place.line, one.message.partition("hangs on ")[2], guard.place.line, guard.text))
    return told


@pytest.mark.parametrize("line", ["dist.barrier() if rank == 0 else None", "rank == 0 and dist.barrier()"])
def test_a_condition_inside_an_expression_is_told(line: str) -> None:
    """It stands in the message and in the note."""
    assert parted(f"{JOINED}{line}\n") == [(5, "rank == 0", 5, "here they part: rank == 0")]


def test_a_decorator_is_told_as_it_stands() -> None:
    """Where ranks part, the decorator is underlined; the finding is at the collective, or at the call of the function
    that leads there."""
    assert parted(MODULE) == [
        (7, "@rank_zero_only", 5, "here they part: @rank_zero_only"),
        (9, "@rank_zero_only", 10, "here they part: @rank_zero_only"),
    ]


def test_a_framework_that_calls_on_one_rank_is_told() -> None:
    """There is no decorator to point to."""
    text = """
        import torch.distributed as dist
        import lightning as L
        class Data(L.LightningDataModule):
            def prepare_data(self):
                dist.barrier()
        """
    why = "LightningDataModule.prepare_data, which its framework calls on one rank of each node"
    assert parted(text) == [(6, why, 5, f"here they part: {why}")]


def test_a_model_inside_a_wrapper_is_told_as_what_it_is() -> None:
    """No name of the checker's own stands in a message."""
    text = f"""{JOINED}
import torch
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
if rank == 0:
    model.module.load_state_dict(torch.load("last.pt"))
"""
    says = {one.message for one in found(text, "AR501")}
    assert "what torch.nn.Module.load_state_dict reads is loaded on rank 0 alone, and never sent to the others" in says
