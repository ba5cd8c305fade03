"""A collective under another name: which function that is, a condition has picked."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

TRAIN = """
import sys
import torch.distributed as dist

class Trainer:
    def __init__(self, several):
        if several:
            dist.init_process_group("nccl")
        self.reduce = dist.all_reduce if several else (lambda one: one)

    def score(self, hits):
        {call}(hits)

Trainer("--several" in sys.argv).score(1)
"""


@pytest.mark.parametrize(("call", "codes"), [("self.reduce", []), ("dist.all_reduce", ["AR205"])])
def test_who_has_no_group_may_have_picked_another_function(call: str, codes: list[str]) -> None:
    found = check({"train.py": TRAIN.format(call=call).encode()}, Settings(select=("AR205",))).findings
    assert [one.code for one in found] == codes
