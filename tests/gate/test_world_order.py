"""A rank that makes a call where others meet is told at once, with them; ranks in one order are never told so."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import threads
from hypothesis import event, given
from hypothesis import strategies as st
from test_sequence import make

from allranks.errors import Mismatch
from allranks.gate.lockstep import monitor as monitor_module
from allranks.gate.lockstep import sequence as sequence_module
from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.gate.lockstep.world_order import GroupQuery, is_in_later_exchange, is_past_call, merge_queries
from allranks.world.claims import Ticket

MEETING = ""
Group = tuple[int, ...]


@dataclass
class Rank:
    """What one rank of the model knows of itself; ``waits`` for the group it asks, or is in a call, with."""

    program: list[tuple[str, Group]]
    at: int = 0
    world_exchanges: int = 0
    current: int = 0
    places: dict[Group, int] = field(default_factory=dict)
    exchanges: dict[Group, int] = field(default_factory=dict)
    waits: tuple[str, Group] | None = None

    def come(self) -> None:
        """Come to the next step of the program."""
        self.waits = what, group = self.program[self.at]
        if what == MEETING:
            self.world_exchanges += 1
            self.current = self.world_exchanges
        elif what == "ask":
            self.exchanges[group] = self.exchanges.get(group, 0) + 1
        else:
            self.places[group] = self.places.get(group, 0) + 2

    def go_on(self) -> None:
        assert self.waits is not None
        what, group = self.waits
        if what == "ask":
            self.places[group] = self.places.get(group, 0) + 2
        self.waits, self.current, self.at = None, 0, self.at + 1


@dataclass
class Model:
    """Ranks that call and meet, and all that any of them has ever told while it waited."""

    ranks: list[Rank]
    queries: list[tuple[Group, int, GroupQuery]] = field(default_factory=list)
    reported: list[tuple[int, Group, int]] = field(default_factory=list)

    def may_go_on(self, number: int) -> bool:
        """Say whether all have come to where a rank waits, for it to go on."""
        me = self.ranks[number]
        assert me.waits is not None
        what, group = me.waits
        if what == MEETING:
            return all(one.world_exchanges >= me.current for one in self.ranks)
        if what == "ask":
            return all(self.ranks[one].exchanges.get(group, 0) >= me.exchanges[group] for one in group)
        return all(self.ranks[one].places.get(group, 0) >= me.places[group] for one in group)

    def tell(self, number: int) -> None:
        """What a rank tells that has waited for a moment."""
        me = self.ranks[number]
        if me.waits is None:
            return
        what, group = me.waits
        if what == MEETING:
            groups = GROUPS[len(self.ranks)]
            self.reported += [(me.current, mine, me.places.get(mine, 0)) for mine in groups if number in mine]
        elif what == "ask" and (query := merge_queries([({str(group): me.places.get(group, 0)}, me.world_exchanges)])):
            self.queries.append((group, me.exchanges[group], query))

    def alarms(self, number: int) -> Iterator[str]:
        """What a rank finds, of all that was ever told."""
        me = self.ranks[number]
        for group, exchange, query in self.queries:
            if number in group and me.exchanges.get(group, 0) < exchange and is_in_later_exchange(query, me.current):
                yield "meets"
        for world_exchange, group, place in self.reported:
            if number in group and me.world_exchanges < world_exchange and is_past_call(me.places.get(group, 0), place):
                yield "calls"


def run(model: Model, draw: random.Random) -> Iterator[None]:
    """Let ranks go on in random order, until nobody can."""
    while True:
        able = [
            number
            for number, one in enumerate(model.ranks)
            if (model.may_go_on(number) if one.waits else one.at < len(one.program))
        ]
        if not able:
            return
        rank = model.ranks[chosen := draw.choice(able)]
        (rank.go_on if rank.waits else rank.come)()
        model.tell(chosen)
        yield


GROUPS: dict[int, list[Group]] = {
    2: [(0, 1)],
    3: [(0, 1, 2), (0, 2), (1, 2)],
    4: [(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)],
}
SIZES = st.sampled_from(sorted(GROUPS))


def a_program(draw: random.Random, size: int) -> list[tuple[str, Group]]:
    """One order of all: meetings, calls that are asked for, and calls that were foretold."""
    everybody = tuple(range(size))
    kinds = draw.choices([MEETING, "ask", "call"], k=draw.randrange(1, 9))
    return [(kind, everybody if kind == MEETING else draw.choice(GROUPS[size])) for kind in kinds]


def part_of(program: list[tuple[str, Group]], rank: int) -> list[tuple[str, Group]]:
    return [step for step in program if rank in step[1]]


@given(st.integers(0, 2**32), SIZES)
def test_ranks_in_one_order_find_nothing(seed: int, size: int) -> None:
    """However fast each goes, whoever tells whatever, and however late it is read."""
    draw = random.Random(seed)
    program = a_program(draw, size)
    model = Model([Rank(part_of(program, rank)) for rank in range(size)])
    for _ in run(model, draw):
        assert not [alarm for rank in range(size) for alarm in model.alarms(rank)]
    assert all(rank.at == len(rank.program) for rank in model.ranks)


@given(st.integers(0, 2**32), SIZES)
def test_ranks_that_wait_for_each_other_in_a_call_and_a_meeting_are_found(seed: int, size: int) -> None:
    """One rank leaves steps out, or puts others in: of every such pair that stands still, one finds it."""
    draw = random.Random(seed)
    program = a_program(draw, size)
    ranks = [Rank(part_of(program, rank)) for rank in range(size)]
    odd = draw.randrange(size)
    mine, at = ranks[odd].program, draw.randrange(len(program) + 1)
    mine[at : at + draw.randrange(3)] = part_of(a_program(draw, size), odd)[: draw.randrange(3)]
    model = Model(ranks)
    for _ in run(model, draw):
        pass
    for number, asker in enumerate(ranks):
        what, group = asker.waits or (MEETING, ())
        for other in group if what != MEETING else ():
            them = ranks[other]
            mine_and_theirs = [(one.exchanges if what == "ask" else one.places).get(group, 0) for one in (asker, them)]
            if them.current > asker.world_exchanges and mine_and_theirs[1] < mine_and_theirs[0]:
                event(what)
                assert "meets" in model.alarms(other) if what == "ask" else "calls" in model.alarms(number)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Callable[[LockstepMonitor], None]:
    """Ranks that tell where they are as soon as they wait, and look all the time."""
    monkeypatch.setattr(sequence_module, "_PATIENCE", 0.002)
    monkeypatch.setattr(monitor_module, "_INTERVAL", 0.001)
    monkeypatch.setattr(monitor_module, "_EXCHANGE_INTERVAL", 0.002)
    monkeypatch.setattr(monitor_module, "_GRACE", 60.0)  # these ranks end when the test does

    def be_hasty(monitor: LockstepMonitor) -> None:
        monitor.world.program_exchanges._exchanger.first_check = 0.002

    return be_hasty


def stand(monitor: LockstepMonitor) -> None:
    """Stand in a call that others do not join, until that is told."""
    while True:
        for sequence in list(monitor.sequences.values()):
            if sequence.pending_error is not None:
                raise sequence.pending_error
        time.sleep(0.002)


def reported(found: list[Any]) -> set[str]:
    """What all ranks were told, but for the words before it that name the rank and its own call."""
    assert all(isinstance(error, Mismatch) for error in found), found
    return {str(error).partition("the ranks came with different calls: ")[2] for error in found}


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("call", ["a", "c"])
def test_a_call_where_the_others_meet_is_one_error_on_every_rank(
    call: str, late: int, hasty: Callable[[LockstepMonitor], None]
) -> None:
    """Whether the call was foretold (a) or is asked for (c), and whoever comes first."""

    def program(monitor: LockstepMonitor) -> None:
        hasty(monitor)
        make(monitor, "abab" + "ab")
        time.sleep(0.1 if late == min(monitor.world.rank, 1) else 0.0)
        if monitor.world.rank:
            monitor.world.barrier("save")
        make(monitor, call)
        stand(monitor)

    found = threads.run(3, program)
    (words,) = reported(found)
    assert words.startswith("ranks 1-2: barrier 'save' (tests/gate/test_world_order.py:")
    assert f"; rank 0: lockstep 'all_reduce {call}' (train.py:{ord(call)}). Every rank" in words
    assert {error.ranks for error in found} == {(0,)}


def test_one_that_meets_is_found_through_groups_that_wait_for_each_other(
    hasty: Callable[[LockstepMonitor], None],
) -> None:
    """A grid of ranks at their first calls: who asks the odd one is waited for by others, who do not ask it."""
    rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]

    def program(monitor: LockstepMonitor) -> None:
        hasty(monitor)
        if monitor.world.rank == 0:
            monitor.world.barrier("save")
        for number, groups in enumerate((rows, columns, rows)):
            make(monitor, "rcs"[number], next(group for group in groups if monitor.world.rank in group))

    (words,) = reported(threads.run(4, program))
    for each in (
        "ranks 2-3: lockstep 'all_reduce c'",
        "rank 0: barrier 'save'",
        "rank 1: lockstep 'all_reduce r'",
    ):
        assert each in words


def test_a_rank_in_a_call_comes_to_the_meeting_that_another_one_is_sent_to(
    hasty: Callable[[LockstepMonitor], None],
) -> None:
    """Rank 0 has gone on as foretold, rank 1 asks for another call, rank 2 meets: all are told of all."""

    def program(monitor: LockstepMonitor) -> None:
        hasty(monitor)
        make(monitor, "ababab")
        if monitor.world.rank == 2:
            monitor.world.barrier("save")
        make(monitor, "ac"[monitor.world.rank])
        stand(monitor)

    (words,) = reported(threads.run(3, program))
    for each in ("rank 0: lockstep 'all_reduce a'", "rank 1: lockstep 'all_reduce c'", "rank 2: barrier 'save'"):
        assert each in words


def test_after_the_error_the_ranks_are_in_step_again(hasty: Callable[[LockstepMonitor], None]) -> None:
    def program(monitor: LockstepMonitor) -> int:
        hasty(monitor)
        for _ in range(3):
            with pytest.raises(Mismatch):
                monitor.world.barrier("save") if monitor.world.rank else make(monitor, "a")
            make(monitor, "bc")
            monitor.world.barrier("save")
        monitor.leave_block("train.py:9", None)
        return monitor.call_sequence((0, 1)).predictor.count

    assert threads.run(2, program) == [6, 6]


@pytest.mark.parametrize("seed", range(4))
def test_ranks_in_one_order_are_never_told_so(seed: int, hasty: Callable[[LockstepMonitor], None]) -> None:
    """Calls of groups and of all, meetings, and exchanges behind; each rank sleeps where it likes."""

    def program(monitor: LockstepMonitor) -> int:
        hasty(monitor)
        loop, own = random.Random(seed), random.Random(monitor.world.rank)
        behind, over = monitor.world.line("behind"), threading.Event()

        def meet_behind() -> None:
            for _ in range(10):
                behind.exchange(Ticket("any", "behind", ""), own.random(), decide=lambda _: None, timeout=30)
                over.wait(own.random() * 0.05)

        thread = threading.Thread(target=meet_behind)
        thread.start()
        for kind, group in 3 * a_program(loop, 4) + [step for _ in range(4) for step in a_program(loop, 4)]:
            if own.random() < 0.3:
                time.sleep(own.random() * 0.03)
            if kind == MEETING:
                monitor.world.barrier("save")
            elif monitor.world.rank in group:
                make(monitor, loop_letter(kind), group)
        monitor.leave_block("train.py:9", None)
        thread.join()
        return monitor.world.program_exchanges.count

    found = threads.run(4, program)
    assert found == [found[0]] * 4, found


def loop_letter(kind: str) -> str:
    return {"ask": "a", "call": "b"}[kind]


def test_what_another_thread_meets_for_holds_nobody_up(hasty: Callable[[LockstepMonitor], None]) -> None:
    """Rank 1's other thread waits in a meeting, rank 0's training thread asks: rank 1 comes a moment later."""

    def program(monitor: LockstepMonitor) -> int:
        hasty(monitor)
        rank = monitor.world.rank
        asked_for = threading.Event()
        thread = threading.Thread(target=lambda: (rank == 0 and asked_for.wait(30), monitor.world.barrier("behind")))
        thread.start()
        time.sleep(0.2 * rank)
        make(monitor, "a")
        asked_for.set()
        thread.join()
        return rank

    assert threads.run(2, program) == [0, 1]


@pytest.mark.parametrize("seed", range(6))
def test_nobody_waits_for_ever_whoever_parts_where(seed: int, hasty: Callable[[LockstepMonitor], None]) -> None:
    """Loops of calls and meetings (|), in which some ranks leave out, add or swap a step, or end."""
    draw = random.Random(seed)
    size = draw.choice([2, 3, 4])
    alike = "".join(draw.choices("abc|", k=draw.randrange(1, 6))) * draw.randrange(1, 8)
    at = draw.randrange(len(alike))
    odd = alike[:at] + draw.choice(["", alike[at + 1 :], "c" + alike[at:], "|" + alike[at:], "|"])
    deviants = set(draw.sample(range(size), draw.randrange(1, size)))
    entered: dict[int, set[int]] = {}

    def program(monitor: LockstepMonitor) -> None:
        hasty(monitor)
        sequence = monitor.call_sequence(range(size))
        for step in odd if monitor.world.rank in deviants else alike:
            if step == "|":
                monitor.world.barrier("save")
                continue
            make(monitor, step)
            inside = entered.setdefault(sequence.predictor.count, set())
            inside.add(monitor.world.rank)
            while len(inside) < size:  # a collective, which waits for all
                if sequence.pending_error is not None:
                    raise sequence.pending_error
                time.sleep(0.001)
        monitor.leave_block("train.py:9", None)

    found = threads.run(size, program)
    assert {type(error) for error in found} == {type(None) if odd == alike else Mismatch}, (alike, odd, deviants, found)
