"""Ten thousand simulated ranks meet. Operations are counted, never time."""

from __future__ import annotations

import pytest

from allranks import SimulatedWorld, World
from allranks.arrays.base import DeclaredArray, RankSplit
from allranks.checkpoint.manifest import Shard
from allranks.checkpoint.save_plan import plan_checkpoint_layout, plan_file
from allranks.data.agreement import RowShares
from allranks.data.start import start_on_all_ranks
from allranks.errors import AllranksError
from allranks.world.base import DEFAULT_FANOUT
from allranks.world.faults import Crash
from allranks.world.simulated import Outcome

MANY = 10_000


def barrier_and_gather(world: World) -> int | None:
    world.barrier()
    gathered = world.gather(world.rank)
    return None if gathered is None else sum(gathered)


def each(outcome: Outcome[int | None]) -> float:
    """Return the mean of a rank's store operations."""
    return sum(outcome.operations.values()) / len(outcome.results)


def test_a_barrier_and_a_gather_of_ten_thousand_ranks() -> None:
    """The work of the store grows as the number of ranks, and no rank does much more than its children ask for."""
    small, large = (SimulatedWorld(size).run(barrier_and_gather) for size in (MANY // 10, MANY))
    assert large.values() == (sum(range(MANY)), *[None] * (MANY - 1))
    assert each(small) <= 8
    assert each(large) == pytest.approx(each(small), rel=0.01)
    assert small.busiest <= 2 * DEFAULT_FANOUT + 10
    assert large.busiest <= 2 * DEFAULT_FANOUT + 10
    assert large.seconds < 1, "of simulated time"


def test_flat_would_be_too_much_for_rank_0() -> None:
    """Why there is a tree: without one, rank 0 waits for all others, one after the other."""
    flat = SimulatedWorld(1000, fanout=1000).run(barrier_and_gather)
    assert flat.busiest >= 2 * 999


@pytest.mark.soak
def test_one_dead_rank_of_ten_thousand_is_named_to_all() -> None:
    def attempt(world: World) -> str:
        try:
            return str(world.barrier("epoch"))
        except AllranksError as error:
            return str(error)

    end = SimulatedWorld(MANY, faults=[Crash(7_777)]).run(attempt)
    assert end.crashed == (7_777,)
    assert len(end.results) == MANY - 1
    assert all("a rank has ended. rank 7777 (host host-972): crashed." in told for told in end.results.values())


def test_a_save_of_ten_thousand_ranks_is_planned_alike_by_all() -> None:
    """What a rank writes is what rank 0 puts into the manifest, in which a regular row of shards is one entry."""
    rows = RankSplit((MANY, 1), tuple((rank,) for rank in range(MANY)))
    everybody = RankSplit((1, 1), (tuple(range(MANY)),))
    declared = [DeclaredArray(f"sharded/{n}", (MANY * 2, 64), "float32", rows) for n in range(100)]
    declared += [DeclaredArray(f"replicated/{n}", (MANY, 4096), "bfloat16", everybody) for n in range(4)]
    files = plan_checkpoint_layout(declared, size=MANY)
    assert len(files.writers) == MANY
    assert all(len(files.leaves[f"sharded/{n}"].runs) == 1 for n in range(100))
    for rank in (0, 1, 4999, MANY - 1):
        for part in plan_file(declared, rank=rank, size=MANY).parts:
            shards = files.leaves[declared[part.leaf].path].shards
            assert Shard(rank, part.begin, part.extent) in shards


def begin(world: World) -> RowShares:
    """Pairs of ranks, eight apart, hold the same two rows, as under tensor parallelism over hosts."""
    pair = world.rank // 16 * 8 + world.rank % 8
    return start_on_all_ranks(world, {"plan": "0123456789abcdef"}, range(2 * pair, 2 * pair + 2), global_batch=MANY)


def test_ten_thousand_ranks_begin_to_read() -> None:
    """One exchange; each learns which rows it counts, and what it is told does not grow with the ranks."""
    told = SimulatedWorld(MANY).run(begin)
    shares = told.values()
    assert sorted(row for one in shares for row in one.counted) == list(range(MANY))
    assert all(one.shared == one.rows for one in shares)
    assert each(told) <= 4
    assert told.seconds < 1, "of simulated time"
