"""Which loads without map_location bring what a GPU saved onto one GPU of all ranks."""

from __future__ import annotations

from allranks.check.engine import Settings, check

FILES = """\
import torch

def load(name, map_location=None):
    with open(name, "rb") as f:
        return torch.load(f)
"""
KEPT = """\
import torch

def read(model, path):
    state = torch.load(path)
    model.load_state_dict(state)

def read_pretrained(model, path):
    model.load_state_dict(torch.load(path))

def write(model, path):
    state = {saved}
    torch.save(state, path)
"""
START = """\
import os
import torch
import torch.distributed as dist
from files import load
from kept import read, read_pretrained, write

class Evaluator:
    def __init__(self, path, own):
        self.model = torch.nn.Linear(2, 2).cuda()
        {reads}

if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    {joins}
    net = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    {body}
"""
JOINS = 'dist.init_process_group("nccl")'


def found(body: str, *, saved: str = "model.state_dict()", reads: str = "pass", joins: str = JOINS) -> list[str]:
    """Return the files in which AR504 is told with confidence."""
    start = START.format(body=body, reads=reads, joins=joins)
    sources = {"files.py": FILES, "kept.py": KEPT.format(saved=saved), "eval.py": start}
    outcome = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR504",)))
    return [f"{one.place.path}:{one.place.line}" for one in outcome.findings if one.confidence == "high"]


def test_what_comes_from_the_cpu_goes_there() -> None:
    assert not found('read(net, "x"); write(net, "x")', saved="{k: v.cpu() for k, v in model.state_dict().items()}")
    assert not found(
        'read(net, "x"); write(net, "x")', saved="whole(model, Full(rank0_only=True, offload_to_cpu=True))"
    )
