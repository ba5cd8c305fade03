"""What the second engine finds in small programs that were misread once: rule, line and confidence of each finding."""

from __future__ import annotations

import pytest

from allranks.check.second import findings

JOIN = "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
MODEL = "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
SPAWN = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def worker(rank, path):
    dist.init_process_group("nccl")
    torch.save({}, path)

def main():
    torch.save({}, "before.pt")
    mp.spawn(worker, args=("a.pt",), nprocs=2)

if __name__ == "__main__":
    main()
"""
TRAINER = """\
import torch
from lightning.pytorch import Trainer

def main(model):
    torch.save({{}}, "a.pt")
    Trainer({}).fit(model)

main(None)
"""
AGAIN = """\
import os
import torch
from lightning.pytorch import Trainer

def main(model):
    if not os.path.exists("a.pt"):
        torch.save({{}}, "a.pt")
    Trainer(devices=2).fit(model){}

main(None)
"""
CHOICE = f"""{JOIN}
def a():
    import inside
def b():
    from inside import save
    save()
if os.environ["WHAT"] == "a":
    a()
else:
    b()
"""
CASES: dict[str, tuple[str, list[tuple[str, int, str]]]] = {
    "what the parent does before it starts the ranks": (SPAWN, [("AR101", 7, "high")]),
    "a setting that holds the rank": (
        JOIN + "import argparse\ndef main(args):\n    args.writer = dist.get_rank() == 0\n    save(args)\n"
        "def save(args):\n    if args.writer:\n        torch.save({}, 'a.pt')\n"
        "main(argparse.ArgumentParser().parse_args())\n",
        [],
    ),
    "a function that a library calls": (
        JOIN + "def main():\n    def ready(profile):\n        torch.save({}, 'a.pt')\n"
        "    torch.profiler.profile(on_trace_ready=ready)\nmain()\n",
        [("AR101", 7, "high")],
    ),
    "commands of a program": (
        "from clize import run\n" + JOIN + "def train(path='a.pt'):\n    torch.save({}, path)\nrun([train])\n",
        [("AR101", 7, "high")],
    ),
    "what a handler binds holds there alone": (
        "try:\n    import fast\n    there = True\nexcept ImportError:\n    there = False\n"
        + JOIN
        + "if not there:\n    raise RuntimeError\ntorch.save({}, 'a.pt')\n",
        [("AR101", 12, "high")],
    ),
    "one device": (TRAINER.format("devices=1"), []),
    "several devices": (TRAINER.format("devices=2"), [("AR101", 5, "high")]),
    "the first process has done it before the others start": (AGAIN.format(""), []),
    "no gradients, no collective": (
        JOIN + MODEL + "@torch.no_grad()\ndef score():\n    model(1)\nif dist.get_rank() == 0:\n    score()\n",
        [],
    ),
    "gradients": (
        JOIN + MODEL + "def score():\n    model(1)\nif dist.get_rank() == 0:\n    score()\n",
        [("AR204", 9, "high")],
    ),
    "a mode for which one process is started": (
        JOIN + "def run_test():\n    torch.save({}, 'a.pt')\nrun_test()\n",
        [("AR101", 6, "low")],
    ),
    "files that are only read": (
        JOIN + "if os.path.exists('a.pt'):\n    dist.barrier()\n",
        [("AR203", 6, "low")],
    ),
    "files that a rank makes": (
        JOIN + "if not os.path.exists('a.pt'):\n    if dist.get_rank() == 0:\n        torch.save({}, 'a.pt')\n"
        "    dist.barrier()\n",
        [("AR203", 8, "high")],
    ),
    "where files are, and not whether": (
        JOIN + "step = len(os.listdir('runs'))\nif step % 10 == 0:\n    dist.barrier()\n",
        [],
    ),
    "a default of settings": (
        JOIN + "class config:\n    save = False\nif config.save:\n    torch.save({}, 'a.pt')\n",
        [("AR101", 8, "high")],
    ),
    "whoever ends the process ends the job": (
        JOIN + MODEL + "for batch in loader:\n    loss = model(batch)\n    if not loss:\n        raise SystemExit(1)\n",
        [],
    ),
    "a loss of its own": (
        JOIN + MODEL + "for batch in loader:\n    loss = model(batch)\n    if loss > 100:\n        break\n",
        [("AR209", 7, "high")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_has_these_findings(name: str) -> None:
    text, expected = CASES[name]
    found = findings({"train.py": text.encode()})
    assert [(f.code, f.place.line, f.confidence) for f in found] == expected


def test_a_module_that_one_branch_imports_first_is_there_on_the_other() -> None:
    files = {"train.py": CHOICE, "inside.py": "import torch\ndef save():\n    torch.save({}, 'a.pt')\n"}
    found = findings({path: text.encode() for path, text in files.items()})
    assert [(f.code, f.place.path, f.confidence) for f in found] == [("AR101", "inside.py", "high")]


def test_a_class_in_a_registry_is_made_by_the_program() -> None:
    files = {
        "train.py": JOIN,
        "data.py": "import torch\nfrom tools import register\n@register('mine')\nclass Mine:\n"
        "    def prepare(self):\n        torch.save({}, 'a.pt')\ndef use(one):\n    one.prepare()\n",
    }
    found = findings({path: text.encode() for path, text in files.items()})
    assert [(f.code, f.place.path, f.confidence) for f in found] == [("AR101", "data.py", "high")]


def test_a_folder_called_as_a_library_elsewhere_is_not_the_library() -> None:
    files = {"train.py": f"{JOIN}torch.save({{}}, 'a.pt')\n", "ext/fast/torch/__init__.py": "", "ext/__init__.py": ""}
    found = findings({path: text.encode() for path, text in files.items()})
    assert [(f.code, f.place.path) for f in found] == [("AR101", "train.py")]
