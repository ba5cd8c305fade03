"""What a call of a library does to others, put on the trace: effects, collectives, and signs of several processes."""

from __future__ import annotations

import ast

from allranks.check.knowledge.tables import Collective, Effect
from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Entry, Simulation
from allranks.check.simulate.state import Frame, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    CLOCK,
    DATA,
    EVERY,
    FILES,
    IDENTITY,
    NONE,
    ORDER,
    RANDOM,
    RANK,
    SEEN,
    SPREAD,
    TRUE,
    ByRole,
    Const,
    Library,
    Made,
    Text,
    Unknown,
    Value,
    by_role,
    of_role,
    options,
    roles_where,
    taint,
    truth,
    unknown,
)
from allranks.check.traces.nodes import Call

_TAINTS = {
    "exists": FILES,
    "listing": FILES | ORDER,
    "progress": CLOCK,
    "clock": CLOCK,
    "random": RANDOM,
    "identity": IDENTITY,
    "unique": IDENTITY | RANDOM,
    "temporary": IDENTITY,
}
_NEED_PATH = ("file", "append", "checkpoint")  # without a path these return what they would write
# What a call does whose arguments say that it does not do what it is known for.
_INSTEAD = {"mkdir": "folder", "tracker": "muted"}
# What fails where another process was first, and is done then.
_BEGINS = ("init", "start_run")  # functions of trackers' packages
_FORGIVEN = frozenset(["mkdir", "folder", "delete", "moved", "exists", "read", "load"])
_MOVES = frozenset(["rename", "replace", "renames", "move"])  # what they name lies there as a whole afterwards
_SIGNS = ("initialise", "wrap", "sample", "launch")


class Recording:
    """Puts calls of libraries on the trace of a frame, and returns their values."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self.knowledge = simulator.knowledge

    def note(self, frame: Frame, name: str, kind: str, given: Given, entry: Entry | None = None) -> Call:
        """Put a call on the trace."""
        made = Call(name, kind, entry, frame.path, place_of(given.node), frame.symbol, given)
        made.loops = frame.loops
        made.ordered = frame.ordered > 0 or (frame.forgiven > 0 and kind in _FORGIVEN)
        made.live, made.under = frame.live, frame.under
        frame.trace.append(made)
        return made

    def sign(self, frame: Frame, kind: str, name: str, node: ast.AST) -> None:
        """Note a sign that there are several processes."""
        self.note(frame, name, f"sign {kind}", Given(node))
        if kind == "initialise" and self.simulator.heap.get(Made("<world>"), "joined") is not None:
            self.simulator.heap.set(Made("<world>"), "joined", TRUE)

    def signs(self, frame: Frame, name: str, node: ast.AST) -> None:
        """Note a call that the tables have as a sign."""
        for kind in _SIGNS:
            if name in self.knowledge.signs[kind]:
                self.sign(frame, kind, name, node)

    def record_collective(self, frame: Frame, entry: Collective, given: Given) -> Value:
        """Note a collective, and return what it gives."""
        if any(given.has(key, constant) for key, constant in entry.unless):
            return ANYTHING
        if entry.only_if and not any(given.has(key, constant) for key, constant in entry.only_if):
            return ANYTHING
        for key in (*range(len(given.arguments)), *dict(given.keywords)) if entry.hidden else ():
            if isinstance(one := given.argument(key), Text) or (isinstance(one, Made) and one.cls == "pathlib.Path"):
                _aim(self.note(frame, entry.name, "path", given), one, given.expression(key))  # of what all save
        forward = entry.op.endswith(" forward")  # each rank gives its own rows
        if entry.op == "DDP forward" and self.simulator.no_grad:
            return Unknown(DATA)  # it waits for nobody
        if entry.sharded and not self.simulator.shards:
            if entry.name in self.simulator.watched:
                self.note(frame, entry.name, "watched", given)
            return Unknown(DATA) if forward else unknown(*given.arguments)
        if entry.wrapped and (not self.simulator.wraps or self.simulator.no_grad):
            return ANYTHING
        made = self.note(frame, entry.name, "stop" if entry.op == "stop" else "collective", given, entry)
        made.group = any(_is_group(given.argument(key)) for key in entry.group)
        for at in entry.fills:
            target = given.expression(at)
            if isinstance(target, ast.Name | ast.Attribute):
                self.simulator.statements.store(frame, target, Unknown(kind="agreed"))
        if forward:
            alike = isinstance(given.first, Unknown) and given.first.kind == "alike"
            return given.first if alike and given.first is not None else Unknown(DATA)
        if entry.op.startswith("scatter") or entry.op == "split_between_processes":
            return Unknown(DATA)
        return unknown(*given.arguments) if entry.own else ANYTHING

    def act(self, frame: Frame, entry: Effect, name: str, given: Given) -> Value:
        """Note an effect, and return what the call gives."""
        of_receiver = entry.receiver and given.receiver is not None
        keys: tuple[int | str, ...] = (0,) if entry.receiver else entry.path
        where = given.receiver if of_receiver else given.argument(*keys)
        made = self._made(entry, name, where, frame, given)
        kind = self._mode(entry, given, of_receiver=of_receiver) if entry.modes else entry.kind
        mode = given.argument("mode", "filemode") if kind == "append" else None
        if isinstance(mode, Const) and str(mode.value).startswith("w"):
            kind = "file"
        if entry.only_if and not _asked(given.argument(entry.only_if)):
            return made
        live = frame.live
        for key, constant in entry.unless:
            value = given.argument(key)
            if isinstance(value, ByRole):
                live &= sum(1 << role for role, one in enumerate(value.roles) if one != Const(constant))
            elif given.has(key, constant):
                kind = _INSTEAD.get(kind, "")
        if kind == "tracker":
            live &= self._with_run(name, live)
        if name.rpartition(".")[2] in _MOVES:
            to: tuple[int | str, ...] = (0 if of_receiver else 1, "dst", "target")
            _aim(self.note(frame, name, "moved", given, entry), given.argument(*to), given.expression(*to))
        if kind and not (kind in _NEED_PATH and entry.path and not _names_file(where)):
            call = self.note(frame, name, kind, given, entry)
            call.live = live
            _aim(call, where, given.owner if of_receiver else given.expression(*keys))
        return made

    def _with_run(self, name: str, live: int) -> int:
        """Return the roles that have a run of a tracker's package: those that began one, if any role did."""
        package, _, word = name.partition(".")
        of_package, heap = Made("<runs>", path=package), self.simulator.heap
        before = heap.get(of_package, "run")
        if word in _BEGINS:
            none = before if before is not None else NONE
            run = by_role(Made("<run>") if live >> role & 1 else of_role(none, role) for role in range(4))
            heap.set(of_package, "run", run)
        return roles_where(truth(before), "TUD") if isinstance(before, ByRole) and word not in _BEGINS else EVERY

    @staticmethod
    def _mode(entry: Effect, given: Given, *, of_receiver: bool) -> str:
        """Return what ``open`` does with its mode."""
        mode = given.argument("mode", 0 if of_receiver else 1)
        if mode is None:
            return "read"
        if not isinstance(mode, Const) or not isinstance(mode.value, str):
            return ""
        if not set(mode.value) & set(entry.modes):
            return "read"
        return "append" if "a" in mode.value else entry.kind

    @staticmethod
    def _made(entry: Effect, name: str, where: Value | None, frame: Frame, given: Given) -> Value:
        if entry.modes:
            return Made("file", about=where, path=frame.path, line=given.line)
        if name.rpartition(".")[2][:1].isupper():
            return Made(name, about=where, path=frame.path, line=given.line, arguments=given.keywords)
        if entry.kind in ("load", "read"):
            return Unknown(SEEN) if taint(where) else ANYTHING  # files of one run say the same
        if entry.kind == "tracker":
            return Made("<run>")
        return unknown(where) if where is not None else unknown(*given.every)

    def local(self, frame: Frame, kind: str, name: str, given: Given) -> Value:
        """Note what only this process knows, and return it."""
        if kind in ("lock", "turn"):
            return Made(kind)
        if kind == "memory":
            return Made(f"io.{name.rpartition('.')[2]}")
        if kind == "spread":
            return Unknown(SPREAD)
        self.note(frame, name, f"local {kind}", given)
        found = _TAINTS[kind]
        if kind == "random" and self.simulator.seeded:
            return ANYTHING
        if kind == "temporary":
            return Unknown(IDENTITY) if "Temp" in name else Made("pathlib.Path", IDENTITY, Text("{}", IDENTITY))
        if kind == "clock" and name.endswith(("strftime", "ctime")):
            return Text("{}", CLOCK)
        if kind == "clock" and name.endswith(("now", "today", "utcnow")):
            return Made("datetime.datetime", CLOCK)
        inside = unknown(*given.arguments, given.receiver).taint if kind in ("exists", "listing") else 0
        return Unknown(found | inside & RANK)


def _aim(call: Call, where: Value | None, source: ast.expr | None) -> None:
    """Note which path a call is about."""
    call.where, call.target = where, ast.unparse(source) if source is not None else ""


def _is_group(value: Value | None) -> bool:
    if value is None or value == NONE:
        return False
    return not (isinstance(value, Library) and value.name.endswith("WORLD"))


def _asked(value: Value | None) -> bool:
    """Return whether an option may be on, and is not on for some ranks alone."""
    return value is not None and not isinstance(value, ByRole) and truth(value) != "FFFF"


def _names_file(where: Value | None) -> bool:
    if where is None or where == NONE or (isinstance(where, Const) and isinstance(where.value, int)):
        return False  # a descriptor of an open file
    return not any(isinstance(one, Made) and one.cls.startswith("io.") for one in options(where))
