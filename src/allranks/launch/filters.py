"""Filter the lines of ranks before they are shown.

Removed are: noise of libraries, the rank's own number, and most lines of other ranks after a rank has failed. The log
files of ``--log-dir`` keep every line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container

from allranks.errors import rank_list

KNOWN = 10_000  # lines that are kept to recognise them
SHOWN = 10  # lines of each peer of a rank that failed, from the time on when the failure is known

# gloo, as jaxlib 0.10 has it: std::cout for every device, at the first collective (Context::printConnectivityInfo in
# transport/tcp/context.cc). Later versions of gloo obey GLOO_LOG_LEVEL. A rank that lacks peers is shown.
# The whole line is matched, down to its numbers: a line that reports trouble is no noise.
_GLOO = rb"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. Expected number of connected peer ranks is : "
# The same from two devices of a rank at once: its pieces in some other order, on two lines.
_PIECE = rb"(?:\[Gloo\] Rank | is connected to | peer ranks\. |Expected number of connected peer ranks is : )"
_INTERLEAVED = rb"(?!%b\d+$)\d*(?:%b\d*){2,}" % (_GLOO.replace(b"(", b"(?:"), _PIECE)
_NOISE = re.compile(rb"%b\1|%b" % (_GLOO, _INTERLEAVED))

# torch's hook puts the rank before every line of a traceback; an error of ours begins with its rank.
_NUMBER = re.compile(rb"(?:\[rank(?P<torch>\d+)\]: )?(?:(allranks\.[\w.]+: )rank (?P<ours>\d+)(?: \(host [^)]*\))?: )?")
_BEGINNINGS = (b"[rank", b"allranks.")


def without_noise(lines: list[bytes]) -> list[bytes]:
    """Remove the lines that a library prints on every rank and that no setting turns off. Return the other lines."""
    return [line for line in lines if not _NOISE.fullmatch(line)]


def without_rank(rank: int, lines: list[bytes]) -> list[bytes]:
    """Remove the rank's number from the start of its lines, if torch or an allranks error has put it there.

    The console's prefix names the rank already. Lines that are equal without the number can be merged.
    """
    number = b"%d" % rank
    return [_without_number(number, line) if line.startswith(_BEGINNINGS) else line for line in lines]


def _without_number(number: bytes, line: bytes) -> bytes:
    found = _NUMBER.match(line)
    assert found is not None  # it may be empty
    if found["torch"] not in (None, number):
        return line
    if found["ours"] in (None, number):
        return (found[2] or b"") + line[found.end() :]
    return line[found.end("torch") + len(b"]: ") :] if found["torch"] else line


def text_without_rank(rank: int, line: str) -> str:
    """Remove the rank's number from one line of text, as ``without_rank`` does."""
    return without_rank(rank, [line.encode(errors="backslashreplace")])[0].decode(errors="replace")


_REPORT = b"allranks: "


class PeerLimit:
    """Limit how many lines of the other ranks are shown after one rank has failed.

    The other ranks may print stacks of every thread. Nothing is limited before ``start``. The rank that failed first is
    never limited.
    """

    def __init__(self) -> None:
        self._cause: int | None = None
        self._shown: Counter[int] = Counter()
        self._hidden: Counter[int] = Counter()
        self._first_ranks: dict[bytes, int] | None = None

    def start(self, cause: int) -> None:
        """From now on, limit all ranks except ``cause``. A later call may name a better cause."""
        self._cause = cause

    def show_once(self) -> None:
        """From now on, show each line once, and not again if another rank prints it: Ctrl-C ends all ranks alike."""
        self._first_ranks = {}

    def is_unlimited(self, rank: int) -> bool:
        """Return whether every line of a rank is shown."""
        return self._cause is None or rank == self._cause

    def visible(self, rank: int, lines: list[bytes], waiting: Container[bytes] = ()) -> list[bytes]:
        """Return the lines that are to be shown, of the next lines of a rank.

        A line that is also in ``waiting`` (lines of other ranks that wait to be merged) is always shown. So is a line
        of ours: the report of a hang ends the job, and may be read after the end has begun.
        """
        if self._first_ranks is not None:
            lines = [line for line in lines if line in waiting or self._is_first(rank, line, self._first_ranks)]
        if self.is_unlimited(rank):
            return lines
        shown = []
        for line in lines:
            is_new = line not in waiting and not line.startswith(_REPORT)
            if is_new and self._shown[rank] == SHOWN:
                self._hidden[rank] += 1
                continue
            self._shown[rank] += is_new
            shown.append(line)
        return shown

    def _is_first(self, rank: int, line: bytes, first_ranks: dict[bytes, int]) -> bool:
        if len(first_ranks) < KNOWN:
            first_ranks.setdefault(line, rank)
        is_first = first_ranks.get(line, rank) == rank
        self._hidden[rank] += not is_first
        return is_first

    def count(self) -> str:
        """Return, as text, how many lines of which ranks were hidden; "" if none were."""
        ranks = [rank for rank, lines in self._hidden.items() if lines]
        if not ranks:
            return ""
        lines = self._hidden.total()
        after = "the failure" if self._first_ranks is None else "Ctrl-C"
        return f"{lines} more line{'s' if lines > 1 else ''} of [{rank_list(ranks)}] after {after}"
