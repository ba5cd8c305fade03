"""The door before a collective, on simulated ranks."""

from __future__ import annotations

import pytest

from allranks.arrays.base import Leaf
from allranks.errors import CollectiveOnOneRank, Mismatch
from allranks.gate import collective
from allranks.world.base import World
from allranks.world.simulated import SimulatedWorld


def test_ranks_with_one_ticket_pass_and_calls_are_counted_by_name() -> None:
    def program(world: World) -> int:
        passed = 0
        for step in range(3):
            with collective(world, "save", step=step, digest="d"), collective(world, "log"):
                passed += 1
        return passed

    assert SimulatedWorld(5).run(program).values() == (3,) * 5


def test_another_step_stops_every_rank_before_the_block() -> None:
    def program(world: World) -> None:
        with collective(world, "save", step=1200 if world.rank != 3 else 1100):
            raise AssertionError("nobody may get here")

    seen = SimulatedWorld(4).run(program).errors
    assert {type(error) for error in seen.values()} == {Mismatch}
    assert sorted(seen) == [0, 1, 2, 3]
    assert "ranks 0-2: step 1200 (tests/gate/test_collective.py:" in str(seen[1])
    assert "rank 3: step 1100" in str(seen[1])
    assert "rank 1: collective 'save' (tests/gate" in str(seen[1])


def test_another_name_or_call_stops_every_rank() -> None:
    def program(world: World) -> None:
        if world.rank == 1:
            world.barrier("epoch")
        else:
            with collective(world, "save"):
                raise AssertionError("nobody may get here")

    seen = SimulatedWorld(3).run(program).errors
    assert {type(error) for error in seen.values()} == {Mismatch}
    assert "rank 1: barrier 'epoch'" in str(seen[0])


def test_other_shapes_name_the_leaf_on_every_rank() -> None:
    """Two more keys travel, and only then: the leaves of one rank of each group."""

    def program(world: World) -> None:
        width = 128 if world.rank == 3 else 64
        leaves = [Leaf("step", (), "int32", (), 4), Leaf("opt/mu/0", (512, width), "float32", (1, 1), 512 * width * 4)]
        with collective(world, "save", step=1, digest=leaves):
            raise AssertionError("nobody may get here")

    seen = SimulatedWorld(4).run(program).errors
    assert sorted(seen) == [0, 1, 2, 3]
    for error in seen.values():
        assert isinstance(error, Mismatch)
        assert (error.leaf, error.ranks) == ("opt/mu/0", (3,))
        assert "leaf 'opt/mu/0' is float32[512, 64] on ranks 0-2, float32[512, 128] on rank 3." in str(error)


def test_an_error_in_the_block_carries_the_ticket() -> None:
    def program(world: World) -> None:
        with collective(world, "save", step=4):
            raise KeyError("x")

    error = SimulatedWorld(2).run(program).errors[1]
    assert isinstance(error, KeyError)
    assert error.__notes__[0].startswith("rank 1: inside collective 'save': call 1, step 4 (tests/gate/test_coll")


def test_a_collective_in_code_of_one_rank_is_refused() -> None:
    def program(world: World) -> None:
        def alone() -> None:
            with collective(world, "save"):
                pass

        with pytest.raises(CollectiveOnOneRank if world.is_main else Exception, match="collective 'save'"):
            world.on_main(alone)

    SimulatedWorld(3).run(program).values()


def test_1_000_ranks_find_the_one_that_is_a_step_behind() -> None:
    def program(world: World) -> None:
        with collective(world, "save", step=5 if world.rank != 777 else 4, digest="d"):
            pass

    seen = SimulatedWorld(1000).run(program).errors
    assert len(seen) == 1000
    assert all(isinstance(error, Mismatch) and error.ranks == (777,) for error in seen.values())
