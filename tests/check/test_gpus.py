"""Which GPU a process is on when it first uses one, along a program's way through functions and files."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check
from allranks.check.interpret.gpus import astray
from allranks.check.interpret.state import Called, Mark, Result
from allranks.check.interpret.truth import EVERY
from allranks.check.summaries.project import Project


def lines(files: dict[str, str]) -> list[tuple[str, int]]:
    """Return where AR605 finds something."""
    sources = {path: textwrap.dedent(text).encode() for path, text in files.items()}
    return [(f.place.path, f.place.line) for f in check(sources, Settings(select=("AR605",))).findings]


COMM = """
    import torch
    import torch.distributed as dist
    def wait():
        if not dist.is_initialized():
            return
        dist.barrier()
    def choose(index):
        torch.cuda.set_device(index)
    def join(backend):
        if not dist.is_initialized():
            dist.init_process_group(backend)
    """
FOUND = {
    "a barrier of another file comes before the GPU is bound": (
        """
        import torch.multiprocessing as mp
        import torch.distributed as dist
        from comm import wait, choose
        def worker(local_rank, work):
            dist.init_process_group("nccl", rank=local_rank, world_size=8)
            wait()
            choose(local_rank)
            work()
        mp.spawn(worker, nprocs=8)
        """,
        7,
    ),
    "the model goes to the current GPU, which is bound afterwards": (
        """
        import os, torch
        from comm import join, choose
        class Job:
            def __init__(self, config):
                join(config.backend)
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.net = torch.nn.Linear(2, 2)
            def go(self):
                self.net.to(self.device)
                choose(int(os.environ["LOCAL_RANK"]))
        job = Job(None)
        job.go()
        """,
        10,
    ),
    "objects go through the GPU, and none is ever bound": (
        """
        import torch.distributed as dist
        def settings():
            box = [None]
            dist.broadcast_object_list(box, src=0)
            return box[0]
        def main():
            dist.init_process_group(backend="nccl")
            print(settings())
        if __name__ == "__main__":
            main()
        """,
        8,
    ),
    "a tensor is made there by name": (
        """
        import os, torch
        import torch.distributed as dist
        from comm import choose
        def seed(device="cuda"):
            return torch.zeros(1, device=device)
        dist.init_process_group("nccl")
        first = seed()
        choose(int(os.environ["LOCAL_RANK"]))
        """,
        6,
    ),
    "the rank in the job, as a text": (
        """
        import torch.distributed as dist
        def device():
            if dist.is_initialized():
                at = dist.get_rank()
                return f"cuda:{at}"
            return "cpu"
        """,
        6,
    ),
}
FOUND |= {
    f"the process is shown {told or 'no GPU'}": (
        f"""
        import os, torch
        import torch.distributed as dist
        class Job:
            def __init__(self, on_gpu):
                if on_gpu:
                    self.device = torch.device("cuda")
                else:
                    self.device = torch.device("cpu")
                    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
                os.environ["CUDA_VISIBLE_DEVICES"] = "{told}"
                torch.nn.Linear(2, 2).to(self.device)
            def run(self):
                dist.init_process_group("nccl")
                net = torch.nn.parallel.DistributedDataParallel(self.net)
        Job(True).run()
        """,
        14,
    )
    for told in ("", "-1", "0,1,2,3")
}
SILENT = {
    "a loss that holds no tensor": """
        import torch
        import torch.distributed as dist
        criterion = torch.nn.KLDivLoss(reduction="batchmean").cuda()
        def main(local_rank, model):
            torch.cuda.set_device(local_rank)
            dist.init_process_group("nccl")
            model.cuda()
            dist.barrier()
        main(0, None)
        """,
    "the GPU is bound in a helper": """
        import os
        import torch.distributed as dist
        from comm import choose
        from torch import nn
        choose(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        dist.barrier()
        net = nn.Linear(2, 2).cuda()
        """,
    "the current GPU is used where the processes are not joined": """
        import torch
        import torch.distributed as dist
        from comm import choose
        def main(args, net):
            if not args.distributed:
                net.cuda()
            else:
                choose(args.local_rank)
                dist.init_process_group("nccl")
                net.cuda()
        main(None, None)
        """,
    "who is not joined leaves": """
        import torch
        import torch.distributed as dist
        from comm import choose
        def main(args, net):
            if args.one:
                net.cuda()
                return
            choose(args.local_rank)
            dist.init_process_group("nccl")
        main(None, None)
        """,
    "over gloo nothing goes through a GPU": """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        dist.broadcast_object_list([1], src=0)
        """,
    "every device has a number": """
        import os, torch
        import torch.distributed as dist
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cuda")
        dist.init_process_group("nccl")
        net = torch.nn.Linear(2, 2).to(device)
        other = torch.zeros(1, device=f"cuda:{local_rank}").cuda(local_rank)
        dist.barrier()
        """,
    "a framework binds it": """
        import torch
        import torch.distributed as dist
        from accelerate import Accelerator
        accelerator = Accelerator()
        dist.broadcast_object_list([1], src=0)
        torch.nn.Linear(2, 2).cuda()
        """,
    "only one GPU is seen": """
        import os, torch
        import torch.distributed as dist
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
        dist.init_process_group("nccl")
        torch.nn.Linear(2, 2).cuda()
        """,
    "only one GPU is seen, whichever": """
        import os, torch
        import torch.distributed as dist
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        dist.init_process_group("nccl")
        torch.nn.Linear(2, 2).cuda()
        """,
    "only rank 0 looks at its GPU": """
        import os, torch
        import torch.distributed as dist
        from comm import choose
        dist.init_process_group("nccl")
        if dist.get_rank() == 0:
            print(torch.zeros(1).cuda())
        choose(int(os.environ["LOCAL_RANK"]))
        """,
}


@pytest.mark.parametrize("what", FOUND)
def test_a_gpu_is_used_before_one_is_bound(what: str) -> None:
    """Across functions, classes and files; told at the use, or at the call that meets the others."""
    text, line = FOUND[what]
    assert lines({"train.py": text, "comm.py": COMM}) == [("train.py", line)]


@pytest.mark.parametrize("what", SILENT)
def test_a_bound_gpu_is_no_finding(what: str) -> None:
    """Nor are branches for one process, other backends, and devices with a number."""
    assert lines({"train.py": SILENT[what], "comm.py": COMM}) == []


def test_a_folder_with_the_name_of_a_package_hides_it_from_nobody() -> None:
    """``import torch`` is the installed one wherever a folder of the project is called so."""
    text = """
        import torch
        import torch.distributed as dist
        dist.init_process_group("nccl")
        dist.broadcast_object_list([1], src=0)
        """
    assert lines({"job/train.py": text, "job/ext/act/torch/__init__.py": "", "job/ext/act/torch/act.py": ""}) == [
        ("job/train.py", 4)
    ]


@pytest.mark.parametrize("device", ["'cuda:' + str(rank)", "'cuda:%d' % rank", "f'{args.device_type}:{rank}'", "rank"])
def test_the_rank_in_the_job_is_no_gpu_of_this_host(device: str) -> None:
    """However the name of the device is put together."""
    text = f"""
import torch
import torch.distributed as dist

def place(model, args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    assert rank >= 0, f""
    return model.to(torch.device({device}))
"""
    found = check({"a.py": text.encode()}, Settings(select=("AR605",))).findings
    assert [f.place.line for f in found] == [9]


TRAINER = """
    import torch
    class Trainer:
        def __init__(self, config):
            self.device = self._prepare(config["local_rank"])
        def _prepare(self, local_rank):
            torch.cuda.set_device(local_rank)
    class Tester:
        def __init__(self, config):
            pass
    """


@pytest.mark.parametrize(("made", "expected"), [("Trainer", []), ("Tester", [("train.py", 5)])])
def test_what_a_program_makes_may_bind_its_gpu(made: str, expected: list[tuple[str, int]]) -> None:
    """The file that joins the processes shows nothing of it; another class of the project's does not help."""
    text = f"""
        import torch.distributed as dist
        from trainer import {made}
        def main(config):
            dist.init_process_group("nccl")
            {made}(config)
        if __name__ == "__main__":
            main({{}})
        """
    assert lines({"train.py": text, "trainer.py": TRAINER}) == expected


@pytest.mark.parametrize(("address", "expected"), [("'127.0.0.1'", []), ("config.address", [("runner.py", 5)])])
def test_where_all_processes_are_started_on_this_host_the_rank_is_its_gpu(
    address: str, expected: list[tuple[str, int]]
) -> None:
    """And where they may meet somebody else's, it is not."""
    launcher = f"""
        import torch.distributed as dist
        import torch.multiprocessing as mp
        from runner import wrapped
        def work(rank, config):
            dist.init_process_group("nccl", f"tcp://{{{address}}}:1234", rank=rank, world_size=config.gpus)
            wrapped(config.model)
        def start(config):
            mp.spawn(work, (config,), nprocs=config.gpus)
        """
    runner = """
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        def wrapped(model):
            model = DistributedDataParallel(model.cuda(dist.get_rank()), device_ids=[dist.get_rank()])
            return model if dist.is_initialized() else None
        """
    assert [at for at in lines({"launch.py": launcher, "runner.py": runner}) if at[0] == "runner.py"] == expected


def test_what_is_called_by_many_ways_is_looked_at_once() -> None:
    """Twenty-four functions that each call the next one twice: 16 million ways to what uses the GPU."""
    below = Result("library.py::last", marks=[Mark("use", "x.cuda", (1, 0, 1, 1))])
    for n in range(24):
        calls = [Called((line, 0, line, 1), below, EVERY, EVERY) for line in (1, 2)]
        below = Result(f"library.py::step_{n}", calls=calls)
    assert not list(astray([below], Project({}), frozenset(), lambda *_: pytest.fail("nobody runs it")))


HOSTS = {
    "the rank modulo the number of all processes is the rank": (
        """
        import torch.cuda as cuda
        import torch.distributed as dist
        def train(rank, size):
            local = rank % size
            cuda.set_device(local)
        def main():
            dist.init_process_group("nccl")
            train(dist.get_rank(), dist.get_world_size())
        """,
        6,
    ),
    "as many GPUs for each rank": (
        """
        import torch
        import torch.distributed as dist
        def setup(kind, stages):
            dist.init_process_group("nccl")
            getattr(torch, kind).set_device(dist.get_rank() * stages)
        """,
        6,
    ),
    "the rank is told, or reckoned from the node and the place on it": (
        """
        import os, torch
        def setup():
            rank, local = 0, int(os.environ["LOCAL_RANK"])
            rank = int(os.environ.get("RANK", "-1"))
            if rank == -1:
                rank = int(os.environ["SLURM_NODEID"]) * int(os.environ["SLURM_TASKS_PER_NODE"]) + local
            torch.accelerator.set_device_index(rank)
        """,
        8,
    ),
    "a started process names its GPU and uses the current one": (
        """
        from multiprocessing import Process
        import torch
        from model import Net, Head
        def score(paths, number):
            device = f"cuda:{number}"
            net = Net().to(device)
            head = Head().cuda()
            return head(net(paths.to(device)))
        def main(parts):
            for number, part in enumerate(parts):
                Process(target=score, args=(part, number)).start()
        """,
        8,
    ),
}


@pytest.mark.parametrize(("program", "line"), HOSTS.values(), ids=HOSTS)
def test_a_process_is_on_another_gpu_than_its_own(program: str, line: int) -> None:
    """The number of a GPU counts the GPUs of one host, and the current one is GPU 0 until it is set."""
    assert lines({"train.py": program}) == [("train.py", line)]


ON_ITS_OWN = {
    "the rank modulo the GPUs of a host": """
        import torch
        import torch.distributed as dist
        def main():
            dist.init_process_group("nccl")
            torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
        """,
    "the size is that of a host": """
        import os, torch
        def main():
            rank, size = int(os.environ["RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
            torch.cuda.set_device(rank % size)
        """,
    "a started process uses the GPU that it names": """
        from multiprocessing import Process
        from model import Net
        def score(paths, number):
            return Net().to(f"cuda:{number}")(paths)
        def alone(paths):
            return Net().cuda()(paths)
        def main(parts):
            for number, part in enumerate(parts):
                Process(target=score, args=(part, number)).start()
        """,
    "barriers alone, which guess it by the rank": """
        import torch.distributed as dist
        def main(rank, work):
            dist.init_process_group("nccl", rank=rank)
            work(f"cuda:{rank}")
            wait()
        def wait():
            dist.barrier()
        if __name__ == "__main__":
            main()
        """,
    "all of a host": """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import parallel_apply, replicate
        def main(data):
            dist.init_process_group("nccl")
            model = torch.nn.Linear(2, 2).cuda()
            return parallel_apply(replicate(model, range(torch.cuda.device_count())), data)
        if __name__ == "__main__":
            main()
        """,
    "the one that Ray lets it see": """
        import deepspeed, torch
        class Scorer:
            def __call__(self, batch):
                batch = torch.LongTensor(batch).to("cuda")
                deepspeed.init_distributed()
                return deepspeed.initialize(model="m")[0](batch)
        def score(data):
            return data.map_batches(Scorer)
        """,
}


@pytest.mark.parametrize("program", ON_ITS_OWN.values(), ids=ON_ITS_OWN)
def test_a_process_is_on_its_own_gpu(program: str) -> None:
    """The rank in the job brought down to one host, and started processes that say their GPU's number, are right."""
    assert lines({"train.py": program}) == []


@pytest.mark.parametrize(("address", "expected"), [("tcp://127.0.0.1:{}", [6]), ("tcp://{}:1234", [6, 8])])
def test_where_all_processes_meet_on_this_host_the_rank_is_its_gpu(address: str, expected: list[int]) -> None:
    """Whoever starts them."""
    text = f"""
        import argparse
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        def wrapped(model, args):
            dist.init_process_group("nccl", init_method="{address}".format(args.where), rank=args.local_rank)
            rank = dist.get_rank()
            return DistributedDataParallel(model, device_ids=[rank])
        """
    assert [line for _, line in lines({"train.py": text})] == expected
