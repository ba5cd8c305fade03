"""Methods that no call is known to lead to: who calls them by name, on an object of whatever class?

A model that a factory picks by a word, a list of callbacks, an attribute that somebody else fills: the class of the
object is not known, but the name of the method is, and so are the ranks that call it. Where a class is made by some
ranks only, its methods are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from allranks.check.interpret.state import Result
from allranks.check.interpret.truth import EVERY
from allranks.check.interpret.values import ANYTHING, Value
from allranks.check.summaries.project import Project
from allranks.check.tables.receivers import HOOKS

# Names that objects of all sorts have: who calls them means anything.
_OF_ALL = frozenset(
    [
        *(
            "get",
            "set",
            "update",
            "items",
            "keys",
            "values",
            "append",
            "extend",
            "add",
            "pop",
            "copy",
            "format",
            "join",
        ),
        *(
            "split",
            "read",
            "write",
            "flush",
            "close",
            "load",
            "start",
            "stop",
            "reset",
            "open",
            "clear",
            "remove",
            "insert",
            "sort",
            "index",
        ),
        *("count", "encode", "decode", "replace", "match", "search", "sub", "put", "submit", "result", "parse", "size"),
        *(
            "to",
            "cuda",
            "cpu",
            "train",
            "eval",
            "item",
            "mean",
            "sum",
            "backward",
            "zero_grad",
            "state_dict",
            "forward",
        ),
    ]
)


class Unmet(NamedTuple):
    """A method of a class that is made, the roles that come to it for certain, whether it is known that they are
    several processes, and what it is given as far as all calls of its name agree."""

    method: str
    owner: str
    roles: int
    sure: bool
    values: tuple[Value, ...]


class ByName:
    """``made``: class -> the roles that make it; ``called``: method -> the roles that call it by name somewhere;
    ``always``: those that do wherever it is called; ``given``: what all calls of it give. Of programs that show
    that there are several processes; ``sure``: classes and methods of those of them that are known to be run so."""

    def __init__(self, project: Project, lineage: Callable[[str], tuple[str, ...]]) -> None:
        self.project = project
        self.lineage = lineage
        self.made: dict[str, int] = {}
        self.called: dict[str, int] = {}
        self.always: dict[str, int] = {}
        self.sure: set[str] = set()
        self.given: dict[str, tuple[Value, ...]] = {}

    def is_method(self, root: Result) -> bool:
        facts = self.project.function(root.reference)
        return facts is not None and bool(facts.owner)

    def callers(self, method: str) -> int:
        """Return the roles that may call a method of that name: all where its name stands somewhere and no call of it
        is known, none where it does not."""
        if method in self.called:
            return self.called[method]
        functions = (facts for summary in self.project.summaries.values() for facts in summary.functions.values())
        return EVERY if any(method in facts.words for facts in functions) else 0

    def note(self, result: Result, mask: int, *, sure: bool) -> None:
        """Keep what a function that these roles reach makes and calls."""
        for name, roles, values in result.loose:
            if values:
                known = zip(self.given.get(name, values), values, strict=False)
                self.given[name] = tuple(a if a == b else ANYTHING for a, b in known)
            self.called[name] = self.called.get(name, 0) | (mask & roles)
            self.always[name] = self.always.get(name, EVERY) & mask & roles
            if sure:
                self.sure.add(name)
        for reference, roles in result.made:
            self.make(reference, mask & roles, sure=sure)

    def make(self, reference: str, roles: int, *, sure: bool) -> None:
        """Keep that these roles make an object of a class."""
        for kin in self.lineage(reference):
            self.made[kin] = self.made.get(kin, 0) | roles
            if sure:
                self.sure.add(kin)

    def unmet(self, reached: Collection[str]) -> Iterator[Unmet]:
        """Yield the methods of classes that are made which are called by name, and to which no other call led."""
        for owner, makers in sorted(self.made.items()):
            for name, method in self.project.methods(owner).items():
                if name in self.called and name not in _OF_ALL and method not in reached:
                    values = self.given.get(name) or self.given.get("", ())
                    yield Unmet(method, owner, makers & self.always[name], {name, owner} <= self.sure, values)

    def is_sure(self, root: Result) -> bool:
        """Whether several processes are known to call such a method, and to make an object that has it: that of the
        one class which has it, somebody must have made."""
        facts = self.project.function(root.reference)
        if facts is None or not facts.owner or facts.name not in self.sure:
            return False
        alone = "_" in facts.name.strip("_") and len(self.project.defined(facts.name)) == 1
        return alone or f"{root.path}::{facts.owner}" in self.sure

    def come_to(self, methods: Iterable[Result], down: Callable[[Result, int], None]) -> None:
        """Go ``down`` into methods for the roles that call them by name, who may call others so; in the end for all
        roles into those that nobody calls."""
        waiting, seen = list(methods), dict[int, int]()
        for unknown in (None, EVERY):
            while more := [one for one in waiting if self._roles(one, unknown) not in (None, seen.get(id(one)))]:
                for method in more:  # asked anew: those before may have shown who calls it
                    seen[id(method)] = roles = self._roles(method, unknown) or 0
                    down(method, roles)

    def _roles(self, root: Result, unknown: int | None) -> int | None:
        """Return the roles that may come to a method; ``unknown`` where nothing is known of who does."""
        facts = self.project.function(root.reference)
        if facts is None or facts.name in HOOKS or facts.name.startswith("__"):
            return unknown
        made = self.made.get(f"{root.path}::{facts.owner}")
        called = self.called.get(facts.name)
        if made is None and called is None:
            return unknown
        return (EVERY if made is None else made) & (EVERY if called is None else called)


def entries_of(roots: Iterable[Result], callees: Collection[str]) -> list[Result]:
    """Leave out what others call: what it is given is known from them. Of a circle of calls, the first stays."""
    entries = [root for root in roots if root.reference not in callees]
    walked: set[int] = set()
    reached: set[str] = set()
    for root in entries:
        _reach(root, walked, reached)
    for root in roots:
        if root.reference not in reached:
            entries.append(root)
            _reach(root, walked, reached)
    return entries


def _reach(root: Result, walked: set[int], reached: set[str]) -> None:
    waiting = [root]
    while waiting:
        result = waiting.pop()
        if id(result) not in walked:
            walked.add(id(result))
            reached.add(result.reference)
            waiting += [called.result for called in result.calls]
