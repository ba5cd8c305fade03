"""What the interpreter keeps: a frame while a function runs, a result when it has run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from allranks.check.interpret.truth import EVERY, FALSE, decides, negate
from allranks.check.interpret.values import NONE, Value
from allranks.check.summaries.summary import FunctionFacts, Node
from allranks.check.tables.apis import Entry

Span: TypeAlias = tuple[int, int, int, int]
# Nodes of a trace: ("meet", op, sub-group?, span, name) · ("loop", truth, taint, body, span, orelse) ·
# ("exit", kind): ``end`` is that of the process, ``raise`` that of the job ·
# ("branch", truth, taint, then, orelse, span, condition as it stands, condition as far as the rank leaves it open) ·
# ("call", Called) · ("apart", Called): in a process or thread of its own · ("try", body, handlers, orelse) ·
# ("yield",) · ("around", Called, body): a context that the project defines as a generator.
TraceNode: TypeAlias = tuple[Any, ...]
Trace: TypeAlias = tuple[TraceNode, ...]
# The conditions around a place in its function, by where they stand, and whether it is reached where they hold.
Arms: TypeAlias = tuple[tuple[Span, bool], ...]


class Seen(NamedTuple):
    """A call of interest in one function. ``mask``: roles that reach it for certain; ``may``: that can reach it.
    ``under``: what the conditions on the way depend on; ``met``: how many meetings of its function come before it;
    ``looped``: it stands in a loop; ``guard``: the condition around it that only some ranks meet; ``node``: the
    expression of the path that it works on."""

    name: str
    entry: Entry | None
    span: Span
    arguments: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    receiver: Value | None
    mask: int
    may: int
    ordered: bool
    target: str
    under: int = 0
    met: int = 0
    looped: bool = False
    guard: Span | None = None
    node: Node | None = None
    arms: Arms = ()


class Mark(NamedTuple):
    """What a function does about the GPU of its process: ``kind`` is ``bind`` (for good) or ``context`` (for a
    while), ``use`` or ``meet`` (of the current one), ``join`` or ``nccl`` (of processes, over NCCL for certain), or
    ``cpu``: something is brought there."""

    kind: str
    name: str
    span: Span
    arms: Arms = ()


class Called(NamedTuple):
    """A call of the project's own function. ``ordered``: in a lock, or where ranks go one by one; ``alone``: its rank
    is given as a constant, so that there is no other process; ``started``: processes are started that make it;
    ``ready``: it is made only where there are several processes; ``hook``: it is made when this method is called;
    ``node``: the expression; ``guess``: who makes it, if it is what is called here, which nobody knows."""

    span: Span
    result: Result
    mask: int
    may: int
    ordered: bool = False
    met: int = 0
    under: int = 0
    guard: Span | None = None
    alone: bool = False
    started: bool = False
    ready: bool = False
    arms: Arms = ()
    hook: str = ""
    node: Node | None = None
    guess: int = 0


class Ended(NamedTuple):
    """Which roles a function ends the process of; ``taint`` and ``condition`` of the branch that sends them there."""

    truth: str = FALSE
    taint: int = 0
    condition: str = ""


NOBODY = Ended()


@dataclass(slots=True, eq=False)
class Result:
    """What one function does, for one kind of arguments. ``meets``: its trace holds a collective.
    ``meetings``: ops and calls that meet, in order, whoever reaches them. ``yielded``: what a generator yields.
    ``made``: classes of the project that it makes an object of; ``loose``: methods that it calls on objects of a class
    that is not known, or that may be a class below, with what they are given (no name, where that is not known
    either); both with the roles that do. ``locks``: it locks a file. ``stored``: its variables, with the expression
    that is stored there; None where that is not one; ``gives``: the last expression that it returns; ``signs``: the
    conditions around each sign of several processes; ``gated``: it stands for the function of its reference, which only
    some roles run; ``ended``: whose process it ends, where those who wait for them are its callers; ``few``: roles
    that make a world by themselves from here on."""

    reference: str
    value: Value = NONE
    trace: Trace = ()
    seen: list[Seen] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    evidence: set[str] = field(default_factory=set)
    meetings: list[str | Called] = field(default_factory=list)
    meets: bool = False
    yields: bool = False
    yielded: Value = NONE
    made: list[tuple[str, int]] = field(default_factory=list)
    loose: list[tuple[str, int, tuple[Value, ...]]] = field(default_factory=list)
    locks: bool = False
    stored: dict[str, Node | None] = field(default_factory=dict)
    gives: Node | None = None
    signs: list[Arms] = field(default_factory=list)
    gated: bool = False
    ended: Ended = NOBODY
    few: int = 0

    @property
    def path(self) -> str:
        return self.reference.partition("::")[0]

    @property
    def several(self) -> bool:
        """Whether it shows itself that it is one of several processes: not, that it starts them."""
        return bool(self.evidence - {"launch", "alone"})

    @property
    def stays_alone(self) -> bool:
        """Whether it trains on one device, and shows nothing of other processes."""
        return "alone" in self.evidence and self.evidence.isdisjoint({"wrap", "initialise"})


@dataclass(slots=True, eq=False)
class Frame:
    """A function while it runs. ``implicit``: what the conditions on the way here depend on; ``turns``: contexts
    around that let processes in one by one; ``loops``: how many are around; ``forgiving``: tries around
    that catch what a second deletion raises; ``graphless``: contexts without gradients around; ``exits``: how many
    jumps were met so far; ``asked``: whether it has asked if the processes are joined; ``whole``: branches around that
    are taken where no model is in parts; ``few``: roles that make a world by themselves; ``line``: of the
    statement that is run; ``guess``: the roles that are here, where it is not known whether what is called is what they
    call; ``callers``: the roles that call it, for certain and perhaps, of a method that stores something."""

    path: str
    facts: FunctionFacts
    result: Result
    env: dict[str, Value]
    parent: Frame | None = None
    owner: str = ""
    mask: int = EVERY
    may: int = EVERY
    implicit: int = 0
    turns: int = 0
    loops: int = 0
    guard: Span | None = None
    arms: Arms = ()
    forgiving: int = 0
    graphless: int = 0
    exits: int = 0
    asked: int = 0
    whole: int = 0
    few: int = 0
    line: int = 1
    guess: int = 0
    callers: tuple[int, int] = (EVERY, EVERY)
    nodes: list[TraceNode] = field(default_factory=list)
    returned: list[tuple[Value, int, int]] = field(default_factory=list)
    yielded: list[tuple[Value, int, int]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    left: list[dict[str, Value]] = field(default_factory=list)  # what holds where the loop around is broken off
    apart: set[str] = field(default_factory=set)  # variables that were set on some ranks alone
    samples: set[str] = field(default_factory=set)  # variables of loops that may be samples

    @property
    def are_few(self) -> bool:
        """Whether no other comes here than those who make a world by themselves."""
        return bool(self.few) and not self.may & ~self.few

    @property
    def of_module(self) -> bool:
        """Whether this is the body of a file, and of no function."""
        return self.facts.name == "" and self.result.reference.endswith("::")

    def holding(self, name: str) -> Frame:
        """Return the frame whose variable a name is: this one, or one of those around it."""
        scope: Frame | None = self
        while scope is not None and name not in scope.env:
            scope = scope.parent
        return scope or self

    def shows(self, sign: str) -> None:
        """Put down a sign of several processes, and under which conditions it stands."""
        self.result.evidence.add(sign)
        self.result.signs.append(self.arms)

    def length(self) -> tuple[int, int, int, int]:
        """Return how much is on the record."""
        result = self.result
        return len(result.seen), len(result.calls), len(result.meetings), len(self.returned)

    def cut(self, length: tuple[int, int, int, int]) -> None:
        """Take off the record what was put on it since it had this length."""
        seen, calls, meetings, returned = length
        del (
            self.result.seen[seen:],
            self.result.calls[calls:],
            self.result.meetings[meetings:],
            self.returned[returned:],
        )


def meets(node: TraceNode) -> bool:
    """Return whether a node of a trace holds a collective."""
    tag = node[0]
    if tag in ("meet", "call", "around", "apart"):
        return True
    if tag == "branch":
        return any(map(meets, (*node[3], *node[4])))
    if tag == "loop":
        return any(map(meets, (*node[3], *node[5])))
    if tag == "try":
        return any(map(meets, (*node[1], *node[3], *(n for handler in node[2] for n in handler))))
    return False


def meets_last(trace: Trace) -> bool:
    """Return whether a generator meets others when it goes on after what it yields."""
    return any(map(meets, trace[trace.index(("yield",)) + 1 :] if ("yield",) in trace else trace))


def in_turns(trace: Trace) -> bool:
    """Return whether some wait, or meet, where others do not: a context that does lets them in one by one."""
    for node in trace:
        if node[0] == "branch":
            inside = (*node[3], *node[4])
            if (decides(node[1]) and any(map(meets, inside))) or in_turns(inside):
                return True
        elif node[0] in ("loop", "try"):
            parts = (node[3], node[5]) if node[0] == "loop" else (node[1], node[3], *node[2])
            if any(map(in_turns, parts)):
                return True
        elif node[0] == "call" and in_turns(node[1].result.trace):
            return True
    return False


def turn(truth: str, then: Trace, orelse: Trace) -> int:
    """Return 1 where the others wait for rank 0 to do something first, -1 where rank 0 lets them go on."""
    waits = any(map(meets, then))
    if waits == any(map(meets, orelse)) or set(truth) <= {"U"}:
        return 0
    who = truth if waits else negate(truth)
    if set(who) - set("TFU"):
        return 0
    return (who[0] == "F" and who[-1] != "F") - (who[0] != "F" and who[-1] == "F")
