"""Which loads without map_location bring what a GPU saved onto one GPU of all ranks."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param('read(net, "last.pt"); write(net, "last.pt")', ["kept.py:4"], id="its file saves it"),
        pytest.param('read_pretrained(net, "x.pt"); write(net, "x.pt")', [], id="published weights"),
        pytest.param('read(net, "last.pt")', [], id="nobody saves it"),
        pytest.param(
            'if os.path.exists("x"):\n        state = load("x", "cpu"); optimizer.load_state_dict(state["opt"])',
            ["files.py:5"],
            id="where it is there, for an optimizer of who calls, which says where in vain",
        ),
    ],
)
def test_what_is_loaded_was_on_a_gpu_where_training_saved_it(body: str, expected: list[str]) -> None:
    assert found(body) == expected


def test_what_comes_from_the_cpu_goes_there() -> None:
    assert not found('read(net, "x"); write(net, "x")', saved="{k: v.cpu() for k, v in model.state_dict().items()}")
    assert not found(
        'read(net, "x"); write(net, "x")', saved="whole(model, Full(rank0_only=True, offload_to_cpu=True))"
    )


def test_an_evaluation_of_several_processes_is_no_program_of_one() -> None:
    """What is called as one process would be counts as one only where it joins nobody."""
    reads = 'read(self.model, path); write(self.model, "last.pt")'
    assert found('Evaluator("last.pt", None)', reads=reads) == ["kept.py:4"]
    assert found('Evaluator("last.pt", None)', reads=reads, joins="pass") == []


@pytest.mark.parametrize(
    ("gpu", "expected"), [('args.gpus.split(",")[rank]', []), ('os.environ["GPUS"]', ["kept.py:4"])]
)
def test_who_sees_one_gpu_alone_calls_it_the_first(gpu: str, expected: list[str]) -> None:
    own = f'rank = int(os.environ["RANK"])\n    gpu = {gpu}\n    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)'
    assert found('read(net, "last.pt"); write(net, "last.pt")', joins=f"{own}\n    {JOINS}") == expected


def test_a_program_that_scripts_start_alone_resumes_by_itself() -> None:
    """It asks for a rank, and its launcher starts one process."""
    text = """\
import torch
from torch.nn.parallel import DistributedDataParallel

def main(args):
    net = torch.nn.Linear(2, 2)
    if args.local_rank != -1:
        torch.cuda.set_device(args.local_rank)
        torch.distributed.init_process_group("nccl")
        net = DistributedDataParallel(net)
    net.load_state_dict(torch.load(args.model))
    torch.save(net.state_dict(), args.model)

if __name__ == "__main__":
    main(parse())
"""
    sources = {"train.py": text.encode()}
    assert _sure(sources) == [10]
    assert _sure({**sources, "run.sh": b"python train.py --model last.pt\n"}) == []


def _sure(sources: dict[str, bytes]) -> list[int]:
    outcome = check(sources, Settings(select=("AR504",)))
    return [one.place.line for one in outcome.findings if one.confidence == "high"]


def test_each_of_a_table_of_models_is_followed() -> None:
    """Which one it is, a setting says: a dozen of them is no more than two."""
    made = "def make_{0}(path, **more):\n    net = Net()\n    net.load_state_dict(torch.load(path))\n    return net\n"
    table = ", ".join(f'"{n}": make_{n}' for n in range(12))
    models = (
        "import torch\nfrom net import Net\n"
        + "".join(map(made.format, range(12)))
        + f"def make(model, **more):\n    models = {{{table}}}\n    return models[model](**more)\n"
    )
    start = START.replace("from files import load", "from models import make").format(
        reads="self.model = make(own.name, path=path)", joins=JOINS, body='Evaluator("last.pt", os)'
    )
    sources = {"models.py": models, "net.py": "import torch\nclass Net(torch.nn.Module):\n    pass\n", "eval.py": start}
    outcome = check({path: text.encode() for path, text in sources.items()}, Settings(select=("AR504",)))
    assert len({one.place.line for one in outcome.findings if one.place.path == "models.py"}) == 12
