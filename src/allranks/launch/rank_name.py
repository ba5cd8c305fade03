"""A rank's own number in what it says, left out where that is shown: our prefix names it, and equal lines merge."""

from __future__ import annotations

import re

_TORCH = rb"\[rank%d\]: "  # torch's own hook puts it before every line of a traceback
_OURS = rb"(allranks\.[\w.]+: )rank %d(?: \(host [^)]*\))?: "  # an error of ours begins with its rank
_BEGINNINGS = (b"[rank", b"allranks.")
_of: dict[int, re.Pattern[bytes]] = {}


def without_rank(rank: int, lines: list[bytes]) -> list[bytes]:
    """Return what a rank says without its own number, where torch or an error of ours has put it at the front."""
    if rank not in _of:
        _of[rank] = re.compile(rb"(?:%b)?(?:%b)?" % (_TORCH % rank, _OURS % rank))
    own = _of[rank]
    return [own.sub(rb"\1", line, count=1) if line.startswith(_BEGINNINGS) else line for line in lines]


def text_without_rank(rank: int, line: str) -> str:
    """Return ``without_rank`` of one line of text."""
    return without_rank(rank, [line.encode(errors="backslashreplace")])[0].decode(errors="replace")
