"""``allranks run --rendezvous-timeout``: a rank that does not come is not waited for longer than was asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import allranks

PROGRAM = {
    "jax": """
import time
import allranks
world = allranks.init("jax")
import jax, numpy as np
allranks.preflight(world)
mesh = jax.make_mesh((2,), ("d",))
x = jax.make_array_from_process_local_data(jax.NamedSharding(mesh, jax.P("d")), np.ones(2), (4,))
total = jax.jit(lambda x: x.sum())
total(x).block_until_ready()
if world.rank == 0:
    print(float(total(x)))
time.sleep(60)
""",
    "torch": """
import time
import allranks
world = allranks.init("torch")
import torch, torch.distributed as dist
allranks.preflight(world)
if world.rank == 0:
    dist.all_reduce(torch.ones(2))
time.sleep(60)
""",
}


@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in PROGRAM])
def test_a_collective_that_one_rank_does_not_join_ends(tmp_path: Path, framework: str) -> None:
    """Without it: 30 minutes. Preflight has seen that it is in effect, and the message is explained in place."""
    (tmp_path / "absent.py").write_text(PROGRAM[framework])
    done = allranks("-n", "2", "--rendezvous-timeout", "3", "absent.py", cwd=tmp_path)
    assert done.code == 1
    assert "Timed out waiting 3000ms for recv" in done.out
    assert "allranks: what rank 0 said above: a collective did not end in time [gloo-timeout]" in done.out
    in_effect = {"jax": "and in effect", "torch": "torch's group: 3 s"}
    assert in_effect[framework] in " ".join(done.out.replace("(0)", "").split())  # the table folds long lines
