"""Read the frame that ``allranks run`` puts before each line: ``[0-3]`` on stdout, ``(0-3)`` on stderr."""

from __future__ import annotations

import re

_FRAME = re.compile(r"[\[(]([\d,\- ]+)[\])]")


def has_rank(line: str, rank: int) -> bool:
    """Return whether this rank has written the line. No rank has written a line without a frame."""
    frame = _FRAME.match(line)
    for part in frame[1].split(",") if frame else ():
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and int(first) <= rank <= int(last or first):
            return True
    return False


def is_stdout(line: str) -> bool:
    """Return whether ranks have written the line on their standard output."""
    return line.startswith("[") and _FRAME.match(line) is not None
