"""Guards that the engine must understand: behind each the code is silent, and the bug next to it is found."""

from __future__ import annotations

import pytest
from pairs import HEAD, Pair, codes

from allranks.check.engine import Settings, check

PAIRS = {
    "a rank among keywords that are not named": Pair(
        """
        def save(**options):
            if options['rank'] == 0:
                torch.save({}, 'last.pt')
        save(rank=rank)
        """,
        "def save(**options):\n    if options['late']:\n        torch.save({}, 'last.pt')\nsave(rank=rank)",
        "AR101",
    ),
    "the run of a tracker, which rank 0 alone has": Pair(
        """
        import wandb
        if rank == 0:
            wandb.init()
        if wandb.run is not None:
            wandb.log({})
        if wandb.run:
            torch.save({}, 'best.pt')
        """,
        "import wandb\nif wandb.run is not None:\n    wandb.log({})",
        "AR103",
    ),
    "a tracker that is disabled elsewhere": Pair(
        """
        import wandb
        mode = 'online'
        if rank != 0:
            mode = 'disabled'
        wandb.init(mode=mode)
        wandb.log({})
        """,
        "import wandb\nmode = os.environ.get('MODE')\nwandb.init(mode=mode)\nwandb.log({})",
        "AR103",
    ),
    "a rank that is told under a name, and not under a word for anything": Pair(
        """
        def record(event):
            event('rank', args={'pid': dist.get_rank()})
        if make().pid == 0:
            torch.save({}, 'last.pt')
        """,
        "event('rank', args={'value': dist.get_rank()})\nif make().kind.value == 0:\n    torch.save({}, 'last.pt')",
        "AR101",
    ),
    "fewer than two processes": Pair(
        """
        size = dist.get_world_size()
        if size < 2 or not size >= 2:
            torch.save({}, 'last.pt')
        """,
        "if dist.get_world_size() > 2:\n    torch.save({}, 'last.pt')",
        "AR101",
    ),
    "a rank that is kept in a dictionary": Pair(
        """
        opt = make_options()
        opt['keeps_logs'] = rank == 0 and opt['keeps_logs']
        if opt['keeps_logs']:
            open('log.txt', 'w')
        if opt['rank'] == 0:
            open('options.txt', 'w')
        """,
        "opt = make_options()\nif opt['logs']:\n    open('log.txt', 'w')",
        "AR102",
    ),
    "names of samples": Pair(
        """
        for batch in loader:
            open(batch['file_name'], 'w')
        for index, (image, name) in enumerate(loader):
            open(f'{name}.txt', 'w')
        """,
        "for index, batch in enumerate(loader):\n    open(f'{index}.txt', 'w')",
        "AR102",
    ),
    "a name of the project for rank 0": Pair(
        """
        def setup(backend):
            if backend.is_root_worker():
                open('log.txt', 'w')
        """,
        """
        def setup(backend):
            if backend.is_root_node_of_tree():
                open('log.txt', 'w')
        dist.barrier()
        setup(None)
        """,
        "AR102",
    ),
    "a rank among what a function returns": Pair(
        """
        def join(launcher):
            if launcher == 'none':
                return 0, 1
            return int(os.environ['RANK']), 2
        first, size = join(os.environ.get('LAUNCHER'))
        if first == 0:
            open('log.txt', 'w')
        """,
        """
        def join(launcher):
            if launcher == 'none':
                return 0, 1
            return int(os.environ['STEP']), 2
        first, size = join(os.environ.get('LAUNCHER'))
        if first != 3:
            open('log.txt', 'w')
        """,
        "AR102",
    ),
    "a rank that a loop over the launchers' variables finds": Pair(
        """
        def find():
            found = 0
            for name in ('RANK', 'SLURM_PROCID'):
                if name in os.environ:
                    found = int(os.environ[name])
                    break
            return found
        if find() == 0:
            open('log.txt', 'w')
        """,
        """
        def find():
            found = 0
            for name in ('STEP', 'EPOCH'):
                if name in os.environ:
                    found = int(os.environ[name])
                    break
            return found
        if find() == 0:
            open('log.txt', 'w')
        """,
        "AR102",
    ),
    "a mixin of a trainer, which rank 0 alone lets save": Pair(
        """
        from transformers import Trainer
        class Saving:
            def _save(self, output_dir=None, state_dict=None):
                torch.save({}, output_dir)
            def wait(self):
                dist.barrier()
        class Tuner(Saving, Trainer):
            pass
        """,
        """
        from transformers import Trainer
        class Saving:
            def _save(self, output_dir=None, state_dict=None):
                torch.save({}, output_dir)
            def wait(self):
                dist.barrier()
        class Tuner(Saving):
            pass
        """,
        "AR101",
    ),
    "a file that processes write in common": Pair(
        """
        import h5py
        h5py.File('data.h5')
        h5py.File('data.h5', 'a', driver='mpio')
        """,
        "import h5py\nh5py.File('data.h5', 'a')",
        "AR102",
    ),
    "an object that only rank 0 makes": Pair(
        """
        class Log:
            def __init__(self):
                self.writer = Writer() if False else None
            def start(self):
                if rank == 0:
                    self.writer = Writer()
                else:
                    self.writer = None
            def save(self):
                dist.barrier()
                if self.writer is not None:
                    torch.save({}, 'model.pt')
        class Writer:
            pass
        log = Log()
        log.start()
        log.save()
        """,
        """
        class Log:
            def start(self):
                self.writer = Writer()
            def save(self):
                dist.barrier()
                if self.writer is not None:
                    torch.save({}, 'model.pt')
        class Writer:
            pass
        log = Log()
        log.start()
        log.save()
        """,
        "AR101",
    ),
    "rank 0 first, the others behind a barrier": Pair(
        """
        from torchvision.datasets import MNIST
        if rank != 0:
            dist.barrier()
        MNIST('data', download=True)
        if rank == 0:
            dist.barrier()
        """,
        """
        from torchvision.datasets import MNIST
        dist.barrier()
        MNIST('data', download=True)
        dist.barrier()
        """,
        "AR106",
    ),
    "behind a turn that is over": Pair(
        """
        import shutil
        if rank != 0:
            dist.barrier()
        shutil.rmtree('cache')
        if rank == 0:
            dist.barrier()
        """,
        """
        import shutil
        if rank != 0:
            dist.barrier()
        if rank == 0:
            dist.barrier()
        shutil.rmtree('cache')
        """,
        "AR109",
    ),
    "a callee whose name comes first": Pair(
        """
        class Logger:
            def __init__(self, rank_zero_only=True):
                self.enabled = not rank_zero_only or dist.get_rank() == 0
            def _open(self):
                open('log.txt', 'w')
            def start(self):
                if self.enabled:
                    self._open()
        """,
        """
        class Logger:
            def __init__(self, enabled=True):
                self.enabled = enabled and dist.get_rank() >= 0
            def _open(self):
                open('log.txt', 'w')
            def start(self):
                if self.enabled:
                    self._open()
        """,
        "AR102",
    ),
    "a sibling with an attribute of that name": Pair(
        """
        class Callback:
            pass
        class Console(Callback):
            def __init__(self):
                self.enabled = True
        class Writer(Callback):
            def __init__(self):
                self.enabled = rank == 0
            def start(self):
                if self.enabled:
                    open('log.txt', 'w')
        """,
        """
        class Callback:
            def __init__(self):
                self.enabled = True
        class Writer(Callback):
            def start(self):
                dist.barrier()
                if self.enabled:
                    open('log.txt', 'w')
        """,
        "AR102",
    ),
    "a path that several processes are refused on": Pair(
        """
        def main(opt):
            dist.barrier()
            if dist.is_initialized():
                assert dist.get_world_size() > 1 and not opt.evolve, 'one process alone'
                assert not opt.sweep
            if opt.evolve or opt.sweep:
                open('evolved.txt', 'w')
        """,
        """
        def main(opt):
            dist.barrier()
            if dist.is_initialized():
                assert opt.evolve
            if opt.evolve:
                open('evolved.txt', 'w')
        """,
        "AR102",
    ),
    "a class that says what it holds": Pair(
        """
        from dataclasses import dataclass
        @dataclass
        class Identity:
            rank: int
        class World:
            def __init__(self, identity: Identity):
                self.identity = identity
            @property
            def is_main(self):
                return self.identity.rank == 0
        def enter() -> World:
            return start_up()
        def train():
            dist.barrier()
            world = enter()
            if world.is_main:
                open('log.txt', 'w')
        """,
        """
        from dataclasses import dataclass
        @dataclass
        class Identity:
            epoch: int
        class World:
            def __init__(self, identity: Identity):
                self.identity = identity
            @property
            def is_first(self):
                return self.identity.epoch == 0
        def enter() -> World:
            return start_up()
        def train():
            dist.barrier()
            world = enter()
            if world.is_first:
                open('log.txt', 'w')
        """,
        "AR102",
    ),
    "a method that a framework calls on rank 0": Pair(
        """
        from transformers import Trainer
        class Mine(Trainer):
            def _save(self, output_dir=None, state_dict=None):
                self.model.save_pretrained(output_dir)
        """,
        """
        from transformers import Trainer
        class Mine(Trainer):
            def save_model(self, output_dir=None, _internal_call=False):
                self.model.save_pretrained(output_dir)
        """,
        "AR101",
    ),
    "a decorator that is made by a call": Pair(
        """
        import functools
        def main_only(default=None):
            def decorate(f):
                @functools.wraps(f)
                def inner(*args):
                    return f(*args) if dist.get_rank() == 0 else default
                return inner
            return decorate
        @main_only()
        def save(path):
            open(path, 'w')
        dist.barrier()
        save('log.txt')
        """,
        """
        import functools
        def often(times):
            def decorate(f):
                @functools.wraps(f)
                def inner(*args):
                    return [f(*args) for _ in range(times + dist.get_world_size())]
                return inner
            return decorate
        @often(3)
        def save(path):
            open(path, 'w')
        dist.barrier()
        save('log.txt')
        """,
        "AR102",
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_guard_is_understood(case: str) -> None:
    """Right code is silent; the bug that looks like it is found."""
    pair = PAIRS[case]
    assert codes(pair.good) == []
    assert codes(pair.bad) == [pair.code]


ALONE = {
    "one that tells its rank": (
        "import jax\nimport logging\nlogging.info('process %d', jax.process_index())\n",
        "import jax\nshard = jax.process_index()\n",
    ),
    "one that is ready to be alone": (
        "import os\nos.environ.setdefault('RANK', '0')\n",
        "import os\nrank = os.environ['RANK']\n",
    ),
    "one with one device": (
        "from lightning.fabric import Fabric\nfabric = Fabric(devices=1)\n",
        "from lightning.fabric import Fabric\nfabric = Fabric(devices=2)\n",
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_program_for_one_process_is_silent(case: str) -> None:
    """What looks like several processes, and is none; where it is several, the same write is found."""
    for program, expected in zip(ALONE[case], ([], ["AR102"]), strict=True):
        outcome = check({"train.py": f"{program}open('metrics.txt', 'w')\n".encode()}, Settings(select=("AR102",)))
        assert [finding.code for finding in outcome.findings] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("devices=1", []),
        ("devices=[args.gpu]", []),
        ("gpus=1, num_nodes=1", []),
        ("gpus=1, num_nodes=2", ["AR101"]),
        ("devices=[0, 1]", ["AR101"]),
        ("devices=args.gpus", ["AR101"]),
        ("", ["AR101"]),
    ],
)
def test_a_trainer_with_one_device_starts_nobody(options: str, expected: list[str]) -> None:
    """Lightning starts a process for each device; how many there are stands in the call, or they are all."""
    text = f"""
import lightning as L
import torch

def main(args):
    trainer = L.Trainer({options})
    trainer.fit(None)
    torch.save({{}}, "last.pt")
"""
    assert [one.code for one in check({"train.py": text.encode()}, Settings(select=("AR101",))).findings] == expected


def test_a_module_of_the_same_name_hides_no_package() -> None:
    """``tracker/wandb.py`` imports the wandb that is installed; ``lib/composer.py`` is no ``composer``."""
    files = {
        "lib/__init__.py": "",
        "lib/wandb.py": "import wandb\n\ndef start():\n    wandb.init()\n",
        "lib/composer.py": "def get_node_rank():\n    return 1\n",
        "train.py": HEAD + "from composer.utils.dist import get_local_rank\nfrom lib.wandb import start\nstart()\n"
        "if get_local_rank() == 0:\n    open('log.txt', 'w')\n",
    }
    outcome = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR102", "AR103", "AR105")))
    assert [(f.code, f.place.path) for f in outcome.findings] == [("AR103", "lib/wandb.py"), ("AR105", "train.py")]


def test_overloads_say_nothing_of_what_a_function_does() -> None:
    utils = """\
import functools
from typing import overload
import torch.distributed as dist

@overload
def rank0_only() -> bool:
    ...

@overload
def rank0_only(fn): ...

def rank0_only(fn=None):
    if fn is None:
        return not dist.is_initialized() or dist.get_rank() == 0

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        return fn(*args, **kwargs) if rank0_only() else None

    return wrapped
"""
    train = """\
import os
import torch
import torch.distributed as dist
from utils import rank0_only

@rank0_only
def save(path):
    torch.save({}, path)

dist.init_process_group('gloo')
if rank0_only() and not os.path.isdir('out'):
    os.makedirs('out')
save('out/last.pt')
"""
    assert _found({"train.py": train, "utils.py": utils}) == set()


@pytest.mark.parametrize("name", ["LOCAL_RANK", "local_rank"])
def test_a_rank_that_unknown_code_gives_is_known_by_its_name(name: str) -> None:
    train = f"""\
import shutil
import torch.distributed as dist
from easydict import EasyDict
from elsewhere import join

cfg = EasyDict()
cfg.{name} = 0
dist.init_process_group('gloo')
world, cfg.{name} = join()
if cfg.{name} == 0:
    shutil.copy('a.yaml', 'out')
"""
    assert _found({"train.py": train}) == {"AR105"}


@pytest.mark.parametrize(
    "asks",
    [
        "from elsewhere import setup\nrank, world = setup()",
        "rank, world = map(int, (os.environ['RANK'], os.environ['WORLD_SIZE']))",
        "rank, world = (int(os.environ.get(k, d)) for k, d in zip(keys(), (0, 1)))",
    ],
)
def test_a_variable_that_unknown_code_fills_is_taken_at_its_name(asks: str) -> None:
    text = f"import os, torch\nimport torch.distributed as dist\n{asks}\ndist.init_process_group('gloo')\n"
    assert _found({"train.py": f"{text}if rank == 0:\n    torch.save(1, 'last.pt')\n"}) == set()
    assert _found({"train.py": f"{text}if world == 0:\n    torch.save(1, 'last.pt')\n"}) == {"AR101"}


KEPT = {
    "in a field of a dataclass": (
        """
import dataclasses
@dataclasses.dataclass
class Keeper:
    path: str
    on: bool
    def save(self):
        if self.on:
            torch.save(1, self.path)
Keeper('last.pt', rank == 0).save()
""",
        "rank == 0",
        "rank >= 0",
    ),
    "in an attribute of a class that unknown values fill too": (
        """
class Env:
    rank = 0
    @classmethod
    def fill(cls):
        cls.rank, cls.world = elsewhere.given()
        cls.rank = rank
Env.fill()
if Env.rank == 0:
    torch.save(1, 'last.pt')
""",
        "Env.rank == 0",
        "Env.world == 0",
    ),
    "in a field of what a configuration holds": (
        """
import dataclasses
@dataclasses.dataclass
class Env:
    size: int
    lead: bool
config = elsewhere.config(env=Env(size=dist.get_world_size(), lead=(rank == 0)))
if config.env.lead:
    torch.save(1, 'last.pt')
""",
        "config.env.lead",
        "config.env.size",
    ),
    "in the only property of its name": (
        """
class World:
    def __init__(self, rank):
        self.rank = rank
    @property
    def lead(self):
        return self.rank == 0
def save(world):
    if world.lead:
        torch.save(1, 'last.pt')
elsewhere.run(save, World(rank))
""",
        "world.lead",
        "world.size",
    ),
}


@pytest.mark.parametrize("where", KEPT)
def test_a_rank_is_known_where_it_is_kept(where: str) -> None:
    text, right, wrong = KEPT[where]
    head = "import elsewhere\nimport torch\nimport torch.distributed as dist\n"
    head += "dist.init_process_group('gloo')\nrank = dist.get_rank()\n"
    assert _found({"train.py": head + text}) == set()
    assert _found({"train.py": head + text.replace(right, wrong)}) == {"AR101"}


def _found(files: dict[str, str]) -> set[str]:
    outcome = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR1",)))
    return {finding.code for finding in outcome.findings}


def test_a_module_of_several_of_one_name_is_that_which_has_what_is_imported() -> None:
    files = {
        "tool/utils.py": "import torch.distributed as dist\ndef get_rank():\n    return dist.get_rank()\n",
        "tool/kit/__init__.py": "",
        "tool/kit/utils.py": "def other():\n    return 1\n",
        "tool/kit/trainer.py": """\
import torch
from utils import get_rank

def save(state):
    if get_rank() == 0:
        torch.save(state, 'last.pt')
""",
        "tool/train.py": "import torch.distributed as dist\nfrom kit.trainer import save\n"
        "dist.init_process_group('gloo')\nsave(1)\n",
    }
    assert _found(files) == set()


SPAWNED = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(gpu, cfg):
    if cfg.distributed:
        cfg.rank = gpu
        dist.init_process_group('gloo', rank=cfg.rank, world_size=2)
    if cfg.rank == 0:
        torch.save(1, 'last.pt')

cfg = load()
if cfg.several:
    mp.spawn(main, nprocs=2, args=(cfg,))
else:
    main(0, cfg)
"""


def test_who_calls_himself_what_he_could_start_is_alone() -> None:
    assert _found({"train.py": SPAWNED}) == set()
    assert _found({"train.py": SPAWNED.replace("cfg.rank == 0", "cfg.rank >= 0")}) == {"AR101"}


def test_an_interface_for_people_is_one_process() -> None:
    text = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\ntorch.save(1, 'a.pt')\n"
    assert _found({"app.py": text}) == {"AR101"}
    assert _found({"app.py": "import gradio\n" + text}) == set()
    program = "import torch.distributed as dist\nfrom page import show\ndist.init_process_group('gloo')\nshow()\n"
    page = "import torch\n\ndef show():\n    torch.save(1, 'a.pt')\n"
    assert _found({"app.py": program, "page.py": page}) == {"AR101"}
    assert _found({"app.py": program, "page.py": "import streamlit\n" + page}) == set()


def test_what_a_partial_gives_by_keyword_is_known_where_the_function_is_called_back() -> None:
    text = """
import functools
import torch
import torch.distributed as dist

def ready(trace, *, name):
    torch.save(trace, name)

dist.init_process_group('gloo')
with torch.profiler.profile(on_trace_ready=functools.partial(ready, name=f'{dist.get_rank()}.pt')):
    train()
"""
    assert _found({"train.py": text}) == set()
    assert _found({"train.py": text.replace("dist.get_rank()", "dist.get_world_size()")}) == {"AR101"}


def test_who_submits_jobs_is_one_process() -> None:
    """The jobs are several processes; what is written where they are submitted is written once."""
    text = """
import torch
import torch.distributed as dist
import submitit

def train():
    dist.init_process_group('gloo')

def main(args):
    if args.there:
        submitit.AutoExecutor(folder='jobs').submit(train)
        torch.save(1, 'a.pt')
    else:
        train()

main(read())
"""
    assert _found({"train.py": text.replace("submitit.AutoExecutor(folder='jobs').submit(train)", "pass")}) == {"AR101"}
    assert _found({"train.py": text}) == set()


def test_a_tracker_that_some_have_started_stops_the_others() -> None:
    """What happens is another thing than where every rank starts a run."""
    text = "import torch.distributed as dist\nimport wandb\n\ndist.init_process_group('gloo')\n"
    started = "if dist.get_rank() == 0:\n    wandb.init()\n"
    findings = [
        check({"train.py": f"{text}{more}wandb.log({{}})\n".encode()}, Settings()).findings for more in (started, "")
    ]
    assert [[f.cluster.partition(":")[0] for f in found] for found in findings] == [
        ["Only some ranks have started a run"],
        ["N runs are made, one for each process."],
    ]


LAUNCHERS = """\
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def world_from_environment():
    rank = 0
    for name in ("RANK", "PMI_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if name in os.environ:
            rank = int(os.environ[name])
            break
    return rank


def main(args):
    dist.init_process_group("gloo")
    args.rank = world_from_environment()
    if args.keep and args.rank == 0:
        torch.save({}, "last.pt")
    if args.whole and args.rank == 0:
        dcp.save({}, checkpoint_id="whole")


main(None)
"""


def test_a_rank_that_is_looked_for_under_the_names_of_several_launchers_is_the_rank() -> None:
    """What a round sets that leaves the loop, no later round finds: before, there was no other launcher."""
    findings = check({"train.py": LAUNCHERS.encode()}, Settings(select=("AR101", "AR201"))).findings
    assert [(one.code, one.place.line) for one in findings] == [("AR201", 22)]


DOTTED = """\
import argparse
import torch
import torch.distributed as dist


def save(opts: argparse.Namespace):
    node_rank = getattr(opts, "ddp.rank", 0)
    if node_rank == 0:
        torch.save({}, "last.pt")


dist.init_process_group("gloo")
save(get_opts())
"""


def test_options_are_called_what_the_command_line_calls_them() -> None:
    """A rank is one by its name on what argparse has read, dotted or not."""
    plain = DOTTED.replace('getattr(opts, "ddp.rank", 0)', "opts.rank")
    assert _found({"train.py": DOTTED}) == _found({"train.py": plain}) == set()
    assert _found({"train.py": DOTTED.replace('"ddp.rank"', '"ddp.local_rank"')}) == {"AR105"}
    assert _found({"train.py": plain.replace("opts.rank", "opts.local_rank")}) == {"AR105"}


UNSET = """\
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, rank=-1):
        self._rank = rank

    def save(self):
        if self._rank <= 0:
            torch.save({}, "last.pt")


class Other(Trainer):
    def __init__(self):
        super().__init__()


dist.init_process_group("gloo")
Other().save()
"""


def test_an_attribute_called_a_rank_that_is_minus_one_is_the_rank() -> None:
    """Nobody has told it; rank 0 of several has passed the same guard."""
    assert _found({"train.py": UNSET}) == set()
    assert _found({"train.py": UNSET.replace("_rank", "_size")}) == {"AR101"}


TOLD_ALONE = """\
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world_size, out):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    with open(out + f"/samples_{rank}.txt", "w") as f:
        f.write("a")


def main(args):
    if args.gpus == 1:
        work(rank=0, world_size=1, out=args.out)
    else:
        mp.spawn(work, args=(args.gpus, args.out), nprocs=args.gpus)


main(get_args())
"""


def test_a_function_that_is_told_that_it_is_alone_is() -> None:
    """``rank=0, world_size=1``: what each of several calls by its rank is not the same for all."""
    assert _found({"train.py": TOLD_ALONE}) == set()
    assert _found({"train.py": TOLD_ALONE.replace("_{rank}", "")}) == {"AR102"}


NUMBERED = """\
import numpy as np
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = 0
for row in rows():
    step = rank + total
    np.save(f"out/{step}.npy", row)
    total += dist.get_world_size()
"""


def test_a_step_that_is_counted_from_the_rank_names_the_rank() -> None:
    """Another one is no rank."""
    assert _found({"train.py": NUMBERED}) == set()
    assert _found({"train.py": NUMBERED.replace("rank + total", "total")}) == {"AR102"}
