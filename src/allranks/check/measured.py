"""How often what each rule finds was right, in public code that nobody had seen while its rules were written. Pure.

People who knew no rule collect code, the rules of that day are run over it once, and people who know no rule read what
was found (``bench/check``, docs/check-evaluation.md). Of a rule that was measured more than once, what was read last
counts most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

# Fewer findings that were read say nothing, and of so many that were read last, those before say no more.
ENOUGH, PLENTY = 5, 20
# A line for each rule: its code, and right/wrong in each half of the evaluation set, the first one first ("-": none).
_AT_FIRST_SIGHT = """\
AR101 8/0
AR102 7/2
AR103 17/3
AR105 1/0
AR106 6/0
AR107 2/0
AR108 2/2
AR203 0/4
AR204 0/2
AR209 3/1
AR301 1/2
AR302 0/1
AR306 0/4
AR307 0/1
AR502 1/4
AR504 3/1
AR614 2/0
AR703 2/1
AR705 2/0
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the ``read`` findings that were read last, ``right`` were right."""

    right: int
    read: int

    @property
    def precision(self) -> float | None:
        """The part that was right; None where too few were read to say."""
        return self.right / self.read if self.read >= ENOUGH else None


@cache
def _all() -> dict[str, Measured]:
    found = {}
    for line in _AT_FIRST_SIGHT.splitlines():
        code, *cells = line.split()
        found[code] = _latest([tuple(map(int, cell.split("/"))) for cell in cells if cell != "-"])
    return found


def _latest(halves: list[tuple[int, ...]]) -> Measured:
    """Return what is known of a rule: the newest halves, so many as are needed for plenty."""
    right, read = 0, 0
    for true, false in reversed(halves):
        if read >= PLENTY:
            break
        right, read = right + true, read + true + false
    return Measured(right, read)


def measured(code: str) -> Measured:
    """Return what is known of a rule by its code."""
    return _all().get(code, Measured(0, 0))
