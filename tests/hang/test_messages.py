"""A report says who, where, for how long, what to do and which timeout governs; the rest in few lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allranks.hang.alarm import HangCase, RankSnapshot
from allranks.hang.diagnose import RankObservation, diagnose
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.limits import Limits, describe_timeouts
from allranks.hang.messages import hang_headline, hang_report

HOSTS = ("a", "a", "b", "b")
WAITS = Heartbeat(0, 100.0, "collective", "train_step", "train.py:88 in main", "futex", "data the next batch", 119, 120)
WAITS = replace(WAITS, since=61.0, still=61.0, alike=61.0)
OPENS = replace(WAITS, phase="python", what="", where="data.py:41 in rows", kernel="openat('/data/7')", order=119)


def case(culprits: dict[int, RankObservation], others: Heartbeat = WAITS) -> HangCase:
    seen = tuple(culprits.get(rank, RankObservation(rank, replace(others, rank=rank))) for rank in range(4))
    threads = {"Thread-7": "x.py:1 in f"}
    snapshots = {
        s.rank: RankSnapshot(s.heartbeat, f"stack of {s.heartbeat.where}", threads, {}) for s in seen if s.heartbeat
    }
    return HangCase(60.0, seen, snapshots, diagnose(seen, limit=60.0))


def test_a_whole_report() -> None:
    """Word for word: this is what a person gets at three in the morning."""
    found = hang_report(
        case({2: RankObservation(2, replace(OPENS, rank=2, cores=0.01))}), HOSTS, Limits(300.0, torch=1800.0)
    )
    assert (
        found
        == """\
HANG: ranks 0-1, 3 wait for rank 2 (host b), since 61 s: at data.py:41 in rows, in openat('/data/7')
  rank 2 (host b) has not come to the call in which the others wait
    Python at data.py:41 in rows, in openat('/data/7'), for 61 s
    step 119; before: data the next batch; its process uses 0.0 cores
    what to do: Check its line: a lock, a file, a socket, a child process, or a loop that does not end.
  limit: torch gives up after 1800 s: init_process_group(timeout=...)

  ranks   verdict  in                     at                    for  step
  ------  -------  ---------------------  -------------------  ----  ----
  2       stuck    Python                 data.py:41 in rows   61 s   119
  0-1, 3  waiting  collective train_step  train.py:88 in main  61 s   119

  stack of rank 2:
    stack of data.py:41 in rows
  stack of ranks 0-1, 3:
    stack of train.py:88 in main
  rank 2, thread Thread-7:
    x.py:1 in f"""
    )


@pytest.mark.parametrize(
    ("culprits", "others", "says"),
    [
        ({}, WAITS, "all ranks wait in collective train_step, since 61 s, and no rank is missing"),
        (
            {1: RankObservation(1, replace(OPENS, rank=1), False, "", "T")},
            WAITS,
            "ranks 0, 2-3 wait for rank 1 (host a), since 61 s: stopped, last seen at data.py:41 in rows",
        ),
        (
            {1: RankObservation(1, None, False, "has failed: ValueError: bad row")},
            WAITS,
            "ranks 0, 2-3 wait for rank 1 (host a), since 61 s: raised",
        ),
        (
            {0: RankObservation(0, OPENS), 1: RankObservation(1, replace(OPENS, rank=1))},
            WAITS,
            "ranks 2-3 wait for ranks 0-1, since 61 s: at data.py:41 in rows, in openat('/data/7')",
        ),
        (
            {3: RankObservation(3, replace(OPENS, rank=3))},
            replace(WAITS, phase="python", still=0.1, alike=0.1),
            "rank 3 (host b) makes no progress: at data.py:41 in rows, in openat('/data/7')",
        ),
    ],
)
def test_the_headline_of_each_kind(culprits: dict[int, RankObservation], others: Heartbeat, says: str) -> None:
    assert hang_headline(case(culprits, others), HOSTS) == says


def test_a_report_of_10_000_ranks_is_short() -> None:
    """Ranks that are alike are one row and one stack."""
    seen = tuple(RankObservation(rank, replace(WAITS if rank else OPENS, rank=rank)) for rank in range(10_000))
    snapshots = {one.rank: RankSnapshot(one.heartbeat, one.heartbeat.where, {}, {}) for one in seen if one.heartbeat}
    big = HangCase(60.0, seen, snapshots, diagnose(seen, limit=60.0))
    text = hang_report(big, ("a",) * 10_000, Limits(300.0))
    assert len(text.splitlines()) < 25
    assert "1-9999" in text


@pytest.mark.parametrize(
    ("phase", "limits", "says"),
    [
        ("exchange", Limits(300.0), ["the exchange times out after 300 s: allranks.init(timeout=...)"]),
        ("exchange 8", Limits(300.0), ["the exchange times out after 8 s: timeout=... of this call"]),
        ("collective", Limits(300.0, torch=600.0), ["torch gives up after 600 s: init_process_group(timeout=...)"]),
        (
            "collective",
            Limits(300.0, xla_flags="--a=b --xla_cpu_collective_timeout_seconds=8"),
            [
                "on CPUs JAX gives up after 8 s: --xla_cpu_collective_timeout_seconds in XLA_FLAGS",
                "on GPUs JAX waits for ever: --xla_gpu_nccl_termination_timeout_seconds in XLA_FLAGS",
            ],
        ),
        ("data", Limits(300.0), []),
    ],
)
def test_the_timeout_that_governs(phase: str, limits: Limits, says: list[str]) -> None:
    name, _, seconds = phase.partition(" ")
    assert list(describe_timeouts(replace(WAITS, phase=name, limit=float(seconds or 0)), limits)) == says


def test_ranks_that_wait_for_each_other_in_a_ring_are_told_what_each_is_in() -> None:
    """Nobody is missing, and nobody sends."""
    heartbeats = [
        replace(WAITS, rank=rank, what=f"recv from rank {1 - rank}", peer=1 - rank, where=f"train.py:{rank} in main")
        for rank in (0, 1)
    ]
    seen = tuple(RankObservation(heartbeat.rank, heartbeat) for heartbeat in heartbeats)
    found = HangCase(60.0, seen, {}, diagnose(seen, limit=60.0))
    assert hang_headline(found, HOSTS) == (
        "no rank sends, since 61 s: rank 0 is in recv from rank 1 at train.py:0 in main; "
        "rank 1 is in recv from rank 0 at train.py:1 in main"
    )
    text = hang_report(found, HOSTS, Limits(300.0, torch=60.0))
    assert "what to do: Count the sends and receives of each pair" in text
    assert "limit: torch gives up after 60 s" in text


def test_ranks_in_two_groups_are_told_which() -> None:
    """What helps is said, and not what does not."""
    heartbeats = [
        replace(WAITS, rank=rank, what=f"all_reduce in group {name}", group=name, order=0)
        for rank, name in enumerate("12")
    ]
    seen = tuple(RankObservation(heartbeat.rank, heartbeat) for heartbeat in heartbeats)
    found = HangCase(60.0, seen, {}, diagnose(seen, limit=60.0))
    assert hang_headline(found, HOSTS) == (
        "the ranks are in different groups, since 61 s: rank 0 in collective all_reduce in group 1 at "
        "train.py:88 in main; rank 1 in collective all_reduce in group 2 at train.py:88 in main"
    )
    text = hang_report(found, HOSTS, Limits(300.0, torch=60.0))
    assert "Use the groups in one order" in text
    assert "new_group(timeout=...)" in text


def test_a_program_in_lockstep_is_not_advised_to_use_it() -> None:
    """Lockstep has compared what it can."""
    for lockstep, says in ((False, "allranks run --guard"), (True, "Lockstep has found no difference")):
        heartbeat = replace(WAITS, rank=2, what="eval_step", order=119, lockstep=lockstep)
        assert says in hang_report(case({2: RankObservation(2, heartbeat)}), HOSTS, Limits(300.0))


def test_where_c_has_written_the_place_of_a_frozen_rank_it_is_the_one_that_counts() -> None:
    """In the headline, and without the age of the last look."""
    heartbeat = replace(OPENS, rank=2, where="train.py:12 in <module>", since=58.0)
    found = case({2: RankObservation(2, heartbeat, False, "", "S", is_written=True)})
    assert hang_headline(found, HOSTS).endswith(
        "wait for rank 2 (host b), since 61 s: frozen at train.py:12 in <module>"
    )
    assert "s ago" not in hang_report(found, HOSTS, Limits(300.0))


def test_what_a_rank_notes_stands_in_the_report_once() -> None:
    note = "thread eval is in collective f(x) at x.py:3 in evaluate: lockstep does not compare other threads"
    found = case({2: RankObservation(2, replace(OPENS, rank=2))})
    noted = {rank: replace(snapshot, notes=(note,)) for rank, snapshot in found.snapshots.items()}
    text = hang_report(replace(found, snapshots=noted), HOSTS, Limits(300.0))
    assert text.count(f"note: rank 0: {note}") == 1
