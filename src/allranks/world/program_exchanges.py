"""Make the exchanges of a rank's program, and let other threads of the rank observe them.

The training thread is in one exchange at a time, or in a collective that lockstep watches, never in both. So lockstep
must know in which exchange the training thread is. Lockstep may also enter an exchange for the training thread if that
thread cannot reach it. Exchanges of other threads, and of other lines (``World.line``: queries, heartbeats), do not
delay the training thread and are not observed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from allranks.errors import AllranksError, Mismatch
from allranks.world.claims import Ticket
from allranks.world.codec import Json, Value, loads
from allranks.world.exchange import Decide, Exchanger


class ProgramExchanges:
    """The exchanges of one rank's program.

    ``training_thread`` is the id of the thread that trains, once that is known. ``on_wait`` is called in that thread
    when it has waited in an exchange for a moment, and again after longer waits.
    """

    def __init__(self, exchanger: Exchanger) -> None:
        self.training_thread: int | None = None
        self.on_wait: Callable[[], None] = lambda: None
        self.error_raised = False
        self._exchanger = exchanger
        exchanger.on_wait = lambda: self.on_wait() if self._is_in else None
        self._is_in = False
        # The first exchange that ``substitute`` entered, and its error, until the training thread has raised the error.
        self._substituted_at = 0
        self._error: AllranksError | None = None
        self._lock = threading.RLock()  # a signal handler may exchange, too

    @property
    def count(self) -> int:
        """How many exchanges this rank has entered."""
        return self._exchanger.count

    @property
    def program_count(self) -> int:
        """How many exchanges the program itself has entered. Exchanges that ``substitute`` entered do not count."""
        return min(self.count, self._substituted_at - 1) if self._substituted_at else self.count

    @property
    def current(self) -> int:
        """The number of the exchange that the training thread is in (1 for the first), or 0 if it is in none."""
        return self._exchanger.count if self._is_in else 0

    def exchange(self, ticket: Ticket, value: Value, *, decide: Decide, timeout: float) -> Value:
        """Exchange values with all ranks (exchange.py). If ``substitute`` got an error, raise this error, once."""
        return self._exchange_in_order(
            ticket, value, decide, timeout, is_training=threading.get_ident() == self.training_thread
        )

    def join_diverged(self, ticket: Ticket, timeout: float) -> NoReturn:
        """Enter the next exchange, in which other ranks wait, with the ticket of the different call of this rank.

        Call in the training thread, or in a thread that works for it. Every rank then raises the Mismatch of the
        tickets.
        """
        self._exchange_in_order(ticket, None, _nobody_waits, timeout, is_training=True)
        raise AssertionError("an exchange without a result")

    def substitute(self, number: int, ticket: Ticket, timeout: float) -> AllranksError | None:
        """Enter exchange ``number`` in place of the training thread, which is in the call ``ticket``; return the error.

        Return None at once if the training thread has entered the exchange meanwhile. Call in another thread. The
        training thread raises the error at its next exchange.
        """
        with self._lock:
            if self.count < number:
                self._substituted_at = self._substituted_at or number
                try:
                    self._exchanger.exchange(ticket, None, decide=_nobody_waits, timeout=timeout)
                except AllranksError as error:
                    self._error = self._error or error
                    return error
        return None

    def claim(self, key: str, document: Json) -> Json | None:
        """Set a key of the current exchange and return None.

        If another rank has set it, return that value (exchange.py).
        """
        return self._exchanger.claim(self._full_key(self.count, key), document)

    def read(self, number: int, key: str) -> Json | None:
        """Return the value of a key of exchange ``number``, or None if the key is not set."""
        text = self._exchanger.store.get(self._full_key(number, key))
        return None if text is None else loads(text)

    def _full_key(self, number: int, key: str) -> str:
        return f"{self._exchanger.line}/{number}/{key}"

    def _exchange_in_order(
        self, ticket: Ticket, value: Value, decide: Decide, timeout: float, *, is_training: bool
    ) -> Value:
        with self._lock:
            if self._error is not None:
                error, self._error, self.error_raised = self._error, None, True
                self._substituted_at = 0
                raise error
            self._is_in = is_training
            try:
                return self._exchanger.exchange(ticket, value, decide=decide, timeout=timeout)
            finally:
                self._is_in = False


def _nobody_waits(values: object) -> NoReturn:
    """Raise Mismatch for an exchange that only diverged ranks have entered: the ranks that waited have given up."""
    del values
    raise Mismatch("the ranks that waited in this collective have ended.")
