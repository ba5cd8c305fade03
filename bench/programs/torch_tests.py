"""The same with torch: one all-reduce in each test."""

import os

import pytest
import torch
import torch.distributed as dist

TESTS = int(os.environ["BENCH_TESTS"])


@pytest.mark.world(n=4, backend="torch")
@pytest.mark.parametrize("number", range(TESTS))
def test_a_sum_over_all_ranks(world, number):
    mine = torch.full((1,), float(number))
    dist.all_reduce(mine)
    assert mine.item() == world.size * number
