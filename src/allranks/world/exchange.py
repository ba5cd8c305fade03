"""Exchange values among all ranks. All collectives of the world use this protocol.

Every rank sends its value, rank 0 decides, and every rank gets the decision.

The k-th exchange of every rank is the same exchange: each rank counts for itself, and the number k identifies it. So a
rank that skipped an exchange, or makes another call, is found at the next exchange by comparing tickets, not by a
timeout. Keys of exchange k, below ``<line>/<k>/``:

- ``up/<rank>``: the rank has entered, with its value and the values of its subtree (tree.py).
- ``at/<rank>``: a rank that has children in the tree has entered, and waits for them.
- ``down``: the outcome, i.e. the result or the error that every rank raises. It is written once (``claim``), so an
  exchange has exactly one outcome on all ranks. This holds even if the rank that computes the outcome stops.
- ``judge``: the rank that finds out what went wrong. The other ranks wait for its outcome in ``down``.

Rank 0 writes ``down`` when all ranks have entered. If the exchange fails, the judge writes it: the rank that first
reached its deadline or learnt that a rank has died. All other ranks read it, also ranks that enter later. A rank that
waits for the judge still passes values up: so a rank whose last value arrived just at the deadline is not blamed for
the delay, and the exchange may still succeed. Keys of earlier exchanges are deleted once all ranks have entered
exchange k: by then all ranks have read them.

A subset of ranks can exchange in the same way (``members``, ``line``): then the first member has rank 0's role.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from allranks.clock import Clock
from allranks.errors import AllranksError, KeyTimeout
from allranks.world import departures, outcome, tree
from allranks.world.claims import Ticket, first_difference
from allranks.world.codec import Json, Value, dumps, loads, pack
from allranks.world.store import KeyValueStore

Decide = Callable[[Sequence[Value]], Value]
# Seconds between two checks for ended ranks: the first check is early, later checks are rare.
_FIRST_LOOK, _LONGEST_LOOK = 0.5, 8.0
# How many seconds the judge may take: it queries the missing ranks for where they are.
_GRACE = 10.0
# How many seconds a rank that has all values it waits for may take to pass them on; then it counts as stalled.
_PASSING = 0.5


class _ValuesOfSubtree(NamedTuple):
    """What a rank passes up the tree: the values of the ranks below it (if they sent any), and the ranks by ticket."""

    values: dict[int, Any]
    tickets: dict[Ticket, list[int]]


@dataclass(slots=True)
class Exchanger:
    """One rank's state for all exchanges of one ``line``. Each line counts its own exchanges.

    Two threads must not use one Exchanger at the same time.
    """

    store: KeyValueStore
    clock: Clock
    rank: int
    members: Sequence[int]
    fanout: int
    host_of: Callable[[int], str]
    locate: Callable[[Sequence[int]], Mapping[int, str]]
    # What the keys of its exchanges begin with: the same for all members, another for every exchanger.
    line: str = "x"
    # Called, in the waiting thread, at every check: the first is after ``first_check`` seconds.
    on_wait: Callable[[], None] = lambda: None
    first_check: float = _FIRST_LOOK
    count: int = 0
    _mine: list[list[str]] = field(default_factory=list)
    _process: int = field(default_factory=os.getpid)

    def exchange(self, ticket: Ticket, value: Value, *, decide: Decide, timeout: float) -> Value:
        """Exchange values with all members; return the result of ``decide(values of all members)`` on the first member.

        Every member must call. Raises, on each member: Mismatch if the tickets differ, BarrierTimeout, RankDied, or the
        exception of ``decide``. The first member raises that exception itself; the other members raise it as a
        RemoteError, unless it is a Mismatch.
        """
        self._refuse_child(ticket)
        packed = pack(value, what=f"rank {self.rank}: {ticket}: value")
        self.count += 1
        self._mine.append([])
        call = _ExchangeCall(self, f"{self.line}/{self.count}", ticket, self.clock.now() + timeout, timeout)
        alone = len(self.members) == 1
        agreed = outcome.outcome_of({self.rank: packed}, decide) if alone else call.run(packed, decide)
        if agreed.all_entered:
            self._forget_earlier()
        return outcome.result_or_raise(agreed, rank=self.rank, ticket=ticket)

    def put(self, key: str, document: Json) -> None:
        """Set a key of the current exchange. The key is deleted when the next exchange is complete."""
        if key not in self._mine[-1]:
            self._mine[-1].append(key)
        self.store.set(key, dumps(document))

    def claim(self, key: str, document: Json) -> Json | None:
        """Set a key of the current exchange and return None.

        If another rank has set the key, return that rank's document.
        """
        mine = dumps(document)
        there = self.store.claim(key, mine)
        if there != mine:
            return loads(there)
        self._mine[-1].append(key)
        return None

    def _refuse_child(self, ticket: Ticket) -> None:
        """Raise AllranksError if this process was forked from the rank.

        A forked child shares the rank's connection to the store.
        """
        if os.getpid() != self._process and len(self.members) > 1:
            raise AllranksError(
                f"rank {self.rank}: {ticket}: process {os.getpid()} was forked from process {self._process}, which "
                f"is rank {self.rank}, so it is not a rank itself.",
                ranks=(self.rank,),
                remedy="Make this call in the process of the rank, and pass the result to its child processes.",
            )

    def _forget_earlier(self) -> None:
        for keys in self._mine[:-1]:
            for key in keys:
                self.store.delete(key)
        del self._mine[:-1]


class _OverdueError(Exception):
    """Raised when the deadline of the exchange has passed."""


class _DeathError(Exception):
    """Raised when ranks are known to have died. ``reasons`` says why, by rank."""

    def __init__(self, reasons: dict[int, str]) -> None:
        self.reasons = reasons


class _DecidedError(Exception):
    """Raised when another rank wrote the outcome while this rank waited for its children."""

    def __init__(self, document: bytes) -> None:
        self.document = document


@dataclass(frozen=True, slots=True)
class _ExchangeCall:
    """One exchange, as one rank runs it."""

    of: Exchanger
    key: str
    ticket: Ticket
    deadline: float
    timeout: float
    # The rank that finds out what went wrong, once this rank knows which one that is.
    judge: int | None = None

    def run(self, value: Json, decide: Decide) -> outcome.Outcome:
        """Run the exchange; return the outcome that all ranks share."""
        try:
            return self._exchange_values(value, decide)
        except _OverdueError:
            return self._outcome_of_failure(value, decide, None)
        except _DeathError as death:
            return self._outcome_of_failure(value, decide, death.reasons)

    def _exchange_values(self, value: Json, decide: Decide) -> outcome.Outcome:
        try:
            return self._pass_up(value, decide) or outcome.Outcome(
                loads(self._wait_for_key(self._outcome_key, look_down=False))
            )
        except _DecidedError as decided:
            return outcome.Outcome(loads(decided.document))

    def _pass_up(self, value: Json, decide: Decide) -> outcome.Outcome | None:
        """Pass up the values of this rank's subtree and return None.

        On the first member: decide, and return the outcome.
        """
        me, bundle = self.of, self._collect_bundles(value)
        if me.rank == me.members[0]:
            return self._write_down(self._decide_outcome(bundle, decide))
        me.put(self._bundle_key(me.rank), _encode_bundle(bundle))
        return None

    @property
    def _outcome_key(self) -> str:
        return f"{self.key}/down"

    def _bundle_key(self, rank: int) -> str:
        return f"{self.key}/up/{rank}"

    def _collect_bundles(self, value: Json) -> _ValuesOfSubtree:
        """Wait for the children's bundles; return one bundle with their values and this rank's value and ticket."""
        me = self.of
        bundle = _ValuesOfSubtree({} if value is None else {me.rank: value}, {self.ticket: [me.rank]})
        place = me.members.index(me.rank)
        below = [me.members[child] for child in tree.children(place, len(me.members), me.fanout)]
        if below:
            me.put(f"{self.key}/at/{me.rank}", [self.ticket.op, self.ticket.name, self.ticket.where])
        for child in below:
            brought = _decode_bundle(self._wait_for_key(self._bundle_key(child), look_down=True))
            bundle.values.update(brought.values)
            for ticket, ranks in brought.tickets.items():
                bundle.tickets.setdefault(ticket, []).extend(ranks)
        return bundle

    def _decide_outcome(self, bundle: _ValuesOfSubtree, decide: Decide) -> outcome.Outcome:
        found = first_difference(bundle.tickets)
        if found is not None:
            return outcome.mismatch_outcome(*found)
        return outcome.outcome_of({r: bundle.values.get(r) for r in self.of.members}, decide)

    def _outcome_of_failure(self, value: Json, decide: Decide, dead: dict[int, str] | None) -> outcome.Outcome:
        """Return the outcome of a failed exchange.

        The first rank that calls is the judge and computes it; the others wait for it. ``dead`` has the reasons by rank
        if ranks have died, and is None after a timeout. Values that arrive meanwhile are passed on. If the judge itself
        dies or stops, that is the outcome.
        """
        me = self.of
        faster = me.claim(f"{self.key}/judge", me.rank)
        judge = me.rank if faster is None else int(faster)
        late = replace(self, deadline=me.clock.now() + _GRACE, judge=judge)
        try:
            if faster is not None:
                return late._exchange_values(value, decide)
            return self._outcome_of_death(dead) if dead else late._outcome_of_timeout(value, decide)
        except _DecidedError as decided:
            return outcome.Outcome(loads(decided.document))
        except _DeathError as death:
            return self._outcome_of_death(death.reasons)
        except _OverdueError:
            return self._write_down(outcome.unjudged_outcome(judge, me.host_of(judge), seconds=_GRACE))

    def _outcome_of_death(self, reasons: dict[int, str]) -> outcome.Outcome:
        return self._write_down(outcome.death_outcome(reasons, self.of.host_of))

    def _write_down(self, proposed: outcome.Outcome) -> outcome.Outcome:
        faster = self.of.claim(self._outcome_key, proposed.document)
        return proposed if faster is None else outcome.Outcome(faster)

    def _outcome_of_timeout(self, value: Json, decide: Decide) -> outcome.Outcome:
        """Return the outcome of an overdue exchange. Only the judge calls.

        The outcome names the ranks that did not enter. If all ranks entered, it names the ranks that did not pass
        values on.
        """
        me = self.of
        while True:
            missing, stalled = self._late_ranks()
            if me.rank in stalled:
                if decided := self._pass_up(value, decide):
                    return decided
                continue
            if not missing:
                slow = stalled[0]
                with contextlib.suppress(KeyTimeout):
                    me.store.wait(self._outcome_key if slow == me.members[0] else self._bundle_key(slow), _PASSING)
                self._check_down()
                stalled = sorted({*stalled} & {*self._late_ranks()[1]})
            if late := missing or stalled:
                places = me.locate(late)
                return self._write_down(
                    outcome.timed_out(self.timeout, missing, stalled=stalled, places=places, host_of=me.host_of)
                )

    def _late_ranks(self) -> tuple[list[int], list[int]]:
        """Return the ranks that have not entered, and the ranks that did not pass values on.

        The second list is empty unless all ranks have entered.
        """
        me = self.of
        keys = me.store.list(f"{self.key}/")
        risen = {place for place, rank in enumerate(me.members) if self._bundle_key(rank) in keys}
        come = {place for place, rank in enumerate(me.members) if f"{self.key}/at/{rank}" in keys} | risen
        missing = [rank for place, rank in enumerate(me.members) if place not in come]
        stalled = (
            [] if missing else [me.members[place] for place in tree.stalled_ranks(risen, len(me.members), me.fanout)]
        )
        return missing, stalled

    def _wait_for_key(self, key: str, *, look_down: bool) -> bytes:
        """Wait for a key and return its value.

        While waiting, check now and then for dead ranks and, if wanted, for the outcome. Raises _OverdueError at the
        deadline.
        """
        me, look = self.of, self.of.first_check
        while True:
            left = self.deadline - me.clock.now()
            if left <= 0:
                raise _OverdueError
            try:
                return me.store.wait(key, min(look, left))
            except KeyTimeout:
                me.on_wait()
                look = min(look * 2, _LONGEST_LOOK)
            if look_down:
                self._check_down()
            dead = departures.read_ended(me.store)
            if dead and (self.judge is None or self.judge in dead):
                raise _DeathError(dead)

    def _check_down(self) -> None:
        if (document := self.of.store.get(self._outcome_key)) is not None:
            raise _DecidedError(document)


def _encode_bundle(bundle: _ValuesOfSubtree) -> Json:
    tickets: list[Json] = [[t.op, t.name, t.where, sorted(ranks)] for t, ranks in bundle.tickets.items()]
    return [{str(rank): value for rank, value in bundle.values.items()}, tickets]


def _decode_bundle(data: bytes) -> _ValuesOfSubtree:
    values, tickets = loads(data)
    return _ValuesOfSubtree(
        {int(rank): value for rank, value in values.items()},
        {Ticket(op, name, where): ranks for op, name, where, ranks in tickets},
    )
