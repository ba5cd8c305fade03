"""Collectives in what others call: contexts, functions that are handed over, methods of an object known by its name."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def found(text: str) -> list[tuple[str, int]]:
    """Return code and line of what is found of collectives, in order of place."""
    source = textwrap.dedent(text).encode()
    findings = check({"train.py": source}, Settings(select=("AR2",))).findings
    return [(finding.code, finding.place.line) for finding in findings]


FOUND = {
    "a context in which rank 0 lets nobody go on": (
        """
        import torch.distributed as dist
        from contextlib import contextmanager
        @contextmanager
        def first(rank):
            if rank != 0:
                dist.barrier()
            yield
        with first(dist.get_rank()):
            print('works')
        """,
        ("AR201", 7),
    ),
    "a nested function that a framework is given": (
        """
        import torch.distributed as dist
        from engines import Engine, Events
        def train(rank):
            engine = Engine()
            @engine.on(Events.END)
            def end(_):
                if rank == 0:
                    dist.barrier()
            engine.run()
        """,
        ("AR201", 9),
    ),
    "a nested function that its decorator leaves to one rank": (
        """
        import ignite.distributed as idist
        from ignite.engine import Engine, Events
        def train():
            engine = Engine()
            @engine.on(Events.END)
            @idist.one_rank_only()
            def end(_):
                idist.barrier()
            engine.run()
        """,
        ("AR201", 9),
    ),
    "a method of one word, of the class that is called as the object": (
        """
        import torch.distributed as dist
        class World:
            def sum(self, x):
                dist.all_reduce(x)
        class Table:
            def sum(self, x):
                return x
        def count(world, kept):
            if dist.get_rank() == 0:
                world.sum(kept)
        """,
        ("AR201", 11),
    ),
    "the strategy of Lightning's trainer": (
        """
        import lightning as L
        class Net(L.LightningModule):
            def on_validation_epoch_end(self):
                if self.trainer.is_global_zero:
                    self.trainer.strategy.broadcast(1.0)
        """,
        ("AR201", 6),
    ),
    "a report of a worker of Ray, which waits for those of the others": (
        """
        import ray.train
        def loop(config):
            if ray.train.get_context().get_world_rank() == 0:
                ray.train.report({})
        """,
        ("AR201", 5),
    ),
    "a list that the data-parallel ranks gather": (
        """
        from fairseq import distributed_utils
        def write(rows):
            if distributed_utils.get_data_parallel_rank() != 0:
                return
            distributed_utils.all_gather_list(rows)
        """,
        ("AR202", 6),
    ),
    "a context in which the others wait first, and nobody at its end": (
        """
        import torch.distributed as dist
        class First:
            def __enter__(self):
                self.first = dist.get_rank() == 0
                if not self.first:
                    dist.barrier()
                return self.first
            def __exit__(self, *_):
                print(self.first)
        dist.init_process_group('nccl')
        with First():
            print('works')
        """,
        ("AR201", 7),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_others_call_meets_too(name: str) -> None:
    """A collective is found wherever it is reached from: through a context, a callback, an object known by name."""
    text, expected = FOUND[name]
    assert found(text) == [expected]


SILENT = {
    "contexts that make up for what they begin with": """
        import torch.distributed as dist
        from contextlib import contextmanager
        @contextmanager
        def first(rank, several):
            if not several:
                yield
                return
            if rank != 0:
                dist.barrier()
            try:
                yield
            finally:
                if rank == 0:
                    dist.barrier()
        @contextmanager
        def begin(rank):
            if rank != 0:
                dist.barrier()
            yield
        with first(dist.get_rank(), dist.get_world_size() > 1):
            print('works')
        with begin(dist.get_rank()):
            print('works')
        if dist.get_rank() == 0:
            dist.barrier()
        """,
    "a context in which the others wait first, and which says who is first": """
        import torch.distributed as dist
        class First:
            def __enter__(self):
                self.first = dist.get_rank() == 0
                if not self.first:
                    dist.barrier()
                return self.first
            def __exit__(self, *_):
                if self.first:
                    dist.barrier()
        dist.init_process_group('nccl')
        with First():
            print('works')
        """,
    "nested functions that all ranks call, and one that writes": """
        import torch.distributed as dist
        from engines import Engine, Events
        def train(rank):
            engine = Engine()
            @engine.on(Events.END)
            def end(_):
                dist.barrier()
                if rank == 0:
                    print('end')
            engine.run()
        """,
    "a method of one word, of a class that is called otherwise": """
        import torch.distributed as dist
        class World:
            def sum(self, x):
                dist.all_reduce(x)
        def count(frame, kept):
            if dist.get_rank() == 0:
                frame.sum(kept)
        """,
}


@pytest.mark.parametrize("name", SILENT)
def test_who_meets_alike_is_left_alone(name: str) -> None:
    """What all ranks meet in, in whatever order, is nothing to tell of; nor is a namesake of a method that meets."""
    assert found(SILENT[name]) == []


RUN = """
import inspect
import torch
import torch.distributed as dist
from engines import hand

def run(path, local_rank=-1):
    if local_rank != -1:
        dist.init_process_group("nccl")
    if local_rank in (-1, 0):
        torch.save({{}}, path)

{call}
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [("hand(run)", ["AR105"]), ("hand(inspect.signature(run))", ["AR105"]), ("run('a.pt')", [])],
)
def test_who_calls_what_he_is_handed_gives_what_he_has(call: str, expected: list[str]) -> None:
    """Defaults hold for those who are seen to leave an argument out."""
    found = check({"train.py": RUN.format(call=call).encode()}, Settings(select=("AR101", "AR105"))).findings
    assert [f.code for f in found] == expected


LOG = """
import os
import torch.distributed as dist
import wandb

class Log:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        if self.rank == 0:
            self.run = wandb.init()

    def only(method):
        def wrapper(self, *given):
            if {guard}:
                return
            return method(self, *given)
        return wrapper

    @only
    def log(self, x):
        self.run.log(x)

dist.init_process_group("nccl")
Log().log(1)
"""


@pytest.mark.parametrize(
    ("guard", "expected"),
    [("self.rank != 0", []), ("getattr(self, 'rank', 0) != 0", []), ("not given", ["AR103"])],
)
def test_a_function_of_the_class_body_decorates_its_methods(guard: str, expected: list[str]) -> None:
    found = check({"train.py": LOG.format(guard=guard).encode()}, Settings(select=("AR103",))).findings
    assert [f.code for f in found] == expected


LOGS = """\
import torch.distributed as dist

def tag():
    return dist.broadcast_object_list(["now"], src=0)

def begin(project, group=None, mode="online", folder=None):
    if group is None:
        group = tag()
    print(project, group, mode, folder)
"""


@pytest.mark.parametrize(("given", "expected"), [("group='all'", []), ("group=None", ["train.py"])])
def test_that_something_is_given_is_known_of_each_of_many_calls(given: str, expected: list[str]) -> None:
    """Thirty programs call one function, each with something else; what is asked is whether a group is given."""
    files = {"logs.py": LOGS}
    for number in range(30):
        more = [f"mode='{number}'", f"folder='{number}'", "mode=print", "folder=dir()"][number % 4]
        files[f"other{number}.py"] = f"from logs import begin\nbegin('{number}', group='{number}', {more})\n"
    files["train.py"] = (
        "import torch.distributed as dist\nfrom logs import begin\n\ndist.init_process_group('nccl')\n"
        f"if dist.get_rank() == 0:\n    begin('mine', {given})\n"
    )
    raw = {name: text.encode() for name, text in files.items()}
    assert [one.place.path for one in check(raw, Settings(select=("AR201",))).findings] == expected


FIRST = """\
import contextlib
import torch.distributed as dist
import smdistributed.modelparallel.torch as smp

class Arguments:
    @property
    def index(self):
        if self.parallel:
            return smp.dp_rank()
        return dist.get_rank()

    @contextlib.contextmanager
    def first(self):
        is_main = self.index == 0
        try:
            {before}
            yield
        finally:
            {after}
"""
WAIT, ARRIVE, NOTHING = "if not is_main: dist.barrier()", "if is_main: dist.barrier()", "print('done')"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(WAIT, ARRIVE, []), (WAIT, NOTHING, [16]), (NOTHING, ARRIVE, [19]), (WAIT, WAIT, [16, 19])],
)
def test_what_a_finally_makes_up_for(before: str, after: str, expected: list[int]) -> None:
    """Of a rank that may be of a part of the model, it is not known who is the first."""
    assert [line for _, line in found(FIRST.format(before=before, after=after))] == expected


WITHIN = """
import contextlib
import pickle
import torch
import torch.distributed as dist

@contextlib.contextmanager
def recorded(folder):
    rank, first = dist.get_rank(), dist.get_rank() == 0

    class Recorder:
        def step(self):
            {step}

    yield Recorder()

def main():
    dist.init_process_group("nccl")
    with recorded("out") as recorder:
        recorder.step()

main()
"""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('torch.save({}, f"{folder}/rank{rank}.pt")', []),
        ('first and torch.save({}, f"{folder}/all.pt")', []),
        ('torch.save({}, f"{folder}/all.pt")', ["AR101"]),
        ("first and dist.barrier()", ["AR201"]),
    ],
)
def test_a_class_in_a_function_sees_what_stands_around_it(step: str, expected: list[str]) -> None:
    found = check({"train.py": WITHIN.replace("{step}", step).encode()}, Settings(select=("AR101", "AR2"))).findings
    assert [f.code for f in found] == expected
