"""Attributes: of modules, classes and objects of the project, and of what libraries make."""

from __future__ import annotations

import ast

from allranks.check.knowledge.tables import RankQuery
from allranks.check.simulate.given import Given
from allranks.check.simulate.joining import join_all
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame
from allranks.check.simulate.values import (
    ANYTHING,
    FALSE,
    NONE,
    RANK,
    SPREAD,
    TRUE,
    ByRole,
    Class,
    Const,
    Either,
    Function,
    Library,
    Made,
    ModuleObject,
    Object,
    Table,
    Unknown,
    Value,
    is_first,
    is_last,
    lift,
    number,
    taint,
)

# The model inside a wrapper: it calls no collective.
BARE = "<bare model>"
# What kind of array it is, and how far a training is: the same on all ranks, whatever its values.
_OF_KIND = frozenset(
    [
        *("ndim", "dtype", "device", "requires_grad", "is_cuda", "is_sparse", "itemsize", "__class__"),
        *("step", "global_step", "epoch", "iteration", "num_steps"),
    ]
)
# What an array over all processes tells this one of its part, or of its form.
_OF_ARRAY = frozenset(["addressable_shards", "sharding", "shape", "size", "nbytes", "is_fully_addressable"])
_FILE_ATTRIBUTES = ("name", "stem", "suffix", "parent", "parts", "root")


class Members:
    """Finds attributes."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self.knowledge = simulator.knowledge

    def rank(self, query: RankQuery) -> Value:
        """Return the value of a query for the rank."""
        if query.kind == "size":
            return Unknown(true=True, kind="size")
        if query.kind == "many":
            return TRUE
        if query.kind == "run":
            return ANYTHING
        if query.which == "first":
            return is_first(query.kind)
        return is_last() if query.which == "last" else number(query.kind)

    def called(self, name: str) -> Value | None:
        """Return what a variable, attribute or setting that nothing explains is by its name; None if that says
        nothing."""
        query = self.knowledge.rank_called(name)
        return self.rank(query) if query is not None else None

    def settings(self, base: Value, node: ast.AST) -> Library | None:
        """Return what holds the attributes that a program gives its settings (``args.rank = 0``); None if an object is
        none, by its name or by that of the attribute ``node.value``."""
        inside = getattr(node, "value", None)
        written = inside.attr if isinstance(inside, ast.Attribute) else ""
        for name in (written, base.name) if isinstance(base, Unknown) else ():
            if name and self.knowledge.named("settings", name):
                return Library(f"<{name.lstrip('_')}>")
        return None

    def attribute(self, frame: Frame, base: Value, name: str, node: ast.AST) -> Value:
        """Return ``base.name``. A property of the project is called."""
        if isinstance(base, ByRole):
            return lift(lambda one: self.attribute(frame, one, name, node), base)
        if isinstance(base, Either):
            known: list[Value] = [one for one in base.options if not isinstance(one, Unknown) and one != NONE]
            every = (self.attribute(frame, one, name, node) for one in known or base.options)
            return join_all(every) or ANYTHING
        settings = self.settings(base, node)
        if settings is None and isinstance(base, Unknown) and base.name:
            settings = Library(f"<{base.name}>")  # whatever the object is: what a rank stored in it, it finds there
        if settings is not None and (stored := self.simulator.heap.get(settings, name)) is not None:
            return stored
        found_member = self.find(base, name)
        if isinstance(found_member, Made) and found_member.cls == "property":
            inside = found_member.about
            if isinstance(inside, Function):
                return self.simulator.calls.invoke(frame, inside.with_receiver(base), Given(node))
            return ANYTHING
        strange = isinstance(found_member, Library) and found_member.name not in self.knowledge.modules
        if (
            strange
            and isinstance(found_member, Library)
            and found_member.name.partition(".")[0] not in self.knowledge.installed
        ):
            return self.called(name) or found_member
        if found_member is not None:
            return found_member
        for owner in self.classes(base):
            if (value := self._of_library(frame, owner, name, base, node)) is not None:
                return value
        if isinstance(base, Made) and base.cls == "file" and name == "name" and base.about is not None:
            return base.about
        if isinstance(base, Made) and base.cls == "pathlib.Path" and name in _FILE_ATTRIBUTES:
            return Made("pathlib.Path", base.taint, base.about) if name == "parent" else Unknown(taint(base), true=True)
        plain = self.called(name)
        if plain is not None:
            return plain
        if name in _OF_ARRAY and taint(base) & SPREAD:
            return Unknown(taint(base) & ~SPREAD)
        if name in _OF_KIND and not taint(base) & RANK:
            return ANYTHING
        return Unknown(taint(base), name=name)

    def find(self, base: Value, name: str) -> Value | None:
        """Return an attribute that the project or a library's module defines: methods are bound. None if neither
        does."""
        if isinstance(base, Library):
            return self._of_module(f"{base.name}.{name}")
        if isinstance(base, ModuleObject):
            return self.simulator.member_of_module(base, name)
        if isinstance(base, Object):
            stored = self.simulator.heap.get(base, name)
            return stored if stored is not None else self._of_class(base.cls, name, base)
        if isinstance(base, Class):
            return Const(base.name) if name in ("__name__", "__qualname__") else self._of_class(base, name, None)
        if isinstance(base, Made) and base.cls == "super":
            return self._above(base, name)
        if isinstance(base, Table):
            return base.get(name)
        if isinstance(base, Unknown) and (chosen := self.simulator.chosen.get(name)) is not None:
            return chosen if len(chosen.options) > 1 else chosen.options[0]
        if isinstance(base, Unknown) and base.name and not (base.taint or self.knowledge.named("settings", base.name)):
            alike = self.simulator.calls.named(base.name)
            return self.find(alike, name) if alike is not None else None
        return None

    def _of_module(self, dotted: str) -> Value:
        name = self.knowledge.documented(dotted)
        query = self.knowledge.rank("attribute", name)
        if query is not None:
            return self.rank(query)
        if name == "typing.TYPE_CHECKING":
            return FALSE
        package, _, word = name.partition(".")
        run = self.simulator.heap.get(Made("<runs>", path=package), "run") if word == "run" else None
        return run if run is not None else Library(name)

    def _of_class(self, cls: Class, name: str, receiver: Object | None) -> Value | None:
        found = cls.find(name)
        for one in cls.lineage():
            if (stored := self.simulator.heap.get(one, name)) is not None:
                return stored
        if found is None:
            return None
        if isinstance(found, Made) and found.cls == "staticmethod":
            return found.about
        if isinstance(found, Made) and found.cls == "classmethod" and isinstance(found.about, Function):
            return found.about.with_receiver(cls)
        if isinstance(found, Function) and receiver is not None:
            return found.with_receiver(receiver)
        switch = isinstance(found, Const) and (found.value is None or isinstance(found.value, bool))
        if switch and self.knowledge.named("settings", cls.name):
            return self.called(name) or Unknown(name=name)  # a default, which a command line may change
        return found

    def _above(self, base: Made, name: str) -> Value | None:
        """Return a member of the classes above the one in which ``super()`` is called."""
        arguments = dict(base.arguments)
        receiver, owner = base.about, arguments.get("owner")
        if not isinstance(owner, Class) or receiver is None:
            return None
        cls = receiver.cls if isinstance(receiver, Object) else owner
        lineage = list(cls.lineage())
        above = lineage[lineage.index(owner) + 1 :] if owner in lineage else list(owner.lineage())[1:]
        for one in above:
            if (found := one.members.get(name)) is not None:
                return found.with_receiver(receiver) if isinstance(found, Function) else found
        return None

    def classes(self, base: Value) -> tuple[str, ...]:
        """Return the names of the library's classes that an object is an instance of, nearest first."""
        if isinstance(base, Made):
            if base.cls == "super" and isinstance(owner := dict(base.arguments).get("owner"), Class):
                return self.knowledge.lineage(owner.library_bases())
            return self.knowledge.lineage((base.cls,))
        if isinstance(base, Object):
            return self.knowledge.lineage(base.cls.library_bases())
        if isinstance(base, Class):
            return self.knowledge.lineage(base.library_bases())
        if isinstance(base, Unknown) and base.name:
            found = self.knowledge.classes["receivers"].get(base.name.lstrip("_"))
            return (found,) if found else ()
        return ()

    def _of_library(self, frame: Frame, owner: str, name: str, base: Value, node: ast.AST) -> Value | None:
        dotted = f"{owner}.{name}"
        if (cls := self.knowledge.classes["attributes"].get(dotted)) is not None:
            inside = base.about if isinstance(base, Made) else None
            return inside if cls == BARE and isinstance(inside, Object) else Made(cls, about=inside)
        if (query := self.knowledge.rank("attribute", dotted)) is not None:
            self.simulator.recording.sign(frame, "rank", dotted, node)
            return self.rank(query)
        if (collective := self.knowledge.collectives["attribute"].get(dotted)) is not None:
            self.simulator.recording.record_collective(frame, collective, Given(node, receiver=base))
            return ANYTHING
        return None
