"""What some ranks make in another way than others: objects, generators, contexts, members, decorators of a class."""

from __future__ import annotations

import pytest
from pairs import Pair, codes

PAIRS = {
    "a dataclass that has a folder on rank 0": Pair(
        """
        from dataclasses import dataclass
        @dataclass
        class Run:
            folder: str | None = None
            @classmethod
            def begin(cls, folder):
                if dist.get_rank() > 0:
                    return cls()
                return cls(folder=folder)
            @property
            def silent(self):
                return self.folder is None
            def save(self):
                if not self.silent:
                    torch.save({}, self.folder + '/last.pt')
        Run.begin('out').save()
        """,
        """
        from dataclasses import dataclass
        @dataclass
        class Run:
            folder: str | None = None
            @classmethod
            def begin(cls, folder):
                dist.barrier()
                return cls(folder=folder)
            def save(self):
                if self.folder is not None:
                    torch.save({}, self.folder + '/last.pt')
        Run.begin('out').save()
        """,
        "AR101",
    ),
    "an object that is given a folder on rank 0": Pair(
        """
        class Run:
            def __init__(self, folder=None):
                self.folder = folder
            def save(self):
                if self.folder:
                    torch.save({}, self.folder + '/last.pt')
        run = Run('out') if rank == 0 else Run()
        run.save()
        """,
        """
        class Run:
            def __init__(self, folder=None):
                self.folder = folder
            def save(self):
                if self.folder:
                    torch.save({}, self.folder + '/last.pt')
        run = Run('out') if os.environ.get('OUT') else Run()
        run.save()
        """,
        "AR101",
    ),
    "a constructor of another name for the others": Pair(
        """
        class Output:
            def __init__(self, folder, mute):
                self.folder, self.mute = folder, mute
            @classmethod
            def create(cls, folder):
                os.makedirs(folder, exist_ok=True)
                return cls(folder, mute=False)
            @classmethod
            def muted(cls):
                return cls(None, mute=True)
            def save(self):
                if self.mute:
                    return
                torch.save({}, self.folder + '/last.pt')
        out = Output.create('out') if rank == 0 else Output.muted()
        out.save()
        """,
        """
        class Output:
            def __init__(self, folder, mute):
                self.folder, self.mute = folder, mute
            @classmethod
            def create(cls, folder):
                dist.barrier()
                return cls(folder, mute=False)
            def save(self):
                if self.mute:
                    return
                torch.save({}, self.folder + '/last.pt')
        out = Output.create('out')
        out.save()
        """,
        "AR101",
    ),
    "a generator that has nothing for the others": Pair(
        """
        def steps(rank):
            if rank == 0:
                yield from range(0, 100, 10)
        at = set(steps(rank))
        for step in range(100):
            if step in at:
                torch.save({}, 'last.pt')
        """,
        """
        def steps(rank):
            if rank != 0:
                yield from range(0, 100, 10)
                return
            for step in range(0, 100, 10):
                print(step)
                yield step
        at = set(steps(rank))
        for step in range(100):
            if step in at:
                torch.save({}, 'last.pt')
        """,
        "AR101",
    ),
    "a context that says who is here": Pair(
        """
        class on_rank:
            def __init__(self, rank):
                self.rank = rank
            def __enter__(self):
                return dist.get_rank() == self.rank
            def __exit__(self, *exc):
                return False
        with on_rank(0) as here:
            if here:
                open('log.txt', 'a')
        """,
        """
        class timed:
            def __enter__(self):
                return True
            def __exit__(self, *exc):
                return False
        with timed() as here:
            if here:
                open('log.txt', 'a')
        """,
        "AR102",
    ),
    "a generator's context that says who is here": Pair(
        """
        from contextlib import contextmanager
        @contextmanager
        def main_only():
            if dist.get_rank() == 0:
                yield True
            else:
                yield False
        with main_only() as here:
            if here:
                open('log.txt', 'a')
        """,
        """
        from contextlib import contextmanager
        @contextmanager
        def timed():
            if dist.get_rank() == 0:
                yield True
            else:
                yield True
        with timed() as here:
            if here:
                open('log.txt', 'a')
        """,
        "AR102",
    ),
    "a member of an enumeration": Pair(
        """
        import enum
        class Role(enum.Enum):
            CHIEF = 'chief'
            HELPER = 'helper'
        role = Role.CHIEF if rank == 0 else Role.HELPER
        if role is Role.CHIEF:
            open('log.txt', 'a')
        """,
        """
        import enum
        class Role(enum.Enum):
            CHIEF = 'chief'
            HELPER = 'helper'
        role = Role.CHIEF if os.environ.get('CHIEF') else Role.HELPER
        if role is Role.CHIEF:
            open('log.txt', 'a')
        """,
        "AR102",
    ),
    "an object that decorates": Pair(
        """
        class Only:
            def __init__(self, *ranks):
                self.ranks = ranks
            def __call__(self, f):
                def inner(*args, **kwargs):
                    if dist.get_rank() in self.ranks:
                        return f(*args, **kwargs)
                return inner
        first = Only(0)
        @Only(0)
        def save():
            torch.save({}, 'last.pt')
        @first
        def clean():
            os.remove('best.pt')
        save()
        clean()
        """,
        """
        class Timed:
            def __init__(self, *names):
                self.names = names
            def __call__(self, f):
                def inner(*args, **kwargs):
                    return f(*args, **kwargs)
                return inner
        @Timed('save')
        def save():
            torch.save({}, 'last.pt')
        save()
        """,
        "AR101",
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_who_makes_it_so_is_known(case: str) -> None:
    """Right code is silent; the bug that looks like it is found."""
    pair = PAIRS[case]
    assert codes(pair.good) == []
    assert codes(pair.bad) == [pair.code]
