"""Entries: where a run of a project begins, and whether it runs as several processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from allranks.check.knowledge.tables import Knowledge
from allranks.check.simulate.values import FILES, SEEN
from allranks.check.traces.compare import Divergence
from allranks.check.traces.nodes import Result
from allranks.check.traces.walk import Reach

Cases: TypeAlias = tuple[tuple[str, str], ...]
Kind: TypeAlias = Literal["program", "function", "hook", "method"]
# Whoever asks this and does not join others may be alone.
_ASKS_WHETHER = "torch.distributed.is_initialized"
STRONG = frozenset(["sign initialise", "sign wrap", "sign sample"])


@dataclass(slots=True, eq=False)
class Root:
    """Where a run begins: a program, a function that nobody calls, a method that a framework calls (a hook), or another
    method that nobody calls of an object that programs make: who made it will have it called.

    ``makers``: those programs, and the roles that make it.
    ``active``: something on its way shows that it runs as several processes. ``sure``: it is known to run so; else what
    it does has low confidence. ``starts``: it starts the processes itself; what it does beside is done by one.
    ``cases``: what it was asked to do where something shows that; empty if that is shown for all that it does.
    ``by_trainer``: nothing but a Trainer starts the other processes, which then run the program from its beginning.
    """

    result: Result
    kind: Kind
    reached: list[Reach] = field(default_factory=list)
    parted: list[Divergence] = field(default_factory=list)
    signs: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()  # how it asks for its rank, and for the number of processes
    active: bool = False
    sure: bool = False
    starts: bool = False
    cases: tuple[Cases, ...] = ()
    by_trainer: bool = False
    named: bool = True  # its name is used somewhere; of a method, on an object
    dead: bool = False  # nobody calls it, though programs of other files run as several processes, or nobody names it
    born: Result | None = None  # what the constructor of its object does
    makers: Mapping[str, int] = field(default_factory=dict)

    def is_shared(self, reach: Reach) -> bool:
        """Return whether a call that it reaches is made in several processes, as far as anything shows."""
        known = self.active and (reach.started or not self.starts)
        return known and (not self.cases or not reach.cases or any(_agree(one, reach.cases) for one in self.cases))

    def finds_done(self, reach: Reach) -> bool:
        """Return whether the first process has done it before the others are started, and they find that."""
        return self.by_trainer and reach.collectives == 0 and bool(reach.under & (FILES | SEEN))


@dataclass(frozen=True, slots=True)
class Starts:
    """How programs are started. ``together``, ``alone``: those that the project's scripts start as several processes,
    or as one. ``nodes``: something in the project mentions several nodes. ``everywhere``: the user says that everything
    runs as several processes. ``entries``: files that the user says are started."""

    together: Collection[str] = ()
    alone: Collection[str] = ()
    nodes: bool = True
    everywhere: bool = False
    entries: Collection[str] = ()

    def is_alone(self, root: Root) -> bool:
        """Return whether scripts always start a program as one process, and it starts no others itself."""
        starts = "sign launch" in root.signs or is_by_trainer(root)
        return not self.everywhere and root.result.path in self.alone and not starts

    def judge(self, root: Root, knowledge: Knowledge, programs: Mapping[str, Root]) -> None:
        """Say of an entry whether it runs as several processes. ``programs``: those that were judged before."""
        strong = bool(root.signs & STRONG)
        known = {path for path, program in programs.items() if program.sure}
        elsewhere = root.kind == "function" and bool(known) and root.result.path not in known
        root.dead = elsewhere or (root.kind == "method" and not root.named)
        root.active = self.everywhere or strong or bool(root.signs & {"sign rank", "collective"})
        if root.kind == "hook":
            root.sure = root.active = True
        elif root.kind == "method":
            makers = [programs[path] for path in root.makers if path in programs]
            root.active = root.active or any(maker.active for maker in makers)
            root.sure = not root.dead and (strong or any(maker.sure for maker in makers))
        elif root.kind == "function":
            root.sure = self.everywhere or (strong and root.named and not known)
        elif self.everywhere or root.result.path in self.together:
            root.sure = root.active = True
        else:
            met = "collective" in root.signs and _ASKS_WHETHER not in root.asks
            root.sure = root.active and (strong or met or "os.environ" in root.asks)
            root.sure = root.sure and not self.is_alone(root)
            root.sure = root.sure and not _is_run_once(root.result.path, knowledge)


def _agree(one: Cases, other: Cases) -> bool:
    """Whether both may hold at once: no variable has to be equal to two constants."""
    values = dict(one)
    return all(values.get(name, value) == value for name, value in other)


def is_by_trainer(root: Root) -> bool:
    first = next((reach.call.name for reach in root.reached if reach.call.kind == "collective"), "")
    return first.startswith("lightning.pytorch.Trainer.") and not root.signs & STRONG


def _is_run_once(path: str, knowledge: Knowledge) -> bool:
    """Whether a program, by its name, converts something or looks at something: mostly one process does that."""
    name = path.rpartition("/")[2].removesuffix(".py")
    looks = knowledge.says("looks", name) and not knowledge.says("trains", name)
    return looks or knowledge.says("tool", path.removesuffix(".py"))
