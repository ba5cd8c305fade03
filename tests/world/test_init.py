"""``allranks.init()`` in processes of its own: alone, against the signs, and with ranks that never come."""

from __future__ import annotations

import socket
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import harness
import pytest


def python(program: str, environ: Mapping[str, str] = {}) -> harness.Job:
    return harness.run_commands([([sys.executable, "-c", textwrap.dedent(program)], harness.clean_environ(environ))])


def test_without_a_sign_it_is_a_world_of_one_and_says_so_once() -> None:
    job = python(
        """
        import sys, allranks
        world = allranks.init()
        assert allranks.init() is world is allranks.current()
        assert world.size == 1 and world.all_gather("x") == ("x",)
        print(world.backend, {"jax", "torch"} & set(sys.modules))
        """
    )
    assert job.codes == [0], job
    assert job.ranks[0].out == "single set()\n"
    assert job.ranks[0].err.count("no launcher and no initialised framework: a world of one") == 1


def test_a_library_may_call_it_again() -> None:
    """It gets the same world, whatever it says of time; another backend is refused."""
    job = python(
        """
        import allranks
        from allranks.errors import AllranksError
        for call in (allranks.current, lambda: allranks.init("single"), lambda: allranks.init(timeout=3),
                     lambda: allranks.init("jax"), lambda: allranks.init("torch")):
            try:
                print(call().backend)
            except AllranksError as error:
                print(error)
        """
    )
    assert job.codes == [0], job
    no_world, *again, another = job.ranks[0].out.splitlines()
    assert (
        no_world
        == "current: there is no world yet, because allranks.init() was not called. Call allranks.init() at the start "
        "of the program."
    )
    assert again == ["single"] * 3
    assert "backend='torch'): the world already exists, and its backend is 'single'" in another


ONE_RANK_OF_TORCH = """
import torch, allranks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
world = allranks.init({})
DistributedDataParallel(torch.nn.Linear(2, 1))(torch.ones(1, 2)).sum().backward()
fully_shard(torch.nn.Linear(2, 1))(torch.ones(1, 2)).sum().backward()
print(world, torch.distributed.get_backend())
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("asked", "environ"), [("'torch'", {}), ("", harness.torchrun_environ(0, 1, 1))], ids=["asked for", "launched"]
)
def test_one_rank_of_torch_has_a_process_group(asked: str, environ: Mapping[str, str]) -> None:
    """What runs on several ranks runs on one: DDP and FSDP2 need a group."""
    job = python(ONE_RANK_OF_TORCH.format(asked), environ)
    assert job.codes == [0], job
    assert job.ranks[0].out.startswith("World(rank=0, size=1,"), job
    assert job.ranks[0].out.endswith("backend='torch') gloo\n"), job


SPAWNED = """
import sys, torch.multiprocessing as mp, allranks
def rank(number):
    allranks.init()
if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
"""


@pytest.mark.needs("torch")
def test_children_that_nobody_has_numbered_are_refused(tmp_path: Path) -> None:
    """mp.spawn(main): without us, each child would train alone as rank 0 of 1."""
    (tmp_path / "train.py").write_text(SPAWNED)
    job = harness.run_commands([([sys.executable, str(tmp_path / "train.py")], harness.clean_environ({}))])
    assert job.codes == [1], job
    assert "ContradictingSigns: this process was started by multiprocessing" in job.ranks[0].err
    assert "Start the program with `allranks run -n N` instead of mp.spawn" in job.ranks[0].err


@pytest.mark.needs("jax")
def test_a_jax_that_has_used_its_devices_is_told_before_it_can_hang() -> None:
    """The commonest contradiction, with the real JAX: a jit before ``init``."""
    program = "import jax, allranks; jax.numpy.zeros(1); allranks.init()"
    job = python(program, harness.torchrun_environ(0, 2, harness.free_port()))
    assert job.codes == [1], job
    assert "ContradictingSigns: torchrun says rank 0 of 2 (RANK, WORLD_SIZE), but JAX has already" in job.ranks[0].err
    assert "Call allranks.init() before the first jax.devices()" in job.ranks[0].err


@pytest.mark.parametrize(
    ("framework", "variable"),
    [
        pytest.param("torch", "MASTER_PORT", marks=pytest.mark.needs("torch")),
        pytest.param("jax", "JAX_COORDINATOR_PORT", marks=pytest.mark.needs("jax")),
    ],
)
def test_a_port_that_another_job_has_taken_is_named_at_once(framework: str, variable: str) -> None:
    """JAX says "Failed to start RPC server"; two jobs of torchrun with ports 29500 and 29501 clash so."""
    port = harness.free_port()
    with socket.create_server(("127.0.0.1", port)):
        job = python(f"import allranks; allranks.init({framework!r})", harness.torchrun_environ(0, 2, port))
    assert job.codes == [1], job
    assert f"StoreError: rank 0: cannot listen at 127.0.0.1:{port}: another process listens there" in job.ranks[0].err
    assert f"Set {variable} to a free port, the same one on every rank" in job.ranks[0].err


ALONE = """
import allranks
from allranks.errors import BarrierTimeout
try:
    allranks.init("{}", timeout=3)
except BarrierTimeout as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("framework", "ranks", "says"),
    [
        pytest.param("torch", (0, 1), "torch says: Timed out after", marks=pytest.mark.needs("torch")),
        pytest.param("jax", (1, 2), "rank 0 does not listen there", marks=pytest.mark.needs("jax")),
    ],
)
def test_ranks_that_never_come_are_waited_for_until_the_deadline(
    framework: str, ranks: tuple[int, ...], says: str
) -> None:
    """Not for the half hour of torch's default; the error says who waited where, and for how many."""
    port = harness.free_port()
    commands = [
        (
            [sys.executable, "-c", ALONE.format(framework)],
            harness.clean_environ(harness.torchrun_environ(rank, 3, port)),
        )
        for rank in ranks
    ]
    job = harness.run_commands(commands)
    assert job.codes == [0] * len(ranks), job
    for rank, ended in zip(ranks, job.ranks, strict=True):
        assert ended.out.startswith(f"rank {rank}: not all 3 ranks joined at 127.0.0.1:{port} within 3 s"), job
        assert "torchrun says rank" in ended.out
    assert any(says in ended.out for ended in job.ranks), job
