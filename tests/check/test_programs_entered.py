"""Programs are entered, however they call what they do: every rank reaches the write in the innermost function."""

from __future__ import annotations

import ast

import pytest

from allranks.check.analysis import Analysis, analyse
from allranks.check.queries.effects import by_nodes, holds_state, is_known, named_by_each, path_of, ungated

JOIN = "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
SAVE = "import torch\n\ndef train(path='last.pt'):\n    torch.save({}, path)\n"
PROGRAMS = {
    "a function": {"main.py": f"{JOIN}from loop import train\ntrain()\n", "loop.py": SAVE},
    "a module named as its function": {
        "main.py": f"{JOIN}from pkg import train\ntrain()\n",
        "pkg/__init__.py": "from .train import train\n",
        "pkg/train.py": SAVE,
    },
    "an attribute of a package": {
        "main.py": f"{JOIN}import pkg\npkg.train('last.pt')\n",
        "pkg/__init__.py": "from pkg.train import *\n",
        "pkg/train.py": SAVE,
    },
    "partial": {
        "main.py": f"{JOIN}import functools\nfrom loop import train\nfunctools.partial(train, 'a.pt')()\n",
        "loop.py": SAVE,
    },
    "a class": {
        "main.py": f"{JOIN}from loop import Trainer\nTrainer('last.pt').fit()\n",
        "loop.py": "import torch\nclass Base:\n    def fit(self):\n        self.save()\n"
        "class Trainer(Base):\n    def __init__(self, path):\n        self.path = path\n"
        "    def save(self):\n        torch.save({}, self.path)\n",
    },
    "a factory": {
        "main.py": f"{JOIN}from loop import make\nmake('adam')()\n",
        "loop.py": f"{SAVE}\nKINDS = {{'adam': train}}\ndef make(name):\n    return KINDS[name]\n",
    },
    "an attribute of a class": {
        "main.py": f"{JOIN}from loop import train\nclass Task:\n    run = staticmethod(train)\nTask.run()\n",
        "loop.py": SAVE,
    },
    "super": {
        "main.py": f"{JOIN}from loop import Base\nclass Mine(Base):\n    def fit(self):\n        super().fit()\n"
        "Mine().fit()\n",
        "loop.py": "import torch\nclass Base:\n    def fit(self):\n        torch.save({}, 'last.pt')\n",
    },
    "click": {
        "main.py": f"import click\n{JOIN}from loop import train\n@click.command()\ndef main():\n    train()\n"
        "if __name__ == '__main__':\n    main()\n",
        "loop.py": SAVE,
    },
    "hydra": {
        "main.py": f"import hydra\n{JOIN}from loop import train\n@hydra.main(config_path='c')\ndef main(cfg):\n"
        "    train(cfg.path)\nif __name__ == '__main__':\n    main()\n",
        "loop.py": SAVE,
    },
    "fire": {"main.py": f"import fire\n{JOIN}from loop import train\nfire.Fire(train)\n", "loop.py": SAVE},
    "absl": {
        "main.py": f"from absl import app\n{JOIN}from loop import train\ndef main(argv):\n    train()\napp.run(main)\n",
        "loop.py": SAVE,
    },
    "spawn": {
        "main.py": "import torch.multiprocessing as mp\nfrom loop import train\ndef work(rank, world):\n    train()\n"
        "if __name__ == '__main__':\n    mp.spawn(work, args=(2,), nprocs=2)\n",
        "loop.py": SAVE,
    },
    "a decorator of the project": {
        "main.py": f"{JOIN}from loop import train\ndef logged(f):\n    def inner(*args):\n        return f(*args)\n"
        "    return inner\n@logged\ndef main():\n    train()\nmain()\n",
        "loop.py": SAVE,
    },
    "a dataclass": {
        "main.py": f"{JOIN}from dataclasses import dataclass\nfrom loop import train\n@dataclass\nclass Run:\n"
        "    do: object\nRun(train).do()\n",
        "loop.py": SAVE,
    },
    "a generator": {
        "main.py": f"{JOIN}from loop import train\ndef steps():\n    yield train\nfor step in steps():\n    step()\n",
        "loop.py": SAVE,
    },
    "a table of classes": {
        "main.py": f"{JOIN}from loop import TABLE\nTABLE[input()]().run()\n",
        "loop.py": "import torch\nTABLE = {}\ndef register(cls):\n    TABLE[cls.__name__] = cls\n    return cls\n"
        "@register\nclass Saver:\n    def run(self):\n        torch.save({}, 'a.pt')\n"
        "@register\nclass Other:\n    def run(self):\n        pass\n",
    },
    "match": {
        "main.py": f"{JOIN}import sys\nfrom loop import train\nmatch sys.argv[1]:\n    case 'train':\n"
        "        train()\n",
        "loop.py": SAVE,
    },
    "typer": {
        "main.py": f"import typer\n{JOIN}from loop import train\napp = typer.Typer()\n@app.command()\n"
        "def main():\n    train()\nif __name__ == '__main__':\n    app()\n",
        "loop.py": SAVE,
    },
    "a package that is run": {
        "pkg/__init__.py": "",
        "pkg/__main__.py": f"{JOIN}from pkg.train import train\ntrain()\n",
        "pkg/train.py": SAVE,
    },
    "an import in a function": {
        "main.py": f"{JOIN}def main():\n    from loop import train\n    train()\nmain()\n",
        "loop.py": SAVE,
    },
    "an import by its name": {
        "main.py": f"{JOIN}import importlib\nimportlib.import_module('loop').train()\n",
        "loop.py": SAVE,
    },
    "an import that type checkers do not see": {
        "main.py": f"from typing import TYPE_CHECKING\n{JOIN}if TYPE_CHECKING:\n    from other import train\nelse:\n"
        "    from loop import train\ntrain()\n",
        "loop.py": SAVE,
    },
    "a thread": {
        "main.py": f"{JOIN}import threading\nfrom loop import train\nthreading.Thread(target=train).start()\n",
        "loop.py": SAVE,
    },
    "a forward pass": {
        "main.py": f"{JOIN}from loop import Net\nNet()(1)\n",
        "loop.py": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        torch.save({}, 'a.pt')\n",
    },
    "a context": {
        "main.py": f"{JOIN}from loop import Run\nwith Run():\n    pass\n",
        "loop.py": "import torch\nclass Run:\n    def __enter__(self):\n        return self\n"
        "    def __exit__(self, *error):\n        torch.save({}, 'a.pt')\n",
    },
    "an iterator": {
        "main.py": f"{JOIN}from loop import Run\nfor x in Run():\n    pass\n",
        "loop.py": "import torch\nclass Run:\n    def __iter__(self):\n        torch.save({}, 'a.pt')\n"
        "        yield 1\n",
    },
    "a property": {
        "main.py": f"{JOIN}from loop import Run\nRun().path\n",
        "loop.py": "import torch\nclass Run:\n    @property\n    def path(self):\n        torch.save({}, 'a.pt')\n",
    },
    "a decorator of torchrun": {
        "main.py": f"from torch.distributed.elastic.multiprocessing.errors import record\n{JOIN}"
        "from loop import train\n@record\ndef main():\n    train()\nmain()\n",
        "loop.py": SAVE,
    },
}


def analysis(files: dict[str, str]) -> Analysis:
    return analyse({path: ast.parse(text) for path, text in files.items()}, files)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_write_is_reached_by_every_rank(name: str) -> None:
    found = [(r.call.path, r.call.name) for root, r in ungated(analysis(PROGRAMS[name]), "checkpoint") if root.sure]
    assert found == [("loop.py" if "loop.py" in PROGRAMS[name] else "pkg/train.py", "torch.save")]


GUARDS = {
    "if dist.get_rank() == 0:": 1,
    "if not dist.get_rank():": 1,
    "if os.environ['RANK'] == '0':": 1,
    "if dist.get_rank() == 0 and os.path.exists('a'):": 1,
    "if is_main_process():": 1,
    "if trainer.is_main:": 1,
    "if dist.get_rank() % 8 == 0 and dist.get_rank() < 1:": 1,
    "if dist.get_world_size() > 1:": 0,
    "if dist.get_rank() >= 0:": 0,
    "if os.path.exists('a'):": 0,
    "if step % 10 == 0:": 0,
}
GUARDED = """\
import os
import torch
import torch.distributed as dist
from tools import is_main_process, trainer

dist.init_process_group("nccl")
for step in range(10):
    {}
        torch.save({{}}, "last.pt")
"""


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_lets_one_rank_write(guard: str) -> None:
    found = list(ungated(analysis({"train.py": GUARDED.format(guard)}), "checkpoint"))
    assert len(found) == 1 - GUARDS[guard]


PATHS = {
    "'last.pt'": "shared",
    "f'{dist.get_rank()}.pt'": "local",
    "'%d.pt' % dist.get_rank()": "local",
    "os.path.join('out', str(dist.get_rank()), 'a.pt')": "local",
    "Path('out') / f'{os.getpid()}.pt'": "local",
    "tempfile.mkdtemp() + '/a.pt'": "local",
    "io.BytesIO()": "local",
    "f'{step}.pt'": "shared",
    "f'{time.time()}.pt'": "by chance",
    "Path('out', datetime.now().strftime('%H%M'), 'a.pt')": "by chance",
    "datetime.now().strftime('%Y-%m-%d') + '.pt'": "shared",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_shared_or_of_one_rank(path: str) -> None:
    """Or each rank names it by chance: after its clock."""
    head = (
        "import io, os, tempfile, time\nfrom datetime import datetime\nfrom pathlib import Path\nstep = int(input())\n"
    )
    found = analysis({"train.py": f"{JOIN}{head}torch.save({{}}, {path})\n"})
    assert bool(list(ungated(found, "checkpoint"))) == (PATHS[path] != "local")
    assert bool(list(named_by_each(found, "checkpoint"))) == (PATHS[path] == "by chance")


def test_what_the_first_process_of_each_node_writes() -> None:
    text = f"{JOIN}import os\nif int(os.environ['LOCAL_RANK']) == 0:\n    torch.save({{}}, 'out/a.pt')\n"
    ((_, reach),) = by_nodes(analysis({"train.py": text}), "checkpoint")
    assert (path_of(reach), is_known(reach)) == ("out/a.pt", True)
    local = text.replace("out/", "/tmp/")
    assert list(by_nodes(analysis({"train.py": local}), "checkpoint")) == []


def test_a_function_that_nobody_calls_is_not_sure() -> None:
    text = (
        "import torch\nimport torch.distributed as dist\ndef save():\n    dist.get_rank()\n    torch.save({}, 'a.pt')\n"
    )
    ((root, _),) = ungated(analysis({"tools.py": text}), "checkpoint")
    assert (root.kind, root.sure) == ("function", False)


def test_a_hook_runs_on_every_process() -> None:
    text = (
        "import torch\nfrom pytorch_lightning import LightningModule\nclass Model(LightningModule):\n"
        "    def on_train_epoch_end(self):\n        torch.save({}, 'a.pt')\n"
    )
    ((root, _),) = ungated(analysis({"model.py": text}), "checkpoint")
    assert (root.kind, root.sure) == ("hook", True)


HOOKS = """\
import torch
import torch.distributed as dist
from engine import loop

class Saver:
    def after_step(self):
        torch.save({{}}, "a.pt")

dist.init_process_group("nccl")
hooks = []
{}hooks.append(Saver())
loop(hooks)
"""


@pytest.mark.parametrize(("guard", "count"), [("", 1), ("if dist.get_rank() == 0:\n    ", 0)])
def test_a_method_that_nobody_calls_is_run_by_those_who_make_its_object(guard: str, count: int) -> None:
    found = list(ungated(analysis({"train.py": HOOKS.format(guard)}), "checkpoint"))
    assert [root.kind for root, _ in found] == ["method"] * count


@pytest.mark.parametrize(("called", "sure"), [("", False), ("def loop(hooks):\n    hooks[0].after_step()\n", True)])
def test_a_method_is_sure_where_its_name_is_used(called: str, sure: bool) -> None:
    ((root, _),) = ungated(analysis({"train.py": HOOKS.format(""), "other.py": called}), "checkpoint")
    assert root.sure == sure


def test_a_command_that_a_parser_chooses_is_entered() -> None:
    text = (
        f"{JOIN}import argparse\ndef train(args):\n    torch.save({{}}, args.out)\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_subparsers().add_parser('train').set_defaults(run=train)\nargs = parser.parse_args()\n"
        "args.run(args)\n"
    )
    ((root, reach),) = ungated(analysis({"main.py": text}), "checkpoint")
    assert (root.kind, reach.call.target) == ("program", "args.out")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("with open(tmp, 'wb') as f:\n    np.savez(f, x=1)\nos.replace(tmp, 'step_1.npz')", ["'step_1.npz'"]),
        ("with open(tmp, 'w') as f:\n    json.dump({}, f)\nos.replace(tmp, 'metrics.json')", []),
    ],
)
def test_what_is_renamed_into_place_is_written_there(line: str, expected: list[str]) -> None:
    head = f"{JOIN}import json, os, uuid\nimport numpy as np\ntmp = f'part-{{uuid.uuid4()}}'\n"
    found = analysis({"main.py": f"{head}{line}\n"})
    moved = [(root, reach) for root, reach in ungated(found, "moved")]
    assert [reach.call.target for _, reach in moved if holds_state(found, reach)] == expected
    assert len(moved) == 1


def test_what_lightning_calls_on_one_process_is_not_done_by_all() -> None:
    text = (
        "import urllib.request\nfrom pytorch_lightning import LightningDataModule\nclass Data(LightningDataModule):\n"
        "    def {}(self):\n        urllib.request.urlretrieve('http://x', 'a.tar')\n"
    )
    for name, count in (("prepare_data", 0), ("setup", 1)):
        assert len(list(ungated(analysis({"data.py": text.format(name)}), "download"))) == count


VARIABLES = {
    "rank, world = (int(os.environ.get(k, 0)) for k in ('RANK', 'WORLD_SIZE'))": 1,
    "keys = ('RANK', 'LOCAL_RANK')\nrank, local = [os.environ[k] for k in keys]": 1,
    "from tools import setup\nrank, world = setup()": 1,
    "rank = dist.get_rank(group)": 0,
    "rank = 0 if 'RANK' not in os.environ else int(os.environ['RANK'])": 1,
}


@pytest.mark.parametrize("line", VARIABLES)
def test_ranks_come_from_the_environment_or_from_names(line: str) -> None:
    text = f"{JOIN}import os\n{line}\nif rank == 0:\n    torch.save({{}}, 'a.pt')\n"
    reached = [reach for _, reach in analysis({"train.py": text}).reached("checkpoint")]
    assert [reach.certain == 1 for reach in reached] == [bool(VARIABLES[line])]


IN_TURN = """\
import torch
import torch.distributed as dist

class Wait:
    def end(self):
        dist.barrier()

class Write:
    def end(self):
        torch.save({{}}, "a.pt")

dist.init_process_group("nccl")
hooks = [Wait()]
if dist.get_rank() == 0:
    hooks.append({}())
for hook in hooks:
    hook.end()
"""


@pytest.mark.parametrize(("kind", "causes", "writers"), [("Write", [], 1), ("Wait", ["rank"], 0)])
def test_hooks_run_one_after_the_other_on_the_ranks_that_have_them(kind: str, causes: list[str], writers: int) -> None:
    found = analysis({"train.py": IN_TURN.format(kind)})
    (root,) = [root for root in found.roots if root.kind == "program"]
    assert [one.cause for one in root.parted] == causes
    assert [reach.certain for reach in root.reached if reach.call.kind == "checkpoint"] == [1] * writers


DIVERGENCES = {
    "only(dist.barrier)": "rank",
    "if done or not main:\n    sys.exit()\ndist.barrier()": "return",
    "if time.time() > 9:\n    dist.barrier()": "process",
    "for batch in train_loader:\n    if batch.sum() > 3:\n        break\n    dist.barrier()": "process",
    "for batch in train_loader:\n    loss = batch\n    dist.all_reduce(loss)\n    if loss > 3:\n        break": "",
    "jax.tree.map(lambda x: dist.all_reduce(x), [1]) if main else None": "rank",
    "if main and os.path.exists('a'):\n    dist.barrier()": "rank",
    "if os.path.exists('a') and done:\n    dist.barrier()": "process",
    "Env.start()\nif Env.main:\n    dist.barrier()": "rank",
}
DIVERGING = """\
import os, sys, time
import jax
import torch.distributed as dist

class Env:
    main = False

    @classmethod
    def start(cls):
        Env.main = dist.get_rank() == 0

def only(f):
    if main:
        f()

dist.init_process_group("nccl")
main, done = dist.get_rank() == 0, bool(input())
"""


@pytest.mark.parametrize("lines", DIVERGENCES)
def test_where_ranks_diverge_and_why(lines: str) -> None:
    (root,) = [root for root in analysis({"train.py": DIVERGING + lines + "\n"}).roots if root.kind == "program"]
    assert [one.cause for one in root.parted if one.cause != "rounds"] == [DIVERGENCES[lines]] * bool(
        DIVERGENCES[lines]
    )


@pytest.mark.parametrize(
    ("line", "sure"), [("dist.barrier()", True), ("rank = dist.get_rank()", False), ("x = 1", False)]
)
def test_a_collective_or_a_rank_shows_several_processes(line: str, sure: bool) -> None:
    text = f"import torch\nimport torch.distributed as dist\n{line}\ntorch.save({{}}, 'a.pt')\n"
    assert [root.sure for root in analysis({"train.py": text}).roots] == [sure]
