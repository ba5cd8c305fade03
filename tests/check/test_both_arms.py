"""Who has an effect: ranks that one function joins again, gates in keywords, objects that one rank has."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def found(text: str, *codes: str) -> list[int]:
    """Return the lines of what is found, in order of place."""
    source = textwrap.dedent(text).encode()
    return [one.place.line for one in check({"train.py": source}, Settings(select=codes)).findings]


PARTED = """
    import json
    import torch.distributed as dist
    import torch.multiprocessing as mp
    def train(rank, epoch, writers, out):
        if writers is not None:
            writers[0].write(epoch)
        json.dump([], open(f"{{out}}/history.json", "w"))
    def run(rank):
        dist.init_process_group("nccl", rank=rank, world_size=4)
        for epoch in range(10):
            if rank == 0:
                train(rank, epoch, [open("log.txt", "w")], "out")
            else:
                {between}
                train(rank, epoch, None, {out})
    mp.spawn(run, nprocs=4)
"""


@pytest.mark.parametrize(
    ("between", "out", "expected"),
    [("pass", '"out"', [8]), ("pass", '"other"', []), ("dist.barrier()", '"out"', [])],
    ids=["same", "another file", "they wait for rank 0"],
)
def test_what_both_arms_call_every_rank_does(between: str, out: str, expected: list[int]) -> None:
    """One function on both arms of a condition on the rank: to one thing, and with no meeting between the two."""
    assert found(PARTED.format(between=between, out=out), "AR102") == expected


def test_a_call_below_a_condition_is_on_no_arm_of_it() -> None:
    """Rank 0 may leave early: who goes on is told by the condition, and not on an arm of it."""
    text = """
        import sys
        import torch
        import torch.distributed as dist
        def write(path):
            torch.save({}, path)
        def main():
            dist.init_process_group("nccl")
            if dist.get_rank() == 0:
                write("first.pt")
                if len(sys.argv) > 1:
                    return
            write("last.pt")
        main()
    """
    assert found(text, "AR101") == [6]


@pytest.mark.parametrize(("main", "expected"), [("agent.main", []), ("True", [15])])
def test_a_gate_may_come_by_keyword(main: str, expected: list[int]) -> None:
    """A decorator that asks ``kwargs`` for what says who this process is, and hands it on."""
    text = f"""
        import torch
        import torch.distributed as dist
        def main_only(func):
            def wrapper(*args, **kwargs):
                if not kwargs.get("main", False):
                    return None
                return func(*args, **kwargs)
            return wrapper
        class Agent:
            def __init__(self):
                self.main = dist.get_rank() == 0
            @main_only
            def save(self, path, main):
                torch.save({{}}, path)
        dist.init_process_group("nccl")
        agent = Agent()
        agent.save("last.pt", main={main})
    """
    assert found(text, "AR101") == expected


@pytest.mark.parametrize(("first", "expected"), [("pass", []), ("self.average = None", [14])])
def test_only_who_has_an_object_goes_on(first: str, expected: list[int]) -> None:
    """``hasattr`` of what rank 0 alone has made; where all have None first, all have the attribute."""
    text = f"""
        import torch
        import torch.distributed as dist
        from torch.optim.swa_utils import AveragedModel
        class Trainer:
            def __init__(self, model, swa):
                {first}
                if swa and dist.get_rank() == 0:
                    self.average = AveragedModel(model)
            def save(self):
                if not hasattr(self, "average"):
                    return
                state = {{}}
                torch.save(state, "average.pt")
        dist.init_process_group("nccl")
        Trainer(torch.nn.Linear(1, 1), True).save()
    """
    assert found(text, "AR101") == expected


def test_what_is_open_already_is_no_file() -> None:
    """A descriptor is this process' own, whatever it is opened as."""
    text = """
        import sys
        import torch.distributed as dist
        dist.init_process_group("nccl")
        sys.stdout = open(sys.stdout.fileno(), mode="w", buffering=1)
        open(2, "w")
        open("2", "w")
    """
    assert found(text, "AR102") == [7]


FACTORIES = {
    "objects": """
        class Log:
            def __call__(self, path):
                open(path, "a")
        class Quiet:
            def __call__(self, path):
                pass
        def make():
            return Log() if dist.get_rank() == 0 else Quiet()
        dist.init_process_group("nccl")
        make()("log.csv")
    """,
    "methods": """
        class Log:
            def write(self, path):
                open(path, "a")
        class Quiet:
            def write(self, path):
                pass
        def make():
            if dist.get_rank() == 0:
                return Log()
            return Quiet()
        dist.init_process_group("nccl")
        log = make()
        log.write("log.csv")
    """,
    "functions": """
        def make(rank):
            def write(path):
                open(path, "a")
            def nothing(*_):
                return None
            return write if rank == 0 else nothing
        dist.init_process_group("nccl")
        save = make(dist.get_rank())
        save("log.csv")
    """,
    "classes": """
        class Log:
            def __init__(self, path):
                self.file = open(path, "a")
        class Quiet:
            def __init__(self, path):
                self.file = None
        dist.init_process_group("nccl")
        kind = Log if dist.get_rank() == 0 else Quiet
        kind("log.csv")
    """,
    "a decorator that is called": """
        from lightning.pytorch.utilities import rank_zero_only
        def write(path):
            open(path, "a")
        dist.init_process_group("nccl")
        save = rank_zero_only(write)
        save("log.csv")
    """,
    "stored by a method": """
        import wandb
        class Trainer:
            def __init__(self):
                self.run = None
                if dist.get_rank() == 0:
                    self.start()
            def start(self):
                self.run = wandb.init()
            def log(self):
                if self.run is None:
                    return
                open("log.csv", "a")
        dist.init_process_group("nccl")
        Trainer().log()
    """,
    "stored by a method of a hook": """
        import wandb
        from transformers import TrainerCallback
        class Book(TrainerCallback):
            def __init__(self):
                self.run = None
            def setup(self):
                self.run = wandb.init()
            def on_train_begin(self, args, state, control, **kwargs):
                if state.is_world_process_zero:
                    self.setup()
            def on_log(self, args, state, control, **kwargs):
                if self.run is not None:
                    open("log.csv", "a")
    """,
}


@pytest.mark.parametrize("case", FACTORIES)
def test_what_the_rank_picks_is_done_where_it_is_picked(case: str) -> None:
    """A function, a class, an object, or one that a method stores: each rank has its own. Picked by a setting, all."""
    text = "import torch.distributed as dist\n" + textwrap.dedent(FACTORIES[case])
    assert found(text, "AR102") == []
    for gate in ("dist.get_rank() == 0", "rank == 0", "rank_zero_only(write)", "state.is_world_process_zero"):
        text = text.replace(gate, "write" if "only" in gate else "args.verbose")
    assert len(found(text, "AR102")) == 1
