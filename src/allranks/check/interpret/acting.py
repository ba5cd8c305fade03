"""Effects: what a call does to files, folders and trackers that other processes see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from allranks.check.interpret import wrapped
from allranks.check.interpret.commands import own, words
from allranks.check.interpret.computed import Computed
from allranks.check.interpret.free_names import free_name
from allranks.check.interpret.given import Given
from allranks.check.interpret.held import (
    is_guarded,
    is_partial,
    is_quiet,
    names_path,
    settings_of,
    silenced,
)
from allranks.check.interpret.opened import (
    STREAMS,
    is_binary,
    is_descriptor,
    is_in_archive,
    is_mode,
    is_no_file,
    only_reads,
)
from allranks.check.interpret.options import option
from allranks.check.interpret.seeded import seeded
from allranks.check.interpret.state import Frame, Seen, Span
from allranks.check.interpret.truth import BY_PROCESS, EVERY, FALSE, negate, roles_where
from allranks.check.interpret.values import (
    AGREED,
    ALONE,
    ANYTHING,
    CLOCK,
    IDENTITY,
    PROCESS,
    RANK,
    STATE,
    Value,
    boolean,
    still_open,
)
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node, body_of
from allranks.check.tables.collectives import Collective
from allranks.check.tables.commands import doing
from allranks.check.tables.data import WRAPPER
from allranks.check.tables.effects import MOVES, Effect, Kind
from allranks.check.tables.local import LOCKING, LocalQuery
from allranks.check.tables.passing import is_of_day
from allranks.check.tables.runs import FREE, NAMED, TOLD_BY_KEYWORD, is_place, names_the_next
from allranks.check.tables.spoken import is_blob, told_by

# What a call does that is told not to do what it does.
_INSTEAD: Mapping[Kind, Kind] = {"mkdir": "folder", "tracker": "muted"}
_TRACKER = re.compile(r"(?i)wandb|writer|logger|tensorboard|tracker|recorder|mlflow|comet|neptune|visdom|clearml|aim\.")
_PATHS = ("Path", "pathlib.Path")
_CHECKPOINT = re.compile(r"(?i)ckpt|checkpoint")
# What writes nothing without a path.
_INTO = ("file", "checkpoint", "append")
# What open files are called that a function is given.
_HANDLES = frozenset(
    ("name", name) for name in ("f", "fp", "fd", "fh", "file", "fileobj", "file_obj", "buffer", "stream")
)

# What a function asks of the net that writes what it gets into a file.
_FETCHES = frozenset(["urlopen", "iter_content", "iter_bytes", "requests", "httpx", "urllib3", "HTTPError"])

# Who catches these lives with another process having done it first.
_FORGIVEN = frozenset(
    [
        "OSError",
        "FileNotFoundError",
        "FileExistsError",
        "IOError",
        "Exception",
        "None",
        "EnvironmentError",
        "AttributeError",
    ]
)


# Where names of files come from that differ from process to process: rules point there.
_SOURCES = ("clock", "random", "listing", "identity")
_OWN = {
    "identity": IDENTITY,
    **dict.fromkeys(("clock", "progress"), CLOCK),
    **dict.fromkeys(("random", "exists", "listing"), PROCESS),
}


class Acting(Computed):
    """Puts effects on the record."""

    @cached_property
    def seeded(self) -> frozenset[str]:
        return seeded(self.project)

    def _effect(self, frame: Frame, entry: Effect, name: str, given: Given, base: Value | None) -> Value:
        if entry.kind in ("command", "print"):
            self._told(frame, entry, name, given)
            return ANYTHING
        if entry.receiver and given.node[1][:1] == ("attr",) and render(given.node[1][1]) in _PATHS:
            entry = replace(entry, receiver=False, path=(0,))  # Path.unlink(path)
        path = given.naming(base if entry.receiver else given.argument(*entry.path) if entry.path else None)
        if entry.kind == "publish":
            path = next((value for value in (*given.all(), base) if value is not None and value.private), path)
        made = Value(path.taint if path else 0, handle=given.span, flags=path.flags if path else frozenset())
        itself = entry.receiver and given.node[1][0] == "attr"
        node = given.node[1][1] if itself else given.expression(*entry.path)
        text = render(node) if node is not None else ""
        if entry.modes:
            mode = given.argument("mode", 0 if entry.receiver else 1)
            letters = mode.constant if mode is not None else "r"
            writes = isinstance(letters, str) and bool(set(re.split("[:|]", letters)[0]) & set(entry.modes))  # "r:xz"
            if not writes or ("r" in str(letters) and only_reads(frame, entry)):
                if isinstance(letters, str):
                    self._record(frame, entry.doing("read"), name, given, path, text, node)
                return made
        if path == ANYTHING and node in _HANDLES and node[1] in frame.facts.positional:
            path = Value(flags=frozenset({"perhaps"}))  # what is open already, and where, nobody knows
        nowhere = path is None or path.constant is None or is_no_file(path) or is_descriptor(path, node)
        if entry.path and nowhere and entry.kind in _INTO:
            return made  # without a path, such a call returns the text
        for key, constant in entry.unless:
            value = given.argument(key)
            if value is not None and (constant is ... or value.constant == constant or value.ranked):
                if entry.kind in _INSTEAD:
                    self._record(frame, entry.doing(_INSTEAD[entry.kind]), name, given, path, text, node)
                return made
        if entry.only_if:
            asked = given.argument(entry.only_if)
            if asked is None or asked.ranked or asked.true() == FALSE:
                return made
        if entry.kind == "file" and not _FETCHES.isdisjoint(frame.facts.words) and is_binary(given, entry):
            entry = entry.doing("download")
        mask, may = frame.mask, frame.may
        if entry.path and path is not None and entry.kind in _INTO:  # who is given None
            frame.mask, frame.may = (roles & ~roles_where(path.none, "T") for roles in (mask, may))
        self._record(frame, entry, name, given, path, text, node)
        frame.mask, frame.may = mask, may
        if name.rpartition(".")[2] in MOVES:
            self._moved(frame, entry, name, given)
        if entry.kind == "tracker":
            return Value(instance=name)
        return ANYTHING if entry.kind == "load" else made  # steps and epochs in it are alike, whosever file it is

    def _moved(self, frame: Frame, entry: Effect, name: str, given: Given) -> None:
        where: tuple[int | str, ...] = (0 if entry.receiver else 1, "dst", "target")
        if (to := given.expression(*where)) is not None:
            self._record(frame, entry.doing("moved"), f"{name} to", given, given.argument(*where), render(to), to)

    def _record(
        self,
        frame: Frame,
        entry: object,
        name: str,
        given: Given,
        path: Value | None,
        text: str,
        node: Node | None = None,
    ) -> None:
        known_entry = entry if isinstance(entry, Collective | Effect | LocalQuery) else None
        frame.result.seen.append(
            Seen(
                name,
                known_entry,
                given.span,
                given.values,
                given.keywords,
                path,
                frame.mask,
                frame.may,
                bool(frame.turns)
                or (bool(frame.forgiving) and isinstance(entry, Effect) and entry.kind in ("delete", "mkdir")),
                text,
                frame.implicit,
                len(frame.result.meetings),
                bool(frame.loops),
                frame.guard,
                node,
                frame.arms,
            )
        )

    def _missed(self, frame: Frame, base: Value, function: Node, given: Given) -> None:
        """Record a method of a tracker that some of those who come here have not: where others have one, it is None."""
        absent = roles_where(base.none, "T") & frame.mask if is_partial(base) else 0
        if absent and _TRACKER.search(base.instance):
            name = f"{base.instance.rpartition('::')[2].rpartition('.')[2]}.{function[2]}"
            self._record(frame, Effect("*", "absent"), name, given, None, render(function[1]))
        if self.is_inside(base, function[2]):
            wrapped.note(frame, base, render(function[1]), function[2], given.span)

    def _spoken(self, frame: Frame, entry: Effect, name: str, given: Given) -> Value:
        """Record what a stranger does by its name: perhaps it does. Who tells it his rank, lets it decide."""
        node = given.node[1][1] if name == "*.delete" else given.node[2][0] if given.node[2] else ("const", "")
        path = next((value for value in given.all() if value.private), ANYTHING)
        perhaps = replace(path, flags=path.flags | {"perhaps"})
        if entry.kind == "file" and _CHECKPOINT.search(render(node)):
            entry = entry.doing("checkpoint")
        if not any(value.ranked for value in given.all()):
            self._record(frame, entry, name, given, perhaps, render(node))
        return Value(path.taint, flags=path.flags)

    def _told_by_what(self, frame: Frame, name: str, given: Given, base: Value) -> Value | None:
        """Record what a method of something unknown does, by what that, or the file it is given, is called."""
        if name == "delete" and is_blob(render(given.node[1][1])):
            return self._spoken(frame, Effect("*.delete", "delete"), "*.delete", given)
        first = render(given.node[2][0]) if given.node[2] else ""
        told = told_by(render(given.node[1][1]), name, first)
        if told is None or (told.kind == "checkpoint" and self.project.defined(name)):
            return None
        return self._effect(frame, told, told.pattern, given, base)

    def names(self, frame: Frame, node: Node, value: Value) -> Value:
        """Return what is assigned, marked if it gives the folder of a run its name: what is made of that, is told."""
        if "named" in value.flags or not (value.taint & CLOCK or _counts_up(node[3])):
            return value
        names = [*filter(is_place, map(_last, node[2]))]
        for name in names:
            self._placed(frame, name, value, (node[1], 0, node[1], 0))
        return replace(value, flags=value.flags | {"named"}) if names else value

    def put(self, frame: Frame, target: Node, base: Value, value: Value) -> None:
        """Store a value in an attribute of an object."""
        told, ours = is_guarded(frame), "::" in base.instance
        quiet, value = silenced(frame, value), still_open(value)
        plain = not (value.reference or value.instance or value.elements is not None)
        if told and plain and ours:
            value = replace(value, taint=value.taint | frame.implicit | STATE | RANK)
        elif (told or frame.callers[1] != EVERY) and value.instance and not value.truth:  # only some ranks make it
            mask, may = frame.mask & frame.callers[0], frame.may & frame.callers[1]
            there = "".join("F" if not may >> at & 1 else "WT"[mask >> at & 1] for at in range(4))
            value = replace(value, truth=there, none=negate(there))
        key = f"{target[1][1]}.{target[2]}" if target[1][0] == "name" else ""
        before = key in frame.env
        if quiet is not None and (before or not ours):  # it is what a setting says, but there
            self.keep(base.instance if ours else settings_of(target), target[2], quiet)
        elif ours:
            again = before and not told and is_quiet(self.heap.get(target[2], {}).get(base.instance, ANYTHING))
            self.keep(base.instance, target[2], AGREED if again else value)
        elif base.instance == WRAPPER:
            self.keep(WRAPPER, target[2], value)
        elif value.private:
            self.keep_own(frame, target, value)
        elif not value.taint and self.held(settings_of(target), target[2]) is not None:
            self.keep(settings_of(target), target[2], AGREED)
        if key and (quiet is None or before or ours):
            frame.env[key] = value

    def keep_own(self, frame: Frame, target: Node, value: Value) -> None:
        """Remember what is this process' own in an object of no known class: a rank wherever an attribute of its name
        is asked for, a path where this file writes it alike."""
        if value.ranked and value.truth:
            self.keep("*", target[2], value)
        elif names_path(target[2]):
            self.keep(f"*{frame.path}", render(target), value)

    def keyed(self, frame: Frame, name: object, value: Value, node: Node) -> None:
        """Look at what is entered under a key or a keyword: it may be such a name."""
        new = value.taint & CLOCK and "named" not in value.flags and is_place(str(name))
        if new and (span := _span(node)) is not None:
            self._placed(frame, str(name), value, span)

    def options(self, frame: Frame, given: Given) -> None:
        """Look at what a call is given by keyword: a folder, or the default of an option that is one."""
        if (told := option(given)) is not None:
            self.keyed(frame, *told, given.node)
            self.declare(*told, (frame.path, given.span))
        elif render(given.node[1]).rpartition(".")[2] in TOLD_BY_KEYWORD:
            for name, value in given.keywords:
                self.keyed(frame, name, value, given.node)

    def _placed(self, frame: Frame, name: str, value: Value, span: Span) -> None:
        """Record that the folder of a run is named after the clock, or after what this process found there."""
        given = Given((value,), (), ("call", ("const", None), (), (), span))
        self._record(frame, NAMED, NAMED.pattern, given, value, name)

    def _told(self, frame: Frame, entry: Effect, name: str, given: Given) -> None:
        """Record a call whose arguments say what it does: a command that is run, or a line and the file it goes to."""
        if entry.kind == "command":
            command = words(given, *entry.path)
            if (kind := doing(command)) is not None:
                path, node = given.argument(*entry.path), given.expression(*entry.path)
                if path is not None and node is not None:
                    put = frame.result.stored.get(node[1]) if node[0] == "name" else None
                    path = own(path, put or node, command, lambda part: self.value(frame, part))
                self._record(frame, entry.doing(kind), name, given, path, " ".join(command.split()[:6]))
            return
        stream = given.argument("file")
        if stream is None or stream.reference in STREAMS or stream.constant is None or "memory" in stream.flags:
            self._record(frame, entry, name, given, None, "")
        else:
            self._record(frame, entry.doing("append"), name, given, stream, given.text("file"))

    def _opened(self, frame: Frame, base: Value, given: Given) -> Value:
        """Open a file by a method of something unknown: its path is the first argument, or the receiver itself."""
        mode = given.argument("mode", 1)
        itself = mode is None and is_mode(given.values[0].constant)
        mode, path = (given.values[0], base) if itself else (mode, given.values[0])
        if mode is not None and is_mode(mode.constant) and not is_in_archive(base) and set(mode.constant) & set("wax+"):
            text = render(given.node[1][1]) if itself else given.text(0)
            self._record(frame, Effect("*.open", "file"), "*.open", given, path, text)
        return Value(path.taint, handle=given.span, flags=path.flags)

    def _signalled(self, given: Given) -> None:
        """What a handler of signals stores, this process alone may have been told, or at another time than others."""
        handler = given.argument(1, "handler")
        facts = self.project.function(handler.reference) if handler is not None else None
        if handler is None or facts is None:
            return
        path, told = handler.reference.partition("::")[0], boolean(BY_PROCESS, CLOCK)
        for name in facts.stored if facts.owner else ():
            self.keep(f"{path}::{facts.owner}", name, told)
        for name in (one for part in body_of(facts) if part[0] == "global" for one in part[2]):
            self.keep(f"@{path}", name, told)
            self.module_frame(path).env[name] = told

    def _locked(self, frame: Frame, given: Given) -> None:
        """What is done from here on is done by one process after the other; so is what the file was opened for."""
        frame.turns += 1
        frame.result.locks = True
        opened = given.values[0].handle if given.values else None
        node = given.expression(0)
        if node is not None and node[0] == "call" and node[1][0] == "attr" and node[1][2] == "fileno":
            opened = self.value(frame, node[1][1]).handle
        seen = frame.result.seen
        seen[:] = [one._replace(ordered=True) if opened and one.span == opened else one for one in seen]

    def _local(self, frame: Frame, entry: LocalQuery, name: str, given: Given) -> Value:
        if name == "time.strftime" and len(given.values) == 1 and is_of_day(given.values[0].constant):
            return ANYTHING
        if entry.kind in _SOURCES:
            self._record(
                frame, entry, name, given, None, name, _listed(name, given) if entry.kind == "listing" else None
            )
        if entry.kind == "exists" and (free := free_name(frame.facts, given.span)):
            self._record(frame, FREE, FREE.pattern, given, None, free)
        if name in LOCKING:
            self._locked(frame, given)
        taint = _OWN.get(entry.kind, 0)
        if entry.kind == "random" and name.partition(".")[0] not in self.seeded:
            taint |= ALONE
        for value in given.values:
            taint |= value.taint
        if entry.kind in ("exists", "progress"):
            return boolean(BY_PROCESS, taint)
        if entry.kind in _OWN:
            return Value(taint)
        if entry.kind == "spread":
            return self.spread(name, given)
        return Value(taint, instance=name, flags=frozenset({entry.kind}))


def _last(target: Node) -> str:
    """Return under what name something is stored: a variable's, an attribute's, a key."""
    if target[0] == "sub":
        return str(target[2][1]) if target[2][0] == "const" else ""
    return {"name": target[1], "attr": target[2]}.get(target[0], "") if len(target) > 2 else str(target[1])


def _listed(name: str, given: Given) -> Node | None:
    """Return the folder that is listed, with the pattern that is looked for in it."""
    pattern = given.expression(0)
    if not name.startswith(("pathlib.", "*.")) or given.node[1][0] != "attr":
        return pattern
    folder: Node = given.node[1][1]
    return folder if pattern is None else ("op", folder, pattern, "/")


def _span(node: Node) -> Span | None:
    """Return where the first call in an expression stands."""
    if node[:1] == ("call",):
        at: Span = node[4]
        return at
    return next((found for part in node if isinstance(part, tuple) and (found := _span(part)) is not None), None)


def _counts_up(made: Node) -> bool:
    """Whether an expression calls what looks which folders are there."""
    return made[0] == "call" and (names_the_next(render(made[1])) or any(map(_counts_up, made[2])))


def forgives(kind: Node, kinds: Value) -> bool:
    """Whether an exception, one of a tuple of them, or one of ``kinds``, which it stands for, is what a second deletion
    raises, or who asks for what is not there."""
    named = [render(one) for one in (kind[1] if kind[0] == "seq" else (kind,))]
    named += [one.reference for one in kinds.elements or ()]
    return any(name.rpartition(".")[2] in _FORGIVEN for name in named)
