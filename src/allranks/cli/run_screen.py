"""Show a job of ``allranks run`` on the terminal."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allranks.cli.visible_output import raw_stream
from allranks.launch.console import Console, choose_style
from allranks.launch.placement import Placement
from allranks.launch.summary import member_summary, summary

if TYPE_CHECKING:
    from allranks.launch.events import LocateRanks
    from allranks.launch.result import JobResult
    from allranks.launch.stall import RankLocations


class RunScreen:
    """The output of ``allranks run``. ``close``, or the end of a ``with``, shows all that waits."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._style = choose_style(sys.stdout.isatty() and sys.stderr.isatty(), os.environ)
        self._console: Console | None = None
        self._placement: Placement | None = None

    def console(self, placement: Placement) -> Console:
        """Return the console for the ranks of this host: the last one, if it is for the same ranks."""
        if self._console is None or self._placement != placement:
            self.close()
            self._placement = placement
            self._console = Console(
                len(placement.ranks),
                out=raw_stream(sys.stdout),
                err=raw_stream(sys.stderr),
                color=self._style.color,
                live=self._style.live,
                quiet=self._arguments.quiet,
                width=shutil.get_terminal_size().columns,
                log_dir=self._arguments.log_dir,
                placement=placement,
            )
            if self._style.live:
                signal.signal(signal.SIGWINCH, lambda *_: self._resize())
        self._console.lift_limit()
        return self._console

    def _resize(self) -> None:
        if self._console is not None:
            self._console.width = shutil.get_terminal_size().columns

    def note(self, text: str) -> None:
        """Print a line, unless --quiet was given."""
        if not self._arguments.quiet:
            self.print_line(text)

    def print_line(self, text: str) -> None:
        """Print a line after all lines of ranks before it."""
        if self._console is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._console.print_line(text)

    def summary(self, result: JobResult, *, leads: bool) -> list[str]:
        """Return the lines to print at the end of a job. ``leads``: this is host 0, or the only host."""
        if not leads:
            return member_summary(result, quiet=self._arguments.quiet)
        recent = [] if self._console is None else self._console.recent()
        return summary(result, recent=recent, quiet=self._arguments.quiet)

    def locate(self, request: LocateRanks, pids: Mapping[int, int]) -> RankLocations:
        """Find out where ranks are. Imports its module when called: most jobs never need it."""
        from allranks.hang import places

        assert self._placement is not None
        return places.locate_ranks(request, pids, placement=self._placement)

    def close(self) -> None:
        if self._console is not None:
            self._console.close()
            self._console = None

    def __enter__(self) -> RunScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
