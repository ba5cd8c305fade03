"""What a run resumes from: who loads it, and who looks for it."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

JOINED = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
net = torch.nn.Linear(2, 2)
shadow = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(net.parameters())
model = DistributedDataParallel(net)
"""
LOAD = """\
if dist.get_rank() == 0:
    {what}.load_state_dict(torch.load("last.pt"))
"""
SEND = """\
for x in model.state_dict().values():
    dist.broadcast(x, 0)
"""
TRAIN = """\
for batch in batches:
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "confidences"),
    [
        pytest.param(LOAD.format(what="model.module") + TRAIN, ["high"], id="then all train"),
        pytest.param(LOAD.format(what="model.module"), ["low"], id="nobody trains"),
        pytest.param(LOAD.format(what="shadow") + TRAIN, ["low"], id="by its name, not what is trained"),
        pytest.param(LOAD.format(what="net") + SEND + TRAIN, [], id="sent"),
        pytest.param(LOAD.format(what="optimizer") + SEND + TRAIN, ["low"], id="perhaps sent"),
        pytest.param(TRAIN + LOAD.format(what="net"), ["low"], id="for a last look"),
    ],
)
def test_what_one_rank_loads_and_all_train_is_sure(text: str, confidences: list[str]) -> None:
    """By its name, and by what comes after it."""
    found = check({"train.py": (JOINED + text).encode()}, Settings(select=("AR501",))).findings
    assert [one.confidence for one in found] == confidences


LOOKS = """\
import os

def complete_steps(root):
    steps = []
    for name in os.listdir(root):
        if name.startswith("step_") and os.path.exists(os.path.join(root, name, "DONE")):
            words = name.split("_")
            steps.append(int(words[1]))
    return sorted(steps)

def newest(root):
    done = complete_steps(root)
    return done[-1] if done else None
"""


@pytest.mark.parametrize(
    ("before", "load"),
    [
        ("import torch.distributed.checkpoint as dcp\n", "dcp.load(state, checkpoint_id=f'runs/{step}')"),
        ("import torch\n", "state = torch.load(f'runs/{step}.pt')"),
        (
            "import numpy as np\n\ndef restore(step):\n    return np.load(f'runs/{step}.npz')\n\n",
            "state = restore(step)",
        ),
    ],
)
def test_a_step_out_of_a_listing_is_what_this_process_found(before: str, load: str) -> None:
    """Through a list that it was put into, a return and an answer of None."""
    text = f"""{before}import torch.distributed as dist
from looks import newest

dist.init_process_group("nccl")
state = {{}}
step = newest("runs")
if step is not None:
    {load}
"""
    sources = {"train.py": text.encode(), "looks.py": LOOKS.encode()}
    assert [one.code for one in check(sources, Settings(select=("AR503",))).findings] == ["AR503"]


MOVED = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.Adam(model.parameters())
checkpoint = torch.load(args.resume)
"""


@pytest.mark.parametrize(
    ("load", "confidence"),
    [
        ("model.load_state_dict(checkpoint['model'])\n", "low"),
        ("model.load_state_dict(checkpoint['model'])\noptimizer.load_state_dict(checkpoint['optimizer'])\n", "high"),
    ],
)
def test_what_an_optimizer_takes_was_on_a_gpu(load: str, confidence: str) -> None:
    """Weights may have been saved from the CPU; also where both ways of looking find it."""
    (found,) = check({"train.py": (MOVED + load).encode()}, Settings(select=("AR504",))).findings
    assert found.confidence == confidence


TWO_WAYS = """\
import os
import torch
import torch.distributed as dist

def load(path):
    return torch.load(path)

def resume(folder):
    latest = os.path.join(folder, "last.pt")
    if os.path.exists(latest):
        return load(latest)

def main(folder):
    resume(folder)

dist.init_process_group("nccl")
load("pretrained.pt")
main("out")
"""


def test_of_two_ways_to_a_load_the_one_counts_where_each_decides_for_itself() -> None:
    """Though the other is shorter."""
    found = check({"train.py": TWO_WAYS.encode()}, Settings(select=("AR503",))).findings
    assert [one.place.line for one in found] == [6]


CHECKPOINT = """\
import functools
import os
import torch
import torch.distributed as dist

{reader}

class Checkpoint:
    def __init__(self, path, **objects):
        self.path, self.objects = path, objects

    def save(self):
        if dist.get_rank() == 0:
            torch.save({{k: v.state_dict() for k, v in self.objects.items()}}, self.path + ".tmp")
            os.replace(self.path + ".tmp", self.path)

    def load(self):
        state = {read}(self.path)
        for k, v in self.objects.items():
            v.load_state_dict(state.pop(k))
"""
RESUMES = """\
import torch
import torch.distributed as dist
from checkpoint import Checkpoint
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(1, 1).cuda())
kept = Checkpoint("last.pth", model=model.module, opt=torch.optim.AdamW(model.parameters()))
kept.load()
kept.save()
"""


@pytest.mark.parametrize(
    ("reader", "read", "lines"),
    [
        ("", "torch.load", [18]),
        ('load_cpu = functools.partial(torch.load, map_location="cpu")', "load_cpu", []),
        ('load = functools.partial(torch.load, map_location="cpu")', "load", []),
        ("load = functools.partial(torch.load, weights_only=True)", "load", [18]),
    ],
)
def test_a_partial_of_a_load_may_know_where_it_loads_to(reader: str, read: str, lines: list[int]) -> None:
    """Its keywords stand where it is made."""
    sources = {"checkpoint.py": CHECKPOINT.format(reader=reader, read=read).encode(), "train.py": RESUMES.encode()}
    findings = check(sources, Settings(select=("AR504",))).findings
    assert [one.place.line for one in findings] == lines
