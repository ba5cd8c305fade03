"""Who meets whom: what every rank finds alike, what runs beside the program, and loops that are left too early."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check


def codes(text: str) -> list[str]:
    """Return the codes of collectives that are found, in order of place."""
    source = textwrap.dedent(text).encode()
    return [f.code for f in check({"train.py": source}, Settings(select=("AR2", "AR703"))).findings]


SILENT = {
    "settings that are dealt out say alike how often all meet": """
        import torch.distributed as dist
        def train(tasks, steps):
            cfg = tasks[dist.get_rank()]
            for step in range(steps):
                if step % cfg.policy.every == 0:
                    dist.barrier()
        """,
    "one rank tells a group of some what it has": """
        from lightning.fabric import Fabric
        from lightning.fabric.plugins.collectives import TorchCollective
        class Saver:
            def save(self, fabric: Fabric, pair: TorchCollective, state):
                if fabric.global_rank == 1:
                    pair.broadcast_object_list([state], src=1)
        """,
    "a score that is reduced, or that rank 0 sends, ends the training for all": """
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler
        def evaluate(model, batches):
            total = torch.zeros(1)
            for batch in batches:
                total += model(batch)
            dist.all_reduce(total)
            return total.item()
        def fit(model, train, val_set, patience):
            held_out = DataLoader(val_set, sampler=DistributedSampler(val_set))
            best, bad = 1e9, 0
            for epoch in range(10):
                train_epoch(model, train)
                val_loss = evaluate(model, held_out)
                bad = 0 if val_loss < best else bad + 1
                if bad > patience:
                    break
        def second(model, train, val_batches, limit, rank):
            for epoch in range(10):
                train_epoch(model, train)
                val_loss = sum(model(batch) for batch in val_batches)
                box = [val_loss > limit if rank == 0 else None]
                dist.broadcast_object_list(box)
                if box[0]:
                    break
        """,
    "all draw alike where all are seeded alike, and the first rank looks at the sum": """
        import random
        import torch.distributed as dist
        def fit(sums, seed):
            random.seed(seed)
            if random.random() < 0.5:
                dist.all_reduce(sums)
            dist.reduce(sums, dst=0)
            if dist.get_rank() == 0:
                print(sums.item())
            dist.barrier()
        """,
    "a checkpoint to go on from is found alike": """
        import os
        import torch.distributed as dist
        def newest(folder):
            names = sorted(os.listdir(folder))
            return os.path.join(folder, names[-1]) if names else None
        dist.init_process_group("nccl")
        path = newest("out")
        if path is not None:
            dist.barrier()
        """,
    "a folder with the time in its name is a folder everywhere": """
        import os, time
        import torch.distributed as dist
        dist.init_process_group("nccl")
        folder = os.path.join("out", time.strftime("%H%M"))
        if folder:
            dist.barrier()
        """,
    "a process of its own joins whom it likes": """
        import multiprocessing, os
        import torch.distributed as dist
        def work(rank):
            dist.init_process_group("nccl")
        if not os.path.exists("index"):
            multiprocessing.Process(target=work, args=(0,)).start()
        """,
    "what rank 0 decides is sent to all": """
        import torch.distributed as dist
        def fit(epochs, stopper):
            dist.init_process_group("nccl")
            rank = dist.get_rank()
            stop = False
            for epoch in range(epochs):
                if rank == 0:
                    stop = stopper(epoch)
                box = [stop if rank == 0 else None]
                dist.broadcast_object_list(box, 0)
                if rank != 0:
                    stop = box[0]
                if stop:
                    break
                dist.barrier()
        """,
    "engines that serve the model are told by rank 0": """
        import torch.distributed as dist
        class Actor:
            def __init__(self, engines):
                self.wire = None
                if dist.get_rank() == 0:
                    self.wire = connect(engines)
            def push(self, model):
                for parameter in model.parameters():
                    if dist.get_rank() == 0:
                        dist.broadcast(parameter.data, 0, group=self.wire)
        """,
    "rank 0 tries the wrapped model without gradients": """
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group("nccl")
        model = DDP(torch.nn.Linear(2, 2))
        @torch.no_grad()
        def estimate(batches):
            return [model(batch).item() for batch in batches]
        if dist.get_rank() == 0:
            estimate([1])
        """,
    "a hook is called later, by all": """
        import torch, torch.distributed as dist
        def gather(module, inputs, output):
            dist.all_reduce(output)
        def main(model):
            dist.init_process_group("nccl")
            for turn in range(dist.get_world_size()):
                if dist.get_rank() == turn:
                    model.register_forward_hook(gather)
        """,
    "a state of which nobody knows whose it is": """
        import torch, torch.distributed as dist
        from torch.distributed.checkpoint.state_dict import get_model_state_dict
        class Task:
            def state_dict(self):
                return get_model_state_dict(self.model)
        def save(bare):
            if dist.get_rank() == 0:
                torch.save(bare.state_dict(), "x")
        """,
    "rank 0 asks until it has a question": """
        import torch.distributed as dist
        def serve():
            while True:
                text = ""
                if dist.get_rank() == 0:
                    text = input("> ")
                    if not text:
                        print("say something")
                        continue
                    dist.broadcast_object_list([text], src=0)
                else:
                    dist.broadcast_object_list([text], src=0)
        serve()
        """,
    "a list of parts is as long on every rank": """
        import torch, torch.distributed as dist
        def main(parameters):
            dist.init_process_group("nccl")
            parts = [parameter.chunk(4)[dist.get_rank()] for parameter in parameters]
            for part in parts:
                dist.all_reduce(part)
        """,
    "a group that a function gives is a part of all": """
        import torch.distributed as dist
        GROUP = None
        def make():
            global GROUP
            GROUP = dist.new_group([0, 1])
        def group():
            return GROUP
        def serve(lines):
            for at, line in enumerate(lines):
                if at % 4 != dist.get_rank(group=group()):
                    continue
                dist.broadcast(line, 0, group=group())
        serve([1])
        """,
}

FOUND = {
    "data that are dealt out do not say alike whether all meet": (
        """
        import torch.distributed as dist
        def train(tasks, steps):
            task = tasks[dist.get_rank()]
            for step in range(steps):
                if step % task.length == 0:
                    dist.barrier()
        """,
        "AR201",
    ),
    "one rank alone tells all what it has": (
        """
        import torch.distributed as dist
        from lightning.fabric import Fabric
        class Saver:
            def save(self, fabric: Fabric, state):
                if fabric.global_rank == 1:
                    dist.broadcast_object_list([state], src=1)
        """,
        "AR201",
    ),
    "patience runs out by the score of a part of the data": (
        """
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler
        def evaluate(model, batches):
            total = 0.0
            for batch in batches:
                total += model(batch).item()
            return total / len(batches)
        class Trainer:
            def fit(self, train, val_set):
                held_out = DataLoader(val_set, sampler=DistributedSampler(val_set))
                for epoch in range(self.epochs):
                    self.train_epoch(train)
                    val_loss = evaluate(self.model, held_out)
                    if val_loss < self.best:
                        self.best, self.bad = val_loss, 0
                    else:
                        self.bad += 1
                    if self.bad > self.patience:
                        break
        """,
        "AR209",
    ),
    "a folder that each looks for itself": (
        """
        import os
        import torch.distributed as dist
        dist.init_process_group("nccl")
        ready = os.path.exists("ready")
        if ready:
            dist.barrier()
        """,
        "AR203",
    ),
    "the process of its own has a fault": (
        """
        import multiprocessing, os
        import torch.distributed as dist
        def work(rank):
            dist.init_process_group("nccl")
            if rank == 0:
                dist.barrier()
        if not os.path.exists("index"):
            for rank in range(2):
                multiprocessing.Process(target=work, args=(rank,)).start()
        """,
        "AR201",
    ),
    "rank 0 leaves a loop whose next round meets": (
        """
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(loader, validate):
            dist.init_process_group("nccl")
            model = DDP(torch.nn.Linear(2, 2))
            for epoch in range(10):
                for batch in loader:
                    model(batch).backward()
                if dist.get_rank() == 0 and validate() < 1:
                    break
        """,
        "AR209",
    ),
    "what rank 0 alone decides ends the loop": (
        """
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        def main(loader, validate):
            dist.init_process_group("nccl")
            model, stop = DDP(torch.nn.Linear(2, 2)), False
            for epoch in range(10):
                for batch in loader:
                    model(batch).backward()
                if dist.get_rank() == 0:
                    if validate() < 1:
                        stop = True
                if stop:
                    break
        """,
        "AR209",
    ),
    "a list that the rank has picked from": (
        """
        import torch, torch.distributed as dist
        def main(files):
            rank, world = dist.get_rank(), dist.get_world_size()
            for file in [f for i, f in enumerate(files) if i % world == rank]:
                dist.all_reduce(file)
        """,
        "AR206",
    ),
    "a metric of a package whose metrics meet": (
        """
        import torch.distributed as dist, torchmetrics
        def main():
            dist.init_process_group("nccl")
            metric = torchmetrics.MeanMetric().cuda()
            if dist.get_rank() == 0:
                print(metric.compute())
        main()
        """,
        "AR201",
    ),
    "a flag lets some go on the rank's say": (
        """
        import torch.distributed as dist
        class Trainer:
            def save(self):
                if (dist.is_initialized() and dist.get_rank() != 0) and not self.cfg.split:
                    return
                dist.barrier()
        """,
        "AR202",
    ),
    "the rank is counted from the node's, and settings are read over their defaults": (
        """
        import torch.distributed as dist
        class Bag:
            pass
        class Settings:
            def __init__(self, path):
                self.run = Bag()
                self.run.check_norms = False
                for key, value in read(path):
                    setattr(self.run, key, value)
        class Worker:
            def __init__(self, settings, rank):
                self.run, self.rank = settings.run, rank
                self.group = dist.new_group([0, 1])
            def train(self, step):
                if self.run.check_norms and self.rank == 0:
                    dist.barrier(self.group)
        def load(local_rank, settings, node, gpus_per_node):
            if settings.distributed_data_parallel:
                rank = node * gpus_per_node + local_rank
            else:
                rank = local_rank
            Worker(Settings("x"), rank).train(1)
        """,
        "AR201",
    ),
    "each draws for itself which model is trained": (
        """
        import random
        from torch.nn.parallel import DistributedDataParallel
        def fit(judge, batches, share):
            judge = DistributedDataParallel(judge)
            for batch in batches:
                train = share > 0 and random.random() < share
                if train:
                    judge(batch).backward()
        """,
        "AR203",
    ),
    "a report is due by the clock, and is left early further in": (
        """
        from datetime import datetime
        import torch.distributed as dist
        class Reports:
            def step(self, step):
                gone = (datetime.now() - self.last).total_seconds()
                if step is None:
                    step = self.step + 1
                else:
                    if gone < self.seconds or step == self.step:
                        return
                dist.all_reduce(self.tokens)
        """,
        "AR203",
    ),
    "what is whole on one rank decides on all": (
        """
        import torch.distributed as dist
        def fit(batches, hits, rows, goal):
            done = False
            for batch in batches:
                dist.reduce(hits, dst=0)
                dist.reduce(rows, dst=0)
                if hits.item() / rows.item() > goal:
                    done = True
                if done:
                    break
        """,
        "AR209",
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_all_ranks_do_alike_is_not_found(name: str) -> None:
    """Nothing is said where all ranks find the same, or where not all are meant to meet."""
    assert codes(SILENT[name]) == []


@pytest.mark.parametrize("name", FOUND)
def test_who_parts_is_found(name: str) -> None:
    """Who goes another way than the others is named by the rule for it."""
    text, code = FOUND[name]
    assert codes(text) == [code]


def test_a_decorator_of_the_project_hands_on_the_object() -> None:
    """What it makes of a method still knows whose attributes these are, however the parameters are passed on."""
    text = """
        import functools
        import orbax.checkpoint as ocp
        from jax import process_index
        def lead_only(call):
            @functools.wraps(call)
            def inner(*args, **kwargs):
                if process_index() == 0:
                    return call(*args, **kwargs)
            return inner
        class Saver:
            def __init__(self, folder):
                self.manager = ocp.CheckpointManager(folder)
            @lead_only
            def note(self, step):
                print(step)
            @lead_only
            def keep(self, step):
                self.manager.save(step)
            def close(self):
                self.manager.close()
        """
    (finding,) = check({"saver.py": textwrap.dedent(text).encode()}, Settings(select=("AR2",))).findings
    assert (finding.code, finding.place.line) == ("AR201", 19)


def test_what_a_wrapper_hands_on_to_its_parts_is_followed() -> None:
    """A meter that holds meters calls on them what it is called itself, and there they meet."""
    text = """
        import torch.distributed as dist
        class Value:
            def share_counts(self):
                dist.all_reduce(self.total)
        class Values:
            def share_counts(self):
                for value in self.values.values():
                    value.share_counts()
        def fit(log_dir):
            values = Values()
            writer = None
            if dist.get_rank() == 0:
                writer = open_log(log_dir)
            if writer is None:
                return
            values.share_counts()
        """
    assert codes(text) == ["AR202"]


def test_what_rank_0_alone_has_parts_ranks_by_rank() -> None:
    """An object that only rank 0 makes is no state that differs: whoever asks for it asks for the rank."""
    text = """
        import torch.distributed as dist
        def fit(steps, patience, quick):
            run = start() if dist.get_rank() == 0 else None
            for step in range(steps):
                if run:
                    dist.all_reduce(step)
            if quick or dist.get_rank() != 0:
                return
            dist.barrier()
        """
    assert codes(text) == ["AR201", "AR202"]


def test_the_collective_itself_is_told_of() -> None:
    """A finding shows where the collective stands that the function comes to in the end."""
    text = """
        import torch.distributed as dist
        def outer():
            inner()
        def inner():
            dist.barrier()
        if dist.get_rank() == 0:
            outer()
        """
    (finding,) = check({"a.py": textwrap.dedent(text).encode()}, Settings(select=("AR201",))).findings
    assert finding.place.line == 8
    assert [note.place.line for note in finding.notes if note.place and "called here" in note.text] == [6]


def test_files_that_are_changed_after_all_have_met_may_have_been_there_for_long() -> None:
    """Who looks for a file which others write behind the collective finds what they find: that is no certain fault."""
    text = """
        import os
        import torch.distributed as dist
        dist.init_process_group("nccl")
        def prepare(path, rows):
            if not os.path.exists(path):
                dist.barrier()
                open(f"{path}.{dist.get_rank()}", "w").write(rows)
        """
    settings = Settings(select=("AR203",), confidence="low")
    (finding,) = check({"a.py": textwrap.dedent(text).encode()}, settings).findings
    assert finding.confidence == "low"


GATHERS = (
    "with FSDP.summon_full_params(model):",
    "with torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params(model):",
    "with deepspeed.zero.GatheredParameters(model.parameters()):",
)


@pytest.mark.parametrize("gathers", GATHERS)
def test_a_context_that_gathers_a_model_wants_all_ranks(gathers: str) -> None:
    """Behind a guard on the rank it waits for the others."""
    start = """\
import deepspeed
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
"""
    assert codes(f"{start}if dist.get_rank() == 0:\n    {gathers}\n        print(model)\n") == ["AR201"]
    assert codes(f"{start}{gathers}\n    if dist.get_rank() == 0:\n        print(model)\n") == []
