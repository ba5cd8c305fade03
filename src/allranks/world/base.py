"""Define World: the rank and size of this process, and collectives of small values."""

from __future__ import annotations

import builtins
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from allranks.callsite import call_site
from allranks.clock import Clock, SystemClock
from allranks.errors import AllranksError, Mismatch
from allranks.world import main_rank_section, outcome
from allranks.world.claims import Ticket, by_claim, describe_groups, minority_ranks
from allranks.world.codec import Value, pack, unpack
from allranks.world.exchange import Decide, Exchanger
from allranks.world.failure_listener import FailureListener, SingleRankListener
from allranks.world.guards.detect import one_rank
from allranks.world.program_exchanges import ProgramExchanges
from allranks.world.progress import progress
from allranks.world.store import KeyValueStore

P = ParamSpec("P")
T = TypeVar("T")

# Flat to this size, a tree above: docs/performance.md has the operations of both.
DEFAULT_FANOUT = 16
DEFAULT_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """The rank, size and hosts of a world, as one rank knows them.

    ``host`` is this rank's host name. ``hosts`` has the host name of every rank, in rank order.
    """

    rank: int
    size: int
    local_rank: int
    hosts: tuple[str, ...]
    backend: str

    @property
    def host(self) -> str:
        return self.hosts[self.rank]


class World:
    """N ranks that run the same program, as one rank sees them. ``allranks.init()`` makes this object on every rank.

    Every method below that is not a property is collective: **every rank must call it, in the same order**, from one
    thread. Values are JSON values or bytes (a tuple is returned as a list). Values should be small: they travel through
    the coordinator's key-value store, not over the accelerators' network. So no device is used and nothing is compiled.

    ``timeout`` is in seconds (default: the timeout of the world). After this time every rank raises the same
    BarrierTimeout, which names the missing ranks. If ranks made different calls, all ranks raise Mismatch. Inside
    ``on_main``, and inside other code that only one rank runs, these methods raise CollectiveOnOneRank.
    """

    def __init__(
        self,
        identity: RankIdentity,
        store: KeyValueStore,
        *,
        clock: Clock | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        fanout: int = DEFAULT_FANOUT,
        listener: FailureListener | None = None,
    ) -> None:
        self.identity = identity
        self.store = store
        self.clock = clock or SystemClock()
        self.listener = listener or SingleRankListener()
        self.timeout = timeout
        self.fanout = fanout
        self.program_exchanges = ProgramExchanges(self.line("x"))

    def __repr__(self) -> str:
        me = self.identity
        return f"World(rank={me.rank}, size={me.size}, host={me.host!r}, backend={me.backend!r})"

    @property
    def rank(self) -> int:
        """This process's number, 0 ... size-1 (``jax.process_index()``, torch's global rank)."""
        return self.identity.rank

    @property
    def size(self) -> int:
        """How many ranks there are (torch's world size, ``jax.process_count()``)."""
        return self.identity.size

    @property
    def local_rank(self) -> int:
        """This rank's number among the ranks of its host."""
        return self.identity.local_rank

    @property
    def host(self) -> str:
        """The name of this rank's host."""
        return self.identity.host

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of every rank, in rank order."""
        return self.identity.hosts

    @property
    def backend(self) -> str:
        """The backend of the world: ``single``, ``simulated``, ``jax`` or ``torch``."""
        return self.identity.backend

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the main rank."""
        return self.rank == 0

    def line(self, name: str) -> Exchanger:
        """Return an exchanger that counts its own exchanges, for use in another thread.

        ``name`` is the first word of the exchanger's keys in the store.
        """
        return Exchanger(
            self.store,
            self.clock,
            rank=self.rank,
            members=range(self.size),
            fanout=self.fanout,
            host_of=lambda rank: self.identity.hosts[rank],
            locate=self.listener.locate,
            line=name,
        )

    def exchange(self, op: str, name: str, value: Value, *, decide: Decide, timeout: float | None = None) -> Value:
        """Exchange values with all ranks; return, on every rank, what ``decide(values of all ranks)`` returned on rank
        0.

        All collectives below use this method. ``op`` and ``name`` must be the same on every rank (Mismatch otherwise).
        An exception of ``decide`` is raised on every rank.
        """
        main_rank_section.refuse_collective(f"{op} {name!r}")
        ticket = Ticket(op, name, call_site())
        limit = self.timeout if timeout is None else timeout
        before = progress.enter("exchange", f"{op} {name!r}")
        progress.limit = limit
        try:
            return self.program_exchanges.exchange(ticket, value, decide=decide, timeout=limit)
        finally:
            progress.leave(before)

    def barrier(self, name: str = "barrier", timeout: float | None = None) -> None:
        """Wait until every rank has called ``barrier``."""
        self.exchange("barrier", name, None, decide=lambda _: None, timeout=timeout)

    def broadcast(
        self, value: Value = None, *, root: int = 0, name: str = "broadcast", timeout: float | None = None
    ) -> Value:
        """Return rank ``root``'s value on every rank; the other ranks' values are ignored."""
        if not 0 <= root < self.size:
            raise AllranksError(
                f"rank {self.rank}: broadcast {name!r}: root {root} is not a rank of 0-{self.size - 1}."
            )
        mine = value if self.rank == root else None
        return self.exchange("broadcast", name, mine, decide=lambda values: values[root], timeout=timeout)

    def all_gather(self, value: Value, *, name: str = "all_gather", timeout: float | None = None) -> tuple[Value, ...]:
        """Return every rank's value, in rank order, on every rank."""
        return tuple(self.exchange("all_gather", name, value, decide=list, timeout=timeout))

    def gather(self, value: Value, *, name: str = "gather", timeout: float | None = None) -> tuple[Value, ...] | None:
        """Return every rank's value, in rank order, on rank 0. Return None on all other ranks."""
        kept: list[Value] = []
        self.exchange("gather", name, value, decide=lambda values: kept.extend(values), timeout=timeout)
        return tuple(kept) if self.is_main else None

    def any(self, flag: bool, *, name: str = "any", timeout: float | None = None) -> bool:
        """Return, on every rank, whether ``flag`` is true on any rank."""
        return bool(self.exchange("any", name, bool(flag), decide=builtins.any, timeout=timeout))

    def all(self, flag: bool, *, name: str = "all", timeout: float | None = None) -> bool:
        """Return, on every rank, whether ``flag`` is true on all ranks."""
        return bool(self.exchange("all", name, bool(flag), decide=builtins.all, timeout=timeout))

    def min(self, value: float, *, name: str = "min", timeout: float | None = None) -> float:
        """Return the smallest of the ranks' numbers, on every rank."""
        return cast(float, self.exchange("min", name, value, decide=builtins.min, timeout=timeout))

    def max(self, value: float, *, name: str = "max", timeout: float | None = None) -> float:
        """Return the largest of the ranks' numbers, on every rank."""
        return cast(float, self.exchange("max", name, value, decide=builtins.max, timeout=timeout))

    def agree(self, value: Value, *, name: str = "agree", timeout: float | None = None) -> Value:
        """Return ``value`` if it is equal on all ranks.

        Otherwise every rank raises Mismatch, which lists each rank's value.
        """
        return self.exchange("agree", name, value, decide=_the_one_value, timeout=timeout)

    def on_main(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn(*args, **kwargs)`` on rank 0. Every rank returns the result of this call, or raises its exception.

        The result must be a JSON value or bytes. On ranks > 0 an exception arrives as RemoteError with rank 0's
        traceback. A collective inside ``fn`` raises CollectiveOnOneRank at once.
        """
        return self.run_on_main(fn, args, kwargs)

    def run_on_main(
        self, fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any], *, timeout: float | None = None
    ) -> T:
        """Do what ``on_main`` does, with a ``timeout``: how long the other ranks wait for rank 0, in seconds.

        Inside code that only one rank runs, call ``fn`` directly: no other rank waits for the result.
        """
        if main_rank_section.current_section() is not None:
            return fn(*args, **kwargs)
        name = _name_of(fn)
        told, cause = self._call_on_main(fn, args, kwargs) if self.is_main else (None, None)
        document = self.exchange("on_main", name, told, decide=lambda values: values[0], timeout=timeout)
        if "result" in document:
            return cast(T, document["result"])
        if cause is not None:
            raise cause
        raise outcome.remote_error(document, rank=self.rank, where=f"on_main {name!r} ({call_site()})")

    def _call_on_main(
        self, fn: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Exception | None]:
        try:
            with one_rank(self.rank):
                result = fn(*args, **kwargs)
            what = f"rank {self.rank}: the result of {_name_of(fn)}"
            return {"result": unpack(pack(result, what=what))}, None
        except Exception as error:
            return outcome.exception_as_json(error, rank=self.rank), error


def _name_of(fn: Callable[..., Any]) -> str:
    """Return a name of a function that is the same on every rank. (A ``repr`` differs: it contains an address.)"""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__qualname__", type(fn).__qualname__)


def _the_one_value(values: Sequence[Value]) -> Value:
    """Return the value if all ranks have the same one. Raises Mismatch, which lists the value of each rank."""
    groups = by_claim((rank, json.dumps(pack(value), sort_keys=True)) for rank, value in enumerate(values))
    if len(groups) == 1:
        return values[0]
    told = describe_groups((_shorten_text(text), ranks) for text, ranks in groups.items())
    raise Mismatch(f"the ranks hold different values: {told}.", ranks=minority_ranks(groups.values()))


def _shorten_text(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
