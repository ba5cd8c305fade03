"""Traces compared: what makes up for what, and the bug that stands next to each."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

TORCH = """\
import os
import torch
import torch.distributed as dist
from contextlib import contextmanager
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group('nccl')
rank = dist.get_rank()
"""


def codes(text: str) -> list[str]:
    """Return the codes of collectives that are found, in order of place."""
    source = (TORCH + textwrap.dedent(text)).encode()
    select = ("AR201", "AR202", "AR203", "AR204", "AR211")
    return [finding.code for finding in check({"train.py": source}, Settings(select=select)).findings]


SILENT = {
    "even ranks wait before, odd ranks afterwards": """
        class Staggered:
            def __init__(self, local_rank, world_size):
                self.local_rank = local_rank
                self.world_size = world_size
            def __enter__(self):
                if self.world_size > 1 and self.local_rank % 2 == 0:
                    dist.barrier()
            def __exit__(self, *error):
                if self.local_rank % 2:
                    dist.barrier()
            def __call__(self, make):
                def made(*given):
                    with self:
                        return make(*given)
                return made
        if rank % 2 != 0:
            dist.barrier()
        if rank % 2 != 1:
            dist.barrier()
        """,
    "a context that nobody here enters": """
        class First:
            def __enter__(self):
                if rank != 0:
                    dist.barrier()
            def __exit__(self, *error):
                if rank == 0:
                    dist.barrier()
        """,
    "what one program counts for itself, another one reads under the same name": """
        def fit(history, step):
            history['total_steps'] = latest() if rank % 3 == 1 else step
            dist.barrier()
        def resume(state):
            if state['total_steps'] % 100 == 0:
                dist.barrier()
        fit({}, 0)
        resume({})
        """,
    "a loop is left by a break that meets as its else does": """
        def agree(flag):
            dist.broadcast(torch.tensor(flag), 0)
        def cancelled(tags):
            if rank == 0 and os.environ.get('KEY') is not None:
                for tag in tags:
                    if tag in {'stop'}:
                        agree(True)
                        break
                else:
                    agree(False)
            else:
                agree(False)
        cancelled(['a'])
        """,
    "a handler meets as the else of its try does": """
        def read():
            if rank == 0:
                try:
                    open('x')
                except OSError:
                    dist.barrier()
                else:
                    dist.barrier()
            else:
                dist.barrier()
        read()
        """,
    "a flag and a rank, asked again": """
        def first(args):
            if args.wait and rank == 0:
                dist.barrier()
            print('works')
            if args.wait and rank != 0:
                dist.barrier()
        first(1)
        """,
    "a rank that nobody knows, asked again": """
        @contextmanager
        def goes_first(leader):
            if rank != leader:
                dist.barrier()
            yield
            if rank == leader:
                dist.barrier()
        with goes_first(os.environ['LEADER']):
            print('works')
        """,
    "each side yields": """
        @contextmanager
        def first():
            if int(os.environ['LOCAL_RANK']) != 0:
                dist.barrier()
                yield
            else:
                yield
                dist.barrier()
        with first():
            print('works')
        """,
    "branches in another order": """
        def step(args):
            if rank == 0:
                if args.extra:
                    dist.all_reduce(1)
                    dist.barrier()
                else:
                    dist.barrier()
            else:
                if args.extra:
                    dist.all_reduce(1)
                dist.barrier()
        step(1)
        """,
    "data, far down": """
        def store(uri):
            if uri.startswith('runs:'):
                if not uri.endswith('/'):
                    dist.barrier()
        def fetch(uri):
            if rank != 0:
                return
            store(uri)
        fetch('x')
        """,
    "a program of its own for each": """
        def player():
            for _ in range(9):
                dist.broadcast(torch.zeros(1), 0)
            dist.barrier()
        def trainer():
            while True:
                dist.broadcast(torch.zeros(1), 0)
                dist.all_reduce(torch.zeros(1))
        if rank == 0:
            player()
        else:
            trainer()
        """,
    "workers that call each other": """
        from torch.distributed import rpc
        if rank == 0:
            rpc.init_rpc('master')
            dist.barrier()
        else:
            rpc.init_rpc('worker')
        """,
    "a model that is unwrapped, if it is wrapped": """
        def evaluate(model, args):
            if rank != 0:
                return
            if args.distributed and hasattr(model, 'module'):
                model = model.module
            model(1)
        evaluate(DDP(torch.nn.Linear(2, 2)), 1)
        """,
    "one rank leaves a group of its own": """
        group = make_group(rank) if rank == 0 else None
        if group:
            dist.destroy_process_group(group)
        """,
    "the others leave the group": "if rank == 0:\n    print('works on')\nelse:\n    dist.destroy_process_group()",
    "an early return by data, between what makes up for each other": """
        def model(name):
            if rank != 0:
                dist.barrier()
            if name == 'big':
                print('big')
            else:
                return None
            if rank == 0:
                dist.barrier()
        model('big')
        """,
    "what only a sharded model gathers": """
        def save(accelerator, model):
            if accelerator.is_main_process:
                accelerator.get_state_dict(model)
        """,
    "the step of a checkpoint": """
        class Trainer:
            def load(self):
                self.step = torch.load(f'{rank}.pt')['step']
            def fit(self):
                self.load()
                if self.step % 10 == 0:
                    dist.barrier()
        Trainer().fit()
        """,
    "an error on one rank, and ranks that part further down": """
        def main(args):
            if rank == 0 and args.copy:
                raise SystemExit(1)
            dist.barrier()
        main(1)
        """,
}
FOUND = {
    "a loop that may end without": (
        """
        def cancelled(tags):
            if rank == 0:
                for tag in tags:
                    if tag == 'stop':
                        dist.barrier()
                        break
            else:
                dist.barrier()
        cancelled(['a'])
        """,
        ["AR201"],
    ),
    "even ranks wait twice, or one of three at a time": (
        """
        class Staggered:
            def __enter__(self):
                if rank % 2 == 0:
                    dist.barrier()
            def __exit__(self, *error):
                if rank % 2 == 0:
                    dist.barrier()
        def load():
            if rank % 3 == 0:
                dist.barrier()
            if rank % 3 == 1:
                dist.barrier()
        """,
        ["AR201", "AR201", "AR201", "AR201"],
    ),
    "a handler that meets elsewhere": (
        """
        def read():
            if rank == 0:
                try:
                    open('x')
                except OSError:
                    dist.all_reduce(1)
                else:
                    dist.barrier()
            else:
                dist.barrier()
        read()
        """,
        ["AR201"],
    ),
    "a flag and its contrary": (
        """
        def first(args):
            if args.wait and rank == 0:
                dist.barrier()
            if not args.wait and rank != 0:
                dist.barrier()
        first(1)
        """,
        ["AR201", "AR201"],
    ),
    "a rank that nobody knows, twice": (
        "leader = os.environ['LEADER']\nif rank == leader:\n    dist.barrier()\nif rank == leader:\n    dist.barrier()",
        ["AR201", "AR201"],
    ),
    "whether there are several, far down": (
        """
        def mean(x, args):
            if args.distributed:
                dist.all_reduce(x)
        def evaluate(args):
            mean(1, args)
        def main(args):
            if rank == 0:
                evaluate(args)
        main(1)
        """,
        ["AR201"],
    ),
    "a flag in the function that is called": (
        """
        class Trainer:
            def params(self):
                if self.sharded:
                    gather()
            def save(self):
                if rank != 0:
                    return
                self.params()
        def gather():
            dist.all_gather([], 1)
        Trainer().save()
        """,
        ["AR202"],
    ),
    "functions of their own that meet again": (
        """
        def player():
            dist.broadcast(torch.zeros(1), 0)
        def trainer():
            dist.all_reduce(torch.zeros(1))
        if rank == 0:
            player()
        else:
            trainer()
        dist.barrier()
        """,
        ["AR201"],
    ),
    "what a sharded model gathers": (
        """
        from torch.distributed.fsdp import FullyShardedDataParallel
        def save(accelerator, model):
            if accelerator.is_main_process:
                accelerator.get_state_dict(model)
        """,
        ["AR201"],
    ),
    "a model that stays wrapped": (
        """
        def evaluate(model):
            if rank != 0:
                return
            model(1)
        evaluate(DDP(torch.nn.Linear(2, 2)))
        """,
        ["AR204"],
    ),
    "one rank leaves the group": ("if rank == 0:\n    dist.destroy_process_group()", ["AR201"]),
    "an error that is a number": (
        """
        def main():
            if rank == 0:
                if os.path.exists('log'):
                    return -1
            dist.barrier()
        main()
        """,
        ["AR202"],
    ),
    "only the branch that parts them": (
        """
        def main(args):
            if rank == 0 and args.copy:
                raise SystemExit(1)
            dist.barrier()
            if rank == 0:
                dist.all_reduce(1)
        main(1)
        """,
        ["AR201"],
    ),
    "a field of a configuration": (
        """
        class Config:
            log_with: str = None
        class Trainer:
            def __init__(self, config: Config):
                self.config = config
            def log(self):
                if rank == 0 and self.config.log_with == 'wandb':
                    dist.barrier()
        """,
        ["AR201"],
    ),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_makes_up_for_a_branch_is_seen(case: str) -> None:
    """Ranks go other ways and meet alike, or are not meant to meet."""
    assert codes(SILENT[case]) == []


@pytest.mark.parametrize("case", FOUND)
def test_the_bug_next_to_it_is_found(case: str) -> None:
    """The same shape, and it does not make up for the branch."""
    text, expected = FOUND[case]
    assert codes(text) == expected
