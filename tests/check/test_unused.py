"""What nobody does: a function that nobody calls, an option that nobody gives, a world that is this host's alone."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check


def _lines(code: str, **sources: str) -> list[int]:
    raw = {f"{name}.py": text.encode() for name, text in sources.items()}
    return [finding.place.line for finding in check(raw, Settings(select=(code,))).findings]


CONDITIONED = """\
import random
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def look(model, batch):
    return model(batch)

class Experiment:
    def __init__(self, net):
        dist.init_process_group("nccl")
        self.model = DDP(net)

    def loss(self, batch):
        if random.random() > 0.5:
            {context}
                batch = look(self.model, batch)
        return self.model(batch)

Experiment(torch.nn.Linear(2, 2)).loss(torch.ones(2))
"""


@pytest.mark.parametrize(("context", "expected"), [("with torch.no_grad():", []), ("if batch is not None:", [17])])
def test_a_forward_pass_without_gradients_further_down(context: str, expected: list[int]) -> None:
    """Who calls a function under no_grad runs all of it so: nothing is reduced."""
    assert _lines("AR203", train=CONDITIONED.replace("{context}", context)) == expected
