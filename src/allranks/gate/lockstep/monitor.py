"""Watch the calls of all process groups of one rank, and answer other ranks while the training thread waits in a call.

One thread runs while there is a query, a departure, or an exchange of the world that this rank has not entered. Each
answer has its own thread, because it waits for ranks that may wait for another answer of this rank.

Keys in the store:

- ``lockstep/left/<rank>``: the positions of a rank in its groups when its program ended. It is not set if the rank left
  the region with all others.
- ``lockstep/any_left``: set if any rank has set such a key.
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
from allranks.gate.lockstep import call_sites, position
from allranks.gate.lockstep.branches import Frames
from allranks.gate.lockstep.calls import GroupCall, make_region_end, missing_ranks_error
from allranks.gate.lockstep.sequence import CallSequence, group_key
from allranks.gate.lockstep.steps import LoopElement, LoopPosition
from allranks.gate.lockstep.transfers import TransferMonitor
from allranks.gate.lockstep.world_order import GroupQuery, is_in_later_exchange
from allranks.world.base import World
from allranks.world.claims import Ticket
from allranks.world.codec import dumps, loads

# What is compared beside calls, each with those before it: nothing, values that all ranks should give to a call alike,
# how far loops have gone on, what each call is made for.
Check = Literal["calls", "values", "steps", "content"]
_LOOPS = ("steps", "content")
# Seconds between two checks of the training thread's place; what is seen twice counts. The second is for a rank for
# which others wait in an exchange of the world: that often takes long, and nothing is wrong.
_INTERVAL, _EXCHANGE_INTERVAL = 0.05, 0.25
# How long the querying rank has to end the job, or the training thread to return from its call, until we raise.
_GRACE = 3.0
# The same where ranks wait for each other's transfers: nobody else will end the job.
_GRACE_OF_TRANSFERS = 0.1
# How long an error in a collective waits for its explanation, where one is looked for.
_MOMENT = 0.5
_LEFT, _ANY_LEFT = "lockstep/left/", "lockstep/any_left"


class LockstepMonitor:
    """The groups of ranks with which this rank makes calls, and the thread that watches them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sequences: dict[tuple[object, ...], CallSequence] = {}
        self.check: Check = "steps"
        self._everybody = tuple(range(world.size))
        self._program_exchanges = world.program_exchanges
        self._queries: dict[CallSequence, tuple[int, GroupQuery]] = {}
        # Exchanges of the world that this rank has not entered: the places of the ranks that wait there.
        self._awaited_exchanges: dict[int, dict[CallSequence, int]] = {}
        self._reported_at = self._groups_read = 0
        self._answers: list[threading.Thread] = []
        self._departures: dict[int, dict[str, int]] = {}
        self._ended: dict[str, int] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._error_found = threading.Event()
        self._seen: set[object] = set()
        self.transfers = TransferMonitor(world, self._end_job)
        self.call_sequence(self._everybody)
        self.set_training_thread()
        self._program_exchanges.on_wait = self._report_places
        world.listener.on_wake(self._find_queries_and_departures)
        atexit.register(self._report_departure)

    def call_sequence(self, members: Sequence[int]) -> CallSequence:
        """Return the call sequence of the group with these member ranks; this rank must be a member."""
        key = tuple(members)
        sequence = self.sequences.get(key)  # one operation each: the listening thread may be here, too
        if sequence is None:
            members = self._everybody if len(key) == self.world.size else key
            sequence = self.sequences.setdefault(key, CallSequence(self.world, members, self._loop_position))
            sequence.labels, sequence.check_transfers = self._loop_elements, self._check_transfers
            sequence.frames, sequence.departure = self._training_frames, self._error_of_departure
            self._configure_sequence(sequence)
        return sequence

    def _configure_sequence(self, sequence: CallSequence) -> None:
        sequence.steps.checks_every_call = self.check == "content"
        sequence.compares_values = self.check != "calls"

    def side_sequence(self, members: Sequence[int], group: str) -> CallSequence:
        """Return the sequence of the calls that threads other than the training thread make with a group."""
        key = (group, *members)
        return self.sequences.get(key) or self.sequences.setdefault(
            key, CallSequence(self.world, members, side_label=f"in other threads, {group}")
        )

    def _loop_position(self) -> LoopPosition:
        """Return the position of the training thread in the program's loops; an empty one if loops are not compared."""
        thread = self._program_exchanges.training_thread
        return position.read_loop_counts(thread) if self.check in _LOOPS and thread else LoopPosition()

    def _loop_elements(self) -> list[LoopElement]:
        thread = self._program_exchanges.training_thread
        return (
            position.read_loop_elements(thread, all_collections=self.check == "content")
            if self.check in _LOOPS and thread
            else []
        )

    def _training_frames(self) -> Frames:
        thread = self._program_exchanges.training_thread
        return call_sites.user_frames_of_thread(thread) if thread else []

    def _error_of_departure(self, error: RankDied, number: int, call: GroupCall) -> AllranksError:
        """Return the error that explains why ranks for which this rank waits have ended.

        Return a Mismatch if their programs ended without an error, else ``error``.
        """
        try:
            for rank in error.ranks:
                self.world.store.wait(f"{_LEFT}{rank}", _MOMENT)
        except StoreError:  # they have failed, or have not reported their departure yet
            return error
        return missing_ranks_error(
            self.world.rank, error.ranks, call_number=number, group_call=call, frames=self._training_frames()
        )

    def _check_transfers(self) -> None:
        """Raise Mismatch if this rank has received data that differ from what the sender sent."""
        if error := self.transfers.read_announcements():
            raise error

    def set_check(self, check_level: Check) -> None:
        """Set what is compared beside calls from now on."""
        self.check = check_level
        for sequence in self._all_sequences():
            self._configure_sequence(sequence)

    def set_training_thread(self) -> None:
        """Make this thread the training thread: the one whose calls and exchanges are compared."""
        self._program_exchanges.training_thread = threading.get_ident()

    def is_training_thread(self) -> bool:
        """Return whether this thread is the one whose calls are compared."""
        return threading.get_ident() == self._program_exchanges.training_thread

    def leave_block(self, exit_line: str, timeout: float | None) -> None:
        """Wait until all ranks leave the block, after equally many calls in every group; **every rank must leave**."""
        elsewhere = {
            sequence.name: (sequence.call_position, sequence.members)
            for sequence in self._all_sequences()
            if len(sequence.members) < self.world.size
        }
        self.call_sequence(self._everybody).agree_on_call(
            make_region_end(exit_line), timeout, other_positions=elsewhere
        )
        self._ended = self._positions_by_group()

    def raise_cause(self, error: Exception) -> None:
        """Raise the Mismatch that caused an error in a collective, if one is known or is found within a moment."""
        answers = any(answer.is_alive() for answer in self._answers)
        if self._queries or self._awaited_exchanges or answers or self._departures:
            self._error_found.wait(_MOMENT)
        for sequence in self._all_sequences():
            if sequence.pending_error is not None and error is not sequence.pending_error:
                sequence.error_raised = True
                raise sequence.pending_error from error

    def _report_departure(self) -> None:
        """Report that this rank has ended without an error and makes no more calls, unless all ranks left together."""
        places = self._positions_by_group()
        if places == self._ended or agent.load().has_failed():
            return
        with contextlib.suppress(StoreError):  # then the others have learnt of a failure
            self.world.store.set(f"{_LEFT}{self.world.rank}", dumps(places))
            self.world.store.set(_ANY_LEFT, b"1")
            self.world.listener.wake()

    def _positions_by_group(self) -> dict[str, int]:
        return {sequence.name: sequence.call_position for sequence in self._all_sequences() if sequence.call_position}

    def _report_places(self) -> None:
        """Report this rank's positions, once, to the ranks for which it waits in an exchange of the world.

        Groups without a predicted call are left out: no rank can have continued in such a group without an agreement.
        """
        if self._reported_at == self._program_exchanges.count:
            return
        self._reported_at = self._program_exchanges.count
        ordered = [sequence for sequence in self._all_sequences() if not sequence.side_label]
        news = [sequence.report_position() for sequence in ordered if sequence.predictor.expected is not None]
        if any(news):
            self.world.listener.wake()

    def _find_queries_and_departures(self) -> None:
        """Look for queries to this rank and for departures. The thread that waits for the wake-up key runs this."""
        store, world_exchange = self.world.store, self._program_exchanges.count + 1
        while members := store.get(f"{group_key(self.world.rank)}{self._groups_read}"):
            self.call_sequence(loads(members))
            self._groups_read += 1
        for sequence in self._all_sequences():
            number = sequence.exchange_count + 1
            if query := sequence.read_query(number):
                with self._lock:
                    self._queries[sequence] = number, query
            if (reported := sequence.reported_position(world_exchange)) is not None:
                with self._lock:
                    self._awaited_exchanges.setdefault(world_exchange, {})[sequence] = reported
        if error := self.transfers.read_announcements():
            self.call_sequence(self._everybody).set_error(error)
        if store.get(_ANY_LEFT) is not None:
            for key, text in store.list(_LEFT).items():
                self._departures[int(key.removeprefix(_LEFT))] = loads(text)
        with self._lock:
            if self._thread is None and (self._queries or self._awaited_exchanges or self._departures):
                self._thread = _start_thread(self._watch_queries)

    def _watch_queries(self) -> None:
        while True:
            for sequence, (number, query) in list(self._queries.items()):
                self._handle_query(sequence, number, query)
            for world_exchange, reported in list(self._awaited_exchanges.items()):
                self._handle_exchange(world_exchange, dict(reported))
            for rank, places in list(self._departures.items()):
                self._handle_departure(rank, places)
            with self._lock:
                if not (self._queries or self._awaited_exchanges or self._departures):
                    self._thread = None
                    return
            time.sleep(_INTERVAL if self._queries or self._departures else _EXCHANGE_INTERVAL)

    def _handle_query(self, sequence: CallSequence, number: int, query: GroupQuery) -> None:
        current = self._program_exchanges.current  # read it before sequence.exchanges: the thread may go on meanwhile
        if sequence.exchange_count < number:
            world_exchange = current if not sequence.side_label and is_in_later_exchange(query, current) else 0
            past_group = next((one for one in self._all_sequences() if one.is_past(query.places)), None)
            if not self._is_seen_twice((sequence, number), bool(world_exchange or past_group)):
                return
            self._start_answer(self._answer_query, sequence, number, world_exchange, past_group or sequence)
        with self._lock:
            if self._queries[sequence][0] == number:
                del self._queries[sequence]

    def _answer_query(self, sequence: CallSequence, number: int, world_exchange: int, within: CallSequence) -> None:
        """Answer a query of a group.

        The answer may show that all ranks have to enter an exchange of the world. If the training thread is in a call
        of the group ``within`` instead, this thread enters the exchange in its place.
        """
        target = sequence.enter_for_training_thread(number, world_exchange)
        if target > world_exchange:
            self._enter_for_training_thread(target, within, within.last_ticket())
        self._end_unless_raised(sequence)

    def _handle_exchange(self, world_exchange: int, reported: Mapping[CallSequence, int]) -> None:
        # In this order: a call that this rank started before it entered the exchange was started without entering.
        begun = [(sequence, made) for sequence, place in reported.items() if (made := sequence.started_call(place))]
        if self._program_exchanges.count < world_exchange:
            if not self._is_seen_twice(world_exchange, bool(begun)):
                return
            self._start_answer(self._enter_for_training_thread, world_exchange, *begun[0])
        with self._lock:
            self._awaited_exchanges.pop(world_exchange, None)

    def _enter_for_training_thread(self, world_exchange: int, sequence: CallSequence, made: Ticket) -> None:
        """Enter an exchange of the world for the training thread, which is in a call; store the error that results."""
        error = self._program_exchanges.substitute(world_exchange, made, self.world.timeout)
        if error is not None:
            sequence.set_error(error)
            self._end_unless_raised(sequence)

    def _handle_departure(self, rank: int, places: dict[str, int]) -> None:
        for sequence in self._all_sequences():
            place = places.get(sequence.name, 0)
            if rank in sequence.members and self._is_seen_twice((sequence, rank), sequence.call_position > place):
                number = place // 2 + 1
                sequence.set_error(
                    missing_ranks_error(
                        self.world.rank,
                        [rank],
                        call_number=number,
                        group_call=sequence.predictor.stored_call(number),
                        frames=self._training_frames(),
                    )
                )
                self._end_unless_raised(sequence)

    def _start_answer(self, answer: Callable[..., None], *arguments: object) -> None:
        self._answers.append(_start_thread(answer, *arguments))

    def _end_job(self, error: Mismatch) -> None:
        """End the job with this error. The training thread waits in a call, and so cannot raise the error."""
        sequence = self.call_sequence(self._everybody)
        sequence.set_error(error)
        self._end_unless_raised(sequence, _GRACE_OF_TRANSFERS)

    def _end_unless_raised(self, sequence: CallSequence, grace: float | None = None) -> None:
        """Raise the stored error here, which ends the job, unless the training thread or another rank raised it."""
        if sequence.pending_error is None:
            return
        self._error_found.set()
        time.sleep(_GRACE if grace is None else grace)
        if not (sequence.error_raised or self._program_exchanges.error_raised):
            raise sequence.pending_error

    def _all_sequences(self) -> list[CallSequence]:
        return list(self.sequences.values())

    def _is_seen_twice(self, what: object, seen: bool) -> bool:
        """Return whether ``what`` is seen now (``seen``), and was seen at the check before, too."""
        before = what in self._seen
        (self._seen.add if seen else self._seen.discard)(what)
        return seen and before


def _start_thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="allranks-lockstep", daemon=True)
    thread.start()
    return thread
