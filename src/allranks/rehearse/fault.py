"""Define the faults that a rehearsal can cause, and read them from a command line."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from allranks.rehearse.checkpoint_names import is_checkpoint

Action: TypeAlias = Literal["kill", "preempt", "raise", "hang", "enospc", "delay"]
ACTIONS: tuple[str, ...] = get_args(Action)
# By action: what may follow it. "rank" and "step" say which rank is hit and when, "path" which files, "seconds" a time.
_FIELDS: dict[str, tuple[str, ...]] = {
    "kill": ("rank", "step", "path", "at_save"),
    "preempt": ("rank", "step"),
    "raise": ("rank", "step"),
    "hang": ("rank", "step"),
    "enospc": ("rank", "path"),
    "delay": ("rank", "path", "seconds"),
}
_EXAMPLES = "kill:rank=1@step=5, kill:save, preempt:step=5, enospc:path=ckpt/*, delay:300ms,path=ckpt/*"
# What users type for a field, where it is not the field's name.
_WORDS = {"at_save": "save", "seconds": "a time (300ms)"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_DELAY = 0.3
# The operations that open a file to write, and those that fail on a full disk.
_OPENED = ("create", "exclusive", "write", "append")
_NEED_SPACE = (*_OPENED, "mkdir", "link")


class FaultError(ValueError):
    """A ``--fault`` that cannot be read. The text says what was expected."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    - ``rank``: the rank that is hit; None for all ranks (``kill``, ``raise`` and ``hang``: the last rank).
    - ``step``: after which step of the rank, from 1; 0 for the middle of the quiet run.
    - ``path``: the files, as a pattern of ``fnmatch``; "" for checkpoints.
    - ``at_save``: ``kill`` strikes when a rank opens one of the files to write, in a step after the first in which it
      did: so there is a complete checkpoint before.
    - ``seconds``: how long ``delay`` makes each call wait.
    """

    action: Action
    rank: int | None = None
    step: int = 0
    path: str = ""
    at_save: bool = False
    seconds: float = _DELAY

    def __str__(self) -> str:
        words = [f"rank={self.rank}"] if self.rank is not None else []
        words += [f"step={self.step}"] if self.step else []
        words += ["save"] if self.at_save else []
        words += [f"path={self.path}"] if self.path else []
        words += [f"{self.seconds * 1000:.0f}ms"] if self.action == "delay" else []
        return f"{self.action}:{'@'.join(words)}" if words else self.action

    @property
    def is_of_files(self) -> bool:
        """Whether the fault strikes at a file call, and not after a step."""
        return self.action in ("enospc", "delay") or self.at_save

    def ranks(self, size: int) -> tuple[int, ...]:
        """Return the ranks that are hit in a world of ``size`` ranks."""
        if self.rank is not None:
            return (self.rank,)
        return tuple(range(size)) if self.is_of_files or self.action == "preempt" else (size - 1,)

    def matches(self, path: str, root: str) -> bool:
        """Return whether an absolute path is one of this fault's files. Patterns may be relative to ``root``."""
        if not self.path:
            return is_checkpoint(path)
        return any(fnmatch.fnmatch(one, self.path) for one in (path, path.removeprefix(f"{root}/")))

    def settings(self, size: int) -> dict[str, Any]:
        """Return what the probe in each rank needs to know of this fault."""
        return {"action": self.action, "ranks": list(self.ranks(size)), "step": self.step}


# The faults of the scenario `faults` if the command line names none.
USUAL: tuple[Fault, ...] = (
    Fault("kill"),
    Fault("kill", at_save=True),
    Fault("preempt"),
    Fault("raise"),
    Fault("enospc"),
)


@dataclass(slots=True)
class FileFault:
    """Decides at which file calls of a run a fault strikes. ``root`` is the program's folder."""

    fault: Fault
    ranks: int
    root: str
    _first_steps: dict[int, int] = field(default_factory=dict)

    def strikes(self, rank: int, operation: str, path: str, step: int) -> bool:
        """Return whether the fault strikes at this call. Must be called for each call, in order."""
        fault = self.fault
        if not fault.is_of_files or rank not in fault.ranks(self.ranks) or not fault.matches(path, self.root):
            return False
        if fault.action == "delay":
            return True
        if fault.action == "enospc":
            return operation in _NEED_SPACE
        return operation in _OPENED and step > self._first_steps.setdefault(rank, step)


def parse(text: str, *, size: int | None = None) -> Fault:
    """Return the fault that a text like ``kill:rank=2@step=5`` describes.

    ``size`` is the number of ranks, if known. Raises FaultError if the text cannot be read.
    """
    action, _, rest = text.partition(":")
    if action not in ACTIONS:
        raise FaultError(f"{text!r}: {action!r} is no fault; there are {', '.join(ACTIONS)} (e.g. {_EXAMPLES})")
    given: dict[str, Any] = {}
    for word in filter(None, re.split("[,@]", rest)):
        name, value = _word(text, word)
        if name not in _FIELDS[action]:
            takes = ", ".join(_WORDS.get(field, field) for field in _FIELDS[action])
            raise FaultError(f"{text!r}: {action} takes {takes}; found {word!r}")
        given[name] = value
    given["at_save"] = given.get("at_save", action == "kill" and "path" in given)
    fault = Fault(action, **given)  # type: ignore[arg-type]
    if size is not None and fault.rank is not None and fault.rank >= size:
        raise FaultError(f"{text!r}: there is no rank {fault.rank}; ranks are 0 to {size - 1}")
    if fault.step and fault.is_of_files:
        raise FaultError(f"{text!r}: it strikes at files: give a step or files, not both")
    return fault


def _word(text: str, word: str) -> tuple[str, Any]:
    if found := _DURATION.fullmatch(word):
        return "seconds", float(found[1]) / (1000 if found[2] == "ms" else 1)
    if word == "save":
        return "at_save", True
    name, is_pair, value = word.partition("=")
    if not is_pair or name not in ("rank", "step", "path"):
        raise FaultError(f"{text!r}: expected rank=, step=, path=, save or a time (300ms), found {word!r}")
    if name == "path":
        return name, value
    if not value.isdecimal() or (name == "step" and value == "0"):
        raise FaultError(f"{text!r}: expected a number {'from 1' if name == 'step' else 'of a rank'}, found {word!r}")
    return name, int(value)


def chosen(texts: Sequence[str], *, size: int) -> tuple[Fault, ...]:
    """Return the faults that a command line names; the usual ones if it names none."""
    return tuple(parse(text, size=size) for text in texts) or USUAL
