"""What is ordered, and that the judge of files speaks of nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import Script

from allranks.rehearse.judge import files
from allranks.rehearse.order import order_of

MOVES = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["read", "create", "append", "mkdir", "remove", "exists"]),
            st.sampled_from(["a", "b"]),
        ),
        st.just("barrier"),
        st.tuples(st.just("pair"), st.sampled_from([(0, 1), (1, 2), (0, 2)])),
    ),
    max_size=14,
)


def script_of(moves: list) -> Script:
    script = Script(3)
    for number, move in enumerate(moves):
        if move == "barrier":
            script.barrier()
        elif move[0] == "pair":
            script.barrier(*move[1])
        else:
            script.file(move[0], move[1], move[2], line=number + 1)
    return script


@given(MOVES)
def test_the_order_is_one(moves: list) -> None:
    """Before is irreflexive, never both ways, transitive, and keeps to time: a barrier cannot reach back."""
    trace = script_of(moves).trace()
    order = order_of(trace)
    for a in trace.events:
        assert not order.before(a, a)
        for b in trace.events:
            if order.before(a, b):
                assert not order.before(b, a)
                assert a.time < b.time or a.kind == "enter"
                assert all(order.before(a, c) for c in trace.events if order.before(b, c))


@given(MOVES)
def test_no_finding_without_two_ranks_that_nothing_orders(moves: list) -> None:
    case = script_of(moves).case()
    events = list(case.trace.of("file"))
    for finding in files.judge(case):
        lines = {note.place.line for note in finding.notes if note.place}
        involved = [event for event in events if event.where and event.where.line in lines]
        pairs = [(a, b) for a in involved for b in involved if a.rank < b.rank]
        assert any(not case.order.is_ordered(a, b) for a, b in pairs)


@given(MOVES, st.integers(0, 14))
def test_a_barrier_more_never_adds_a_fault(moves: list, at: int) -> None:
    """A fault may be hidden by a graver one, so the pairs are compared: two ordered events stay ordered."""
    before, after = script_of(moves).case(), script_of([*moves[:at], "barrier", *moves[at:]]).case()
    old, new = list(before.trace.of("file")), list(after.trace.of("file"))
    for i, a in enumerate(old):
        for j, b in enumerate(old):
            if before.order.before(a, b):
                assert after.order.before(new[i], new[j])


@given(MOVES)
def test_barriers_between_all_calls_leave_no_fault(moves: list) -> None:
    spaced = [one for move in moves for one in (move, "barrier")]
    assert list(files.judge(script_of(spaced).case())) == []


@pytest.mark.parametrize(
    ("way", "root", "ordered"),
    [("all", None, True), ("from", 0, True), ("from", 1, False), ("to", 1, True), ("to", 0, False)],
)
def test_who_waits_for_whom(way: str, root: int | None, ordered: bool) -> None:
    """What rank 0 did before a broadcast from it, or a reduce to rank 1, is before what rank 1 does after it."""
    script = Script(2).file(0, "create", "a").barrier(way=way, root=root).file(1, "read", "a")
    trace = script.trace()
    first, last = [event for event in trace.events if event.kind == "file"]
    assert order_of(trace).before(first, last) is ordered


def test_a_lock_orders_those_who_take_it() -> None:
    script = Script(2)
    for rank in (0, 1):
        script.add(rank, "lock", path="/p/l").file(rank, "append", "log").add(rank, "unlock", path="/p/l")
    assert list(files.judge(script.case())) == []


def test_a_file_that_a_rank_polls_for_is_a_barrier() -> None:
    script = Script(2).file(1, "exists", "done", existed=False, line=5)
    script.file(0, "create", "weights.pt", existed=False, line=2).file(0, "create", "done", existed=False, line=3)
    script.file(1, "exists", "done", line=5).file(1, "read", "weights.pt", line=6)
    assert list(files.judge(script.case())) == []


def test_a_single_look_at_a_file_is_no_barrier() -> None:
    script = (
        Script(2)
        .file(0, "create", "weights.pt", existed=False, line=2)
        .file(0, "create", "done", existed=False, line=3)
    )
    script.file(1, "exists", "done", line=5).file(1, "read", "weights.pt", line=6)
    assert [(one.code, one.place.line) for one in files.judge(script.case())] == [("AR405", 6)]


def test_a_lock_that_is_given_back_by_closing_the_file_orders_too() -> None:
    script = Script(2)
    script.add(0, "lock", path="/p/l").file(0, "append", "log").add(1, "lock", path="/p/l").file(1, "append", "log")
    assert list(files.judge(script.case())) == []


def test_shared_locks_order_nothing() -> None:
    script = Script(2)
    for rank in (0, 1):
        script.add(rank, "lock", path="/p/l", shared=True).file(rank, "append", "log")
    assert [one.code for one in files.judge(script.case())] == ["AR102"]


def stepped(gradients: tuple[str, str]) -> Script:
    """Both ranks check for a checkpoint; after a step rank 0 writes it. The ranks' gradients are these."""
    script = Script(2)
    for rank in (0, 1):
        script.file(rank, "exists", "last.pt", existed=False, line=2)
        script.add(rank, "input", module="Linear", samples=[])
    for rank in (0, 1):
        row = ["weight", 0, "float32[4]", "", "w", gradients[rank], True]
        script.add(rank, "weights", optimizer=0, number=0, rows=[row], rates=[0.1], random="", dropout="")
        script.add(rank, "step", optimizer=0, number=1)
        script.steps[rank] = 1
    return script.file(0, "create", "last.pt", existed=False, line=9)


def test_a_step_with_shared_gradients_orders() -> None:
    assert list(files.judge(stepped(("g", "g")).case())) == []


def test_a_step_of_each_rank_alone_orders_nothing() -> None:
    assert [one.code for one in files.judge(stepped(("g", "h")).case())] == ["AR108"]
