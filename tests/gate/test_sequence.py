"""Ranks that part are told by name, before anybody enters what the others do not; ranks that agree hear nothing."""

from __future__ import annotations

import random
from functools import partial
from itertools import zip_longest
from typing import Any

import pytest
import threads

from allranks.errors import BarrierTimeout, Mismatch
from allranks.gate.lockstep import monitor as monitor_module
from allranks.gate.lockstep import outcome
from allranks.gate.lockstep.calls import GroupCall, make_call
from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.gate.lockstep.outcome import CallRate, calls_until_value_check
from allranks.gate.lockstep.steps import LoopElement


def make(monitor: LockstepMonitor, words: str, members: tuple[int, ...] | None = None, where: str = "") -> None:
    """Make the calls that the letters stand for, as an edge does."""
    sequence = monitor.call_sequence(members or tuple(range(monitor.world.size)))
    for word in words:
        line = where or f"train.py:{ord(word)}"
        made = sequence.canonical_call(make_call(f"all_reduce {word}", line, hidden_key=line))
        if sequence.predictor.expected is made:
            sequence.predictor.count_predicted_call()
        else:
            sequence.enter_call(made)


def exchanges(monitor: LockstepMonitor) -> int:
    return sum(sequence.exchange_count for sequence in monitor.sequences.values())


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """These ranks end when the test does."""
    monkeypatch.setattr(monitor_module, "_GRACE", 60.0)


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_that_agree_meet_a_few_times_and_go_on(size: int) -> None:
    def program(monitor: LockstepMonitor) -> int:
        make(monitor, "abcd" * 500 + "e" + "abcd" * 100)
        monitor.leave_block("train.py:9", None)
        return exchanges(monitor)

    found = threads.run(size, program)
    assert found[0] < 20
    assert found == [found[0]] * size


def test_values_are_compared_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the questions that calls ask by themselves, and in those on which the ranks agree as time goes by."""
    monkeypatch.setattr(outcome, "_SECONDS", 0.0)
    monkeypatch.setattr(outcome, "_SHARE", 1.0)

    def program(monitor: LockstepMonitor) -> int:
        monitor.set_check("values")
        sequence = monitor.call_sequence(range(monitor.world.size))
        made = sequence.canonical_call(make_call("step", "train.py:8"))
        for step in range(2000):
            rate = 0.1 if step > 1000 and monitor.world.rank == 1 else 0.5
            sequence.enter_call(made, values=partial(list, [LoopElement("argument 2", str(rate), "")]))
        return sequence.exchange_count

    for error in threads.run(2, program):
        assert isinstance(error, Mismatch), error
        assert "is given different values: argument 2: rank 0: 0.5; rank 1: 0.1." in str(error)
        assert 1000 < int(str(error).split(" call ")[1].split()[0]) < 1100


@pytest.mark.parametrize(
    ("rates", "calls"),
    [
        ([CallRate(5.0, 500, 0.001), CallRate(5.0, 500, 0.004)], 500),  # one in five seconds
        ([CallRate(5.0, 500, 0.050), CallRate(5.0, 500, 0.090)], 5000),  # a thousandth of the time
        ([CallRate(9.0, 1, 0.0), CallRate(1.0, 1, 0.0)], 64),  # never at every call
        ([CallRate(0.0, 0, 0.0)], 5_000_000),
    ],
)
def test_questions_cost_next_to_nothing(rates: list[CallRate], calls: int) -> None:
    assert calls_until_value_check(rates) == calls


@pytest.mark.parametrize(
    ("ours", "theirs", "number"),
    [("ab", "ac", 2), ("abab", "abb", 3), ("ababab" + "aab", "ababab" + "ab", 8), ("aaaa" + "b", "aaaa" + "c", 5)],
)
def test_ranks_that_part_get_one_error(ours: str, theirs: str, number: int) -> None:
    """Rank 1 goes its own way: at once, in a loop, one call more, another one. Who has gone on stands in its call."""

    def program(monitor: LockstepMonitor) -> None:
        make(monitor, theirs if monitor.world.rank == 1 else ours)
        sequence = monitor.call_sequence(range(3))
        assert monitor_module.threading.Event().wait(0) is False
        while sequence.pending_error is None:  # the call in which it stands
            monitor_module.time.sleep(0.01)
        raise sequence.pending_error

    found = threads.run(3, program)
    for rank, error in enumerate(found):
        assert isinstance(error, Mismatch), error
        assert f"call {number} differs: ranks 0, 2: all_reduce {ours[number - 1]} (train.py:" in str(error)
        assert f"; rank 1: all_reduce {theirs[number - 1]} (train.py:" in str(error)
        assert str(error).startswith(f"rank {rank}: lockstep 'all ranks'")
        assert error.ranks == (1,)


def test_a_rank_that_leaves_early_is_told_who_goes_on() -> None:
    def program(monitor: LockstepMonitor) -> None:
        make(monitor, "ab" * 10)
        if monitor.world.rank == 0:
            monitor.leave_block("train.py:9", None)
        make(monitor, "a")
        sequence = monitor.call_sequence(range(2))
        while sequence.pending_error is None:
            monitor_module.time.sleep(0.01)
        raise sequence.pending_error

    for error in threads.run(2, program):
        assert "call 21 differs: rank 0: no more calls, the region ends (train.py:9); rank 1: all_reduce a" in str(
            error
        )
        assert "world.any(done)" in str(error)


def test_groups_of_ranks_are_apart() -> None:
    """Two pipelines with programs of their own; they leave together, after equally many calls in each."""

    def program(monitor: LockstepMonitor) -> int:
        members = (0, 1) if monitor.world.rank < 2 else (2, 3)
        make(monitor, "ab" * 20 if members[0] else "cde" * 20, members)
        make(monitor, "f")
        monitor.leave_block("train.py:9", None)
        return exchanges(monitor)

    assert all(isinstance(found, int) for found in threads.run(4, program))


def test_a_rank_that_leaves_while_its_group_goes_on_is_told() -> None:
    def program(monitor: LockstepMonitor) -> None:
        make(monitor, "b")
        make(monitor, "a" * 5, (0, 1) if monitor.world.rank < 2 else (2,))
        if monitor.world.rank == 1:
            make(monitor, "a", (0, 1))
            while monitor.call_sequence((0, 1, 2)).pending_error is None:
                monitor_module.time.sleep(0.01)
        monitor.leave_block("train.py:9", None)

    for error in threads.run(3, program):
        assert "call 2 differs: ranks 0, 2: no more calls, the region ends (train.py:9); rank 1" in str(error), error


def test_a_rank_that_does_not_come_is_named_with_its_place() -> None:
    def program(monitor: LockstepMonitor) -> None:
        make(monitor, "ab")
        if monitor.world.rank == 0:
            make(monitor, "c")

    error = threads.run(2, program, timeout=0.5)[0]
    assert isinstance(error, BarrierTimeout)
    assert "rank 1 (host host-1): at data.py:41 in next_batch" in str(error)
    assert error.ranks == (1,)


def test_in_a_group_the_ranks_keep_their_numbers() -> None:
    """Who is missing, and who is in the minority, is told by rank, not by place in the group."""

    def program(monitor: LockstepMonitor, *, comes: bool) -> None:
        group = (1, 2, 4)
        if monitor.world.rank in group and (comes or monitor.world.rank != 4):
            make(monitor, "b" if monitor.world.rank == 4 else "a", group)

    missing = threads.run(5, lambda monitor: program(monitor, comes=False), timeout=0.5)
    assert [type(one) for one in missing] == [type(None), BarrierTimeout, BarrierTimeout, type(None), type(None)]
    assert missing[1].ranks == (4,)
    assert "rank 4 (host host-4): at data.py:41" in str(missing[2])
    parted = threads.run(5, lambda monitor: program(monitor, comes=True))
    assert parted[4].ranks == (4,)
    assert "rank 4: lockstep 'ranks 1-2, 4': call 1 differs: ranks 1-2: all_reduce a" in str(parted[4])


def test_lines_that_differ_are_said_to_differ() -> None:
    def program(monitor: LockstepMonitor) -> None:
        make(monitor, "x", where=f"train.py:{40 + monitor.world.rank}")

    error = threads.run(2, program)[0]
    assert "all_reduce x starts from different lines: rank 0: train.py:40; rank 1: train.py:41" in str(error)
    assert "lockstep(lines=False)" in str(error)


@pytest.mark.parametrize("seed", range(6))
def test_random_loops_never_alarm_and_never_hang(seed: int) -> None:
    """Ranks that sleep at random, in programs of random branches that are the same on all."""

    def program(monitor: LockstepMonitor) -> int:
        loop, own = random.Random(seed), random.Random(monitor.world.rank)
        for _ in range(40):
            make(monitor, "".join(loop.choices("abc", k=loop.randrange(5))))
            monitor_module.time.sleep(own.random() * 0.01)
        monitor.leave_block("train.py:9", None)
        return monitor.call_sequence(range(3)).predictor.count

    found: list[Any] = threads.run(3, program)
    assert found == [found[0]] * 3


class Collectives:
    """Collectives that wait for all ranks, as real ones do, and keep who entered the n-th with what."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.entered: dict[int, dict[int, str]] = {}

    def enter(self, monitor: LockstepMonitor, number: int, what: str) -> None:
        sequence = monitor.call_sequence(range(self.size))
        self.entered.setdefault(number, {})[monitor.world.rank] = what
        while len(self.entered[number]) < self.size:
            if sequence.pending_error is not None:
                raise sequence.pending_error
            monitor_module.time.sleep(0.001)


@pytest.mark.parametrize("seed", range(15))
def test_nobody_ever_enters_with_somebody_who_enters_something_else(seed: int) -> None:
    """Random loops, in which random ranks leave out, add, swap or change a call at a random moment, or end."""
    draw = random.Random(seed)
    size = draw.choice([2, 3, 4])
    loop = "".join(draw.choices("abc", k=draw.randrange(1, 6)))
    alike = loop * draw.randrange(1, 12)
    at = draw.randrange(len(alike))
    odd = draw.choice([alike[:at], alike[:at] + "c" + alike[at:], alike[:at] + alike[at + 1 :], alike[:at] + "d"])
    deviants = set(draw.sample(range(size), draw.randrange(1, size)))
    programs = [odd if rank in deviants else alike for rank in range(size)]
    together = Collectives(size)

    def program(monitor: LockstepMonitor) -> None:
        for number, letter in enumerate(programs[monitor.world.rank], 1):
            make(monitor, letter)
            together.enter(monitor, number, letter)
        monitor.leave_block("train.py:9", None)

    found = threads.run(size, program)
    assert all(len(set(what.values())) == 1 for what in together.entered.values())
    first = next((i for i, (a, b) in enumerate(zip_longest(odd, alike), 1) if a != b), None)
    for rank, error in enumerate(found):
        if first is None:
            assert error is None
        else:
            assert isinstance(error, Mismatch), error
            assert str(error).startswith(f"rank {rank}: lockstep 'all ranks': call {first} differs: ")


def test_the_first_difference_of_two_programs_is_a_line() -> None:
    def program(monitor: LockstepMonitor) -> None:
        second = "all-gather bf16[4]" if monitor.world.rank else "all-reduce f32[4]"
        monitor.call_sequence(range(2)).enter_call(
            make_call("jit(step)", "train.py:8", lines=["argument 1: f32[8]", second])
        )

    error = threads.run(2, program)[0]
    assert "jit(step): rank 0: all-reduce f32[4] (train.py:8); rank 1: all-gather bf16[4] (train.py:8)" in str(error)


def test_programs_that_differ_in_their_constants_only_are_not_one() -> None:
    def program(monitor: LockstepMonitor) -> None:
        made: GroupCall = make_call("jit(step)", "train.py:8", hidden_key=f"text {monitor.world.rank}")
        monitor.call_sequence(range(2)).enter_call(made)

    assert "is not one program" in str(threads.run(2, program)[0])
