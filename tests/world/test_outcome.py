"""One document, N ranks: the same result or the same error on each, in its own words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import BarrierTimeout, Mismatch, RankDied, RemoteError
from allranks.world import outcome
from allranks.world.claims import Ticket, describe_groups, first_difference, minority_ranks
from allranks.world.codec import dumps, loads
from allranks.world.outcome import Outcome, result_or_raise

HERE = Ticket("barrier", "epoch", "train.py:8")


def arrived(sent: Outcome) -> Outcome:
    """The outcome as another rank reads it from the store."""
    return Outcome(loads(dumps(sent.document)))


def host_of(rank: int) -> str:
    return f"host-{rank // 2}"


def test_a_result_is_revealed_as_it_is() -> None:
    sent = outcome.outcome_of({0: 1, 1: 2}, lambda values: {"sum": sum(values), "raw": b"\x00"})
    assert sent.all_entered
    assert result_or_raise(arrived(sent), rank=1, ticket=HERE) == {"sum": 3, "raw": b"\x00"}


def test_the_rank_that_decides_raises_its_own_error_and_the_others_hear_of_it() -> None:
    """The very exception there, a RemoteError with its traceback elsewhere."""
    sent = outcome.outcome_of({0: 1, 1: 2}, lambda values: values[2])
    assert sent.all_entered
    with pytest.raises(IndexError) as own:
        result_or_raise(sent, rank=0, ticket=HERE)
    assert own.value is sent.cause
    with pytest.raises(RemoteError, match=r"rank 1: barrier 'epoch' \(train.py:8\): rank 0 raised IndexError") as told:
        result_or_raise(arrived(sent), rank=1, ticket=HERE)
    assert "test_outcome.py" in told.value.remote_traceback
    assert told.value.__notes__ == [f"On rank 0:\n{told.value.remote_traceback.rstrip()}"]


def test_a_mismatch_keeps_ranks_step_and_leaf() -> None:
    def refuse(_: object) -> None:
        raise Mismatch("leaf differs.", ranks=(3,), step=7, leaf="opt/mu")

    with pytest.raises(Mismatch, match=r"rank 1: barrier 'epoch'.*leaf differs") as caught:
        result_or_raise(arrived(outcome.outcome_of({0: 1}, refuse)), rank=1, ticket=HERE)
    assert (caught.value.ranks, caught.value.step, caught.value.leaf) == ((3,), 7, "opt/mu")


def test_the_dead_are_named_with_their_reasons() -> None:
    sent = outcome.death_outcome({5: "killed by SIGKILL", 2: "has left (exit code 0)"}, host_of)
    assert not sent.all_entered
    with pytest.raises(RankDied, match=r"rank 2 \(host host-1\): has left .*rank 5 \(host host-2\): killed") as caught:
        result_or_raise(arrived(sent), rank=0, ticket=HERE)
    assert caught.value.reasons == {2: "has left (exit code 0)", 5: "killed by SIGKILL"}
    assert caught.value.ranks == (2, 5)


def test_a_timeout_names_the_missing_and_where_they_are() -> None:
    """The first eight in full: of 10,000 ranks, 9,999 may be missing."""
    places = {1: "at data.py:3 in load"}
    sent = outcome.timed_out(2.5, [1, 2], stalled=(), places=places, host_of=host_of)
    with pytest.raises(BarrierTimeout) as caught:
        result_or_raise(arrived(sent), rank=0, ticket=HERE)
    assert str(caught.value) == (
        "rank 0: barrier 'epoch' (train.py:8): ranks 1-2 did not come within 2.5 s. "
        "rank 1 (host host-0): at data.py:3 in load; rank 2 (host host-1): gave no sign. "
        "Every rank must make this call. Where a rank is only slow, raise timeout=."
    )
    assert caught.value.remedy
    many = outcome.timed_out(1, range(1, 10_000), stalled=(), places={}, host_of=host_of).document
    assert "ranks 1-9999 did not come" in many["message"]
    assert many["message"].endswith("rank 8 (host host-4): gave no sign; and 9991 more.")
    assert len(many["ranks"]) == 9_999


def test_a_rank_that_holds_up_the_values_of_others_is_named() -> None:
    sent = outcome.timed_out(3, [], stalled=[1], places={1: "at a.py:1 in f"}, host_of=host_of)
    with pytest.raises(
        BarrierTimeout, match=r"all ranks came, but rank 1 did not pass .* rank 1 .*at a.py:1"
    ) as caught:
        result_or_raise(sent, rank=0, ticket=HERE)
    assert caught.value.ranks == (1,)


@given(st.dictionaries(st.integers(0, 300), st.sampled_from("abc"), min_size=1))
@settings(deadline=None)
def test_tickets_are_compared_by_what_they_are_for(entries: dict[int, str]) -> None:
    """Not by the line they were called from; each rank is named once, the largest group first, the minority blamed."""
    tickets: dict[Ticket, list[int]] = {}
    for rank, name in entries.items():
        tickets.setdefault(Ticket("gather", name, f"{rank % 2}.py:1"), []).append(rank)
    found = first_difference(tickets)
    groups = {name: [rank for rank in entries if entries[rank] == name] for name in entries.values()}
    if len(groups) == 1:
        assert found is None
        return
    assert found is not None
    told, odd = found
    largest = max(groups.values(), key=len)
    tied = sum(len(ranks) == len(largest) for ranks in groups.values()) > 1
    assert set(odd) == (set(entries) if tied else set(entries) - set(largest))
    assert all(f"gather {name!r}" in told for name in groups)


@given(st.lists(st.sets(st.integers(0, 99), min_size=1), min_size=1, max_size=5))
@settings(deadline=None)
def test_the_order_of_the_groups_says_nothing(groups: list[set[int]]) -> None:
    """What an error says is the same on every rank, however its dictionaries are ordered."""
    assert minority_ranks(groups) == minority_ranks(reversed(groups))
    told = [("same", group) for group in groups]
    assert describe_groups(told) == describe_groups(reversed(told))
