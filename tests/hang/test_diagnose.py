"""Who is waited for: a table of all kinds of fault, then random worlds of up to 10,000 ranks with one planted."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.hang.calls import NO_CALLS, RecentCalls
from allranks.hang.diagnose import Diagnosis, RankObservation, diagnose
from allranks.hang.heartbeat import Heartbeat

LIMIT = 60.0
STEP = 120
# A rank that waits with all others, one that computes, and one that has just come to the others.
WAITS = Heartbeat(
    0, 0.0, "collective", "train_step", "train.py:88 in main", order=STEP + 1, since=70, still=70, alike=70
)
COMPUTES = Heartbeat(0, 0.0, where="train.py:80 in main", order=STEP, cores=1.0)
COMES = replace(WAITS, since=3, still=3, alike=3)


def outside(phase: str = "python", where: str = "data.py:41 in next_batch") -> Heartbeat:
    return Heartbeat(0, 0.0, phase, "", where, order=STEP, since=71, still=71, alike=71)


# Each fault: what is seen of the rank that has it, and what it is called.
FAULTS: dict[str, tuple[RankObservation, str]] = {
    "exception": (RankObservation(0, COMPUTES, False, "has failed: ValueError: bad row"), "raised"),
    "SIGKILL": (RankObservation(0, COMPUTES, False, "", "X"), "dead"),
    "killed, told by another": (RankObservation(0, COMPUTES, False, "killed by SIGKILL"), "dead"),
    "left early": (RankObservation(0, COMPUTES, False, "has left (exit code 0)"), "left"),
    "SIGSTOP": (RankObservation(0, COMPUTES, False, "", "T"), "stopped"),
    "debugger": (RankObservation(0, COMPUTES, False, "", "t"), "stopped"),
    "holds the GIL": (RankObservation(0, COMPUTES, False, "", "S"), "frozen"),
    "no network": (RankObservation(0, COMPUTES, False), "silent"),
    "never seen": (RankObservation(0, None, False), "silent"),
    "data": (RankObservation(0, outside("data")), "stuck"),
    "file": (RankObservation(0, outside()), "stuck"),
    "restore": (RankObservation(0, outside("restore")), "stuck"),
    "polls": (RankObservation(0, replace(outside(), still=0.5)), "stuck"),
    "earlier collective": (RankObservation(0, replace(WAITS, what="eval_step", order=STEP)), "behind"),
    "other collective": (RankObservation(0, replace(WAITS, what="only_here")), "elsewhere"),
}


def world(size: int, culprits: dict[int, RankObservation], others: Heartbeat = WAITS) -> list[RankObservation]:
    ranks = [culprits.get(rank, RankObservation(rank, others)) for rank in range(size)]
    return [
        replace(one, rank=rank, heartbeat=replace(one.heartbeat, rank=rank) if one.heartbeat else None)
        for rank, one in enumerate(ranks)
    ]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("size", [2, 3, 4, 9])
def test_the_rank_with_the_fault_is_named(fault: str, size: int) -> None:
    """Whichever rank it is, rank 0 included; all others are said to wait for it."""
    what, called = FAULTS[fault]
    for rank in range(size):
        found = diagnose(world(size, {rank: what}), limit=LIMIT)
        if (called, size) == ("elsewhere", 2):  # nobody knows which of two calls is the right one
            assert set(found.culprits) == {0, 1}
            continue
        assert found.culprits == (rank,)
        assert found.verdicts[rank] == called
        assert found.waiting == tuple(other for other in range(size) if other != rank)
        assert not found.at_work


def test_a_fault_that_explains_more_comes_first() -> None:
    """Of two different faults, in the order of the theory."""
    order = ["exception", "SIGSTOP", "left early", "file"]
    for first, second in itertools.pairwise(order):
        found = diagnose(world(4, {1: FAULTS[second][0], 2: FAULTS[first][0]}), limit=LIMIT)
        assert found.culprits == (2,), (first, second)


def test_ranks_that_have_done_their_part_are_not_waited_for() -> None:
    """The root of a broadcast goes on at once, and may stand elsewhere: the rank that never came is named."""
    ahead = replace(outside(where="train.py:95 in main"), order=STEP + 1)
    found = diagnose(world(4, {0: RankObservation(0, ahead), 2: RankObservation(2, outside())}), limit=LIMIT)
    assert found.culprits == (2,)


def test_without_counts_and_stamps_the_minority_is_named() -> None:
    """Nothing is known but where each rank stands."""
    most = Heartbeat(0, 0.0, where="train.py:88 in main", since=70, still=70, alike=70)
    assert diagnose(world(3, {1: RankObservation(1, outside())}, most), limit=LIMIT).culprits == (1,)
    assert diagnose(world(2, {1: RankObservation(1, outside())}, most), limit=LIMIT).culprits == (0, 1)
    assert diagnose(world(3, {}, most), limit=LIMIT).culprits == (0, 1, 2)


def test_nobody_is_named_where_all_stand_in_one_call() -> None:
    found = diagnose(world(4, {}), limit=LIMIT)
    assert (found.culprits, found.waiting) == ((), (0, 1, 2, 3))


@pytest.mark.parametrize("others", [COMPUTES, COMES], ids=["computing", "in a collective"])
def test_a_world_that_moves_has_no_culprit(others: Heartbeat) -> None:
    """Neither while ranks compute, nor while some have come to a collective and one has not yet."""
    mixed = {1: RankObservation(1, COMPUTES), 2: RankObservation(2, COMES)}
    assert diagnose(world(4, mixed, others), limit=LIMIT).culprits == ()


def test_a_rank_alone_outside_is_named_while_the_others_go_on() -> None:
    found = diagnose(world(4, {3: RankObservation(3, outside())}, COMPUTES), limit=LIMIT)
    assert (found.culprits, found.waiting) == ((3,), ())


@pytest.mark.parametrize(
    ("heartbeat", "works"),
    [
        (replace(outside("compile"), cores=1.0), True),
        (replace(outside("compile"), cores=0.0), False),
        (replace(outside("save"), io=5e6), True),
        (replace(outside("save"), io=10.0), False),
        (replace(outside("data"), cores=1.0), False),
        (replace(outside(), still=1.0, alike=2.0, cores=1.0), True),
        (replace(outside(), still=1.0, alike=70.0), False),
    ],
)
def test_a_rank_that_works_is_told_from_one_that_is_stuck(heartbeat: Heartbeat, works: bool) -> None:
    """A compilation or a save that uses cores or files, or Python that is elsewhere at every look."""
    found = diagnose(world(4, {1: RankObservation(1, heartbeat)}), limit=LIMIT)
    assert found.culprits == (1,)
    assert found.at_work is works
    assert found.verdicts[1] == ("working" if works else "stuck")


def planted(seed: int, size: int) -> tuple[list[RankObservation], int, str]:
    """A world in which the others have come to the collective at random moments, and one rank has a random fault."""
    chance = random.Random(seed)
    fault = chance.choice([name for name in FAULTS if name != "other collective" or size > 2])
    rank = chance.randrange(size)

    def other() -> Heartbeat:
        since = chance.choice([70.0, 70.0, 70.0, chance.uniform(31, 90)])
        return replace(WAITS, since=since, still=since, alike=since, step=chance.choice([None, STEP]))

    seen = [FAULTS[fault][0] if one == rank else RankObservation(one, other()) for one in range(size)]
    return (
        [replace(s, rank=r, heartbeat=s.heartbeat and replace(s.heartbeat, rank=r)) for r, s in enumerate(seen)],
        rank,
        fault,
    )


@given(seed=st.integers(0, 2**32), size=st.integers(2, 60))
@settings(max_examples=500)
def test_in_random_worlds_the_planted_culprit_is_named(seed: int, size: int) -> None:
    seen, rank, fault = planted(seed, size)
    assert diagnose(seen, limit=LIMIT).culprits == (rank,), fault


@pytest.mark.parametrize("seed", range(20))
def test_of_10_000_ranks_the_planted_culprit_is_named(seed: int) -> None:
    seen, rank, fault = planted(seed, 10_000)
    assert diagnose(seen, limit=LIMIT).culprits == (rank,), fault


BEATS = st.builds(
    Heartbeat,
    rank=st.just(0),
    when=st.just(0.0),
    phase=st.sampled_from(["python", "collective", "exchange", "data", "compile", "save"]),
    what=st.sampled_from(["a", "b"]),
    where=st.sampled_from(["x.py:1 in f", "y.py:2 in g"]),
    order=st.integers(0, 2),
    still=st.sampled_from([0.0, 40.0, 70.0]),
    alike=st.sampled_from([0.0, 70.0]),
    cores=st.sampled_from([0.0, 1.0]),
)
SEEN = st.builds(
    RankObservation,
    rank=st.just(0),
    heartbeat=st.none() | BEATS,
    fresh=st.booleans(),
    ended=st.sampled_from(["", "has left (exit code 0)", "has failed: E", "killed by SIGKILL"]),
    process=st.sampled_from(["", "S", "R", "T", "Z", "X"]),
)


@given(st.lists(SEEN, min_size=1, max_size=8))
@settings(max_examples=1000)
def test_any_world_has_a_consistent_diagnosis(ranks: list[RankObservation]) -> None:
    """Nobody is culprit and waits; a rank that has ended does not wait; a world in which all are well and move has no
    culprit."""
    seen = [replace(s, rank=r, heartbeat=s.heartbeat and replace(s.heartbeat, rank=r)) for r, s in enumerate(ranks)]
    found: Diagnosis = diagnose(seen, limit=LIMIT)
    assert len(found.verdicts) == len(seen)
    assert not set(found.culprits) & set(found.waiting)
    assert not any(seen[rank].ended for rank in found.waiting)
    well = [
        RankObservation(r, one.heartbeat) for r, one in enumerate(seen) if one.heartbeat and one.heartbeat.still == 0
    ]
    if len(well) == len(seen):
        assert diagnose(well, limit=LIMIT).culprits == ()


def waits(
    rank: int, what: str, *, peer: int = -1, order: int = 7, calls: RecentCalls = NO_CALLS, group: str = ""
) -> RankObservation:
    heartbeat = replace(
        WAITS, rank=rank, what=what, order=order, peer=peer, group=group, where=f"train.py:{rank} in main"
    )
    return RankObservation(rank, heartbeat, calls=calls)


RECV, SEND = "recv from rank {}", "send to rank {}"
DEADLOCKS: dict[str, tuple[list[RankObservation], tuple[int, ...], str]] = {
    "recv faces recv": ([waits(0, RECV, peer=1), waits(1, RECV, peer=0)], (0, 1), "elsewhere"),
    "send faces send": ([waits(0, SEND, peer=1), waits(1, SEND, peer=0)], (0, 1), "elsewhere"),
    "a ring of receives": (
        [waits(0, RECV, peer=1), waits(1, RECV, peer=2), waits(2, RECV, peer=0)],
        (0, 1, 2),
        "elsewhere",
    ),
    "others wait beside": ([waits(0, RECV, peer=2), waits(1, "barrier"), waits(2, RECV, peer=0)], (0, 2), "elsewhere"),
    "recv faces a barrier": ([waits(0, RECV, peer=1), waits(1, "barrier", order=8)], (0, 1), "elsewhere"),
    "send meets recv": ([waits(0, SEND, peer=1), waits(1, RECV, peer=0)], (0, 1), "elsewhere"),
    "two groups": (
        [waits(0, "all_reduce in a", group="a"), waits(1, "all_reduce in b", group="b")],
        (0, 1),
        "elsewhere",
    ),
    "a call more than most": ([waits(0, "barrier", order=9), waits(1, "barrier"), waits(2, "barrier")], (0,), "ahead"),
    "a call less than most": ([waits(0, "barrier", order=5), waits(1, "barrier"), waits(2, "barrier")], (0,), "behind"),
    "one of two is behind": ([waits(0, "barrier", order=9), waits(1, "barrier")], (1,), "behind"),
    "a call below a condition on the rank": (
        [replace(waits(0, "broadcast", order=8), branch="if rank == 0 (train.py:14)"), waits(1, "barrier")],
        (0,),
        "ahead",
    ),
    "an evaluation on one of two": (
        [
            waits(0, "barrier", order=9, calls=RecentCalls(6, tuple("ababcb"))),
            waits(1, "b", calls=RecentCalls(5, tuple("ababa"))),
        ],
        (0,),
        "ahead",
    ),
}


@pytest.mark.parametrize("kind", DEADLOCKS)
def test_ranks_that_all_wait_for_something_else(kind: str) -> None:
    """Sends and receives that do not meet, groups in another order, and calls that one rank makes more or less."""
    seen, culprits, verdict = DEADLOCKS[kind]
    found = diagnose(seen, limit=LIMIT)
    assert found.culprits == culprits
    assert {found.verdicts[rank] for rank in culprits} == {verdict}


def test_who_receives_waits_for_its_peer_alone() -> None:
    """A third rank that is outside, too, is not what holds it up."""
    found = diagnose(
        [waits(0, RECV, peer=1), RankObservation(1, outside()), RankObservation(2, outside())], limit=LIMIT
    )
    assert found.culprits == (1,)


def test_where_most_have_left_the_one_that_waits_makes_a_call_more() -> None:
    """Rank 0 evaluates once more, after the others' end. Where one of three has left early, it is that."""
    left = [RankObservation(rank, None, False, "has left (exit code 0)") for rank in (1, 2)]
    assert diagnose([waits(0, "all_reduce"), *left], limit=LIMIT).culprits == (0,)
    assert diagnose([waits(0, "a"), left[0], replace(waits(2, "a"), rank=2)], limit=LIMIT).culprits == (1,)
