"""All groups of one rank, and the threads that answer for the one that trains where that cannot any more.

One thread lives while there is a question or a meeting that this rank has not come to, or a rank has left. Who answers,
or stands in at a meeting, waits there for ranks that may wait for another answer of this one: so each has its own.

Keys: ``lockstep/left/<rank>`` how far a rank was in each group when its program ended, if it had not left before with
all others; ``lockstep/any_left`` that there are any.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from allranks import agent
from allranks.errors import AllranksError, Mismatch, RankDied, StoreError
from allranks.gate.lockstep import lines, position
from allranks.gate.lockstep.branches import Frames
from allranks.gate.lockstep.schedule import Call, leaving, left_early
from allranks.gate.lockstep.sequence import CallSequence, introduction
from allranks.gate.lockstep.steps import Label, Position
from allranks.gate.lockstep.transfers import Transfers
from allranks.gate.lockstep.world_order import Question, meets_instead
from allranks.world.base import World
from allranks.world.codec import dumps, loads
from allranks.world.ticket import Ticket

# What is compared beside calls, each with those before it: nothing, values that all ranks should give to a call alike,
# how far loops have gone on, what each call is made for.
Check = Literal["calls", "values", "steps", "content"]
_LOOPS = ("steps", "content")
# Between two looks at how far the training thread is, in seconds; what is seen twice counts. The second is for ranks
# for which others wait in a meeting: that is often long, and nothing is wrong.
_LOOK, _LOOK_AT_MEETING = 0.05, 0.25
# How long the rank that asked has to end the job, or the training thread to come free, until this thread raises.
_GRACE = 3.0
# The same where ranks wait for each other's transfers: nobody else will end the job.
_GRACE_OF_TRANSFERS = 0.1
# How long an error in a collective waits for its explanation, where one is looked for.
_MOMENT = 0.5
_LEFT, _ANY_LEFT = "lockstep/left/", "lockstep/any_left"


class Monitor:
    """The groups of ranks that this rank makes calls with."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sequences: dict[tuple[object, ...], CallSequence] = {}
        self.check: Check = "steps"
        self._everybody = tuple(range(world.size))
        self._meetings = world.meetings
        self._questions: dict[CallSequence, tuple[int, Question]] = {}
        # Meetings to which this rank has not come: how far those are that wait there.
        self._awaited: dict[int, dict[CallSequence, int]] = {}
        self._told_at = self._introduced = 0
        self._answers: list[threading.Thread] = []
        self._gone: dict[int, dict[str, int]] = {}
        self._ended: dict[str, int] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._judged = threading.Event()
        self._seen: set[object] = set()
        self.transfers = Transfers(world, self._end)
        self.sequence(self._everybody)
        self.trains_here()
        self._meetings.uneasy = self._tell_places
        world.listener.on_ring(self._scan)
        atexit.register(self._abandon)

    def sequence(self, members: Sequence[int]) -> CallSequence:
        """Return the sequence of these ranks, of which this is one."""
        key = tuple(members)
        sequence = self.sequences.get(key)  # in one operation each: a thread that listens may be here, too
        if sequence is None:
            members = self._everybody if len(key) == self.world.size else key
            sequence = self.sequences.setdefault(key, CallSequence(self.world, members, self._position))
            sequence.labels, sequence.listen = self._labels, self._listen
            sequence.frames, sequence.departure = self._frames, self._departure
            self._prepare(sequence)
        return sequence

    def _prepare(self, sequence: CallSequence) -> None:
        sequence.steps.looks_always = self.check == "content"
        sequence.compares_values = self.check != "calls"

    def beside(self, members: Sequence[int], group: str) -> CallSequence:
        """Return the sequence of the calls that threads beside the one that trains make with a group."""
        key = (group, *members)
        return self.sequences.get(key) or self.sequences.setdefault(
            key, CallSequence(self.world, members, beside=f"in other threads, {group}")
        )

    def _position(self) -> Position:
        """Return how far the training thread is in the program's loops."""
        thread = self._meetings.trainer
        return position.read(thread) if self.check in _LOOPS and thread else Position()

    def _labels(self) -> list[Label]:
        thread = self._meetings.trainer
        return position.labels(thread, thoroughly=self.check == "content") if self.check in _LOOPS and thread else []

    def _frames(self) -> Frames:
        thread = self._meetings.trainer
        return lines.frames_of(thread) if thread else []

    def _departure(self, error: RankDied, number: int, call: Call) -> AllranksError:
        """Return what explains that ranks have ended which this one waits for: they make no more calls."""
        try:
            for rank in error.ranks:
                self.world.store.wait(f"{_LEFT}{rank}", _MOMENT)
        except StoreError:  # they have failed, or make their last words wait
            return error
        return left_early(self.world.rank, error.ranks, number=number, made=call, frames=self._frames())

    def _listen(self) -> None:
        """Raise Mismatch if this rank has received what another one did not send."""
        if error := self.transfers.hear():
            raise error

    def look_at(self, check: Check) -> None:
        """Have this compared beside calls, from now on."""
        self.check = check
        for sequence in self._all():
            self._prepare(sequence)

    def trains_here(self) -> None:
        """Take the meetings of this thread for those of the one whose calls are compared."""
        self._meetings.trainer = threading.get_ident()

    def is_training_thread(self) -> bool:
        """Say whether this thread is the one whose calls are compared."""
        return threading.get_ident() == self._meetings.trainer

    def leave(self, where: str, timeout: float | None) -> None:
        """Return when all ranks leave, after as many calls in every group; **every rank must leave**."""
        elsewhere = {
            sequence.name: (sequence.place, sequence.members)
            for sequence in self._all()
            if len(sequence.members) < self.world.size
        }
        self.sequence(self._everybody).ask(leaving(where), timeout, elsewhere=elsewhere)
        self._ended = self._places()

    def explain(self, error: Exception) -> None:
        """Raise the Mismatch that is the cause of an error in a collective, if that is known or will be in a moment."""
        answers = any(answer.is_alive() for answer in self._answers)
        if self._questions or self._awaited or answers or self._gone:
            self._judged.wait(_MOMENT)
        for sequence in self._all():
            if sequence.verdict is not None and error is not sequence.verdict:
                sequence.verdict_is_told = True
                raise sequence.verdict from error

    def _abandon(self) -> None:
        """Tell the others that this rank has ended in order and makes no more calls, unless it last left with them."""
        places = self._places()
        if places == self._ended or agent.load().has_failed():
            return
        with contextlib.suppress(StoreError):  # then the others have learnt of worse
            self.world.store.set(f"{_LEFT}{self.world.rank}", dumps(places))
            self.world.store.set(_ANY_LEFT, b"1")
            self.world.listener.ring()

    def _places(self) -> dict[str, int]:
        return {sequence.name: sequence.place for sequence in self._all() if sequence.place}

    def _tell_places(self) -> None:
        """Tell those for whom this rank waits in a meeting how far it is, once. Where no call is foretold, nobody can
        have gone on without asking."""
        if self._told_at == self._meetings.count:
            return
        self._told_at = self._meetings.count
        ordered = [sequence for sequence in self._all() if not sequence.beside]
        news = [sequence.tell_place() for sequence in ordered if sequence.predictor.expected is not None]
        if any(news):
            self.world.listener.ring()

    def _scan(self) -> None:
        """Look for questions to this rank, and for ranks that have left; in the thread that hears the bell."""
        store, meeting = self.world.store, self._meetings.count + 1
        while members := store.get(f"{introduction(self.world.rank)}{self._introduced}"):
            self.sequence(loads(members))
            self._introduced += 1
        for sequence in self._all():
            number = sequence.exchanges + 1
            if question := sequence.question(number):
                with self._lock:
                    self._questions[sequence] = number, question
            if (told := sequence.told_place(meeting)) is not None:
                with self._lock:
                    self._awaited.setdefault(meeting, {})[sequence] = told
        if error := self.transfers.hear():
            self.sequence(self._everybody).judge(error)
        if store.get(_ANY_LEFT) is not None:
            for key, text in store.list(_LEFT).items():
                self._gone[int(key.removeprefix(_LEFT))] = loads(text)
        with self._lock:
            if self._thread is None and (self._questions or self._awaited or self._gone):
                self._thread = _thread(self._watch)

    def _watch(self) -> None:
        while True:
            for sequence, (number, question) in list(self._questions.items()):
                self._consider(sequence, number, question)
            for meeting, told in list(self._awaited.items()):
                self._consider_meeting(meeting, dict(told))
            for rank, places in list(self._gone.items()):
                self._consider_gone(rank, places)
            with self._lock:
                if not (self._questions or self._awaited or self._gone):
                    self._thread = None
                    return
            time.sleep(_LOOK if self._questions or self._gone else _LOOK_AT_MEETING)

    def _consider(self, sequence: CallSequence, number: int, question: Question) -> None:
        current = self._meetings.current  # first: where it was before it came to the exchange, it has come from
        if sequence.exchanges < number:
            meeting = current if not sequence.beside and meets_instead(question, current) else 0
            beyond = next((one for one in self._all() if one.is_beyond(question.places)), None)
            if not self._twice((sequence, number), bool(meeting or beyond)):
                return
            self._start(self._answer, sequence, number, meeting, beyond or sequence)
        with self._lock:
            if self._questions[sequence][0] == number:
                del self._questions[sequence]

    def _answer(self, sequence: CallSequence, number: int, meeting: int, within: CallSequence) -> None:
        """Answer in a group. If all have to come to a meeting because of it, and the training thread is not in it, but
        in a call ``within`` a group, stand in there."""
        target = sequence.answer(number, meeting)
        if target > meeting:
            self._stand_in(target, within, within.last())
        self._see_to(sequence)

    def _consider_meeting(self, meeting: int, told: Mapping[CallSequence, int]) -> None:
        # In this order: what this rank had begun before it came there, it had begun without coming.
        begun = [(sequence, made) for sequence, place in told.items() if (made := sequence.calls_instead(place))]
        if self._meetings.count < meeting:
            if not self._twice(meeting, bool(begun)):
                return
            self._start(self._stand_in, meeting, *begun[0])
        with self._lock:
            self._awaited.pop(meeting, None)

    def _stand_in(self, meeting: int, sequence: CallSequence, made: Ticket) -> None:
        """Come to a meeting in the training thread's place, which is in a call, and have it raise the outcome."""
        error = self._meetings.stand_in(meeting, made, self.world.timeout)
        if error is not None:
            sequence.judge(error)
            self._see_to(sequence)

    def _consider_gone(self, rank: int, places: dict[str, int]) -> None:
        for sequence in self._all():
            place = places.get(sequence.name, 0)
            if rank in sequence.members and self._twice((sequence, rank), sequence.place > place):
                number = place // 2 + 1
                sequence.judge(
                    left_early(
                        self.world.rank,
                        [rank],
                        number=number,
                        made=sequence.predictor.call(number),
                        frames=self._frames(),
                    )
                )
                self._see_to(sequence)

    def _start(self, answer: Callable[..., None], *arguments: object) -> None:
        self._answers.append(_thread(answer, *arguments))

    def _end(self, error: Mismatch) -> None:
        """End the job: the training thread waits in a call, and cannot be told there."""
        sequence = self.sequence(self._everybody)
        sequence.judge(error)
        self._see_to(sequence, _GRACE_OF_TRANSFERS)

    def _see_to(self, sequence: CallSequence, grace: float | None = None) -> None:
        """End the job, which this rank holds up from within its call, unless somebody else does."""
        if sequence.verdict is None:
            return
        self._judged.set()
        time.sleep(_GRACE if grace is None else grace)
        if not (sequence.verdict_is_told or self._meetings.verdict_is_told):
            raise sequence.verdict

    def _all(self) -> list[CallSequence]:
        return list(self.sequences.values())

    def _twice(self, what: object, seen: bool) -> bool:
        """Say whether something is seen now, and was seen at the look before."""
        before = what in self._seen
        (self._seen.add if seen else self._seen.discard)(what)
        return seen and before


def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="allranks-lockstep", daemon=True)
    thread.start()
    return thread
