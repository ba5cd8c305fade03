"""Optimizers, norms and states of models in parts, as they are made, wrapped and handed on."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

MADE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def shard(model, mesh):
    fully_shard(model, mesh=mesh)


def main(model, mesh, sharded):
    optimizer = torch.optim.AdamW([{{"params": model.parameters()}}], lr=1e-3)
    {wrapped}
    model(1).sum().backward()
    optimizer.step()
"""
KEPT = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, net):
        self.model = net
        {wrapped}
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, x):
        self.model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def save(self):
        state = {{"optimizer": self.optimizer.state_dict()}}
        if dist.get_rank() == 0:
            torch.save(state, "last.pt")
"""


def lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR613",))).findings]


@pytest.mark.parametrize(
    "wrapped",
    [
        "shard(model, mesh)",
        "fully_shard(model)",
        "model = FSDP(model)",
        "if sharded:\n        fully_shard(model)",
    ],
)
def test_an_optimizer_of_the_parameters_that_a_model_had_before_is_found(wrapped: str) -> None:
    assert lines(MADE.format(wrapped=wrapped)) == [11]


@pytest.mark.parametrize(
    "wrapped",
    [
        "model = FSDP(model, use_orig_params=True)",
        "fully_shard(model.head)",
        "fully_shard(model)\n    optimizer = torch.optim.AdamW(model.parameters())",
        "if sharded:\n        fully_shard(model)\n        optimizer = torch.optim.SGD(model.parameters())",
    ],
)
def test_one_that_is_made_again_or_whose_parameters_stay_is_not(wrapped: str) -> None:
    assert lines(MADE.format(wrapped=wrapped)) == []


def test_attributes_are_followed_to_the_wrapper() -> None:
    assert lines(KEPT.format(wrapped="self.model = FSDP(self.model)")) == [14, 18]
    assert lines(KEPT.format(wrapped="self.model = FSDP(self.model, sharding_strategy=Strategy.NO_SHARD)")) == []
    assert lines(KEPT.format(wrapped="if net.large:\n            self.model = FSDP(self.model)")) == []
