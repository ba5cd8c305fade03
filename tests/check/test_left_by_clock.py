"""A loop of training that a process leaves by its own clock, however it leaves it and whatever wraps its model."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

METHOD = """\
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Learner:
    def __init__(self, model):
        self.model = WRAP(model)
        self.opt = torch.optim.AdamW(self.model.parameters())

    def train(self, epochs, loader):
        t0 = time.time()
        for epoch in range(epochs):
            for batch in loader:
                loss = self.model(batch).mean()
                loss.backward()
                self.opt.step()
                if time.time() - t0 > 3600:
                    LEAVE


def main():
    dist.init_process_group("nccl")
    Learner(torch.nn.Linear(16, 16)).train(10, torch.randn(1000, 16))


main()
"""
FUNCTION = """\
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, loader, opt):
    t0 = time.monotonic()
    for batch in loader:
        model(batch).mean().backward()
        opt.step()
        if time.monotonic() - t0 > 3600:
            LEAVE


dist.init_process_group("nccl")
train(WRAP(torch.nn.Linear(16, 16)), [], None)
"""


def lines(text: str, wrap: str, leave: str) -> list[int]:
    source = text.replace("WRAP", wrap).replace("LEAVE", leave)
    findings = check({"train.py": source.encode()}, Settings(select=("AR203", "AR209"))).findings
    return [one.place.line for one in findings if one.code == "AR209" or pytest.fail(one.code)]


@pytest.mark.parametrize("wrap", ["DDP", "FSDP"])
@pytest.mark.parametrize("leave", ["return", "break", "sys.exit(0)"])
def test_a_loop_that_is_left_by_the_clock_leaves_the_others(wrap: str, leave: str) -> None:
    """In a method and in a function."""
    assert lines(METHOD, wrap, leave) == [18]
    assert lines(FUNCTION, wrap, leave) == [12]


def test_who_tells_the_time_or_fails_leaves_nobody() -> None:
    """A message that is printed; an error ends the job."""
    for leave in ("print('late')", "raise TimeoutError", "sys.exit(1)"):
        assert lines(METHOD, "DDP", leave) == lines(FUNCTION, "FSDP", leave) == []


def test_a_clock_behind_the_last_step_leaves_nobody() -> None:
    """There is no next round."""
    text = FUNCTION.replace("        if time", "    if time").replace("            LEAVE", "        LEAVE")
    assert lines(text, "DDP", "return") == []


SAVES = """\
import time
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from schedule import Schedule


def main(loader, state):
    dist.init_process_group("nccl")
    schedule = Schedule()
    for step, batch in enumerate(loader):
        if schedule.due(step):
            dcp.save(state, checkpoint_id=f"/shared/{step}")


main([], {})
"""
SCHEDULE = """\
import time


class Schedule:
    def __init__(self):
        self.last = time.monotonic()

    def due(self, step):
        if step % 100 == 0 or time.monotonic() - self.last > 600:
            self.last = time.monotonic()
            return True
        return False
"""


def test_what_a_clock_made_a_function_answer_decides_for_this_process_alone() -> None:
    """Also where the meeting is one that its name does not tell, and where both answers are constants."""
    sources = {"train.py": SAVES.encode(), "schedule.py": SCHEDULE.encode()}
    (found,) = check(sources, Settings(select=("AR203",))).findings
    assert found.place.line == 12
    by_step = {**sources, "schedule.py": SCHEDULE.replace(" or time.monotonic() - self.last > 600", "").encode()}
    assert check(by_step, Settings(select=("AR203",))).findings == ()


SIGNAL = """\
import signal
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Preempted:
    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGUSR1, self.ask)

    def ask(self, *_):
        self.asked = True

    def save(self, state):
        flag = torch.tensor(int(self.asked))
        {agree}
        if {test}:
            dcp.save(state, checkpoint_id="/shared/last")


def main(state):
    dist.init_process_group("gloo")
    preempted = Preempted()
    for _ in range(100):
        preempted.save(state)


main({{}})
"""


def test_a_signal_comes_to_each_process_at_a_time_of_its_own() -> None:
    def found(agree: str, test: str) -> list[int]:
        source = SIGNAL.format(agree=agree, test=test)
        return [one.place.line for one in check({"train.py": source.encode()}, Settings(select=("AR203",))).findings]

    assert found("pass", "self.asked") == [19]
    assert found("dist.all_reduce(flag)", "flag.item() > 0") == []


COUNTED = """\
import os
import torch.distributed as dist


class State:
    def __init__(self, folder):
        self.step = max(int(name) for name in os.listdir(folder))


def is_over(state, every):
    if {asks}:
        return True
    return False


def main(folder, batches, every):
    dist.init_process_group("nccl")
    state = State(folder)
    for batch in batches:
        dist.all_reduce(batch)
        if is_over(state, every):
            break


main("runs", [], 10)
"""


@pytest.mark.parametrize(("asks", "found"), [("state.step % every == 0", []), ("os.path.exists('stop')", [20])])
def test_every_so_many_steps_is_the_same_for_all_wherever_they_were_resumed(asks: str, found: list[int]) -> None:
    """A file may be there for one process, and not yet for another."""
    findings = check({"a.py": COUNTED.format(asks=asks).encode()}, Settings(select=("AR209", "AR203"))).findings
    assert [finding.place.line for finding in findings] == found


SENT = """\
import pickle
import time
import torch
import torch.distributed as dist


def told(data):
    buffer = torch.zeros(100)
    if dist.get_rank() == 0:
        for at, one in enumerate(pickle.dumps(data)):
            buffer[at] = one
    {sends}
    if dist.get_rank() != 0:
        data = pickle.loads(bytes(buffer.tolist()))
    return data


def main(batches, most):
    dist.init_process_group("nccl")
    start = time.time()
    for batch in batches:
        dist.all_reduce(batch)
        gone = told(time.time() - start)
        if gone > most:
            break


main([], 10)
"""


@pytest.mark.parametrize(("sends", "found"), [("dist.broadcast(buffer, 0)", []), ("pass", [22])])
def test_what_rank_0_has_sent_as_bytes_is_the_same_for_all(sends: str, found: list[int]) -> None:
    """Who unpacks bytes of his own goes by his own clock."""
    findings = check({"a.py": SENT.format(sends=sends).encode()}, Settings(select=("AR209",))).findings
    assert [finding.place.line for finding in findings] == found


ASKED = """\
import pickle
import time
import torch
import torch.distributed as dist


def gathered(data):
    if not dist.is_initialized():
        return [data]
    whole = [None] * dist.get_world_size()
    dist.all_gather_object(whole, data)
    return whole


def of_first(data):
    return gathered(data if dist.get_rank() == 0 else None)[0]


def times(began, last, limit):
    now = time.time()
    if limit < float("inf"):
        train, log = TELL((now - began, now - last))
    else:
        train, log = now - began, now - last
    return train, log


def main(limit):
    dist.init_process_group("gloo")
    began = last = time.time()
    while True:
        dist.all_reduce(torch.ones(1))
        train, log = times(began, last, limit)
        if train > limit:
            break
        last = time.time()


main(float(input()))
"""


@pytest.mark.parametrize(("tell", "lines"), [("of_first", []), ("tuple", [32])])
def test_a_clock_that_is_one_for_all_where_it_counts_lets_all_leave(tell: str, lines: list[int]) -> None:
    """Where there is no limit, each has its own clock, and nobody looks at it."""
    found = check({"train.py": ASKED.replace("TELL", tell).encode()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in found] == lines


MEASURED = """\
import time
import torch
import torch.distributed as dist


def main(kernels):
    dist.init_process_group("nccl")
    for kernel in kernels:
        start = time.perf_counter()
        dist.all_reduce(kernel)
        times = [time.perf_counter() - start]
        if QUESTION:
            break


main(list(map(torch.ones, range(9))))
"""


@pytest.mark.parametrize(("question", "lines"), [("len(times) == 0", []), ("times[0] > 3", [10])])
def test_how_many_times_were_taken_is_no_clock(question: str, lines: list[int]) -> None:
    found = check({"bench.py": MEASURED.replace("QUESTION", question).encode()}, Settings(select=("AR209",))).findings
    assert [one.place.line for one in found] == lines
