"""All ranks meet, rank 0 decides, all ranks learn the decision: the one protocol under every call of the world.

The k-th exchange of every rank is the same exchange: the number k, counted by each rank for itself, is its identity.
So a rank that skipped one, or came with another in mind, is found at the next exchange by comparing tickets, not by a
timeout. Keys of exchange k, below ``<line>/<k>/``:

    up/<rank>   a rank has come, and brings its own value and those of its subtree (tree.py)
    at/<rank>   a rank that has children in the tree has come, and waits for them
    down        the outcome: the result, or the error that every rank raises. Written once and for all (``claim``), so
                an exchange has exactly one outcome on all ranks, also when the rank that makes it up stands still
    judge       the rank that looks into what went wrong; the others wait for its word in ``down``

Who writes ``down``: rank 0 when all have come; or the judge, whichever rank first reached its deadline, or learnt that
a rank is dead. Everybody else, also a rank that comes later, reads it; who waits for the judge's word goes on passing
values up meanwhile, so that a rank that the last value reached at the deadline is not taken for one that kept it: the
exchange may still succeed then, by the judge's leave. Keys of earlier exchanges are deleted once all ranks have come
to exchange k: by then everybody has read them.

Some ranks only may meet in the same way (``members``, ``line``): then the first of them is in rank 0's place.
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
from allranks.world.claims import Ticket, difference
from allranks.world.codec import Json, Value, dumps, loads, pack
from allranks.world.store import KeyValueStore

Decide = Callable[[Sequence[Value]], Value]
# How long a rank waits between two looks at the list of the dead: the first looks are early, later ones are rare.
_FIRST_LOOK, _LONGEST_LOOK = 0.5, 8.0
# How long the judge may take: it asks the missing ranks where they are.
_GRACE = 10.0
# How long a rank that has all the values it waits for may take to pass them on before it is held to stand still.
_PASSING = 0.5


class _Bundle(NamedTuple):
    """What rises along the tree: the values of some ranks (where there are any) and who came with which ticket."""

    values: dict[int, Any]
    tickets: dict[Ticket, list[int]]


@dataclass(slots=True)
class Exchanger:
    """One rank's side of all exchanges of one ``line``: those of another line are counted by themselves.

    Not for two threads at once.
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
    # Called, in the thread that waits, when nobody has come after the first look of this many seconds.
    on_wait: Callable[[], None] = lambda: None
    first_look: float = _FIRST_LOOK
    count: int = 0
    _mine: list[list[str]] = field(default_factory=list)
    _process: int = field(default_factory=os.getpid)

    def exchange(self, ticket: Ticket, value: Value, *, decide: Decide, timeout: float) -> Value:
        """Meet all members and return what ``decide``, called on the first with the values of all, in order, returned.

        Every member must call. Raises, on each of them: Mismatch when the tickets differ, BarrierTimeout, RankDied, or
        what ``decide`` raised (RemoteError but on the first, where it is not one of our errors).
        """
        self._refuse_child(ticket)
        packed = pack(value, what=f"rank {self.rank}: {ticket}: value")
        self.count += 1
        self._mine.append([])
        call = _Call(self, f"{self.line}/{self.count}", ticket, self.clock.now() + timeout, timeout)
        alone = len(self.members) == 1
        agreed = outcome.decided({self.rank: packed}, decide) if alone else call.run(packed, decide)
        if agreed.all_came:
            self._forget_earlier()
        return outcome.reveal(agreed, rank=self.rank, ticket=ticket)

    def put(self, key: str, document: Json) -> None:
        """Set a key of the current exchange, or set it again; it is deleted when the next one is complete."""
        if key not in self._mine[-1]:
            self._mine[-1].append(key)
        self.store.set(key, dumps(document))

    def claim(self, key: str, document: Json) -> Json | None:
        """Put a key of the current exchange, unless another rank did: then return what that one put."""
        mine = dumps(document)
        there = self.store.claim(key, mine)
        if there != mine:
            return loads(there)
        self._mine[-1].append(key)
        return None

    def _refuse_child(self, ticket: Ticket) -> None:
        """Raise AllranksError in a process that was forked from this rank: it shares the rank's connection."""
        if os.getpid() != self._process and len(self.members) > 1:
            raise AllranksError(
                f"rank {self.rank}: {ticket}: process {os.getpid()} was forked from process {self._process}, which is "
                f"rank {self.rank}, and is no rank itself.",
                ranks=(self.rank,),
                remedy="Make this call in the process of the rank, and hand the result to its children.",
            )

    def _forget_earlier(self) -> None:
        for keys in self._mine[:-1]:
            for key in keys:
                self.store.delete(key)
        del self._mine[:-1]


class _OverdueError(Exception):
    """The deadline of the exchange has passed."""


class _DeathError(Exception):
    """Ranks are known to be dead; ``reasons`` by rank."""

    def __init__(self, reasons: dict[int, str]) -> None:
        self.reasons = reasons


class _DecidedError(Exception):
    """Another rank wrote the outcome while this one waited for its children."""

    def __init__(self, document: bytes) -> None:
        self.document = document


@dataclass(frozen=True, slots=True)
class _Call:
    """One exchange on one rank."""

    of: Exchanger
    key: str
    ticket: Ticket
    deadline: float
    timeout: float
    # The rank that looks into what went wrong, once this one knows it.
    judge: int | None = None

    def run(self, value: Json, decide: Decide) -> outcome.Outcome:
        """Return the outcome that all ranks share."""
        try:
            return self._meet(value, decide)
        except _OverdueError:
            return self._judged(value, decide, None)
        except _DeathError as death:
            return self._judged(value, decide, death.reasons)

    def _meet(self, value: Json, decide: Decide) -> outcome.Outcome:
        try:
            return self._rise(value, decide) or outcome.Outcome(loads(self._wait(self._down, look_down=False)))
        except _DecidedError as decided:
            return outcome.Outcome(loads(decided.document))

    def _rise(self, value: Json, decide: Decide) -> outcome.Outcome | None:
        """Pass on the values of this rank's subtree; the first decides, as there is nobody to pass them on to."""
        me, bundle = self.of, self._collect(value)
        if me.rank == me.members[0]:
            return self._write_down(self._decide(bundle, decide))
        me.put(self._up(me.rank), _encode(bundle))
        return None

    @property
    def _down(self) -> str:
        return f"{self.key}/down"

    def _up(self, rank: int) -> str:
        return f"{self.key}/up/{rank}"

    def _collect(self, value: Json) -> _Bundle:
        """Wait for the children's bundles and add this rank's own value and ticket."""
        me = self.of
        bundle = _Bundle({} if value is None else {me.rank: value}, {self.ticket: [me.rank]})
        place = me.members.index(me.rank)
        below = [me.members[child] for child in tree.children(place, len(me.members), me.fanout)]
        if below:
            me.put(f"{self.key}/at/{me.rank}", [self.ticket.op, self.ticket.name, self.ticket.where])
        for child in below:
            brought = _decode(self._wait(self._up(child), look_down=True))
            bundle.values.update(brought.values)
            for ticket, ranks in brought.tickets.items():
                bundle.tickets.setdefault(ticket, []).extend(ranks)
        return bundle

    def _decide(self, bundle: _Bundle, decide: Decide) -> outcome.Outcome:
        found = difference(bundle.tickets)
        if found is not None:
            return outcome.mismatched(*found)
        return outcome.decided({r: bundle.values.get(r) for r in self.of.members}, decide)

    def _judged(self, value: Json, decide: Decide, dead: dict[int, str] | None) -> outcome.Outcome:
        """Make up the outcome of an exchange that failed, or wait for the word of the rank that was faster to do so,
        and pass on what comes meanwhile; if that one dies or stands still, that is the outcome."""
        me = self.of
        faster = me.claim(f"{self.key}/judge", me.rank)
        judge = me.rank if faster is None else int(faster)
        late = replace(self, deadline=me.clock.now() + _GRACE, judge=judge)
        try:
            if faster is not None:
                return late._meet(value, decide)
            return self._died(dead) if dead else late._overdue(value, decide)
        except _DecidedError as decided:
            return outcome.Outcome(loads(decided.document))
        except _DeathError as death:
            return self._died(death.reasons)
        except _OverdueError:
            return self._write_down(outcome.unjudged(judge, me.host_of(judge), seconds=_GRACE))

    def _died(self, reasons: dict[int, str]) -> outcome.Outcome:
        return self._write_down(outcome.died(reasons, self.of.host_of))

    def _write_down(self, proposed: outcome.Outcome) -> outcome.Outcome:
        faster = self.of.claim(self._down, proposed.document)
        return proposed if faster is None else outcome.Outcome(faster)

    def _overdue(self, value: Json, decide: Decide) -> outcome.Outcome:
        """Say, as the judge, who did not come; where all came, who keeps the values of others for too long."""
        me = self.of
        while True:
            missing, stalled = self._late()
            if me.rank in stalled:
                if decided := self._rise(value, decide):
                    return decided
                continue
            if not missing:
                slow = stalled[0]
                with contextlib.suppress(KeyTimeout):
                    me.store.wait(self._down if slow == me.members[0] else self._up(slow), _PASSING)
                self._look_down()
                stalled = sorted({*stalled} & {*self._late()[1]})
            if late := missing or stalled:
                places = me.locate(late)
                return self._write_down(
                    outcome.timed_out(self.timeout, missing, stalled=stalled, places=places, host_of=me.host_of)
                )

    def _late(self) -> tuple[list[int], list[int]]:
        """Return the ranks that have not come, and, where all have, those that have all they wait for and keep it."""
        me = self.of
        keys = me.store.list(f"{self.key}/")
        risen = {place for place, rank in enumerate(me.members) if self._up(rank) in keys}
        come = {place for place, rank in enumerate(me.members) if f"{self.key}/at/{rank}" in keys} | risen
        missing = [rank for place, rank in enumerate(me.members) if place not in come]
        stalled = [] if missing else [me.members[place] for place in tree.stalled(risen, len(me.members), me.fanout)]
        return missing, stalled

    def _wait(self, key: str, *, look_down: bool) -> bytes:
        """Wait for a key until the deadline, with a look at the dead (and at the outcome) now and then."""
        me, look = self.of, self.of.first_look
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
                self._look_down()
            dead = departures.read(me.store)
            if dead and (self.judge is None or self.judge in dead):
                raise _DeathError(dead)

    def _look_down(self) -> None:
        if (document := self.of.store.get(self._down)) is not None:
            raise _DecidedError(document)


def _encode(bundle: _Bundle) -> Json:
    tickets: list[Json] = [[t.op, t.name, t.where, sorted(ranks)] for t, ranks in bundle.tickets.items()]
    return [{str(rank): value for rank, value in bundle.values.items()}, tickets]


def _decode(data: bytes) -> _Bundle:
    values, tickets = loads(data)
    return _Bundle(
        {int(rank): value for rank, value in values.items()},
        {Ticket(op, name, where): ranks for op, name, where, ranks in tickets},
    )
