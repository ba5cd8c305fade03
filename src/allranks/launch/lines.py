"""Split the bytes of one stream of one rank into lines, and keep progress bars apart from them.

A plain stream is only split at newlines. A progress bar rewrites its line (``\\r``). If there are several bars, a bar
moves the cursor down to its own line and back up (tqdm: ``\\n``, ``\\r``, text, ``ESC [A``). So once a ``\\r`` is seen,
the stream is read as a terminal would read it: rows, and a cursor that moves up and down. A row is finished when the
cursor has left it downward and does not return within ``SETTLE`` seconds; its last state is then a normal line. Until
then the row is *unfinished*, as is any line whose newline has not arrived yet.

Bytes are not decoded: invalid UTF-8 is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_LINE = 64 * 1024  # bytes; a longer line is cut, so that one without end cannot eat the memory
SETTLE = 0.15  # seconds
MOST_ROWS = 32

_ESCAPE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-OQ-WYZ\\`-~])"
_TOKEN = re.compile(rb"[^\r\n\x1b]+|\r|\n|" + _ESCAPE + rb"|\x1b")
_BROKEN_OFF = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]*|\][^\x07\x1b]{0,1024}\x1b?|[ -/]*)?\Z")
# Also the second half of Latin-1's control characters, in UTF-8, of which one begins codes, and the two line ends of
# Unicode that are no control characters.
_BYTES = bytes([*range(9), *range(11, 32), 127])
_CONTROL = re.compile(
    _ESCAPE
    + rb"|\x1b(?:\[[0-?]*[ -/]*\Z)?|\xc2\x9b(?:[0-?]*[ -/]*[@-~])?|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|["
    + re.escape(_BYTES)
    + rb"]"
)
_UP = re.compile(rb"\x1b\[([0-9]{0,4})[AF]")
_SGR = re.compile(rb"\x1b\[[0-9;:]*m")
_TRACEBACK = b"Traceback (most recent call last):"
RESET = b"\x1b[0m"


def remove_control_codes(text: bytes, *, color: bool) -> bytes:
    """Remove codes that move the cursor, make a sound or set a title, and all line ends and control characters but
    tabs. Return the text.

    With ``color``, colours are kept, and ended at the end of the text. Otherwise they are removed too.
    """
    if not _may_have_codes(text):
        return text
    if not color:
        return _CONTROL.sub(b"", text)
    text = _CONTROL.sub(lambda found: found[0] if _SGR.fullmatch(found[0]) else b"", text)
    return text + RESET if b"\x1b" in text and not text.endswith((RESET, b"\x1b[m")) else text


def _may_have_codes(text: bytes) -> bool:
    """Return whether a text has bytes of control characters. Line ends with ``\\n`` do not count."""
    is_plain = len(text.translate(None, _BYTES)) == len(text)
    return not is_plain or b"\xc2" in text or b"\xe2\x80" in text


def split_long_line(line: bytes) -> Iterator[bytes]:
    """Yield ``line`` in pieces of at most ``LONGEST_LINE`` bytes. No piece ends inside a UTF-8 character."""
    start = 0
    while len(line) - start > LONGEST_LINE:
        end = start + LONGEST_LINE
        back = next((n for n in range(4) if line[end - n] & 0xC0 != 0x80), 0)
        yield line[start : end - back]
        start = end - back
    yield line[start:]


class _ScreenRow:
    """A line on the screen of a rank. ``bar``: it was rewritten. ``left``: when the cursor last moved below it."""

    __slots__ = ("at_start", "bar", "left", "text")

    def __init__(self) -> None:
        self.text = b""
        self.at_start = False
        self.bar = False
        self.left = 0.0

    def write(self, text: bytes) -> None:
        if self.at_start:
            self.text, self.at_start, self.bar = text, False, True
        else:
            self.text += text

    @property
    def blank(self) -> bool:
        return not remove_control_codes(self.text, color=False).strip()


class LineReader:
    """Convert one stream of one rank, in chunks of any size, into finished lines (without newline, cleaned)."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._open = b""  # the unfinished line of a plain stream; while there are rows: an escape code broken off
        self._since = 0.0
        self._rows: list[_ScreenRow] = []
        self._at = 0

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Process a chunk that arrived at ``now`` (seconds). Return the lines that the chunk finished."""
        text = self._open + data if self._open else data
        if self._rows or b"\r" in text:
            return self._interpret_chunk(text, now)
        lines = text.split(b"\n")
        last = lines.pop()
        if lines or not self._open:
            self._since = now
        if len(text) > LONGEST_LINE:
            lines = [piece for line in lines for piece in split_long_line(line)]
            *pieces, last = split_long_line(last)
            lines += pieces
        self._open = last
        if _may_have_codes(text):
            return [remove_control_codes(line, color=self._color) for line in lines]
        return lines

    def settle(self, now: float) -> list[bytes]:
        """Return the progress bars that are finished at ``now``, because the cursor did not return to them."""
        count = 0
        while count < self._at and now >= self._rows[count].left + SETTLE:
            count += 1
        lines = self._finish_first_rows(count)
        self._leave_screen()
        return lines

    def finish(self) -> list[bytes]:
        """Return the unfinished text as lines. Call when the stream has ended."""
        lines = (
            self._finish_first_rows(len(self._rows))
            if self._rows
            else [remove_control_codes(self._open, color=self._color)]
        )
        self._open, self._rows, self._at = b"", [], 0
        return [line for line in lines if line]

    @property
    def deadline(self) -> float | None:
        """The time at which ``settle`` may return something, or None."""
        return self._rows[0].left + SETTLE if self._at else None

    @property
    def pending(self) -> bool:
        return bool(self._open or self._rows)

    def unfinished(self, now: float | None = None) -> tuple[bytes, ...]:
        """Return the unfinished rows that are not blank, the oldest first.

        A plain line is included only ``SETTLE`` seconds after it began: a younger one is mostly a line that a chunk
        cut. Without ``now``, every row is included.
        """
        if self._rows:
            return tuple(
                remove_control_codes(row.text, color=self._color).rstrip(b" ") for row in self._rows if not row.blank
            )
        if self._open and (now is None or now >= self._since + SETTLE):
            return (remove_control_codes(self._open, color=self._color),)
        return ()

    def _interpret_chunk(self, data: bytes, now: float) -> list[bytes]:
        """Interpret ``data`` as a terminal does; return the lines that it finished."""
        broken = _BROKEN_OFF.search(data)
        self._open = broken[0] if broken else b""
        if not self._rows:
            self._rows, self._at = [_ScreenRow()], 0
        self._since = now
        lines: list[bytes] = []
        for token in _TOKEN.findall(data[: broken.start()] if broken else data):
            if token == b"\n":
                lines += self._move_to_next_row(now)
            elif token == b"\r":
                self._rows[self._at].at_start = True
            elif token[0] == 0x1B:
                self._apply_escape_code(token)
            else:
                self._rows[self._at].write(token)
        row = self._rows[self._at]
        *pieces, row.text = split_long_line(row.text)
        self._leave_screen()
        return lines + [remove_control_codes(piece, color=self._color) for piece in pieces]

    def _move_to_next_row(self, now: float) -> list[bytes]:
        """Move to the next row; return the lines that this finished.

        Plain text in the bottom row ends the display: the cursor will not return above it.
        """
        row = self._rows[self._at]
        row.left = now
        self._at += 1
        if self._at < len(self._rows):
            below = self._rows[self._at]
            below.at_start = True
            if below.blank:
                self._rows[self._at] = _ScreenRow()
            return []
        self._rows.append(_ScreenRow())
        alone = self._at == 1 and not row.bar
        if alone or (not row.bar and not row.blank):
            return self._finish_first_rows(self._at)
        return self._finish_first_rows(1) if len(self._rows) > MOST_ROWS else []

    def _apply_escape_code(self, code: bytes) -> None:
        """Apply an escape code: colour or cursor up; in a row that is being rewritten, also start of line and erase."""
        row = self._rows[self._at]
        if _SGR.fullmatch(code):
            row.write(code)
        elif found := _UP.fullmatch(code):
            self._at = max(0, self._at - int(found[1] or 1))
        elif row.bar and code in (b"\x1b[G", b"\x1b[0G", b"\x1b[1G"):
            row.at_start = True
        elif (code == b"\x1b[2K" and (row.bar or row.at_start)) or (row.at_start and code in (b"\x1b[K", b"\x1b[0K")):
            row.text = b""

    def _finish_first_rows(self, count: int) -> list[bytes]:
        """Finish the first ``count`` rows and return their lines. A bar that erased itself gives no line."""
        taken, self._rows = self._rows[:count], self._rows[count:]
        self._at -= count
        return [line for row in taken if not (row.bar and row.blank) for line in self._lines_of_row(row)]

    def _lines_of_row(self, row: _ScreenRow) -> list[bytes]:
        """Return the lines of a row. If a traceback begins in the line of an interrupted bar, it gets its own line."""
        text = remove_control_codes(row.text, color=self._color)
        if not row.bar:
            return [text]
        bar, traceback, more = text.partition(_TRACEBACK)
        return [bar.rstrip(b" "), traceback + more] if bar and traceback else [text.rstrip(b" ")]

    def _leave_screen(self) -> None:
        """Return to reading a plain stream if no row is left that could be rewritten."""
        if len(self._rows) == 1 and not self._rows[0].bar and not self._rows[0].at_start:
            self._open = self._rows[0].text + self._open
            self._rows, self._at = [], 0
