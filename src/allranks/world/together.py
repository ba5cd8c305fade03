"""Implement ``Together``: decisions of a training loop that all ranks take together, without waiting.

If one rank alone skips a step, or ends its loop, it diverges: from then on its collectives pair with collectives of
other steps. So what one rank sees becomes a query to all ranks (``any``, ``all``, ``main``), and ``steps`` ends a loop
on all ranks when the first rank has no more data. A query is sent as early as possible (when the loss is known, before
the backward pass), and its answer is used later (before the optimizer's step). In between, a thread exchanges it with
the other ranks, so that the round trip costs the training thread nothing. Queries are numbered and named like all
exchanges. If loops have diverged, ranks send different queries, and all ranks get a Mismatch that says which rank sent
which query.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, cast

from allranks.callsite import call_site
from allranks.world import main_rank_section
from allranks.world.base import World
from allranks.world.claims import Ticket
from allranks.world.codec import Value
from allranks.world.exchange import Decide

T = TypeVar("T")
A = TypeVar("A")
_END = object()


class Answer(Generic[A]):
    """The answer to a query, equal on every rank. ``result()`` waits for it."""

    def __init__(self, future: Future[Value]) -> None:
        self._future = future

    def result(self) -> A:
        """Wait for the answer and return it.

        If there is none, every rank raises Mismatch, BarrierTimeout or RankDied.
        """
        found: A = self._future.result()
        return found


class Together:
    """Queries to all ranks. **Every rank must make one, and send the same queries in the same order.**

    ```python
    together = Together(world)
    for batch in together.steps(loader):                # ends on all ranks with the shortest data
        loss = forward(batch)
        bad = together.any(not math.isfinite(loss))     # sent now,
        loss.backward()
        if bad.result():                                # used here: skipped on all ranks, or on none
            optimizer.zero_grad()
            continue
        optimizer.step()
        if together.main(patience_is_over).result():    # rank 0 decides for all
            break
    ```

    Make one for each world and ``name``. Call ``close()``, or use it in a ``with``. It need not be closed if the
    program ends.
    """

    def __init__(self, world: World, name: str = "together", *, timeout: float | None = None) -> None:
        self._world = world
        self._timeout = world.timeout if timeout is None else timeout
        self._exchanger = world.line(f"x-{name}")
        # A simulated rank is no thread, and a single rank has no other rank: both query without a thread.
        inline = world.backend == "simulated" or world.size == 1
        self._thread = None if inline else ThreadPoolExecutor(1, f"allranks-{name}")

    def __enter__(self) -> Together:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def any(self, flag: bool, name: str = "any") -> Answer[bool]:
        """Query all ranks: the answer is whether ``flag`` is true on any rank."""
        return Answer(self._start_exchange("any", name, bool(flag), builtins.any))

    def all(self, flag: bool, name: str = "all") -> Answer[bool]:
        """Query all ranks: the answer is whether ``flag`` is true on all ranks."""
        return Answer(self._start_exchange("all", name, bool(flag), builtins.all))

    def main(self, value: Value = None, name: str = "main") -> Answer[Value]:
        """Query all ranks: the answer is rank 0's ``value``, a small JSON value. Values of other ranks are ignored."""
        return Answer(
            self._start_exchange("main", name, value if self._world.is_main else None, lambda values: values[0])
        )

    def steps(self, data: Iterable[T], name: str = "steps") -> Iterator[T]:
        """Yield this rank's items until the first rank has no more items. The other ranks drop the rest of their items.

        Whether all ranks have a next item is queried one item ahead, while the loop works on the current item.
        """
        items = iter(data)
        number = 0
        item, all_have = self._next_item(items, f"{name} {number}")
        while all_have.result():
            now, number = item, number + 1
            item, all_have = self._next_item(items, f"{name} {number}")
            yield now

    def close(self) -> None:
        """Wait for the answers to all sent queries, and end the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def _next_item(self, items: Iterator[T], name: str) -> tuple[T, Future[Value]]:
        """Take the next item, if there is one, and query whether all ranks have one.

        Return the item and the pending answer.
        """
        item = next(items, _END)
        return cast(T, item), self._start_exchange("steps", name, item is not _END, builtins.all)

    def _start_exchange(self, op: str, name: str, value: Value, decide: Decide) -> Future[Value]:
        main_rank_section.refuse_collective(f"{op} {name!r}")
        ticket = Ticket(op, name, call_site())

        def exchange() -> Value:
            return self._exchanger.exchange(ticket, value, decide=decide, timeout=self._timeout)

        if self._thread is not None:
            return self._thread.submit(exchange)
        answered: Future[Value] = Future()
        answered.set_result(exchange())
        return answered
