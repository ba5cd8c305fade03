"""Check that the ranks of one group make the same calls. A call that was not predicted needs an agreement first.

To agree, the ranks enter an exchange (world/exchange.py), the k-th of this group. Ranks enter it because the call is
unpredicted for all of them, or because they have diverged already. A rank that diverged with a predicted call waits in
that call and cannot enter. Therefore a waiting rank posts a query after a moment, with its position, and wakes the
other ranks. The monitor of a rank that is past that position, or in an exchange of the world instead (world_order.py,
monitor.py), enters the exchange for its training thread. So the waiting ranks learn at once what that rank does
instead. If it is in an exchange of the world, all waiting ranks go to that exchange, with the call that they were about
to make. All of them get its outcome, a Mismatch.

Keys in the store:

- ``lockstep/<group>/x/...``: the exchanges.
- ``lockstep/<group>/open/<k>/<i>``: the queries; one ``i``, from 0 on, for all ranks at one position.
- ``lockstep/<group>/<i>``, below an exchange of the world: the positions of the ranks that wait in it.
- ``lockstep/group/<rank>/<i>``: the groups of a rank that it may not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from allranks.digest import digest, show
from allranks.errors import AllranksError, RankDied, name_ranks
from allranks.gate.lockstep import outcome
from allranks.gate.lockstep.branches import Frames
from allranks.gate.lockstep.calls import GroupCall, mismatch_of_calls, ticket_of_call
from allranks.gate.lockstep.predictor import CallPredictor
from allranks.gate.lockstep.steps import GroupSteps, LoopElement, LoopPosition, describe_innermost_loop
from allranks.gate.lockstep.world_order import GroupQuery, is_past_call, merge_queries
from allranks.world import main_rank_section
from allranks.world.base import World
from allranks.world.claims import Ticket
from allranks.world.codec import Value, dumps, loads
from allranks.world.exchange import Exchanger
from allranks.world.progress import progress

# How far ranks are in groups, by the group's name: the place, and the group's ranks.
Places = Mapping[str, tuple[int, Sequence[int]]]
# Returns the arguments of a call that must be equal on all ranks, by their names.
Values = Callable[[], Sequence[LoopElement]]
_WhereIs = Callable[[], LoopPosition]
# How long a rank waits for the others before it posts a query, in seconds.
_PATIENCE = 0.1
_LONGEST_NAME = 40


def _name_of(members: Sequence[int]) -> str:
    """Return a name of a group, e.g. ``ranks 0-3``. For a long list of ranks, it is the size and a digest."""
    name = name_ranks(members)
    return name if len(name) <= _LONGEST_NAME else f"{len(members)} ranks {show(digest(name))[:8]}"


def group_key(rank: int) -> str:
    """Return the prefix of the keys that announce to a rank its groups."""
    return f"lockstep/group/{rank}/"


class CallSequence:
    """The sequence of calls that this rank makes with one process group.

    Only the training thread uses ``predictor`` and ``inside``; the monitor's threads may call ``agree_on_call``, too.

    - ``inside``: the rank is within its last call.
    - ``executing()``: nothing in that call is left to agree on.
    - ``known``: the calls by digest, so that equal calls are one object.
    - ``side_label``: names the calls of threads other than the training thread. These calls have no order relative to
      exchanges of the world and calls of other groups.
    """

    def __init__(
        self, world: World, members: Sequence[int], position: _WhereIs = LoopPosition, *, side_label: str = ""
    ) -> None:
        self.members = members
        self.side_label = side_label
        self.name = "all ranks" if len(members) == world.size else _name_of(members)
        self.name += f", {side_label}" if side_label else ""
        self.predictor: CallPredictor[GroupCall] = CallPredictor()
        self.inside = False
        self.executing: Callable[[], bool] = lambda: False
        self.steps = GroupSteps()
        # The position of the training thread in the program's loops, and the elements at which these are.
        self.position = position
        self.labels: Callable[[], Sequence[LoopElement]] = list
        # Its frames in the program; and the error of a call for which ranks are missing, because their programs have
        # ended in order.
        self.frames: Callable[[], Frames] = list
        self.departure: Callable[[RankDied, int, GroupCall], AllranksError] = lambda error, *_: error
        # Whether values are compared beside calls; the number of the next call on which the ranks agree though it is
        # predicted; when and at which call they agreed last, and how long that took.
        self.compares_values = False
        self.next_agreement = outcome.NEVER
        self._last_agreement = (world.clock.now(), 0, 0.0)
        # Called before the ranks agree: raises Mismatch where a transfer is known to be wrong.
        self.check_transfers: Callable[[], None] = lambda: None
        # How the loop position of a predicted call deviates from the predicted position, in words.
        self._deviation = ""
        self.known: dict[str, GroupCall] = {}
        self.pending_error: AllranksError | None = None
        self.error_raised = False
        self._world = world
        self._prefix = f"lockstep/{self.name.replace(' ', '-')}/"
        self._lock = threading.Lock()
        # The places at which this rank waits, and the key of the query that it has posted.
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
            on_wait=self._post_query,
            first_check=_PATIENCE,
        )

    @property
    def call_position(self) -> int:
        """This rank's position in the call sequence, in halves of a call (calls.py)."""
        return 2 * self.predictor.count - self.inside

    def canonical_call(self, call: GroupCall) -> GroupCall:
        """Return one object for all calls that are equal to this one, so that ``is`` compares calls."""
        return self.known.setdefault(call.digest, call)

    def enter_call(
        self,
        call: GroupCall,
        timeout: float | None = None,
        *,
        is_inside: bool = False,
        values: Values = list,
    ) -> None:
        """Wait until this rank may make ``call``, a result of ``canonical_call``, as its next call of the group.

        The ranks agree on the call first, unless it was predicted, the program's loops are where they were predicted to
        be, and no check is due. ``values()`` returns the arguments that must be equal on all ranks.
        """
        number, steps, now = self.predictor.count, self.steps, self.position()
        predicted, due = self.predictor.expected is call, number == steps.due
        usual = predicted and (not due or steps.is_expected(now))
        self._deviation = steps.describe_deviation(now) if predicted and not usual else ""
        agreed_on = due and number >= self.next_agreement
        labels = [] if usual and not steps.checks_every_call and not agreed_on else self.labels()
        must_agree = bool(not usual or agreed_on or labels)
        if must_agree:
            compared = values() if self.compares_values else ()
            self.agree_on_call(call, timeout, loop_position=now, labels=labels, values=compared)
        # In this order, so that the place is never beyond where this rank is.
        self.inside = is_inside
        if predicted:
            self.predictor.count_predicted_call()
        else:
            self.predictor.count_agreed_call(call)
        if must_agree or number == steps.due:
            steps.record_call(number, now, is_agreed=must_agree)

    def agree_on_call(
        self,
        call: GroupCall,
        timeout: float | None = None,
        *,
        other_positions: Places | None = None,
        loop_position: LoopPosition | None = None,
        labels: Sequence[LoopElement] = (),
        values: Sequence[LoopElement] = (),
    ) -> None:
        """Wait until all ranks of the group report this position and this call; **every rank of the group must call**.

        - ``other_positions``: the positions in other groups, by name, with the ranks of these groups; compared too.
        - ``loop_position``: the position of the loops around the call.
        - ``labels``: the elements at which these loops are.
        - ``values``: the arguments of the call.

        Raises on every rank: Mismatch, which says which rank does what; BarrierTimeout; or RankDied.
        """
        main_rank_section.refuse_collective(call.what)
        self.check_transfers()
        with self._lock:
            if self.pending_error is not None:
                self.error_raised = True
                raise self.pending_error
            before = None if self.side_label else progress.enter("exchange", f"all ranks before {call}")
            begin = self._world.clock.now()
            try:
                loops = self.steps.loop_progress(loop_position) if loop_position else {}
                steps = [loops, list(map(list, labels)), list(map(list, values)), self._recent_call_rate(begin)]
                self._exchange_reports(call, self.call_position, other_positions or {}, timeout=timeout, steps=steps)
                ended = self._world.clock.now()
                self._last_agreement = ended, self.predictor.count, ended - begin
            except AllranksError as error:
                number = self.call_position // 2 + 1
                known = self.departure(error, number, call) if isinstance(error, RankDied) else error
                if known is not error:
                    raise known from None
                error.add_note(f"rank {self._world.rank}: before call {number} of {self.name}: {call}")
                raise
            finally:
                if before is not None:
                    progress.leave(before)

    def read_query(self, exchange_number: int) -> GroupQuery | None:
        """Return the merged query of the ranks that wait in this exchange of the group; None if none waits."""
        reported = map(loads, self._read_queries(exchange_number))
        return merge_queries((one["places"], one["world_exchanges"]) for one in reported)

    def _read_queries(self, number: int) -> Iterator[bytes]:
        for i in count():
            text = self._world.store.get(f"{self._prefix}open/{number}/{i}")
            if text is None:
                return
            yield text

    def is_past(self, positions: Mapping[str, int]) -> bool:
        """Return whether this rank is past this group's position in ``positions``; False if it has none."""
        place = positions.get(self.name)
        if place is None:
            return False
        return self.call_position > place or (self.call_position == place and self.inside and self.executing())

    @property
    def last_call(self) -> GroupCall | None:
        """The call that this rank made last; None if it has made none."""
        return self.predictor.stored_call(self.predictor.count)

    def last_ticket(self) -> Ticket:
        """Return the ticket of the call that this rank made last."""
        return ticket_of_call(self.last_call)

    def enter_for_training_thread(self, exchange_number: int, world_exchange: int) -> int:
        """Enter this exchange for the training thread; return the world's exchange that all must enter, or 0.

        The training thread is past the position of the other ranks, or in the exchange ``world_exchange``. An error is
        stored, to be raised later. Does nothing if the training thread has entered meanwhile. Only the monitor's
        threads may call this.
        """
        with self._lock:
            if self.pending_error is None and self._exchanger.count < exchange_number:
                try:
                    return self._exchange_reports(
                        None, self.call_position, {}, timeout=None, world_exchange=world_exchange
                    )
                except AllranksError as error:
                    self.pending_error = error
        return 0

    def report_position(self) -> bool:
        """Report this rank's position in the exchange of the world in which it waits; return whether it was reported.

        It is not reported if a rank with the same or an earlier position has reported. The thread that waits in the
        exchange must call this.
        """
        world_exchanges = self._world.program_exchanges
        for i in count():
            there = world_exchanges.claim(f"{self._prefix}{i}", [self._world.rank, self.call_position])
            if there is None or there[1] <= self.call_position:
                return there is None
        raise AssertionError

    def reported_position(self, world_exchange: int) -> int | None:
        """Return the earliest position in this group that ranks reported in an exchange of the world; else None."""
        reported = (self._world.program_exchanges.read(world_exchange, f"{self._prefix}{i}") for i in count())
        return min((one[1] for one in iter(lambda: next(reported), None)), default=None)

    def started_call(self, reported_position: int) -> Ticket | None:
        """Return the call that this rank has started, but a rank at ``reported_position`` has not; else None."""
        call = self.predictor.stored_call(reported_position // 2 + 1)
        return ticket_of_call(call) if is_past_call(self.call_position, reported_position) else None

    def set_error(self, pending_error: AllranksError) -> None:
        """Store an error for the training thread to raise at the next agreement, unless an error is stored already."""
        with self._lock:
            self.pending_error = self.pending_error or pending_error

    @property
    def exchange_count(self) -> int:
        """How many exchanges of the group this rank has entered."""
        return self._exchanger.count

    def _exchange_reports(
        self,
        call: GroupCall | None,
        place: int,
        elsewhere: Places,
        *,
        timeout: float | None,
        world_exchange: int = 0,
        steps: Sequence[Any] = ({}, (), (), (0.0, 0, 0.0)),
    ) -> int:
        """Compare this rank's report with the reports of the group; raise Mismatch if they differ.

        Returns the number of the world's exchange that a rank without a ``call`` must enter, or 0.
        """
        limit = self._world.timeout if timeout is None else timeout
        entry = Ticket("lockstep", self.name, call.where if call else "")
        form, others = call.digest if call else "", {name: list(there) for name, there in elsewhere.items()}
        if call is not None:  # a rank that only answers waits for nobody
            self._places = {self.name: place, **{name: there[0] for name, there in elsewhere.items()}}
        try:
            value = self._exchanger.exchange(
                entry, [place, form, others, world_exchange, *steps], decide=self._compare_reports, timeout=limit
            )
        finally:
            self._withdraw_query()
        found = outcome.outcome_of(value)
        if isinstance(found, outcome.GoToExchange):
            if call is not None:
                self._world.program_exchanges.join_diverged(ticket_of_call(call), limit)
            return found.world_exchange
        if isinstance(found, outcome.AgreedCall):
            self.steps.unshared.update(found.unequal)
            if self.compares_values:
                self.next_agreement = self.predictor.count + found.calls
        if isinstance(found, outcome.CallDivergence):
            self._raise_divergence(call, place, found, timeout=limit)
        return 0

    def _recent_call_rate(self, now: float) -> list[float]:
        at, number, took = self._last_agreement
        return [now - at, self.predictor.count - number, took]

    def _compare_reports(self, values: Sequence[Value]) -> Value:
        return outcome.judge_calls([outcome.RankReport(*value) for value in values], self.members).to_value()

    def _raise_divergence(
        self, call: GroupCall | None, place: int, found: outcome.CallDivergence, *, timeout: float
    ) -> None:
        """Raise, on every rank, the error that says what differs; the first rank of each group sends its call."""
        number, groups = found.number, found.groups
        ranks = [[self.members[position] for position in positions] for positions in groups]
        leads = any(group[0] == self._world.rank for group in ranks)
        mine = call if place // 2 + 1 == number else None
        words = None
        if leads:
            words = self._message_of(mine or self.predictor.stored_call(number))
            words |= {
                "step": (mine and self._deviation) or self._describe_place(),
                "deviates": bool(mine and self._deviation),
            }
            words |= {"frames": self.frames()}

        def decide(values: Sequence[Value]) -> Value:
            reported = [(group, values[positions[0]]) for group, positions in zip(ranks, groups, strict=True)]
            raise mismatch_of_calls(number, reported)

        self._exchanger.exchange(Ticket("lockstep", self.name, ""), words, decide=decide, timeout=timeout)

    def _describe_place(self) -> str:
        last = self.steps.last
        return describe_innermost_loop(last) if last and self.predictor.count == self.steps.due else ""

    def _message_of(self, call: GroupCall | None) -> dict[str, Any]:
        unknown = {"what": "a call of long ago", "where": "", "lines": [], "details": [], "digest": ""}
        return call.to_message() if call else unknown

    def _post_query(self) -> None:
        """Post a query, because ranks have not entered the exchange for a moment, and wake the other ranks.

        Post none if another rank has posted the same.
        """
        if self._mine or not self._places:
            return
        world_exchanges = self._world.program_exchanges.program_count
        document = dumps({"rank": self._world.rank, "places": self._places, "world_exchanges": world_exchanges})
        for i in count():
            key = f"{self._prefix}open/{self._exchanger.count}/{i}"
            there = self._world.store.claim(key, document)
            if there == document:
                self._mine = key
                self._announce_group()
                self._world.listener.wake()
            if loads(there)["places"].items() >= self._places.items():
                break

    def _announce_group(self) -> None:
        """Announce the group to its ranks at the first query in it, because some ranks may not know the group yet."""
        if self._exchanger.count > 1 or len(self.members) == self._world.size or self.side_label:
            return
        mine = dumps(list(self.members))
        for rank in self.members:
            for i in count():
                if self._world.store.claim(f"{group_key(rank)}{i}", mine) == mine:
                    break

    def _withdraw_query(self) -> None:
        self._places = {}
        if self._mine:
            self._world.store.delete(self._mine)
            self._mine = ""
