"""A hundred ends of a JAX rank: each brings the whole job down, with the right words and the right exit code."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from jobs import allranks, write

SCRIPT = """\
import os, pathlib, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
sharding = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
x = jax.make_array_from_callback((jax.device_count(),), sharding, lambda i: np.ones(1, np.float32))
total = jax.jit(lambda a: a.sum())
for step in range(10_000):
    total(x).block_until_ready()
    if step == 20 and jax.process_index() == int(sys.argv[1]):
        pathlib.Path("time").write_text(str(time.time()))
        exec(sys.argv[2])
"""
ENDS = [
    ("raise ValueError('bad row')", 1, "ValueError: bad row"),
    ("threading.Thread(target=lambda: 1 / 0).start()", 1, "ZeroDivisionError"),
    ("sys.exit(3)", 3, "left with exit code 3"),
    ("sys.exit(0)", 1, "left early"),
    ("os._exit(7)", 7, "exit code 7"),
    ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
    (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); bytearray(1 << 34)",
        1,
        "MemoryError",
    ),
]


@pytest.mark.needs("jax")
@pytest.mark.soak
def test_a_hundred_ends_of_a_rank_are_a_hundred_ends_of_the_job(tmp_path: Path) -> None:
    """Deterministic choice of rank and of end; the slowest is shown."""
    choose = random.Random(0)
    script = write(tmp_path, SCRIPT)
    seconds: list[tuple[float, str]] = []
    for turn in range(100):
        rank, (end, code, says) = choose.randrange(4), ENDS[turn % len(ENDS)]
        done = allranks("-n", "4", "-d", "2", script, str(rank), end, cwd=tmp_path)
        seconds.append((time.time() - float((tmp_path / "time").read_text()), end))
        first = next(line for line in done.out.splitlines() if line.startswith("first failure: "))
        assert f"rank {rank} " in first, done.out
        assert says in first, done.out
        assert done.code == code
    print(f"seconds from the end of the rank to that of the job: median {sorted(seconds)[50]}, most {max(seconds)}")
    assert max(seconds)[0] < 20
