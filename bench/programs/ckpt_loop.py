"""A training loop of one core that saves behind its back: idle, during the save, idle. argv: way, framework, state.

A step is a matrix product on one thread and a little Python. Tells the seconds for which the save stopped the loop and
those until it was durable, the steps taken meanwhile, the seconds of an idle step, and the longest step.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ |= {"OPENBLAS_NUM_THREADS": "1"}  # read when NumPy is imported
import numpy as np
from ckpt_limits import make_durable
from ckpt_methods import method
from ckpt_state import State
from told import tell

LEFT, RIGHT, OUT = (np.ones((640, 640), np.float32) for _ in range(3))


def step() -> None:
    np.matmul(LEFT, RIGHT, out=OUT)
    sum(number * number for number in range(20_000))


def steps_while(going: Callable[[], bool]) -> list[float]:
    """The seconds of each step, as long as it goes on."""
    ends = [time.perf_counter()]
    while going():
        step()
        ends.append(time.perf_counter())
    return np.diff(ends).tolist()


def idle() -> list[float]:
    end = time.perf_counter() + (0.5 if kind.endswith("-tenth") else 1.5)
    return steps_while(lambda: time.perf_counter() < end)


name, framework, kind = sys.argv[1:]
os.environ.setdefault("RANK", "0")
home = Path(os.environ["BENCH_OUT"], "run")
home.mkdir()
state, way = State(kind), method(name, framework)
tree = way.hold(state)
over = threading.Event()


def finish(wait: Callable[[], object]) -> None:
    wait()
    if not way.durable:
        make_durable(home)
    over.set()


way.save(home, 1, tree)()  # what it allocates once, it has then
make_durable(home)
before = idle()
begin = time.perf_counter()
wait = way.save(home, 2, tree)
blocking = time.perf_counter() - begin
threading.Thread(target=finish, args=(wait,)).start()
during = steps_while(lambda: not over.is_set())
after = idle()
quiet = sum(before + after) / len(before + after)
lost = blocking + sum(during) - len(during) * quiet
tell(blocking=blocking, behind=sum(during), idle_step=quiet, worst=max(during), lost=lost)
way.close()
