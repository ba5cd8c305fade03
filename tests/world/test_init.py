"""``allranks.init()`` in processes of its own: alone, against the signs, and with ranks that never come."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping

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


def test_what_cannot_be_is_refused() -> None:
    """No world before ``init``, and no second one of another kind."""
    job = python(
        """
        import allranks
        from allranks.errors import AllranksError
        for call in (allranks.current, lambda: allranks.init("single"), lambda: allranks.init(timeout=3)):
            try:
                print(call().backend)
            except AllranksError as error:
                print(error)
        """
    )
    assert job.codes == [0], job
    no_world, backend, another = job.ranks[0].out.splitlines()
    assert no_world == "there is no world yet. Call allranks.init() at the start of the program."
    assert backend == "single"
    assert "was called before with" in another
    assert "backend='single', timeout=300.0" in another
    assert "backend=None, timeout=3" in another


@pytest.mark.needs("jax")
def test_a_jax_that_has_used_its_devices_is_told_before_it_can_hang() -> None:
    """The commonest contradiction, with the real JAX: a jit before ``init``."""
    program = "import jax, allranks; jax.numpy.zeros(1); allranks.init()"
    job = python(program, harness.torchrun_environ(0, 2, harness.free_port()))
    assert job.codes == [1], job
    assert "ContradictingSigns: torchrun says rank 0 of 2 (RANK, WORLD_SIZE), but JAX has already" in job.ranks[0].err
    assert "Call allranks.init() before the first jax.devices()" in job.ranks[0].err


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
        assert ended.out.startswith(f"rank {rank}: not all 3 ranks met at 127.0.0.1:{port} within 3 s"), job
        assert "torchrun says rank" in ended.out
    assert any(says in ended.out for ended in job.ranks), job
