"""One group of ranks that make the same calls: each goes on by itself as foretold, and asks the others first if not.

A rank that asks announces it by coming to an exchange (world/exchange.py): the k-th of this group. The others come to
it as well, because the call surprises all of them, or they have parted already. A rank that has parted without asking
stands in its call, and cannot come. Therefore whoever waits puts up a question after a moment, how far it has come, and
rings. The monitor of a rank that is beyond that place, or in a meeting instead (world_order.py, monitor.py), comes to
the exchange in its training thread's place. So the ranks that wait learn at once what it does instead. Where it is in a
meeting, all that asked come to that meeting with what they were about to do: its outcome is everybody's.

Keys, below ``lockstep/<group>/``: ``x/...`` the exchanges, ``open/<k>/<i>`` the questions, ``i`` from 0 on: one for all
ranks that have come equally far. Below those of a meeting, ``lockstep/<group>/<i>``: how far ranks are that wait there.
``lockstep/group/<rank>/<i>``: the groups of a rank that it may not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from allranks.digest import digest, show
from allranks.errors import AllranksError, RankDied, name_ranks
from allranks.gate.lockstep.branches import Frames
from allranks.gate.lockstep.outcome import Agreed, Different, Elsewhere, Said, compare, outcome_of
from allranks.gate.lockstep.pace import NEVER
from allranks.gate.lockstep.predictor import Predictor
from allranks.gate.lockstep.schedule import Call, mismatch, ticket
from allranks.gate.lockstep.steps import Label, Position, Steps, in_words
from allranks.gate.lockstep.world_order import Question, asked, calls_instead
from allranks.world import main_rank_section
from allranks.world.base import World
from allranks.world.codec import Value, dumps, loads
from allranks.world.exchange import Exchanger
from allranks.world.progress import progress
from allranks.world.ticket import Ticket

# How far ranks are in groups, by the group's name: the place, and the group's ranks.
Places = Mapping[str, tuple[int, Sequence[int]]]
# Returns the values that all ranks should give to a call alike, by their names.
Values = Callable[[], Sequence[Label]]
# How long a rank waits for the others before it puts up its question, in seconds.
_PATIENCE = 0.1
_LONGEST_NAME = 40


def _name_of(members: Sequence[int]) -> str:
    """Return ``ranks 0-3``; of a group that is long in words its size, and a digest that makes it the only one."""
    name = name_ranks(members)
    return name if len(name) <= _LONGEST_NAME else f"{len(members)} ranks {show(digest(name))[:8]}"


def introduction(rank: int) -> str:
    """Return what the keys begin with that tell a rank of its groups."""
    return f"lockstep/group/{rank}/"


class CallSequence:
    """One rank's side. ``predictor`` and ``inside`` are for the thread that trains; ``ask`` also for the monitor's.

    ``inside`` says that the rank is within its last call, ``executing()`` that it is in there without anything left to
    ask. ``known`` are the calls by digest, so that equal ones are one object. ``beside`` names what other threads than
    the one that trains do: such calls have no order with meetings and other groups.
    """

    def __init__(
        self, world: World, members: Sequence[int], position: Callable[[], Position] = Position, *, beside: str = ""
    ) -> None:
        self.members = members
        self.beside = beside
        self.name = "all ranks" if len(members) == world.size else _name_of(members)
        self.name += f", {beside}" if beside else ""
        self.predictor: Predictor[Call] = Predictor()
        self.inside = False
        self.executing: Callable[[], bool] = lambda: False
        self.steps = Steps()
        # How far the training thread is in the program's loops, and the elements that they are at.
        self.position = position
        self.labels: Callable[[], Sequence[Label]] = list
        # Where in the program it is; the error of a call in which ranks that have ended do not take part, if that is
        # how they ended.
        self.frames: Callable[[], Frames] = list
        self.departure: Callable[[RankDied, int, Call], AllranksError] = lambda error, *_: error
        # Whether there is more to compare than calls; the call at which ranks ask, though it comes as foretold; when
        # and at which they asked last, and how long that took.
        self.compares_values = False
        self.next_question = NEVER
        self._last_question = (world.clock.now(), 0, 0.0)
        # Called before a question: raises what is known by then to be wrong beside calls.
        self.listen: Callable[[], None] = lambda: None
        # What is unusual about the call that this rank asks for though it was foretold.
        self._slip = ""
        self.known: dict[str, Call] = {}
        self.verdict: AllranksError | None = None
        self.verdict_is_told = False
        self._world = world
        self._prefix = f"lockstep/{self.name.replace(' ', '-')}/"
        self._lock = threading.Lock()
        # What this rank asks, and the key of the question that asks it.
        self._places: dict[str, int] = {}
        self._mine = ""
        self._exchanger = Exchanger(
            world.store,
            world.clock,
            rank=world.rank,
            members=members,
            fanout=world.fanout,
            host_of=lambda rank: world.hosts[rank],
            locate=world.listener.locate,
            line=f"{self._prefix}x",
            uneasy=self._put_question,
            first_look=_PATIENCE,
        )

    @property
    def place(self) -> int:
        """How far this rank has come, in halves of a call (schedule.py)."""
        return 2 * self.predictor.count - self.inside

    def same(self, call: Call) -> Call:
        """Return the call that stands for all that are equal to this one."""
        return self.known.setdefault(call.digest, call)

    def take(
        self,
        call: Call,
        timeout: float | None = None,
        *,
        inside: bool = False,
        values: Values = list,
    ) -> None:
        """Make a call the next one that was not foretold, or that is due to be looked at. It must be ``same``.

        Asks the others first, unless it was foretold, comes as far on in the program's loops as foretold, and the ranks
        have not agreed to ask by now. ``values()`` are what all ranks should give to it alike.
        """
        number, steps, now = self.predictor.count, self.steps, self.position()
        foretold, due = self.predictor.expected is call, number == steps.due
        usual = foretold and (not due or steps.is_expected(now))
        self._slip = steps.slip(now) if foretold and not usual else ""
        agreed_on = due and number >= self.next_question
        labels = [] if usual and not steps.looks_always and not agreed_on else self.labels()
        asks = bool(not usual or agreed_on or labels)
        if asks:
            self.ask(call, timeout, now=now, labels=labels, values=values())
        # In this order, so that the place is never beyond where this rank is.
        self.inside = inside
        if foretold:
            self.predictor.advance()
        else:
            self.predictor.learn(call)
        if asks or number == steps.due:
            steps.look(number, now, agreed=asks)

    def ask(
        self,
        call: Call,
        timeout: float | None = None,
        *,
        elsewhere: Places | None = None,
        now: Position | None = None,
        labels: Sequence[Label] = (),
        values: Sequence[Label] = (),
    ) -> None:
        """Return when all ranks of the group are at this place with this call; **every one of them must ask**.

        ``elsewhere`` are the places in other groups, by name, with their ranks: compared too. ``now`` is how far the
        loops around the call are, ``labels`` the elements that they are at, ``values`` what it is given. Raises, on
        every rank, Mismatch saying who does what, BarrierTimeout, or RankDied.
        """
        main_rank_section.refuse(call.what)
        self.listen()
        with self._lock:
            if self.verdict is not None:
                self.verdict_is_told = True
                raise self.verdict
            before = None if self.beside else progress.enter("meeting", f"all ranks before {call}")
            begin = self._world.clock.now()
            try:
                steps = [self.steps.gone_on(now) if now else {}, list(map(list, labels)), list(map(list, values))]
                self._meet(call, self.place, elsewhere or {}, timeout=timeout, steps=[*steps, self._pace(begin)])
                ended = self._world.clock.now()
                self._last_question = ended, self.predictor.count, ended - begin
            except AllranksError as error:
                number = self.place // 2 + 1
                known = self.departure(error, number, call) if isinstance(error, RankDied) else error
                if known is not error:
                    raise known from None
                error.add_note(f"rank {self._world.rank}: before call {number} of {self.name}: {call}")
                raise
            finally:
                if before is not None:
                    progress.leave(before)

    def question(self, number: int) -> Question | None:
        """Return what those who wait in an exchange of this group tell; None if nobody waits."""
        told = map(loads, self._questions(number))
        return asked((one["places"], one["meetings"]) for one in told)

    def _questions(self, number: int) -> Iterator[bytes]:
        for i in count():
            text = self._world.store.get(f"{self._prefix}open/{number}/{i}")
            if text is None:
                return
            yield text

    def is_beyond(self, places: Mapping[str, int]) -> bool:
        """Say whether this rank will not ask any more at the place of this group, if it is among these places."""
        place = places.get(self.name)
        if place is None:
            return False
        return self.place > place or (self.place == place and self.inside and self.executing())

    @property
    def last_call(self) -> Call | None:
        """The call that this rank made last."""
        return self.predictor.call(self.predictor.count)

    def last(self) -> Ticket:
        """Return the call that this rank made last."""
        return ticket(self.last_call)

    def answer(self, number: int, meeting: int) -> int:
        """Come to an exchange in the training thread's place, which is beyond where the others ask, or in ``meeting``.

        Returns the meeting to which all have to come because of it, or 0; keeps the verdict, if that is there already.
        Does nothing if the thread has come by itself meanwhile. For the monitor's threads.
        """
        with self._lock:
            if self.verdict is None and self._exchanger.count < number:
                try:
                    return self._meet(None, self.place, {}, timeout=None, meeting=meeting)
                except AllranksError as error:
                    self.verdict = error
        return 0

    def tell_place(self) -> bool:
        """Tell, in the meeting in which this rank waits, how far it is, unless one that is no farther has; return
        whether so. For the thread that waits there."""
        meetings = self._world.meetings
        for i in count():
            there = meetings.claim(f"{self._prefix}{i}", [self._world.rank, self.place])
            if there is None or there[1] <= self.place:
                return there is None
        raise AssertionError

    def told_place(self, meeting: int) -> int | None:
        """Return the first place in this group at which ranks wait in a meeting, if any told it."""
        told = (self._world.meetings.read(meeting, f"{self._prefix}{i}") for i in count())
        return min((one[1] for one in iter(lambda: next(told), None)), default=None)

    def calls_instead(self, told: int) -> Ticket | None:
        """Return what this rank has begun that one in a meeting, which told its place, has not; None if nothing."""
        number = told // 2 + 1
        return ticket(self.predictor.call(number)) if calls_instead(self.place, told) else None

    def judge(self, verdict: AllranksError) -> None:
        """Have the training thread raise this where it asks next, unless there is a verdict."""
        with self._lock:
            self.verdict = self.verdict or verdict

    @property
    def exchanges(self) -> int:
        """How many exchanges this rank has come to."""
        return self._exchanger.count

    def _meet(
        self,
        call: Call | None,
        place: int,
        elsewhere: Places,
        *,
        timeout: float | None,
        meeting: int = 0,
        steps: Sequence[Any] = ({}, (), (), (0.0, 0, 0.0)),
    ) -> int:
        """Meet the group; return the meeting, if there is one, to which a rank that makes no ``call`` has to come."""
        limit = self._world.timeout if timeout is None else timeout
        entry = Ticket("lockstep", self.name, call.where if call else "")
        form, others = call.digest if call else "", {name: list(there) for name, there in elsewhere.items()}
        if call is not None:  # who answers need not ask
            self._places = {self.name: place, **{name: there[0] for name, there in elsewhere.items()}}
        try:
            value = self._exchanger.exchange(
                entry, [place, form, others, meeting, *steps], decide=self._compare, timeout=limit
            )
        finally:
            self._take_question_down()
        found = outcome_of(value)
        if isinstance(found, Elsewhere):
            if call is not None:
                self._world.meetings.cross(ticket(call), limit)
            return found.meeting
        if isinstance(found, Agreed):
            self.steps.unshared.update(found.unequal)
            if self.compares_values:
                self.next_question = self.predictor.count + found.calls
        if isinstance(found, Different):
            self._tell(call, place, found, timeout=limit)
        return 0

    def _pace(self, now: float) -> list[float]:
        at, number, took = self._last_question
        return [now - at, self.predictor.count - number, took]

    def _compare(self, values: Sequence[Value]) -> Value:
        return compare([Said(*value) for value in values], self.members).value()

    def _tell(self, call: Call | None, place: int, found: Different, *, timeout: float) -> None:
        """Raise, on every rank, what differs; the first rank of each group of ranks that agree tells what it does."""
        number, groups = found.number, found.groups
        ranks = [[self.members[position] for position in positions] for positions in groups]
        leads = any(group[0] == self._world.rank for group in ranks)
        mine = call if place // 2 + 1 == number else None
        words = None
        if leads:
            words = self._words(mine or self.predictor.call(number))
            words |= {"step": (mine and self._slip) or self._place_in_words(), "slips": bool(mine and self._slip)}
            words |= {"frames": self.frames()}

        def decide(values: Sequence[Value]) -> Value:
            told = [(group, values[positions[0]]) for group, positions in zip(ranks, groups, strict=True)]
            raise mismatch(number, told)

        self._exchanger.exchange(Ticket("lockstep", self.name, ""), words, decide=decide, timeout=timeout)

    def _place_in_words(self) -> str:
        last = self.steps.last
        return in_words(last) if last and self.predictor.count == self.steps.due else ""

    def _words(self, call: Call | None) -> dict[str, Any]:
        gone = {"what": "a call of long ago", "where": "", "lines": [], "details": [], "digest": ""}
        return call.words() if call else gone

    def _put_question(self) -> None:
        """Nobody has come for a moment: put up the question, unless another rank has put up the same, and ring."""
        if self._mine or not self._places:
            return
        meetings = self._world.meetings.attended
        document = dumps({"rank": self._world.rank, "places": self._places, "meetings": meetings})
        for i in count():
            key = f"{self._prefix}open/{self._exchanger.count}/{i}"
            there = self._world.store.claim(key, document)
            if there == document:
                self._mine = key
                self._introduce()
                self._world.listener.ring()
            if loads(there)["places"].items() >= self._places.items():
                break

    def _introduce(self) -> None:
        """At the first question in this group, tell its ranks that there is such a group: they may not know it yet."""
        if self._exchanger.count > 1 or len(self.members) == self._world.size or self.beside:
            return
        mine = dumps(list(self.members))
        for rank in self.members:
            for i in count():
                if self._world.store.claim(f"{introduction(rank)}{i}", mine) == mine:
                    break

    def _take_question_down(self) -> None:
        self._places = {}
        if self._mine:
            self._world.store.delete(self._mine)
            self._mine = ""
