"""Guards that the engine must understand: behind each the code is silent, and the bug next to it is found."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import pytest

from allranks.check.engine import Settings, check

HEAD = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group('nccl')
rank = dist.get_rank()
"""


class Pair(NamedTuple):
    """Two programs that look alike; the second has the fault."""

    good: str
    bad: str
    code: str


def codes(text: str) -> list[str]:
    """Return the codes about effects that are found, in order of place."""
    outcome = check({"train.py": (HEAD + textwrap.dedent(text)).encode()}, Settings())
    return [finding.code for finding in outcome.findings if finding.code.startswith("AR10")]


PAIRS = {
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
    "a context that may give a temporary folder": Pair(
        """
        import contextlib
        import tempfile
        @contextlib.contextmanager
        def staged(path):
            local = tempfile.mkdtemp() if '://' in path else path
            yield local
        with staged(os.environ['OUT']) as folder:
            open(os.path.join(folder, 'config.json'), 'w')
        """,
        """
        import contextlib
        @contextlib.contextmanager
        def staged(path):
            yield path
        with staged(os.environ['OUT']) as folder:
            open(os.path.join(folder, 'config.json'), 'w')
        """,
        "AR102",
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
    "a name that will be filled in with the rank": Pair(
        """
        class Writer:
            def __init__(self, folder, name='log-{rank}.txt'):
                self.path = os.path.join(folder, name)
            def start(self, fill):
                dist.barrier()
                open(fill(self.path), 'w')
                open(self.path.format(rank=rank), 'w')
        """,
        """
        class Writer:
            def __init__(self, folder, name='log-{epoch}.txt'):
                self.path = os.path.join(folder, name)
            def start(self, fill):
                dist.barrier()
                open(fill(self.path), 'w')
        """,
        "AR102",
    ),
    "files of this process, in a list": Pair(
        """
        class Saver:
            def __init__(self):
                self.saved = []
            def save(self):
                dist.barrier()
                self.saved.append(f'{rank}.pt')
                while len(self.saved) > 3:
                    os.remove(self.saved.pop(0))
                for path in self.saved:
                    os.remove(path)
        """,
        """
        class Saver:
            def __init__(self):
                self.saved = []
            def save(self, epoch):
                dist.barrier()
                self.saved.append(f'{epoch}.pt')
                while len(self.saved) > 3:
                    os.remove(self.saved.pop(0))
        """,
        "AR109",
    ),
    "a thread that is given a file of this process": Pair(
        """
        from concurrent.futures import ThreadPoolExecutor
        from threading import Thread
        def upload(path, group):
            os.remove(path)
        def main(pool):
            dist.barrier()
            path = None
            for step in range(9):
                if path:
                    pool.submit(upload, path, group=1)
                path = f'{rank}-{step}.bin'
            Thread(target=upload, args=(path, 1)).start()
        """,
        """
        def upload(path, group):
            os.remove(path)
        def main(pool):
            dist.barrier()
            path = None
            for step in range(9):
                if path:
                    pool.submit(upload, path, group=1)
                path = f'{step}.bin'
        """,
        "AR109",
    ),
    "what this process has queued": Pair(
        """
        def work(file_queue):
            dist.barrier()
            while True:
                name, path = file_queue.get()
                os.remove(path)
        """,
        """
        def work(config):
            dist.barrier()
            while True:
                name, path = config.get()
                os.remove(path)
        """,
        "AR109",
    ),
    "a deletion that forgives": Pair(
        """
        import contextlib
        from pathlib import Path
        try:
            os.remove('a')
        except (OSError, ValueError):
            pass
        with contextlib.suppress(FileNotFoundError):
            os.remove('b')
        Path('c').unlink(missing_ok=True)
        try:
            os.link('d', 'e' + str(rank))
        except ValueError:
            os.remove('d')
            raise
        """,
        """
        try:
            os.remove('a')
        except (KeyError, ValueError):
            pass
        """,
        "AR109",
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
    "a record of who this is": Pair(
        """
        from dataclasses import dataclass
        @dataclass
        class Job:
            name: str
            writes: bool = False
            log: str = ''
            @property
            def again(self):
                return self.log + '.again'
        def train():
            dist.barrier()
            job = Job('lm', rank == 0, log=f'{rank}.txt')
            if job.writes:
                open('log.txt', 'w')
            open(job.log, 'w')
            open(job.again, 'w')
        """,
        """
        from dataclasses import dataclass
        @dataclass
        class Job:
            name: str
            writes: bool = False
        def train(flag):
            dist.barrier()
            job = Job('lm', flag)
            if job.writes:
                open('log.txt', 'w')
        """,
        "AR102",
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
    "a table that is made into text": Pair(
        "def show(table):\n    dist.barrier()\n    return table.to_csv(None)",
        "def show(table):\n    dist.barrier()\n    return table.to_csv('table.csv')",
        "AR102",
    ),
    "a lock that is waited for": Pair(
        """
        import filelock
        lock = filelock.FileLock('x.lock')
        with lock.acquire(timeout=1):
            open('x', 'w')
        """,
        "with torch.no_grad():\n    open('x', 'w')",
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
