"""Methods that are known by their name, or by a class that leaves them to others: which functions a call may run."""

from __future__ import annotations

from dataclasses import replace

from allranks.check.acting import Acting
from allranks.check.given import Given
from allranks.check.state import Frame, Trace
from allranks.check.summary import body_of
from allranks.check.tables.passing import OF_MANY
from allranks.check.truth import UNKNOWN
from allranks.check.values import ANYTHING, Value, join

MOST = 6  # so many classes may do it each in its way


class Overrides(Acting):
    """Finds the functions behind methods of duck-typed and abstract objects, and runs all that may be meant."""

    running: list[str]

    def run_call(self, frame: Frame, function: Value, given: Given) -> Value:
        raise NotImplementedError

    def likely(self, name: str) -> tuple[str, ...]:
        """Return the methods that a name which says something may mean: one class has it, or one family of classes."""
        if "_" not in name.strip("_") or name in OF_MANY:
            return ()
        found = self.project.defined(name)
        if len(found) < 2:
            return found
        families = {self.family(self._owner(one)) for one in found} if len(found) <= MOST else {"", " "}
        return tuple(one for one in found if not self._is_left_open(one)) if len(families) == 1 else ()

    def overriding(self, function: Value) -> tuple[str, ...]:
        """Return what is run instead of a method that a class leaves to those made of it."""
        receiver = function.receiver
        if receiver is None or "::" not in receiver.instance or not self._is_left_open(function.reference):
            return ()
        name = function.reference.rpartition(".")[2]
        found = self.project.defined(name)
        if len(found) > 4 * MOST:
            return ()
        kin = (
            one for one in found if one != function.reference and receiver.instance in self.lineage(self._owner(one))
        )
        made = tuple(one for one in kin if one not in self.running and not self._is_left_open(one))
        return made if len(made) <= MOST else ()

    def among(self, frame: Frame, methods: tuple[str, ...], given: Given) -> Value:
        """Call one of several methods: which, depends on the class of the object, and that is the same on all ranks."""
        ways: list[tuple[str, Value, Trace]] = []
        before = frame.nodes
        for method in methods:
            frame.nodes = []
            owner = self._owner(method)
            bound = replace(self.function_value(method, None), receiver=Value(instance=owner))
            ways.append((owner, self.run_call(frame, bound, given), tuple(frame.nodes)))
        frame.nodes = before
        _, value, trace = ways.pop()
        for owner, other, nodes in reversed(ways):
            value = value if value == other else ANYTHING if ANYTHING in (value, other) else join(value, other)
            if nodes or trace:
                asked = f"isinstance({owner.partition('::')[2]})"
                trace = (("branch", UNKNOWN, 0, nodes, trace, given.span, asked, asked),)
        frame.nodes += trace
        return value

    def _owner(self, method: str) -> str:
        facts = self.project.function(method)
        return f"{method.partition('::')[0]}::{facts.owner}" if facts is not None else ""

    def _is_left_open(self, method: str) -> bool:
        """Whether a method does nothing itself: nothing stands in it, or it says that it is not implemented."""
        facts = self.project.function(method)
        if facts is None or not facts.owner:
            return False
        return all(statement[0] == "raise" for statement in body_of(facts))
