"""The forward pass of a model whose parameters lie on all ranks: sharded where it is, or prepared by Accelerate."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

SHARDED = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def loss_of(model, x):
    return model(x).sum().item()


def shard(model, mesh=None):
    for block in model:
        fully_shard(block)
    fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("nccl")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).cuda()
    {made}
    model.train()
    model(torch.ones(4)).sum().backward()
    {used}


main()
"""
PREPARED = """\
import torch
from accelerate import Accelerator
{imported}


@torch.no_grad()
def score(model, batches):
    return [model(x).mean() for x in batches]


def main(batches, make):
    accelerator = Accelerator()
    model, optimizer, batches = accelerator.prepare(make(), torch.optim.SGD(), batches)
    for step, batch in enumerate(batches):
        accelerator.backward(model(batch))
        optimizer.step()
        {used}


main([], None)
"""
PLUGIN = "from accelerate.utils import FullyShardedDataParallelPlugin"
ON_ONE = "if dist.get_rank() == 0:\n        print({})"


def lines(text: str) -> list[int]:
    return [one.place.line for one in check({"train.py": text.encode()}, Settings(select=("AR204",))).findings]


@pytest.mark.parametrize(
    "made", ["fully_shard(model)", "model = fully_shard(model)", "shard(model)", "shard(model=model)"]
)
@pytest.mark.parametrize("used", ["model(torch.ones(4))", "loss_of(model, torch.ones(4))"])
def test_one_rank_alone_runs_a_model_that_was_sharded_where_it_is(made: str, used: str) -> None:
    assert lines(SHARDED.format(made=made, used=ON_ONE.format(used))) == [23]


def test_a_model_that_shards_itself_is_sharded() -> None:
    net = "class Net(torch.nn.Module):\n    def shard(self):\n        fully_shard(self)\n\n\ndef main():"
    own = SHARDED.replace("def main():", net).replace("torch.nn.Sequential(torch.nn.Linear(4, 4)).cuda()", "Net()")
    assert lines(own.format(made="model.shard()", used=ON_ONE.format("model(torch.ones(4))"))) == [28]
    assert lines(own.format(made="print(model.shard)", used=ON_ONE.format("model(torch.ones(4))"))) == []


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("fully_shard(model)", "y = loss_of(model, torch.ones(4))\n    if dist.get_rank() == 0:\n        print(y)"),
        ("fully_shard(model)", ON_ONE.format("sum(p.numel() for p in model.parameters())")),
        ("pass", ON_ONE.format("loss_of(model, torch.ones(4))")),
        ("fully_shard(model[0])", ON_ONE.format("len(model)")),
    ],
)
def test_all_ranks_run_it_or_it_is_not_run(made: str, used: str) -> None:
    assert lines(SHARDED.format(made=made, used=used)) == []


def test_the_attribute_of_a_trainer_is_a_model_in_parts() -> None:
    text = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(4, 4)
        fully_shard(self.model)

    def evaluate(self, x):
        return self.model(x)

    def train(self, data):
        for x in data:
            self.model(x).sum().backward()
            if dist.get_rank() == 0:
                self.evaluate(x)


dist.init_process_group("nccl")
Trainer().train([])
"""
    assert lines(text) == [18]


ALONE = "if accelerator.is_main_process and step % 9 == 0:\n            {}"


@pytest.mark.parametrize("used", ["print(score(model, batches))", "print(model(batch))"])
def test_the_main_process_alone_runs_what_accelerate_has_cut_up(used: str) -> None:
    assert lines(PREPARED.format(imported=PLUGIN, used=ALONE.format(used))) == [18]


@pytest.mark.parametrize(
    ("imported", "used"),
    [
        ("", ALONE.format("print(score(model, batches))")),
        ("from accelerate.utils import DeepSpeedPlugin", ALONE.format("print(score(model, batches))")),
        (PLUGIN, "print(score(model, batches))"),
        (PLUGIN, ALONE.format("print(optimizer.param_groups[0])")),
        (PLUGIN, ALONE.format("model.eval()")),
    ],
)
def test_models_that_every_process_has_whole_meet_nobody_in_forward(imported: str, used: str) -> None:
    """Nothing speaks of FSDP; all run it; it is not run."""
    assert lines(PREPARED.format(imported=imported, used=used)) == []
