"""Samplers whose epoch nobody has to set: of programs of one process, and of what is only looked at."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

def main(args, model, rows):
    if args.local_rank != -1:
        dist.init_process_group("nccl")
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model)
    {wraps}
    sampler = RandomSampler(rows) if args.local_rank == -1 else DistributedSampler(rows)
    loader = DataLoader(rows, sampler=sampler)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
"""
LOOK = """\
from torch.utils.data import DataLoader, DistributedSampler

class Trainer:
    def divergence(self, rows):
        self.other_rows = DataLoader(rows, sampler=DistributedSampler(rows))
        for batch in self.other_rows:
            self.kl = max(self.{does}(self.model.module, batch).mean(), 0)

    def fit(self):
        for epoch in range(3):
            self.divergence(self.rows)
            self.run(epoch)
"""


def _lines(text: str) -> list[int]:
    found = check({"train.py": text.encode()}, Settings()).findings
    return [one.place.line for one in found if one.code == "AR302" and one.confidence != "low"]


@pytest.mark.parametrize(("wraps", "lines"), [("pass", []), ("model = DistributedDataParallel(model)", [11])])
def test_where_nothing_is_shared_among_processes_but_the_threads_have_the_model_one_is_started(
    wraps: str, lines: list[int]
) -> None:
    assert _lines(TRAIN.format(wraps=wraps)) == lines


@pytest.mark.parametrize(("does", "lines"), [("log_probabilities", []), ("train_step", [5])])
def test_the_order_of_what_is_gone_over_without_learning_does_not_matter(does: str, lines: list[int]) -> None:
    assert _lines(LOOK.format(does=does)) == lines
