"""Files that are opened: for what, and whether what is opened is a file at all. Pure."""

from __future__ import annotations

from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import Value
from allranks.check.summaries.summary import Node
from allranks.check.tables.effects import Effect

# Where `print` writes to that is no file of the program.
STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
_LETTERS = frozenset("rwaxbtU+")
# What opens a file of text, or of bytes; and who has a word of these changes one that he opened to read and write.
_OPENED = frozenset(["open", "codecs.open", "fsspec.open", "pathlib.Path.open", "jsonlines.open"])
_CHANGED = frozenset(["write", "writelines", "write_all", "dump", "truncate", "mmap", "save"])


def is_binary(given: Given, entry: Effect) -> bool:
    """Whether a file is opened for bytes."""
    mode = given.argument("mode", 0 if entry.receiver else 1) if entry.modes else None
    return mode is not None and isinstance(mode.constant, str) and "b" in mode.constant


def is_mode(constant: object) -> bool:
    return isinstance(constant, str) and 0 < len(constant) <= 3 and set(constant) <= _LETTERS


def only_reads(frame: Frame, entry: Effect) -> bool:
    """Whether a function that opens a file to read and write (``r+``) has nothing that writes."""
    return entry.pattern in _OPENED and _CHANGED.isdisjoint(frame.facts.words)


def is_no_file(path: Value) -> bool:
    """Whether what is written to is a stream of the process, or a function that gets every line."""
    return path.reference in STREAMS or "::" in path.reference


def is_in_archive(value: Value) -> bool:
    """Whether what is opened in it is no file of its own."""
    return value.handle is not None or value.instance.startswith(("zipfile.", "tarfile."))


def is_descriptor(path: Value, node: Node | None) -> bool:
    """Whether what is opened is open already, in this process: a number, or what ``fileno`` gives."""
    asked = node is not None and node[0] == "call" and node[1][0] == "attr" and node[1][2] == "fileno"
    return asked or (isinstance(path.constant, int) and not isinstance(path.constant, bool))
