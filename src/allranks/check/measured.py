"""How often what each rule finds was right, in public code that nobody had seen while its rules were written. Pure.

Time and again people who knew no rule collected code, the rules of that day were run over it once, and people who
knew no rule either read what was found (``bench/check``, docs/check-evaluation.md). A rule has been mended since
wherever it was wrong: these are the rules as they were, and nothing surer is known of those of today. What was read
last says most of them, so only as much counts of what was read before as is needed to say something. The rules that
were written anew since, AR3xx to AR8xx, were not measured yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

# Fewer findings that were read say nothing, and of so many that were read last, those before say no more.
ENOUGH, PLENTY = 5, 20
# Findings that were right/wrong in each half of the evaluation set, the first one first ("-": none was read).
_AT_FIRST_SIGHT = """
AR101     6/7    21/27    16/24    23/30     14/8    17/18    14/13     18/2     23/5     10/2     10/5
AR102    8/16    47/49    46/50    35/37    23/10    27/52    10/15    19/13    30/10    27/20     18/6
AR103     4/5     10/8    10/15     9/11      4/1      8/2      3/4      3/3      7/1      7/1      5/1
AR105     1/0     25/1     3/19      5/5        -        -      7/0        -      4/0      4/0     0/13
AR106       -      5/1      5/3      4/2    26/11     32/0     14/0     29/1      1/2      2/6      3/0
AR107     1/0      2/8        -        -      2/2        -        -      1/0      3/0     11/2      3/0
AR108     4/0     10/3     7/25     8/15      9/5      8/1     15/4      9/1      9/3     12/3      3/0
AR109     1/7      4/8     10/7      1/5      8/5      2/3     10/5     10/4      5/1      5/1      4/0
AR110       -      0/6        -      1/0        -        -        -        -        -      1/0        -
AR201     5/2      3/8      2/7    11/13     12/7      3/6      1/5     10/8     13/0      5/5      4/0
AR202       -      1/0      1/0      6/3        -      1/3     1/11      2/0        -      4/0        -
AR203     3/2      7/2      3/4      1/9      1/1      0/3      4/2        -        -      0/4        -
AR204       -        -      1/0        -        -      3/0        -      2/0        -      4/3      0/1
AR205       -        -        -      1/1        -        -     0/16        -        -      1/1        -
AR206       -      0/1      0/1      0/3        -        -        -        -        -        -        -
AR207       -      0/3        -        -        -      1/0        -        -        -        -      2/0
AR208     1/0        -        -      0/1      0/2        -        -        -        -        -        -
AR209       -      1/0      4/2      4/3      8/4     12/3      4/1      5/7      2/0      4/0      1/0
AR210       -        -        -        -        -      1/0        -        -        -      2/0      1/0
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
    for line in _AT_FIRST_SIGHT.strip().split("\n"):
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
