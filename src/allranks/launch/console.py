"""Show the output of N ranks: merged lines, one live line per progress bar, and the launcher's own messages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from allranks.failure import visible
from allranks.launch.explain import InlineExplainer
from allranks.launch.filters import PeerLimit, without_noise, without_rank
from allranks.launch.lines import LineReader, remove_control_codes
from allranks.launch.logs import RankLogs
from allranks.launch.merge import LineMerger, MergedLine, Stream, merge_equal
from allranks.launch.output import OutputClosed as OutputClosed
from allranks.launch.output import Outputs
from allranks.launch.placement import Placement
from allranks.launch.terminal import LinePrefixes, erase_codes, live_rows
from allranks.launch.terminal import Style as Style
from allranks.launch.terminal import choose_style as choose_style

REDRAW = 0.1  # seconds between two pictures of the live area
SNAPSHOT = 30.0  # seconds between two lines about a bar where there is no live area
MOST_LIVE = 8  # rows
TAIL = 200  # lines kept for each rank
RECENT = 60  # lines shown last: the summary does not repeat them


class Console:
    """The output of a job of ``size`` ranks.

    - ``out``: gets what ranks write to stdout. ``err``: gets all other output (None: it goes to ``out``). The console
      never blocks on them, see ``is_full``.
    - ``color``, ``live``: from ``choose_style``. ``live`` requires that both outputs are the same terminal.
    - ``width``: the number of columns of the terminal. Set it again when it changes.
    - ``names``: shown for single ranks instead of their numbers.
    - ``placement``: which ranks of a job on several hosts are on this one. By default there is one host, whose ranks
      are numbered from 0.
    - ``log_dir``: the folder for one raw log file per rank (see ``RankLogs``).
    - ``quiet``: do not print the texts given to ``note``.

    One thread calls it, with times in seconds that never run backwards. ``feed``, ``flush_due``, ``print_line`` and
    ``close`` may raise OutputClosed, once. Even then, everything that was fed is in the log files and in ``tail``.
    Noise of libraries (`filters`) is kept in the log files only, and so are most lines that ranks print after another
    rank has failed (`limit_peers`). A known message (``known.py``) is explained below it, once. The output of a job of
    one rank is shown unchanged: no prefix, no delay, and on a terminal byte for byte.
    """

    def __init__(
        self,
        size: int,
        *,
        out: BinaryIO | TextIO,
        err: BinaryIO | TextIO | None = None,
        color: bool,
        live: bool,
        quiet: bool = False,
        width: int = 80,
        log_dir: Path | None = None,
        names: Sequence[str] = (),
        placement: Placement | None = None,
    ) -> None:
        self.width = width
        placement = placement or Placement(("",), (size,))
        self._first = placement.ranks.start
        self._quiet = quiet
        self._outputs = Outputs(out, err)
        live = live and self._outputs.shared
        self._as_is = placement.size == 1 and live
        self._live = live and not self._as_is
        self._at_line_start = True
        streams: tuple[Stream, Stream] = ("out", "err")
        self._readers = {(rank, stream): LineReader(color=color) for rank in placement.ranks for stream in streams}
        self._on_screen: set[LineReader] = set()  # the readers that may finish a bar by waiting
        self._merger = LineMerger(size)
        self._prefixes = LinePrefixes(placement, color=color, names=names)
        self._tails: dict[int, deque[bytes]] = {rank: deque(maxlen=TAIL) for rank in placement.ranks}
        self._size = placement.size
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._peer_limit = PeerLimit()
        self._explainer = InlineExplainer()
        self._ready: dict[Stream, list[bytes]] = {"out": [], "err": []}
        if self._outputs.shared:
            self._ready["out"] = self._ready["err"]
        self._shown: tuple[bytes, ...] = ()
        self._stale = False  # unfinished text has arrived since it was last shown
        self._next_look = 0.0  # when unfinished text is shown again
        self._logs = RankLogs(log_dir, placement) if log_dir else None
        if self._logs and self._logs.moved_to:
            self.note(f"log files of an earlier run moved to {self._logs.moved_to}")

    @property
    def is_full(self) -> bool:
        """True while the output accepts too few bytes: the caller must stop reading from the ranks."""
        return self._outputs.is_full

    @property
    def full_descriptors(self) -> frozenset[int]:
        """The output descriptors that are full: call ``flush_due`` when one of them is writable again."""
        return self._outputs.full_descriptors

    def feed(self, rank: int, stream: Stream, data: bytes, now: float) -> None:
        """Process a raw chunk of bytes that a rank wrote. The chunk may end anywhere in a line."""
        if self._logs:
            self._write_log(self._logs, rank, data)
        reader = self._readers[rank, stream]
        lines = without_noise(reader.feed(data, now))
        if stream == "err" and self._size > 1:
            lines = without_rank(rank, lines)
        self._tails[rank].extend(lines)
        if lines and self._peer_limit.is_unlimited(rank):
            self._explainer.feed(rank, lines, now)
        lines = self._peer_limit.visible(rank, lines, self._merger.waiting(stream))
        if self._as_is:
            self._recent.extend(lines)
            self._at_line_start = data.endswith(b"\n")
            self._outputs.write(stream, data)
            return
        if reader.deadline is not None:
            self._on_screen.add(reader)
        if reader.pending and not self._stale:
            self._stale = True
            self._next_look = max(self._next_look, now if self._live else now + SNAPSHOT)
        self._merger.add(rank - self._first, stream, lines, now)
        self._queue_for_output(self._merger.due(now))
        self._write_ready_lines(now)

    def flush_due(self, now: float) -> float | None:
        """Show the lines that are due. Return the latest time for the next call, or None if nothing waits."""
        if self._on_screen:
            self._finish_progress_bars(now)
        self._queue_for_output(self._merger.due(now))
        self._print_explanations(now)
        if not self._live and self._stale and now >= self._next_look:
            self._stale = False
            states = self._unfinished_rows(now)
            if states:
                self._queue_for_output([*self._merger.flush(), *states])
        self._outputs.pump()
        self._write_ready_lines(now)
        return min((moment for moment in self._next_deadlines() if moment is not None), default=None)

    def print_line(self, text: str) -> None:
        """Print a line of the launcher, after all lines that ranks have finished before it."""
        line = visible(text).encode() + b"\n"
        if not self._at_line_start:
            self._ready["err"].append(b"\n")
            self._at_line_start = True
        self._queue_for_output(self._merger.flush())
        self._ready["err"].append(line)
        self._replace_live_area(self._shown)

    def note(self, text: str) -> None:
        """Print a line of the launcher, unless the console is ``quiet``."""
        if not self._quiet:
            self.print_line(text)

    def limit_peers(self, cause: int) -> None:
        """From now on, show only a few lines of all ranks except ``cause``, the rank that has failed."""
        self._peer_limit.start(cause)

    def show_once(self) -> None:
        """From now on, do not show a line again that another rank has printed: Ctrl-C ends all ranks alike."""
        self._peer_limit.show_once()

    def lift_limit(self) -> None:
        """Show all lines of the ranks again: the job is restarted."""
        self._peer_limit = PeerLimit()

    def report_hidden_lines(self) -> None:
        """Print how many lines were hidden, and where to find them."""
        if count := self._peer_limit.count():
            self.note(f"allranks: {count}: {'in the log files' if self._logs else '--log-dir keeps them'}")

    def tail(self, rank: int, lines: int = 20) -> tuple[str, ...]:
        """Return the last lines (at most ``TAIL``) of both streams of a rank, without colours.

        Unfinished lines are last.
        """
        last = [*self._tails[rank]]
        for stream in ("out", "err"):
            last += self._readers[rank, stream].unfinished()
        return tuple(remove_control_codes(line, color=False).decode(errors="replace") for line in last[-lines:])

    def recent(self) -> list[str]:
        """Show all waiting lines. Return the last shown lines of ranks, and explanations, without prefix."""
        self._queue_for_output(self._merger.flush())
        lines = list(self._recent) if self._size > 1 else without_rank(0, list(self._recent))
        return [line.decode(errors="replace") for line in lines]

    def end(self, rank: int, stream: Stream, now: float) -> None:
        """Process the end of a stream: show its unfinished text as a line, and remove the progress bars of the rank."""
        reader = self._readers[rank, stream]
        lines = reader.finish()
        self._on_screen.discard(reader)
        self._tails[rank].extend(lines)
        lines = self._peer_limit.visible(rank, lines, self._merger.waiting(stream))
        if not self._as_is:
            self._merger.add(rank - self._first, stream, lines, now)

    def close(self) -> None:
        """Show everything, including unfinished lines, wait until the reader has taken it, and close the log files."""
        for rank, stream in self._readers:
            self.end(rank, stream, 0.0)
        if self._logs:
            self._logs.close()
            self._logs = None
        self._queue_for_output(self._merger.flush())
        self._print_explanations(math.inf)
        self._replace_live_area(())
        self._outputs.drain()

    def _print_explanations(self, now: float) -> None:
        for explanation in self._explainer.due(now):
            self._recent.extend(explanation.encode().splitlines())
            self.print_line(explanation)

    def _write_log(self, logs: RankLogs, rank: int, data: bytes) -> None:
        try:
            logs.write(rank, data)
        except OSError as error:
            self.print_line(
                f"rank {rank}: {logs.paths[rank]} ends here, because it cannot be written: {error}. The job continues."
            )

    def _finish_progress_bars(self, now: float) -> None:
        for (rank, stream), reader in self._readers.items():
            if reader in self._on_screen:
                lines = reader.settle(now)
                self._tails[rank].extend(lines)
                self._merger.add(rank - self._first, stream, lines, now)
        self._on_screen = {reader for reader in self._on_screen if reader.deadline is not None}

    def _queue_for_output(self, entries: Iterable[MergedLine]) -> None:
        prefixes, ready = self._prefixes, self._ready
        entries = list(entries)
        self._recent.extend(text for _, _, text in entries[-RECENT:])
        if self._outputs.shared:
            ready["err"] += [b"%b%b\n" % (prefixes[ranks, stream], text) for ranks, stream, text in entries]
            return
        for ranks, stream, text in entries:
            ready[stream].append(b"%b%b\n" % (prefixes[ranks, stream], text))

    def _unfinished_rows(self, now: float) -> list[MergedLine]:
        readers = [(rank - self._first, stream, reader) for (rank, stream), reader in self._readers.items()]
        return merge_equal((bit, stream, row) for bit, stream, reader in readers for row in reader.unfinished(now))

    def _write_ready_lines(self, now: float) -> None:
        """Write the ready lines.

        Below them, if there is a live area, write only together with a redraw, to avoid flicker.
        """
        rows = self._shown
        if self._live and (self._stale or rows) and now >= self._next_look:
            if self._outputs.full_descriptors and not self._has_lines():
                return  # a stopped terminal: unseen redraws must not pile up
            states = self._unfinished_rows(now)
            rows = live_rows(states, self._prefixes, width=self.width - 1, most=MOST_LIVE)
            self._next_look = now + REDRAW
            self._stale = self._too_young(now)
        elif rows:
            return
        if self._has_lines() or rows != self._shown:
            self._replace_live_area(rows)

    def _has_lines(self) -> bool:
        return any(self._ready.values())

    def _too_young(self, now: float) -> bool:
        """Return whether an unfinished line exists that began so recently that it is not shown yet."""
        readers = self._readers.values()
        return any(reader.pending and reader.unfinished() and not reader.unfinished(now) for reader in readers)

    def _replace_live_area(self, rows: tuple[bytes, ...]) -> None:
        """Replace the live area by the ready lines and ``rows``. Use one write if both outputs are one file."""
        picture = erase_codes(len(self._shown)) + b"".join(self._ready["err"]) + b"\n".join(rows)
        out = b"" if self._outputs.shared else b"".join(self._ready["out"])
        for lines in self._ready.values():
            lines.clear()
        self._shown = rows
        self._outputs.write("out", out)
        self._outputs.write("err", picture)

    def _next_deadlines(self) -> Iterable[float | None]:
        yield self._merger.deadline
        yield self._explainer.deadline
        yield from (reader.deadline for reader in self._on_screen)
        if not self._outputs.full_descriptors and (self._stale or (self._has_lines() and self._shown)):
            yield self._next_look
