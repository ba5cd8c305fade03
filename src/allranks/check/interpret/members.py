"""Names and attributes: of modules, of the project's classes and their instances, of what is not the project's."""

from __future__ import annotations

import re
from functools import reduce

from allranks.check.interpret import wrapped
from allranks.check.interpret.classes import Classes
from allranks.check.interpret.held import is_quiet, names_path, of_those_who_have, part_of, settings_of, stored_twice
from allranks.check.interpret.logged import meets_nobody
from allranks.check.interpret.options import OWNERS
from allranks.check.interpret.spread import SPREAD, viewed
from allranks.check.interpret.state import Frame, Seen
from allranks.check.interpret.strangers import constant_of, outside, rank_of
from allranks.check.interpret.truth import BY_RANK, FALSE, FIRST, TRUE
from allranks.check.interpret.values import (
    AGREED,
    ANYTHING,
    ASKED,
    CLOCK,
    MANY,
    NO_CONSTANT,
    OF_HOST,
    ONE_OF,
    RANK,
    SIZE,
    STATE,
    TAINT,
    TEXT,
    Value,
    boolean,
    is_some_int,
    join,
    rank,
    replace,
    says_less,
)
from allranks.check.sources.source import module_name
from allranks.check.summaries.project import Project, is_property
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.apis import WEAK, Apis
from allranks.check.tables.collectives import Collective
from allranks.check.tables.data import WRAPPER
from allranks.check.tables.gates import NODE_LOCAL_VARIABLES
from allranks.check.tables.names import documented
from allranks.check.tables.ranks import RUN_STARTS, RankQuery
from allranks.check.tables.receivers import ATTRIBUTES, RECEIVERS, TUPLES

# Names that say nothing of what they are given to: what one of a kind is, the next need not be.
_OF_ANYTHING = frozenset(
    [
        *("value", "values", "data", "args", "kwargs", "name", "key", "item", "result", "x"),
        *("type", "label", "text", "output", "id", "index", "idx"),
    ]
)
# A variable that holds the rank: `DDP_LOCAL_RANK`.
_RANK = re.compile(r"(?:^|_)((?:global_|local_|node_)?rank)$")


class Members(Classes):
    """Looks names and attributes up. ``heap``: attribute -> class -> what was ever stored there; the variables of a
    module are kept under ``@path``, what is stored in an object of no known class under ``*`` (``*path``: a path)."""

    def __init__(self, project: Project, apis: Apis) -> None:
        super().__init__(project, apis)
        self.heap: dict[str, dict[str, Value]] = {}
        self.answers: dict[str, dict[str, Value | None]] = {}
        self.asked: set[tuple[str, str]] = set()
        self.spawned: set[str] = set()  # functions that processes are started with
        self.declared: dict[str, tuple[str, tuple[int, int, int, int]]] = {}  # where options are, by their names
        self.optional: dict[str, frozenset[str]] = {}  # file that declares options -> those of its programs
        self.stale = False  # something was stored after somebody had asked for it
        self.modules: dict[str, Frame] = {}
        self.left_open: dict[str, bool] = {}
        self.stored_elsewhere: dict[str, set[str]] = {}  # attribute -> classes with a method that stores it, not run

    def function_value(self, reference: str, scope: Frame | None) -> Value:
        raise NotImplementedError

    def invoke(self, frame: Frame, function: Value, span: tuple[int, int, int, int]) -> Value:
        raise NotImplementedError

    def disk(self, path: str) -> frozenset[str]:
        return self.apis.disk(path)

    # names

    def global_name(self, frame: Frame, name: str) -> Value:
        module = self.module_frame(frame.path)
        found = module.env.get(name)
        if found is not None:
            return found
        summary = self.project.summaries[frame.path]
        if name in summary.functions:  # defined further down
            return self.function_value(f"{frame.path}::{name}", None)
        if name in summary.classes:
            return Value(reference=f"{frame.path}::{name}")
        if (heaped := self.held(f"@{frame.path}", name)) is not None:
            return heaped
        return outside(self.project, frame.path, name)

    def imported(self, dotted: str, seen_from: str) -> Value:
        """Return what a dotted name of an import stands for."""
        found = self.project.split(dotted, seen_from)
        if found is None or len(found[1]) > 1:  # or of a module that is not here, or that cannot be read
            query = constant_of(self.apis, dotted)
            return self.standing(query) if query else Value(reference=documented(dotted.lstrip(".")))
        path, names = found
        value = Value(reference=f"@{path}")
        for name in names:
            value = self.member(path, name) if value.reference.startswith("@") else ANYTHING
        return value

    def member(self, path: str, name: str) -> Value:
        """Return a name of a module of the project: a submodule, a definition, or what its code leaves there."""
        summary = self.project.summaries[path]
        if name in summary.classes:
            return Value(reference=f"{path}::{name}")
        if name in summary.functions:
            return self.function_value(f"{path}::{name}", None)
        if path.endswith("__init__.py"):
            inner = self.project.module(f".{name}", path)
            if inner is not None and not self.project.rebinds(path, name, inner):
                return Value(reference=f"@{inner}")
        found = self.module_frame(path).env.get(name)
        if "__getattr__" in summary.functions:  # brought in when it is asked for: known by its name
            variable = self.apis.ranks["environment"].named(name)
            if variable is not None and (found is None or not found.ranked):
                return self.standing(variable)
            dotted = documented(f"{module_name(path).removeprefix('src.')}.{name}")
            if found is None or self.apis.signs.named(dotted) is not None:
                return Value(reference=dotted)
        return self._set_later(name, found) if found is not None else ANYTHING

    def _set_later(self, name: str, found: Value) -> Value:
        """Return what a variable of another module, or an attribute, holds: -1 until a rank is known is that rank."""
        named = _RANK.search(name.lower()) if found.constant == -1 else None
        query = self.apis.ranks["name"].named(named[1]) if named is not None else None
        return self.standing(query) if query is not None else found

    # attributes

    def attribute(self, frame: Frame, base: Value, name: str, node: Node) -> Value:
        if len(node) > 4 and (self.is_inside(base, name) or (name == "module" and wrapped.is_wrapper(base))):
            line, end = node[3], node[4]
            wrapped.note(frame, base, render(node[1]), name, (line, max(end - len(name), 0), line, end))
        base = wrapped.inside(base)
        found = self._set_later(name, self._attribute(frame, base, name, node))
        if found == ANYTHING and name in RECEIVERS:
            return Value(instance=RECEIVERS[name])
        if found == ANYTHING and name in ("should_save", "should_log") and node and render(node[1]).endswith("args"):
            return self._of_stranger(frame, Value(instance="transformers.TrainingArguments"), name, node)
        return found

    def is_inside(self, base: Value, name: str) -> bool:
        """Whether a wrapper is asked for what only the model inside has: nobody has given it one of its own."""
        return wrapped.is_inside(base, name) and self.held(WRAPPER, name) is None

    def _attribute(self, frame: Frame, base: Value, name: str, node: Node) -> Value:
        if base.flags & ONE_OF and base.elements:
            each = [self._attribute(frame, one, name, node) for one in base.elements]
            if len({one.reference for one in each}) > 1:  # each rank calls that of its own
                each = [*map(of_those_who_have, base.elements, each)]
            return reduce(join, each)
        if base.reference:
            return self._of_reference(frame, base, name)
        if base.instance and "::" in base.instance:
            found = self._of_instance(frame, base, name, node)
            if found is not None:
                return found
        elif name.startswith("is_") and base.instance == SIZE:
            return ANYTHING
        return self._of_stranger(frame, base, name, node)

    def _of_reference(self, frame: Frame, base: Value, name: str) -> Value:
        reference = base.reference
        if reference.startswith("@"):
            return self.member(reference[1:], name)
        if "::" not in reference:
            dotted = documented(f"{reference}.{name}")
            if (query := self.apis.ranks["attribute"].named(dotted)) is not None:
                return self.answer(frame, query)
            query = constant_of(self.apis, dotted) or rank_of(self.apis, dotted, "attribute")
            known = query is not None and query.kind in ("global", "local", "group")
            return replace(self.standing(query) if query and known else ANYTHING, reference=dotted)
        if self.project.cls(reference) is None:
            return ANYTHING
        found = self.method(reference, name)
        if found is not None:
            facts = self.project.function(found)
            bound = facts is not None and ("name", "classmethod") in facts.decorators
            value = self.function_value(found, None)
            return replace(value, receiver=Value(instance=reference)) if bound else value
        return self._or_by_name(frame, self.held(reference, name) or ANYTHING, name)

    def _or_by_name(self, frame: Frame, value: Value, name: str) -> Value:
        """Return what an attribute is, or what its name says where that is no rank."""
        query = self.apis.ranks["attribute"].tail(name) if not value.ranked else None
        return self.answer(frame, query) if query is not None and query.kind != "size" else value

    def _of_instance(self, frame: Frame, base: Value, name: str, node: Node) -> Value | None:
        found = self.method(base.instance, name)
        if found is None and (self.held(base.instance, name) or ANYTHING) == ANYTHING:
            found = self.of_heirs(base.instance, name)
        if found is not None:
            facts = self.project.function(found)
            decorators = facts.decorators if facts else ()
            value = replace(self.function_value(found, None), receiver=base)
            if is_property(decorators):
                end_line, end = (node[3], node[4]) if len(node) > 4 else (1, 0)
                made = self.invoke(frame, value, (end_line, max(end - len(name), 0), end_line, end))
                return self._or_by_name(frame, made, name) if made == ANYTHING else made
            if ("name", "staticmethod") in decorators:
                return self.function_value(found, None)
            return value
        heaped = self.held(base.instance, name)
        if heaped is not None and heaped.constant is False and self.method(base.instance, "__getattr__") is not None:
            return None  # what it was filled with may be switched off afterwards
        return None if heaped is not None and says_less(heaped) else heaped

    def _of_stranger(self, frame: Frame, base: Value, name: str, node: Node) -> Value:
        kin = self.lineage(base.instance)
        for owner in kin:
            if (kind := ATTRIBUTES.get(f"{owner}.{name}")) is not None:
                return Value(instance=kind)
        alike = self.held(f"*{frame.path}", render(node)) if node and names_path(name) else None
        heaped = alike or self.held("*", name) or self._of_settings(frame, node, name)
        if heaped is not None and heaped.ranked:
            return heaped
        last = name.rpartition(".")[2]  # getattr(options, "ddp.rank")
        query = self.apis.ranks["attribute"].method(kin, last.lower() if last.isupper() else last)
        if query is not None:
            return self.answer(frame, query)
        meeting = self.apis.collectives["attribute"].method(kin, name)
        if meeting is not None and len(node) > 4 and not meets_nobody(self.project, frame, base):
            self.meet(frame, meeting, f"{kin[0] if kin else '*'}.{name}", (node[3], node[4] - len(name), *node[3:5]))
            return ANYTHING
        if heaped is not None:
            return heaped
        if base == ANYTHING and (found := self._only_property(frame, name, node)).ranked:
            return found
        if base.flags & SPREAD:
            return viewed(frame, base, name, node)
        return part_of(base, render(node[1]) if node else "")

    def _of_settings(self, frame: Frame, node: Node, name: str) -> Value | None:
        """Return what was put out in settings, or is the default of an option: in a program that declares it."""
        found = self.held(settings_of(node), name)
        if found is None or not found.taint & CLOCK or name not in self.declared:
            return found
        path = self.declared[name][0]
        if path not in self.optional:
            self.optional[path] = frozenset().union(*map(self.project.reach, self.project.users(path)))
        return found if frame.path in self.optional[path] else None

    def _only_property(self, frame: Frame, name: str, node: Node) -> Value:
        """Return what the one property of this name gives, on an object of whatever class."""
        reference = self.project.only_property(name)
        facts = self.project.function(reference) if reference and len(node) > 4 else None
        if facts is None:
            return ANYTHING
        owner = Value(instance=f"{reference.partition('::')[0]}::{facts.owner}")
        span = (node[3], max(node[4] - len(name), 0), node[3], node[4])
        return self.invoke(frame, replace(self.function_value(reference, None), receiver=owner), span)

    def entry(self, frame: Frame, base: Value, key: str) -> Value | None:
        """Return what a dictionary holds under a name that says, or under which was stored, who this process is."""
        if base.reference:
            return None
        stored = self.held("*", key)
        if stored is not None and stored.ranked:
            return stored
        query = self.apis.ranks["attribute"].tail("distributed" if key == "dist" else key.lower())
        return self.answer(frame, query) if query is not None else None

    def answer(self, frame: Frame, query: RankQuery) -> Value:
        """Return what a rank query gives."""
        if query.form != "name" and query.pattern not in WEAK and query.kind not in ("size", "many", "run"):
            frame.result.evidence.add("rank")
        return self.standing(query)

    def standing(self, query: RankQuery) -> Value:
        """Return what a rank query gives, whoever asks: that it is asked shows nothing."""
        if query.kind == "many" and query.form == "environment":
            return Value(truth=TRUE, none=FALSE, flags=MANY)
        if query.kind == "many":
            return Value(ASKED if query.pattern.endswith(".is_initialized") else 0, constant=True, flags=MANY)
        if query.kind == "size":
            return Value(instance=SIZE, flags=OF_HOST if query.pattern == "torch.cuda.device_count" else frozenset())
        if query.kind == "run":
            if not self.project.calls(query.pattern.partition(".")[0], RUN_STARTS):
                return Value(reference=query.pattern)
            return Value(RANK, truth="TWWW", none="FWWW", instance=query.pattern)
        if query.first:
            return boolean(FIRST[query.kind], TAINT[query.kind])
        if query.last:
            return boolean("FDDD", TAINT[query.kind])
        return rank(query.kind)

    def environment(self, frame: Frame, name: object) -> Value | None:
        if name in NODE_LOCAL_VARIABLES:
            return Value(flags=frozenset({"node"}))
        query = self.apis.ranks["environment"].named(name) if isinstance(name, str) else None
        found = self.answer(frame, query) if query is not None else None
        return replace(found, flags=found.flags | TEXT) if found is not None and found.number else found

    def by_name(self, target: Node, value: Value) -> Value:
        """Return what unknown code gives, taken at the names under which it is stored: ``rank, size = join()``."""
        if target[0] == "seq" and value.elements is None and not (value.instance or value.reference):
            parts = tuple(self.by_name(part, ANYTHING) for part in target[1])
            return replace(value, elements=parts) if any(part != ANYTHING for part in parts) else value
        query = self.apis.ranks["name"].named(target[1]) if target[0] == "name" and value == ANYTHING else None
        return self.standing(query) if query is not None and query.kind in ("global", "local", "node") else value

    def says_much(self, value: Value) -> bool:
        """Whether what a class stores itself says much of its instances: a default and an annotation do not."""
        annotated = is_some_int(value) and "::" not in value.instance and not value.truth
        return not (annotated or isinstance(value.constant, str | int | float | None))

    def parts(self, frame: Frame, name: str) -> Value | None:
        """Return what is known of the tuple that a call returns; None of other calls."""
        words = TUPLES.get(name) or TUPLES.get(f"*.{name.rpartition('.')[2]}")
        if words is None:
            return None
        if "<rank>" in words:
            frame.result.evidence.add("rank")
        return Value(elements=tuple(rank("global") if word == "<rank>" else Value(instance=word) for word in words))

    def meet(self, frame: Frame, entry: Collective, name: str, span: tuple[int, int, int, int]) -> None:
        """Put a meeting of all processes on the record."""
        frame.nodes.append(("meet", entry.op, "hidden" if entry.hidden else "", span, name))
        frame.result.evidence.add("collective")
        frame.result.seen.append(
            Seen(name, entry, span, (), (), None, frame.mask, frame.may, bool(frame.turns), name.rpartition(".")[2])
        )
        frame.result.meetings.append(entry.op)

    def keep(self, owner: str, name: str, value: Value) -> None:
        """Remember what is stored in an attribute of ``owner``'s; of anybody's only by a name that says something."""
        if owner == "*" and name in _OF_ANYTHING:
            return
        plain = value.passed() if value.handle is not None else value
        setting = not value.taint and (value.constant is None or isinstance(value.constant, int))
        if setting and self.project.is_filled(owner):
            plain = replace(plain, constant=NO_CONSTANT)
        stored = self.heap.setdefault(name, {})
        before = stored.get(owner)
        if before is None and plain.taint & STATE and not is_quiet(plain):
            before = Value(plain.taint, truth=BY_RANK, none=BY_RANK)
        after = plain if before is None else stored_twice(before, plain)
        if after != stored.get(owner):
            stored[owner] = after
            self.answers.pop(name, None)
            was_none = before is not None and before.constant is None and after.instance
            telling = after.ranked or "::" in after.instance or after.bound or after.flags & ONE_OF or was_none
            self.stale |= bool(telling and (self.family(owner), name) in self.asked)

    def declare(self, option: str, default: Value, where: tuple[str, tuple[int, int, int, int]]) -> None:
        """Remember what an option of a command line is when nobody gives it, if each process has that for itself: not
        of a name that several programs declare."""
        first = self.declared.setdefault(option, where)
        for owner in OWNERS:
            if first == where and default.taint & CLOCK:
                self.keep(owner, option, default)
            elif first != where and self.heap.get(option, {}).get(owner) is not None:
                self.keep(owner, option, AGREED)

    def held(self, owner: str, name: str) -> Value | None:
        """Return what was stored so far in an attribute of ``owner``, what it inherits from or what inherits from it:
        not in those of its siblings."""
        answers = self.answers.setdefault(name, {})
        if owner not in answers:
            self.asked.add((self.family(owner), name))
            stored = list(self.heap.get(name, {}).items())  # to look at bases may store more
            found = [v for kin, v in stored if kin == owner or self.in_line(kin, owner)]
            answers[owner] = self._perhaps(owner, name, reduce(stored_twice, found)) if found else None
        return answers[owner]

    def _perhaps(self, owner: str, name: str, value: Value) -> Value:
        """Return what an attribute may hold: if a method that is not run stores it too, no constant it began with."""
        first = value.constant is None or isinstance(value.constant, int | float | str)
        if not first or value.taint or not self.stored_elsewhere:
            return value
        others = self.stored_elsewhere.get(name, ())
        return (
            replace(value, constant=NO_CONSTANT) if any(o == owner or self.in_line(o, owner) for o in others) else value
        )
