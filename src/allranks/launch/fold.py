"""When one rank has failed, the others may say much about it (stacks of C++, of every thread): a little is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from allranks.errors import rank_list

SHOWN = 10  # lines of each rank, from the time on when the failure is known


class Fold:
    """Open until ``close`` names the rank that failed first; its own lines are never folded."""

    def __init__(self) -> None:
        self._cause: int | None = None
        self._shown: Counter[int] = Counter()
        self._folded: Counter[int] = Counter()

    def close(self, cause: int) -> None:
        """From now on fold what the ranks other than ``cause`` say. A better knowledge of the cause may come later."""
        self._cause = cause

    def spares(self, rank: int) -> bool:
        """Whether all that a rank says is shown."""
        return self._cause is None or rank == self._cause

    def visible(self, rank: int, lines: list[bytes], waiting: Container[bytes] = ()) -> list[bytes]:
        """Return those of a rank's next lines that are to be shown; ``waiting`` ones, which others say, always are."""
        if self.spares(rank):
            return lines
        shown = []
        for line in lines:
            is_new = line not in waiting
            if is_new and self._shown[rank] == SHOWN:
                self._folded[rank] += 1
                continue
            self._shown[rank] += is_new
            shown.append(line)
        return shown

    def count(self) -> str:
        """Return how many lines of which ranks are not shown, or "" where all are."""
        ranks = [rank for rank, lines in self._folded.items() if lines]
        if not ranks:
            return ""
        lines = self._folded.total()
        return f"{lines} more line{'s' if lines > 1 else ''} of [{rank_list(ranks)}] after the failure"
