"""The classes of the project: what they inherit, who inherits from them, their methods and fields."""

from __future__ import annotations

from allranks.check.interpret.evaluate import Evaluator
from allranks.check.interpret.state import Frame
from allranks.check.summaries.project import Project
from allranks.check.summaries.summary import Node
from allranks.check.tables.apis import Apis
from allranks.check.tables.names import documented
from allranks.check.tables.receivers import TRAINER, is_trainer


class Classes(Evaluator):
    """Knows the classes of a project by their references, those of others by their dotted names."""

    def __init__(self, project: Project, apis: Apis) -> None:
        self.project = project
        self.apis = apis
        self.lineages: dict[str, tuple[str, ...]] = {}
        self.related: dict[str, dict[str, None]] = {}  # class -> those that are in a line with it
        self.mixed: dict[tuple[str, str], str | None] = {}
        self.made_of: dict[str, dict[str, Node]] = {}

    def module_frame(self, path: str) -> Frame:
        raise NotImplementedError

    def lineage(self, reference: str) -> tuple[str, ...]:
        """Return a class and what it inherits, nearest first: references of the project, dotted names of others."""
        known = self.lineages.get(reference)
        if known is not None:
            return known
        facts = self.project.cls(reference)
        if facts is None:
            name = documented(reference)
            trains = is_trainer(name) and name != TRAINER
            self.lineages[reference] = (reference, TRAINER) if trains else (reference,) if reference else ()
            return self.lineages[reference]
        self.lineages[reference] = (reference,)  # a circle ends here
        found = [reference]
        module = self.module_frame(reference.partition("::")[0])
        for base in facts.bases:
            found += self.lineage(self.value(module, base).reference) if base[0] in ("name", "attr") else ()
        self.lineages[reference] = tuple(dict.fromkeys(found))
        return self.lineages[reference]

    def heirs(self, reference: str) -> tuple[str, ...]:
        """Return what a class inherits, and what those inherit that are made of it: a mixin knows its base by them."""
        if not self.related:
            classes = (f"{path}::{key}" for path, summary in self.project.summaries.items() for key in summary.classes)
            related: dict[str, dict[str, None]] = {}
            for line in [self.lineage(kin) for kin in classes]:
                for kin in line:
                    related.setdefault(kin, {}).update(dict.fromkeys(line))
            self.related = related
        return tuple(self.related.get(reference, ()))

    def family(self, reference: str) -> str:
        """Return the name under which all classes that share attributes keep them: the furthest ancestor here."""
        own = [name for name in self.lineage(reference) if "::" in name]
        return own[-1] if own else reference

    def method(self, reference: str, name: str) -> str | None:
        """Return the function that ``name`` is on an instance of a class of the project."""
        for owner in self.lineage(reference):
            if (found := self.project.methods(owner).get(name)) is not None:
                return found
        return None

    def of_heirs(self, reference: str, name: str) -> str | None:
        """Return the method that a mixin finds in the classes that are made of it, if they agree which."""
        key = (reference, name)
        if key not in self.mixed:
            found = {self.method(kin, name) for kin in self.heirs(reference) if "::" in kin}
            only = found - {None}
            self.mixed[key] = only.pop() if len(only) == 1 else None
        return self.mixed[key]

    def in_line(self, one: str, other: str) -> bool:
        """Whether one of two classes inherits from the other."""
        return "::" in one and "::" in other and (one in self.lineage(other) or other in self.lineage(one))

    def fields(self, reference: str) -> dict[str, Node]:
        """Return what a class without a constructor is made of, as a dataclass has it: in order, with defaults."""
        if reference not in self.made_of:
            bodies = map(self.project.class_body, reversed(self.lineage(reference)))
            stored = [s for body in bodies for s in body if s[0] == "assign"]
            self.made_of[reference] = {s[2][0][1]: s[3] for s in stored if s[2][0][0] == "name"}
        return self.made_of[reference]
