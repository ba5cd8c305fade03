"""What counts where processes are compared, and what is known to follow."""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.check.interpret.state import Trace

_LEFT_OUT: tuple[tuple[str, ...], ...] = ((), ("sub",), ("sub", "hidden"))
# A flag that says whether there are several processes: it holds.
_SEVERAL = re.compile(
    r"distributed|world_size|initialized|num_processes|process_count|n_gpu|\bddp\b|is_dist|TORCHELASTIC|SLURM_|MASTER_ADDR",
    re.I,
)


class Look(NamedTuple):
    """What counts. ``drop`` leaves meetings of sub-groups (1), and hidden ones (2), out. ``straight`` leaves out early
    returns by data. ``sure`` leaves out what hangs on data further down: on two conditions in the function that is
    called, or on one in a function that this calls. ``deep``: so many calls down; ``doubt``: how much it hangs on."""

    drop: int = 0
    straight: bool = False
    sure: bool = False
    deep: int = 0
    doubt: int = 0

    def inside(self) -> Look:
        """Return how a function is looked at that is called."""
        return self._replace(deep=self.deep + 1) if self.sure else self

    def under(self, condition: str) -> Look:
        """Return how the side of a branch is looked at."""
        if not (self.sure and self.deep) or _SEVERAL.search(condition):
            return self
        return self._replace(doubt=self.doubt + (2 if "DTensor" in condition else self.deep))

    def misses(self, kind: str) -> bool:
        """Return whether a meeting of this kind (a sub-group's, a hidden one) is left out."""
        return self.doubt > 1 or kind in _LEFT_OUT[self.drop]


class Ahead(NamedTuple):
    """What follows a stretch of a trace in its function, whether it is in a ``loop``, and whether the function as a
    whole is ``level``: its roles meet alike, however its branches look. ``open``: the conditions that then still say
    who meets whom. ``again``: the body of the loop around; ``endless``: it is one that is left from inside.
    ``straight``: so much of ``after`` comes on every way, as a finally does behind its try; ``known``: settings that
    hold there, or do not."""

    after: Trace
    loop: bool
    level: bool
    open: frozenset[str] = frozenset()
    again: Trace = ()
    endless: bool = False
    straight: Trace = ()
    known: tuple[tuple[str, bool], ...] = ()
