"""Show the progress of a long command on stderr: one line that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time

from allranks.cli.visible_output import raw_stream
from allranks.failure import visible
from allranks.launch.terminal import choose_style, cut_to_width

# Seconds between two lines about the same work, where no line can be redrawn.
_EVERY = 30.0


class ProgressLine:
    """The line. ``update`` may be called by any thread."""

    def __init__(self) -> None:
        self._is_live = choose_style(sys.stderr.isatty(), os.environ).live
        self._lock = threading.Lock()
        self._is_shown = False
        self._due = time.monotonic() + _EVERY

    def update(self, text: str) -> None:
        """Redraw the line. Where that is impossible, print it at most twice a minute."""
        with self._lock:
            if self._is_live:
                width = shutil.get_terminal_size().columns - 1
                self._write("\r" + cut_to_width(visible(text).encode(), width).decode() + "\x1b[K")
                self._is_shown = True
            elif time.monotonic() >= self._due:
                self._due = time.monotonic() + _EVERY
                self._write(visible(text) + "\n")

    def print(self, text: str) -> None:
        """Print a line that stays, in the place of the one that is redrawn."""
        with self._lock:
            clear = "\r\x1b[K" if self._is_shown else ""
            self._is_shown = False
            self._due = time.monotonic() + _EVERY
            self._write(f"{clear}{visible(text)}\n")

    def _write(self, text: str) -> None:
        stream = raw_stream(sys.stderr)
        stream.write(text)
        stream.flush()
