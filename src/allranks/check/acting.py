"""Effects: what a call does to files, folders and trackers that other processes see."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.check.computed import Computed
from allranks.check.given import Given
from allranks.check.render import render
from allranks.check.state import Frame, Seen
from allranks.check.summary import Node
from allranks.check.tables.collectives import Collective
from allranks.check.tables.commands import doing
from allranks.check.tables.effects import MOVES, Effect, Kind
from allranks.check.tables.local import LocalQuery
from allranks.check.truth import FALSE
from allranks.check.values import ANYTHING, Value

# What a call does that is told not to do what it does.
_INSTEAD: Mapping[Kind, Kind] = {"mkdir": "folder", "tracker": "muted"}
# Where `print` writes to that is no file of the program.
_STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
_LETTERS = frozenset("rwaxbtU+")
# What a function asks of the net that writes what it gets into a file.
_FETCHES = frozenset(["urlopen", "iter_content", "iter_bytes", "requests", "httpx", "urllib3", "HTTPError"])

# Who catches these lives with another process having done it first.
_FORGIVEN = frozenset(
    ["OSError", "FileNotFoundError", "FileExistsError", "IOError", "Exception", "None", "EnvironmentError"]
)


class Acting(Computed):
    """Puts effects on the record."""

    def _effect(self, frame: Frame, entry: Effect, name: str, given: Given, base: Value | None) -> Value:
        if entry.kind in ("command", "print"):
            self._told(frame, entry, name, given)
            return ANYTHING
        path = given.naming(base if entry.receiver else given.argument(*entry.path) if entry.path else None)
        made = Value(path.taint if path else 0, handle=given.span, flags=path.flags if path else frozenset())
        itself = entry.receiver and given.node[1][0] == "attr"
        node = given.node[1][1] if itself else given.expression(*entry.path)
        text = render(node) if node is not None else ""
        if entry.modes:
            mode = given.argument("mode", 0 if entry.receiver else 1)
            letters = mode.constant if mode is not None else "r"
            if not isinstance(letters, str) or not set(letters) & set(entry.modes):
                if isinstance(letters, str):
                    self._record(frame, entry.doing("read"), name, given, path, text, node)
                return made
        if entry.path and (path is None or path.constant is None) and entry.kind in ("file", "checkpoint", "append"):
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
        if entry.kind == "file" and not _FETCHES.isdisjoint(frame.facts.words) and _is_binary(given, entry):
            entry = entry.doing("download")
        self._record(frame, entry, name, given, path, text, node)
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

    def _told(self, frame: Frame, entry: Effect, name: str, given: Given) -> None:
        """Record a call whose arguments say what it does: a command that is run, or a line and the file it goes to."""
        if entry.kind == "command":
            command = _words(given, *entry.path)
            if (kind := doing(command)) is not None:
                self._record(frame, entry.doing(kind), name, given, None, " ".join(command.split()[:6]))
            return
        stream = given.argument("file")
        if stream is None or stream.reference in _STREAMS or stream.constant is None or "memory" in stream.flags:
            self._record(frame, entry, name, given, None, "")
        else:
            self._record(frame, entry.doing("append"), name, given, stream, given.text("file"))

    def _opened(self, frame: Frame, base: Value, given: Given) -> Value:
        """Open a file by a method of something unknown: its path is the first argument, or the receiver itself."""
        mode = given.argument("mode", 1)
        itself = mode is None and _is_mode(given.values[0].constant)
        mode, path = (given.values[0], base) if itself else (mode, given.values[0])
        if mode is not None and _is_mode(mode.constant) and not _archive(base) and set(mode.constant) & set("wax+"):
            text = render(given.node[1][1]) if itself else given.text(0)
            self._record(frame, Effect("*.open", "file"), "*.open", given, path, text)
        return Value(path.taint, handle=given.span, flags=path.flags)


def _is_binary(given: Given, entry: Effect) -> bool:
    """Whether a file is opened for bytes."""
    mode = given.argument("mode", 0 if entry.receiver else 1) if entry.modes else None
    return mode is not None and isinstance(mode.constant, str) and "b" in mode.constant


def _is_mode(constant: object) -> bool:
    return isinstance(constant, str) and 0 < len(constant) <= 3 and set(constant) <= _LETTERS


def _archive(value: Value) -> bool:
    """Whether what is opened in it is no file of its own."""
    return value.handle is not None or value.instance.startswith(("zipfile.", "tarfile."))


def _words(given: Given, *keys: int | str) -> str:
    """Return a command as far as it is known, as a shell would be given it."""
    value, node = given.argument(*keys), given.expression(*keys)
    if node is not None and node[0] == "call" and node[2] and render(node[1]) == "shlex.split":
        node, value = node[2][0], None
    if value is None or node is None:
        return _plain(render(node)) if node is not None else ""
    if isinstance(value.constant, str):
        return value.constant
    if value.elements:
        return " ".join(v.constant if isinstance(v.constant, str) else v.text or "{}" for v in value.elements)
    return _plain(value.text or render(node))


def _plain(text: str) -> str:
    """Return what an expression is made of as a command: without the quotation marks, the operators as words."""
    return text.removeprefix("f").lstrip("'\"[(").replace("'", " ").replace('"', " ").replace(",", " ")


def forgives(kind: Node, kinds: Value) -> bool:
    """Whether an exception, one of a tuple of them, or one of ``kinds``, which it stands for, is what a second deletion
    raises."""
    named = [render(one) for one in (kind[1] if kind[0] == "seq" else (kind,))]
    named += [one.reference for one in kinds.elements or ()]
    return any(name.rpartition(".")[2] in _FORGIVEN for name in named)
