"""Methods that are known by their name, or by a class that leaves them to others: which functions a call may run."""

from __future__ import annotations

from allranks.check.interpret.acting import Acting
from allranks.check.interpret.given import Given
from allranks.check.interpret.state import Frame, Trace
from allranks.check.interpret.truth import UNKNOWN
from allranks.check.interpret.values import ANYTHING, Value, join, replace
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node, body_of
from allranks.check.tables.passing import OF_MANY

SHORT = 600  # bytes of a body: one statement
MOST = 10  # so many classes may do it each in its way


class Overrides(Acting):
    """Finds the functions behind methods of duck-typed and abstract objects, and runs all that may be meant."""

    running: list[str]
    entered: set[str]
    callees: set[str]

    def run_call(self, frame: Frame, function: Value, given: Given) -> Value:
        raise NotImplementedError

    def called(self, frame: Frame, function: Value, given: Given) -> Value:
        raise NotImplementedError

    def likely(self, name: str, receiver: Node) -> tuple[str, ...]:
        """Return the methods that a name which says something may mean: one class has it, or one family of classes; or
        the one class that is called as the object is: ``world.sum()`` of a class ``World``."""
        if "_" not in name.strip("_") or name in OF_MANY:
            return self._of_namesake(name, receiver)
        found = self.project.defined(name)
        if len(found) > 1:  # what a whole hands on to its parts, under the same name
            found = tuple(one for one in found if one not in self.running)
        if len(found) < 2:
            return found
        families = {self.family(self._owner(one)) for one in found} if len(found) <= MOST else {"", " "}
        return tuple(one for one in found if not self._is_left_open(one)) if len(families) == 1 else ()

    def is_certain(self, name: str) -> bool:
        """Whether one method alone may be meant by a name: others only say that there is one."""
        return sum(not self._is_declared(one) for one in self.project.defined(name)) == 1

    def _is_declared(self, method: str) -> bool:
        """Whether a method stands for those of the classes that are made of its own: it is abstract, or it raises."""
        facts = self.project.function(method)
        marked = facts is not None and any(render(one).endswith("abstractmethod") for one in facts.decorators)
        return marked or (self._is_left_open(method) and bool(facts and body_of(facts)))

    def _of_namesake(self, name: str, receiver: Node) -> tuple[str, ...]:
        called = receiver[1] if receiver[0] == "name" else receiver[2] if receiver[0] == "attr" else ""
        plain = called.replace("_", "").lower()
        owners = (self._owner(one).rpartition("::")[2] for one in self.project.defined(name)) if plain else ()
        found = [one for one, owner in zip(self.project.defined(name), owners, strict=False) if owner.lower() == plain]
        return (found[0],) if len(found) == 1 and found[0] not in self.running else ()

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

    def among(self, frame: Frame, methods: tuple[str, ...], given: Given, *, certain: bool) -> Value:
        """Call one of several methods: which, depends on the class of the object, and that is the same on all ranks.

        If it is not ``certain`` which, what they do but meet is not said to be done here, and each stays a way in.
        """
        ways: list[tuple[str, Value, Trace]] = []
        before, mask, may, guess = frame.nodes, frame.mask, frame.may, frame.guess
        known = [(kept, set(methods) & kept) for kept in (self.entered, self.callees)]
        if not certain:
            frame.guess, frame.mask, frame.may = frame.mask, 0, 0
        for method in methods:
            frame.nodes = []
            owner = self._owner(method)
            bound = replace(self.function_value(method, None), receiver=Value(instance=owner))
            ways.append((owner, self.run_call(frame, bound, given), tuple(frame.nodes)))
        frame.nodes, frame.mask, frame.may, frame.guess = before, mask, may, guess
        for kept, already in () if certain else known:
            kept -= set(methods) - already
        return _folded(frame, ways, given)

    def any_of(self, frame: Frame, options: tuple[Value, ...], given: Given) -> Value:
        """Call one of several classes, functions or objects, which a setting picks: the same on all ranks."""
        ways: list[tuple[str, Value, Trace]] = []
        before = frame.nodes
        for one in options:
            frame.nodes = []
            made = self.called(frame, one, given)
            ways.append((one.reference or one.instance, made, tuple(frame.nodes)))
        frame.nodes = before
        return _folded(frame, ways, given)

    def _owner(self, method: str) -> str:
        facts = self.project.function(method)
        return f"{method.partition('::')[0]}::{facts.owner}" if facts is not None else ""

    def _is_left_open(self, method: str) -> bool:
        """Whether a method does nothing itself: nothing stands in it, or it says that it is not implemented."""
        if method not in self.left_open:
            facts = self.project.function(method)
            short = facts is not None and facts.owner and len(facts.body) < SHORT
            self.left_open[method] = bool(short and facts and all(part[0] == "raise" for part in body_of(facts)))
        return self.left_open[method]


def _folded(frame: Frame, ways: list[tuple[str, Value, Trace]], given: Given) -> Value:
    """Put on the record what one of several functions meets, and return what it gives, whichever it is."""
    _, value, trace = ways.pop()
    for owner, other, nodes in reversed(ways):
        value = value if value == other else ANYTHING if ANYTHING in (value, other) else join(value, other)
        if nodes or trace:
            asked = f"isinstance({owner.partition('::')[2]})"
            trace = (("branch", UNKNOWN, 0, nodes, trace, given.span, asked, asked),)
    frame.nodes += trace
    return value
