"""The interpreted program, as a ProgramRule sees it. Values alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from allranks.check.interpret.state import Arms
from allranks.check.interpret.values import PROCESS, Value
from allranks.check.sources.source import module_name
from allranks.check.survey.facts import Facts
from allranks.check.tables.arrays import COMPUTATION, EAGER
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import BARE, WRAPPERS
from allranks.check.tables.effects import Effect
from allranks.check.tables.local import LocalQuery
from allranks.findings import Note, Place

# Ops of a computation that all ranks share: what a wrapped model does, or a compiled function.
PARALLEL = frozenset(
    [
        *(f"{kind} {what}" for kind in ("DDP", "FSDP", "engine") for what in ("construction", "forward", "backward")),
        COMPUTATION,
        EAGER,
    ]
)

WRAPS = PARALLEL - {COMPUTATION, EAGER}

LONG = 36  # characters of a name that is told whole
_OF_THE_NODE = re.compile(r"/te?mp\b|/shm|/scratch|/local|te?mp_?(dir|path)|cache|node_local|local_dir")
_LOCAL = re.compile(r"(?<![a-z])local_(?!rank)(\w+_)?(path|dir|folder|root)(?![a-z])")
# Modules and classes that stand between a program and its stores: who calls them says what they work on.
_STORES = re.compile(
    r"(^|/)(io|file_?io|io_utils?|file_?systems?|\w*storage\w*)\.py$|\.(IO([A-Z]\w*)?|\w*(FileSystem|FileIO|FileClient|Storage|Client))\."
)
# Names of what a training is resumed from, and of modules that write it.
_STATE = re.compile(r"(?i)ckpt|checkpoint|weights|params|(^|_)state|snapshot|model\b|model_")
_SAVERS = re.compile(r"(?i)ckpt|checkpoint")
# Ops that make a value, or a decision, of all ranks.
_AGREES = re.compile(r"(?i)reduce(?!_scatter)|gather|broadcast|bcast|^(any|all|min|max|agree|exchange)$")


def short(name: str) -> str:
    """Return what is called, as it stands in a message: of a long name, the function, or the class and its method."""
    parts = name.removeprefix("*.").split(".")
    if len(name) <= LONG or len(parts) < 3:
        return ".".join(parts)
    return ".".join(parts[-2:] if parts[-2][:1].isupper() else parts[-1:])


@dataclass(frozen=True, slots=True)
class Step:
    """A call on the way from the entry: ``symbol`` makes the call at ``place``."""

    symbol: str
    place: Place


@dataclass(frozen=True, slots=True)
class Event:
    """A call that the interpreted roles reach.

    ``may``: which roles can reach it under some condition; ``roles``: which of ``first``, ``node``, ``peer``,
    ``other`` reach it for certain or under conditions that all ranks take alike. ``active``: there is evidence that
    its entry runs as several processes (or the user assumes so). ``sure``: that entry is a program, or something else
    that is known to be run so (`activity`). ``per_process``: what it works on has the rank, the process or the
    host in its name, or is a temporary file. ``ordered``: inside a lock, a try that forgives, or a
    context that lets rank 0 go first. ``target``: the path as it stands in the source; ``opened``: the call that
    opened the file that is written to. ``path``: what is known of the path. ``under``: what the conditions on the way
    in its function depend on (bits of `values`). ``met``: how many meetings of its function come before it, so that
    two events of one function with the same number have none between them. ``earlier``, ``later``: the ops that are
    met before and afterwards, from the beginning of the entry to its end. ``looped``: it stands in a loop of its
    function. ``guard``: the nearest condition that only some ranks meet. ``chain``: the calls from the entry;
    ``also``: other calls, by all ranks, of the function (``function``) it stands in. ``spelled``: the path as
    `spelled` has it; ``passed``: how many meetings come before it from the beginning of the entry, so that two events
    of one entry with the same number have none between them; ``arms``: for each call of the chain and for itself, the
    conditions around it and the side it is on.
    """

    name: str
    entry: Effect | Collective | LocalQuery | None
    place: Place
    symbol: str
    arguments: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    roles: frozenset[str] = frozenset()
    active: bool = False
    sure: bool = False
    per_process: bool = False
    ordered: bool = False
    target: str = ""
    opened: Place | None = None
    chain: tuple[Step, ...] = ()
    path: Value | None = None
    under: int = 0
    met: int = 0
    earlier: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    looped: bool = False
    guard: Place | None = None
    may: frozenset[str] = frozenset()
    also: tuple[Step, ...] = ()
    function: str = ""
    spelled: str = ""
    passed: int = 0
    arms: tuple[Arms, ...] = ()

    @property
    def everyone(self) -> bool:
        return len(self.roles) == 4

    @property
    def is_effect(self) -> bool:
        return isinstance(self.entry, Effect)

    @property
    def start(self) -> Step:
        """Where the way to it begins."""
        return self.chain[0] if self.chain else Step(self.symbol, self.place)

    @property
    def from_the_top(self) -> bool:
        """Whether the way to it begins in the body of a module: in a program, or in what it imports."""
        return self.start.symbol == module_name(self.start.place.path)

    @property
    def told(self) -> str:
        """What is called, as it stands in a message."""
        return self.name.replace(BARE, "torch.nn.Module")

    @property
    def op(self) -> str:
        """What a collective meets the other processes as."""
        return self.entry.op if isinstance(self.entry, Collective) else ""

    @property
    def wraps(self) -> bool:
        """Whether it wraps a model for several processes, or uses one that is wrapped."""
        return self.op in WRAPS or self.name in WRAPPERS

    @property
    def first_of_each_node(self) -> bool:
        """One process a node reaches it: a gate on the local rank."""
        return self.roles == frozenset({"first", "node"})

    @property
    def command(self) -> str:
        """What is given to a shell, as it stands in a message; empty for all other calls."""
        return f"`{self.target}`" if self.name.startswith(("subprocess.", "os.system", "os.popen")) else ""

    @property
    def of_the_node(self) -> bool:
        """Whether the path is, as it is declared or else by its name, on a disk of the node."""
        flags = self.path.flags if self.path is not None else frozenset()
        named = _OF_THE_NODE.search(self.target.lower()) or self.in_local_folder
        return "node" in flags or ("shared" not in flags and bool(named))

    @property
    def in_local_folder(self) -> bool:
        """Whether the path, or what it is made of, is called local: to tell it from what all nodes share."""
        return _LOCAL.search((self.spelled or self.target).lower()) is not None

    @property
    def of_a_store(self) -> bool:
        """Whether it stands in what works on any files, of a disk or of a bucket, for whoever calls it."""
        return bool(_STORES.search(self.place.path) or _STORES.search(f"{self.symbol}."))

    @property
    def holds_state(self) -> bool:
        """Whether a file is one of arrays or bytes that is called as checkpoints are, or written where they are."""
        mode = self.argument(1, "mode")
        of_bytes = mode is not None and isinstance(mode.constant, str) and "b" in mode.constant and "open" in self.name
        last = self.symbol.rpartition(".")[2]
        named = _STATE.search(f"{last} {self.target}") or _SAVERS.search(self.symbol)
        written = of_bytes or self.name.endswith((".save", ".savez", ".savez_compressed", ".write_bytes"))
        return bool(named and written and not self.name.endswith("OmegaConf.save"))  # which writes settings

    def argument(self, *keys: int | str) -> Value | None:
        """Return the first argument that is given under one of these positions or keywords."""
        for key in keys:
            if isinstance(key, int) and key < len(self.arguments):
                return self.arguments[key]
            for name, value in self.keywords:
                if name == key:
                    return value
        return None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions on the way to it, the entry first."""
        return (*(step.symbol for step in self.chain), self.symbol)

    def way(self) -> tuple[Note, ...]:
        """Return the calls that lead here as notes, the entry first."""
        steps = [Note(f"called in {step.symbol}", step.place) for step in self.chain]
        return *steps, *(Note(f"also called in {step.symbol}", step.place) for step in self.also)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A branch after which processes meet in different collectives.

    ``cause``: what parts them: ``rank`` (a branch), ``return`` (one role leaves early), ``exit`` (it leaves a
    round of a loop), ``process`` (a process-local condition), ``order`` (same calls, another order), ``state`` (what
    one role alone stored), ``loop`` (processes go round a loop a different number of times), ``rounds`` (they do, for
    some alone have set how often). ``op``: what the first collective meets as. ``place`` is the first collective that
    not all reach; ``guard`` the condition. ``traces``: (who, the collectives they go on to) for each
    side. ``inside``: how the function that is called at ``place`` comes to the collective, call by call. ``under``:
    what the condition depends on (bits of `values`). ``answered``: each side meets somebody by itself, before what
    they share.
    """

    cause: str
    place: Place
    symbol: str
    collective: str
    guard: Place
    condition: str
    traces: tuple[tuple[str, tuple[str, ...]], ...]
    op: str = ""
    active: bool = False
    chain: tuple[Step, ...] = ()
    inside: tuple[Place, ...] = ()
    under: int = 0
    answered: bool = False
    written: str = ""

    @property
    def named(self) -> str:
        """What not all reach, as a message tells of it: by the name in the source where that of the library says less
        (``model() (DDP forward)``), and without the modules of a long name."""
        if self.op in PARALLEL:
            return f"{self.written}() ({self.op})" if self.written else self.op
        return short(self.collective)

    def sides(self) -> tuple[Note, ...]:
        """Return the guard, what each side goes on to call, and where the collective stands in the end, as notes."""
        stands = self.guard.end_column - self.guard.column == len(self.condition)  # it is underlined there
        told = "" if stands and len(self.condition) > LONG else self.condition
        guard = Note(f"the ranks diverge here: {told}" if told else "the ranks diverge here", self.guard)
        last = (Note(f"{short(self.collective)} is called here", place) for place in self.inside[-1:])
        return guard, *last, *(Note(f"{who}: {', '.join(ops) or 'no collective'}") for who, ops in self.traces)

    def way(self) -> tuple[Note, ...]:
        """Return the calls that lead here as notes, the entry first."""
        return tuple(Note(f"called in {step.symbol}", step.place) for step in self.chain)


@dataclass(frozen=True, slots=True)
class Gap:
    """A function that was not followed to its end, and why: in words, or what the interpreter itself raised there."""

    place: Place
    symbol: str
    why: str | Exception


@dataclass(frozen=True, slots=True)
class Program:
    """All that was found out by interpreting the entries. ``packages``: what its files import, by the first part of
    the name; ``started_at_fit``: nothing but Lightning's Trainer starts the other processes, as far as anything tells;
    ``one_node``: it was asked whether anything speaks of several nodes, and nothing does; ``first_alone``: effects
    that are over on the one node before its other processes are started; ``folders``: what makes a folder, by each way
    that leads there, also before there are several processes; ``assumed``: the user says that all programs run as
    several; ``facts``: what its files show."""

    facts: Facts
    events: tuple[Event, ...] = ()
    parted: tuple[Divergence, ...] = ()
    gaps: tuple[Gap, ...] = ()
    packages: frozenset[str] = frozenset()
    one_node: bool = False
    assumed: bool = False
    first_alone: frozenset[Place] = frozenset()
    folders: tuple[Event, ...] = ()
    started_at_fit: bool = False

    @property
    def wraps(self) -> bool:
        """Whether a model is wrapped for several processes."""
        return any(event.active and event.wraps for event in self.events)

    def effects(self, *kinds: str) -> Iterator[Event]:
        """Yield effects of these kinds (all without), each site once, in order of place."""
        return (e for e in self.events if isinstance(e.entry, Effect) and (not kinds or e.entry.kind in kinds))

    def ungated(self, *kinds: str) -> Iterator[Event]:
        """Yield effects that every rank has on the same thing, in code that runs as several processes."""
        return (e for e in self.effects(*kinds) if e.active and e.everyone and not e.per_process and not e.ordered)

    def finds_done(self, event: Event) -> bool:
        """Whether the processes that come to it later look first, and find that the one before them has done it."""
        return event.place in self.first_alone and bool(event.under & PROCESS)

    def sources(self, *kinds: str) -> Iterator[Event]:
        """Yield calls whose result each process has for itself: ``clock``, ``random``, ``listing``, ``identity``."""
        return (e for e in self.events if isinstance(e.entry, LocalQuery) and e.entry.kind in kinds)

    def collectives(self) -> Iterator[Event]:
        """Yield the calls that all processes of a group must make."""
        return (e for e in self.events if isinstance(e.entry, Collective))

    def agreed_in(self, place: Place) -> bool:
        """Whether a call of ``place`` leads, in whatever file, to what makes a value the same on every rank."""
        return any(
            step.place.path == place.path and place.line <= step.place.line <= place.end_line
            for event in self.collectives()
            if isinstance(event.entry, Collective) and event.entry.uniform and _AGREES.search(event.op)
            for step in event.chain
        )

    def meets_in(self, path: str, first: int, last: int) -> bool:
        """Whether processes meet in these lines of a file, or in what is called there."""
        places = (p for e in self.collectives() if e.active for p in (e.place, *(step.place for step in e.chain)))
        return any(place.path == path and first <= place.line <= last for place in places)

    def calls(self, *patterns: str) -> Iterator[Event]:
        """Yield interpreted calls whose qualified name is one of ``patterns``, as in the tables."""
        return (e for e in self.events if e.name in patterns)

    def divergences(self) -> Iterator[Divergence]:
        """Yield where processes part, in order of place."""
        return iter(self.parted)
