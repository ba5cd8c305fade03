"""Convert the signals that a person or a scheduler sends to the launcher into events for a selector."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from allranks.launch.events import Interrupted, Terminated

ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FOR_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
WATCHED = (signal.SIGINT, *ENDS, *FOR_RANKS)
_Handler = Callable[[int, FrameType | None], object] | int | None


class Signals:
    """While this object is open, the signals ``WATCHED`` only make ``fileno`` readable.

    SIGINT (Ctrl-C) and the signals ``ENDS`` end a job. The signals ``FOR_RANKS`` are for the ranks, as with srun and
    mpirun.

    Python delivers signals to the main thread only: if opened in another thread, it watches nothing. A signal that was
    ignored (``nohup``) stays ignored.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old: dict[int, _Handler] = {}
        self._for_ranks: set[int] = set()
        self._old_fd: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._old_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            for signum in WATCHED:
                if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                    self._old[signum] = signal.signal(signum, lambda *_: None)

    def fileno(self) -> int:
        return self._reader

    def events(self) -> list[Interrupted | Terminated]:
        """Return an event for each signal that ends a job, of those since the last call, without waiting."""
        try:
            numbers = [number for number in os.read(self._reader, 4096) if number in self._old]
        except BlockingIOError:
            return []
        self._for_ranks |= {*numbers} & {*FOR_RANKS}
        return [Interrupted() if n == signal.SIGINT else Terminated(n) for n in numbers if n not in FOR_RANKS]

    def take_for_ranks(self) -> list[signal.Signals]:
        """Return the signals for ranks that ``events`` has read since the last call, each once."""
        numbers, self._for_ranks = sorted(self._for_ranks), set()
        return [*map(signal.Signals, numbers)]

    def close(self) -> None:
        """Restore the previous signal handlers and the previous wake-up descriptor."""
        if self._old_fd is not None:
            signal.set_wakeup_fd(self._old_fd)
        for signum, handler in self._old.items():
            signal.signal(signum, handler)
        os.close(self._reader)
        os.close(self._writer)

    def __enter__(self) -> Signals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
