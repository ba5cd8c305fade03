"""What belongs to one process: its files, its threads and queues, what it may delete though others do too."""

from __future__ import annotations

import pytest
from pairs import Pair, codes

from allranks.check.engine import Settings, check

PAIRS = {
    "a name in a dictionary": Pair(
        """
        names = {'own': f'state-{rank}.pt', 'all': 'state.pt'}
        torch.save({}, names['own'])
        """,
        """
        names = {'own': f'state-{rank}.pt', 'all': 'state.pt'}
        torch.save({}, names['all'])
        """,
        "AR101",
    ),
    "the index of a sample that comes with it": Pair(
        """
        for sample, sample_idx in log_every(data_loader):
            torch.save(sample, f'{sample_idx[0].item():06d}.pt')
        """,
        """
        for sample_idx, sample in enumerate(data_loader):
            torch.save(sample, f'{sample_idx:06d}.pt')
        """,
        "AR101",
    ),
    "what a sample is called, filled in": Pair(
        """
        for sample in data_loader:
            torch.save(sample, '%s.pt' % sample['name'])
            torch.save(sample, '{}.bin'.format(sample['name']))
        """,
        """
        for step, sample in enumerate(data_loader):
            torch.save(sample, '%s.pt' % step)
        """,
        "AR101",
    ),
    "what is made of a batch has the names of its samples": Pair(
        """
        def test_step(batch, index):
            parts = get_parts(batch)
            for name in parts['fname']:
                torch.save({}, name + '.pt')
        test_step(next(data), 1)
        """,
        """
        def test_step(batch, index):
            parts = get_parts(index)
            for name in parts['fname']:
                torch.save({}, name + '.pt')
        test_step(next(data), 1)
        """,
        "AR101",
    ),
    "what a batch is taken apart into": Pair(
        """
        from typing import Any
        def test_step(batch: Any, index: int):
            images, metas = batch
            for image, meta in zip(images, metas):
                torch.save(image, f'{meta.window_name}_{meta.bounds[0]}.pt')
        test_step(next(data), 1)
        """,
        """
        def test_step(batch, index):
            images, metas = batch
            torch.save(images, f'{index}.pt')
        test_step(next(data), 1)
        """,
        "AR101",
    ),
    "a name without its end, of a share": Pair(
        """
        for path in paths[rank::4]:
            open(os.path.basename(path).rsplit('.', 1)[0] + '.json', 'w')
        """,
        """
        for path in paths:
            open(os.path.basename(path).rsplit('.', 1)[0] + '.json', 'w')
        """,
        "AR102",
    ),
    "what MPI has dealt out": Pair(
        """
        import pandas as pd
        from mpi4py import MPI
        times = MPI.COMM_WORLD.scatter(all_times, root=0)
        for at, time in enumerate(pd.DatetimeIndex(times)):
            open(f"{time.strftime('%Y-%m-%d')}.nc", 'w')
        """,
        """
        import pandas as pd
        from mpi4py import MPI
        times = MPI.COMM_WORLD.bcast(all_times, root=0)
        for at, time in enumerate(pd.DatetimeIndex(times)):
            open(f"{time.strftime('%Y-%m-%d')}.nc", 'w')
        """,
        "AR102",
    ),
    "what a batch is asked for under the key of a name": Pair(
        """
        def test_step(batch, index):
            torch.save({}, get_part(batch, 'fname')[0] + '.pt')
        test_step(next(data), 1)
        """,
        """
        def test_step(batch, index):
            torch.save({}, get_part(batch, 'kind')[0] + '.pt')
        test_step(next(data), 1)
        """,
        "AR101",
    ),
    "a folder of all, and a beginning of the name that is one's own": Pair(
        """
        from flax.training import checkpoints
        checkpoints.save_checkpoint('out', {}, step=1, prefix=f'state_{rank}_')
        """,
        """
        from flax.training import checkpoints
        checkpoints.save_checkpoint('out', {}, step=1, prefix='state_')
        """,
        "AR101",
    ),
    "a run of this process": Pair(
        """
        import wandb
        wandb.init(project='p', group='all', name=f'rank-{rank}')
        """,
        """
        import wandb
        wandb.init(project='p', group='all', name='run')
        """,
        "AR103",
    ),
    "a trainer that uploads from rank 0": Pair(
        """
        from trl import DPOTrainer
        trainer = DPOTrainer()
        trainer.train()
        trainer.push_to_hub()
        """,
        """
        from transformers import AutoModel
        model = AutoModel.from_pretrained('m')
        model.push_to_hub('m')
        """,
        "AR102",
    ),
    "a trainer that is handed over": Pair(
        """
        import transformers
        def finish(trainer):
            dist.barrier()
            trainer.push_to_hub()
        """,
        """
        import transformers
        def finish(model):
            dist.barrier()
            model.push_to_hub('m')
        """,
        "AR102",
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
def test_what_is_this_process_own_is_left_alone(case: str) -> None:
    """Right code is silent; the bug that looks like it is found."""
    pair = PAIRS[case]
    assert codes(pair.good) == []
    assert codes(pair.bad) == [pair.code]


STEPS = {
    "a step that rank 0 alone has read": (
        (
            "class T:\n    def __init__(self):\n        self.global_step = 0\n        if dist.get_rank() == 0:\n"
            "            self.global_step = torch.load('a')['step']\n\n    def save(self):\n"
            "        torch.save({}, f'{self.global_step}.pt')\n\nT().save()\n"
        ),
        1,
    ),
    "an epoch that goes on from there": (
        (
            "start = 0\nif dist.get_rank() == 0:\n    start = torch.load('a')\nfor epoch in range(start, 3):\n"
            "    torch.save({}, 'm_%d.pt' % epoch)\n    torch.save({}, f'{epoch}-{dist.get_rank()}.pt')\n"
        ),
        1,
    ),
    "the rank beside it": (
        (
            "def save(step):\n    torch.save(1, '%s%d' % (dist.get_rank(), step))\n    torch.save({}, f'{step}.pt')\n\n"
            "save(1)\n"
        ),
        1,
    ),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_step_in_a_name_makes_it_nobodys_own(what: str) -> None:
    """All ranks come to a step together, whoever of them keeps count."""
    body, count = STEPS[what]
    text = f"import torch\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\n{body}"
    found = check({"train.py": text.encode()}, Settings(select=("AR101",))).findings
    assert len(found) == count, found
