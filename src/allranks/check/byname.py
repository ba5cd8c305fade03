"""Methods that no call is known to lead to: who calls them by name, on an object of whatever class?

A model that a factory picks by a word, a list of callbacks, an attribute that somebody else fills: the class of the
object is not known, but the name of the method is, and so are the ranks that call it. Where a class is made by some
ranks only, its methods are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from allranks.check.project import Project
from allranks.check.state import Result
from allranks.check.tables.receivers import HOOKS
from allranks.check.truth import EVERY


class ByName:
    """``made``: class -> the roles that make it; ``called``: method -> the roles that call it by name. Roles of
    programs that show that there are several processes."""

    def __init__(self, project: Project, lineage: Callable[[str], tuple[str, ...]]) -> None:
        self.project = project
        self.lineage = lineage
        self.made: dict[str, int] = {}
        self.called: dict[str, int] = {}

    def is_method(self, root: Result) -> bool:
        facts = self.project.function(root.reference)
        return facts is not None and bool(facts.owner)

    def note(self, result: Result, mask: int) -> None:
        """Keep what a function that these roles reach makes and calls."""
        for name, roles in result.loose:
            self.called[name] = self.called.get(name, 0) | (mask & roles)
        for reference, roles in result.made:
            for kin in self.lineage(reference):
                self.made[kin] = self.made.get(kin, 0) | (mask & roles)

    def come_to(self, methods: Iterable[Result], down: Callable[[Result, int], None]) -> None:
        """Go ``down`` into methods for the roles that call them by name, who may call others so; in the end for all
        roles into those that nobody calls."""
        waiting, seen = list(methods), dict[int, int]()
        for unknown in (None, EVERY):
            while more := [(m, at) for m in waiting if (at := self._roles(m, unknown)) not in (None, seen.get(id(m)))]:
                for method, roles in more:
                    seen[id(method)] = roles or 0
                    down(method, roles or 0)

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
