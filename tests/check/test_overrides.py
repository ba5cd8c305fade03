"""Collectives behind objects whose class is abstract, known by its name alone, or made somewhere else."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
BASE = """\
from abc import ABC, abstractmethod

class Engine(ABC):
    @abstractmethod
    def write_all(self, path):
        \"\"\"Write it.\"\"\"

    def close_all(self):
        raise NotImplementedError
"""
KINDS = """\
import torch
import torch.distributed as dist
from base import Engine

class Plain(Engine):
    def write_all(self, path):
        print(path)

class Parted(Engine):
    def write_all(self, path):
        print(path)
        dist.barrier()

    def close_all(self):
        dist.all_reduce(self.x)
"""
FACTORY = (
    "from kinds import Parted, Plain\n\nPICK = {'a': Plain, 'b': Parted}\n\ndef make(kind):\n    return PICK[kind]()\n"
)
FILES = {"base.py": BASE, "kinds.py": KINDS, "factory.py": FACTORY}
FOUND = {
    "an annotation that names the abstract class": (
        "from base import Engine\n\ndef save(engine: Engine):\n"
        "    if dist.get_rank() == 0:\n        engine.write_all('x')\n"
    ),
    "what a factory returns, known by the name of its method": (
        "from factory import make\n\nengine = make('b')\nif dist.get_rank() == 0:\n    engine.write_all('x')\n"
    ),
    "an attribute of an object": (
        "from base import Engine\n\nclass Loop:\n    def __init__(self, engine: Engine):\n"
        "        self.engine = engine\n    def end(self):\n        if dist.get_rank() == 0:\n"
        "            self.engine.close_all()\n"
    ),
    "a rank that is kept in a dictionary of the project's own": (
        "class Settings(dict):\n    pass\n\nclass Loop:\n    def __init__(self):\n        self.args = Settings()\n"
        "        self.args['is_master'] = dist.get_rank() == 0\n"
        "    def end(self, x):\n        if self.args['is_master']:\n            dist.reduce(x, 0)\n"
    ),
    "a rank and a file that may be there": (
        "import os\n\ndef get(path):\n    if dist.get_rank() == 0 and not os.path.exists(path):\n"
        "        dist.barrier()\n"
    ),
    "a rank that is computed where processes are started": (
        "import torch.multiprocessing as mp\n\ndef work(global_rank, world):\n    if global_rank == 0:\n"
        "        dist.barrier()\n\ndef run(first, world):\n"
        "    for i in range(8):\n        mp.Process(target=work, args=(first + i, world)).start()\n"
    ),
    "a constructor behind a condition on the launcher": (
        "import os\n\nclass Store:\n    def __init__(self):\n        self.fill()\n    def fill(self):\n"
        "        if os.environ.get('TORCHELASTIC_RUN_ID') is not None:\n            dist.barrier()\n\n"
        "def save():\n    return Store()\n\ndef end():\n    if dist.get_rank() == 0:\n        save()\n"
    ),
}
ACCELERATE = "from accelerate import Accelerator, DistributedType\n\naccelerator = Accelerator()\n"
FOUND["a save of a model that may be in parts"] = (
    f"{ACCELERATE}def save(args):\n    print(args.use_fsdp)\n    if accelerator.is_main_process:\n"
    "        accelerator.save_state('x')\n"
)
FAMILY = "".join(f"class Kind{at}(Engine):\n    def rate_all(self):\n        print({at})\n\n" for at in range(8))
FOUND["one of ten classes, of which a setting picks some"] = (
    f"from base import Engine\n\n{FAMILY}class Gathers(Engine):\n    def rate_all(self):\n        dist.barrier()\n\n"
    "def run(kinds):\n    if dist.get_rank() == 0:\n        for kind in kinds:\n            kind.rate_all()\n"
)
SILENT = {
    "a save where the model is not in parts": (
        f"{ACCELERATE}def save(args):\n    if args.use_fsdp:\n        accelerator.save_state('x')\n        return\n"
        "    if accelerator.is_main_process:\n        accelerator.save_state('x')\n\n"
        "def end(args):\n    if not args.use_fsdp:\n        if accelerator.is_main_process:\n"
        "            accelerator.save_state('x')\n    else:\n        accelerator.save_state('x')\n"
    ),
    "a program that has no models in parts": (
        f"{ACCELERATE}assert accelerator.distributed_type != DistributedType.FSDP\n"
        "if accelerator.is_main_process:\n    accelerator.save_state('x')\n"
    ),
    "all ranks call it": "from base import Engine\n\ndef save(engine: Engine):\n    engine.write_all('x')\n",
    "the guard is around what does not wait": (
        "from kinds import Plain\n\nengine = Plain()\nif dist.get_rank() == 0:\n    engine.write_all('x')\n"
    ),
    "a method that says what it does on rank 0 alone": (
        "from base import Engine\n\ndef save(engine: Engine):\n    if dist.get_rank() == 0:\n        print(engine)\n"
        "    engine.close_all()\n"
    ),
}


def codes(text: str) -> list[str]:
    files = {name: code.encode() for name, code in {**FILES, "train.py": START + text}.items()}
    outcome = check(files, Settings())
    return [finding.code for finding in outcome.findings if finding.code.startswith("AR2")]


@pytest.mark.parametrize("case", FOUND)
def test_a_collective_behind_an_object_is_found(case: str) -> None:
    """The method that waits is one of those that may run."""
    assert codes(FOUND[case]) == ["AR201"]


@pytest.mark.parametrize("case", SILENT)
def test_what_waits_for_nobody_is_not_found(case: str) -> None:
    """Other classes of the family may wait, this one does not; or all ranks come."""
    assert codes(SILENT[case]) == []
