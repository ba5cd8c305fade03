"""Read the frame that ``allranks run`` puts before each line: ``[0-3]`` on stdout, ``(0-3)`` on stderr.

In a job of several hosts, the name of the host is in it: ``[node2 8-15]``. SkyPilot writes ``(train, pid=17) `` before.
"""

from __future__ import annotations

import re

_FRAME = re.compile(r"(?:\([^()]*=[^()]*\) )?(?:[\w.@-]+: )?(\[|\()([\w.-]+ )?([\d,\- ]+)[\])]")


def has_rank(line: str, rank: int) -> bool:
    """Return whether this rank has written the line. No rank has written a line without a frame."""
    frame = _FRAME.match(line)
    for part in frame[3].split(",") if frame else ():
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and int(first) <= rank <= int(last or first):
            return True
    return False


def is_stdout(line: str) -> bool:
    """Return whether ranks have written the line on their standard output."""
    frame = _FRAME.match(line)
    return frame is not None and frame[1] == "["


def with_host(host: str, line: str, *, of: int) -> str:
    """Return a line after the name of its host, if there is more than one host and the line does not name it."""
    frame = _FRAME.match(line)
    return line if of == 1 or (frame and frame[2]) else f"{host}: {line}"
