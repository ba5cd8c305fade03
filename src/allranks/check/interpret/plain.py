"""Calls of Python's own and of libraries that pass things on: the environment, attributes by name, bags of settings."""

from __future__ import annotations

from allranks.check.interpret import collected, wrapped
from allranks.check.interpret.asked import is_wrapped
from allranks.check.interpret.computed import compiled, parting, placed
from allranks.check.interpret.given import Given
from allranks.check.interpret.held import filled
from allranks.check.interpret.in_parts import FULLY_SHARD, PLUGIN, prepared, sharded, sharded_by
from allranks.check.interpret.overrides import Overrides
from allranks.check.interpret.spread import (
    ARRAY,
    KEYED,
    SPREAD_VALUE,
    compute,
    eager,
    entries,
    holds_parts,
    in_parts,
    leaf,
    merged,
)
from allranks.check.interpret.state import Called, Frame, Span
from allranks.check.interpret.truth import BY_RANK, EVERY, UNKNOWN
from allranks.check.interpret.values import (
    AGREED,
    ANYTHING,
    CLOCK,
    DEALT,
    EVEN,
    NO_CONSTANT,
    NONE,
    OWN,
    PROCESS,
    RANK,
    STATE,
    TEXT,
    Value,
    boolean,
    replace,
    tainted,
)
from allranks.check.summaries.summary import Node, nodes_in
from allranks.check.tables.arrays import (
    APPLYING,
    COMPILERS,
    FETCHES,
    FETCHING_METHODS,
    LEAVES,
    METHODS,
    SHARD_MAPS,
    TREE_MAPS,
    TREE_METHODS,
)
from allranks.check.tables.data import OWN_ROWS, SUBSETS
from allranks.check.tables.passing import BAGS, ITERATING, UNPACKS, WRAPPING
from allranks.check.tables.ranks import RankQuery

_FIELDS = ("dataclasses.field", "attrs.field", "pydantic.Field")


class Plain(Overrides):
    """Evaluates such calls."""

    def invoke(self, frame: Frame, function: Value, span: Span) -> Value:
        raise NotImplementedError

    def plain_call(self, frame: Frame, name: str, given: Given) -> Value | None:
        """Return what such a call gives; None for others."""
        if name.rpartition(".")[2] in BAGS:
            self.bag(given)
        if name in OWN_ROWS:
            self._record(frame, None, name, given, None, "")
        if name in FETCHES and in_parts(*given.values):
            return self.fetched(frame, name, given)
        if name in UNPACKS and _is_of_sent(frame, given):
            return AGREED
        if name.startswith("os."):
            return self._of_environment(frame, name, given)
        if "." not in name:
            return self._built_in(frame, name, given)
        return self._passed_on(frame, name, given)

    def changed(self, frame: Frame, name: str, given: Given, made: Value) -> Value:
        """Return what a call gives (``made``), or the model that it changes where it is."""
        if name != FULLY_SHARD or not given.values:
            return made
        model = sharded(given.values[0])
        if given.node[2][0][0] in ("name", "attr"):
            self.store(frame, given.node[2][0], model)
        return model

    def prepared(self, frame: Frame, name: str, given: Given) -> Value:
        """Return what Accelerate gives back: models in parts, where the file itself makes its plugin of FSDP, and in a
        wrapper, where nothing around puts them in parts and they are trained; and what MPI deals out: to each process
        its own."""
        if name.startswith("mpi4py.") and name.endswith(".scatter"):
            return Value(flags=OWN)
        imports = self.project.summaries[frame.path].imports
        if any(dotted.endswith(PLUGIN) for dotted, _ in imports):
            return prepared(name, given)
        functions = self.project.summaries[frame.path].functions.values()
        whole = any("backward" in facts.words for facts in functions) and not self.project.shards(frame.path)
        return wrapped.prepared(name, given, frame.facts) if whole else ANYTHING

    def changed_below(self, frame: Frame, function: Value, given: Given, calls: list[Called]) -> None:
        """A function of the project has sharded models that it was given, or the one whose method it is, or set what is
        its own after the rank (``calls``: how it was called)."""
        self._set_below(frame, function, given, calls)
        facts = self.project.function(function.reference)
        for name in sharded_by(facts) if facts is not None else ():
            at = facts.positional.index(name) - (facts.positional[0] == "self") if facts is not None else 0
            expression, model = (
                (given.expression(name, at), given.argument(name, at)) if at >= 0 else (given.owner, function.receiver)
            )
            if model is not None and expression is not None and expression[0] in ("name", "attr"):
                self.store(frame, expression, sharded(model))

    def _set_below(self, frame: Frame, function: Value, given: Given, calls: list[Called]) -> None:
        """A method that an object calls of itself has set attributes after the rank: what they held before is gone."""
        kept = function.receiver.instance if function.receiver is not None else ""
        if "::" not in kept or given.owner is None or given.owner[0] != "name":
            return
        waiting, seen = [called.result for called in calls], dict[str, None]()
        while waiting:
            result = waiting.pop()
            facts = self.project.function(result.reference)
            if result.reference in seen or facts is None or not facts.owner:
                continue
            seen[result.reference] = None
            waiting += [called.result for called in result.calls]
            for name in facts.stored:
                key = f"{given.owner[1]}.{name}"
                if key in frame.env and not frame.env[key].ranked and (now := self.held(kept, name)) is not None:
                    frame.env[key] = now if now.ranked else frame.env[key]

    def fetched(self, frame: Frame, name: str, given: Given) -> Value:
        """Record that an array in parts is brought to this host."""
        self._record(frame, None, name, given, None, "")
        return ANYTHING

    def dealt(self, frame: Frame, name: str, given: Given) -> Value | None:
        """Return what a method gives that deals out to each process its part; None for others."""
        if name != "split_between_processes" and not (name == "shard" and any(v.ranked for v in given.all())):
            return None
        self._record(frame, None, f"*.{name}", given, None, "")
        return Value(flags=frozenset({"own", "part"}))

    def of_array(self, frame: Frame, base: Value, name: str, given: Given) -> Value | None:
        """Return what a method gives of an array in parts, a tree of such or a collection; None for others."""
        if base.instance == collected.COLLECTION:
            return collected.method(base, name, given.values)
        if name == "replace" and base.flags & KEYED:
            return merged(base, given.keywords)
        if name in APPLYING and any(map(holds_parts, given.all())):
            compute(frame, name, given.span)
            return SPREAD_VALUE
        if not in_parts(base):
            return None
        if name in FETCHING_METHODS:
            return self.fetched(frame, name, given._replace(values=(base,)))
        if name in TREE_METHODS:
            return base
        return eager(frame, name, (base,), given.span) if name in METHODS else None

    def bag(self, given: Given) -> None:
        """A call that keeps what it is given under its keywords: who this process is, others ask for by that name."""
        for name, value in given.keywords:
            if value.says_who:
                self.keep("*", name, value)

    def _fill(self, frame: Frame, target: Node, base: Value, value: Value) -> None:
        """Something is put in a list. One of names that are this process' own holds such names; one of what this
        process found, what it did."""
        if target[0] not in ("name", "attr"):
            return
        if (now := filled(frame, base)) is not None:
            self.store(frame.holding(target[1]) if target[0] == "name" else frame, target, now)
        found = (value.taint | frame.implicit) & PROCESS
        if found and not base.taint & PROCESS and target[0] == "name":
            base = replace(base, elements=None, constant=NO_CONSTANT, truth=UNKNOWN, taint=base.taint | found)
            self.store(frame, target, base)
        if value.names_own and not base.private and frame.may == EVERY:
            held = replace(base, elements=None, constant=NO_CONSTANT, truth=UNKNOWN, flags=base.flags | {"own"})
            self.store(frame, target, held)

    def _of_environment(self, frame: Frame, name: str, given: Given) -> Value | None:
        if name == "os.environ.keys":
            return Value(reference="os.environ")
        if name == "os.open" and "O_EXCL" in given.text(1):  # who goes on has made the file: one process at a time
            frame.turns += 1
        if name in ("os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop"):
            constant, evidence = given.argument(0, "key"), set(frame.result.evidence)
            found = self.environment(frame, constant.constant if constant else None)
            if name.endswith("setdefault"):  # who says what rank it is otherwise is ready to be alone
                frame.result.evidence &= evidence
            return found if found is not None else ANYTHING
        return None

    def _built_in(self, frame: Frame, name: str, given: Given) -> Value | None:
        if name in ("exec", "globals"):
            _overwritten(frame)
            return ANYTHING
        if name in ("int", "bool", "float") and given.values:
            first = given.values[0]
            told = replace(boolean(first.true(), first.taint), flags=first.flags & AGREED.flags)
            return told if name == "bool" else replace(first, flags=first.flags - TEXT) if first.number else first
        if name == "getattr" and len(given.values) > 1 and isinstance(given.values[1].constant, str):
            return self.attribute(frame, given.values[0], given.values[1].constant, ())
        if name in ("hasattr", "setattr") and len(given.values) > 1 and isinstance(given.values[1].constant, str):
            return self._attribute_by_name(frame, name, given.values[1].constant, given)
        if (
            given.values
            and (asked := wrapped.asked(name, given.values[0], given.argument(1), self.lineage)) is not None
        ):
            return asked
        if name == "isinstance" and (asked := is_wrapped(given.values[0], given.argument(1))) is not None:
            return asked
        if name == "len" and given.values and (given.values[0].flags & EVEN or given.values[0].taint == CLOCK):
            return ANYTHING  # what differs of a list of times is the times
        if name == "dict" and given.keywords and not given.values:
            return entries((Value(constant=key), value) for key, value in given.keywords)
        if (listed := collected.passed_on(name, given.values)) is not None:
            return listed
        if name in ("isinstance", "super", "range"):
            made = tainted(*given.values) if name == "range" else ANYTHING
            return replace(made, flags=DEALT) if made.ranked else made
        return None

    def _attribute_by_name(self, frame: Frame, how: str, name: str, given: Given) -> Value | None:
        """``setattr`` as an assignment; ``hasattr`` of what was stored under a guard alone is true where that held,
        and of an object that only some ranks have stored, there."""
        if how == "setattr" and len(given.values) > 2:
            self.store(frame, ("attr", given.node[2][0], name), given.values[2])
            return NONE
        if how == "hasattr" and (had := wrapped.has(given.values[0], name)) is not None:
            return had
        owner = given.values[0].instance
        stored = self.held(owner, name) if "::" in owner else None
        if stored is not None and stored.instance and set(stored.truth) == {"T", "F"}:
            return boolean(stored.truth, RANK)
        return boolean(BY_RANK, stored.taint) if stored is not None and stored.taint & STATE else None

    def _passed_on(self, frame: Frame, name: str, given: Given) -> Value | None:
        if (array := placed(name, given)) is not None:
            return array
        if name in LEAVES and given.values:
            return replace(given.values[0], flags=given.values[0].flags - ARRAY)
        if (computed := eager(frame, name, given.all(), given.span)) is not None:
            return computed
        if name in ITERATING and given.values:
            return given.values[0]
        if name in SUBSETS:  # whose samples those are, the numbers say
            numbers = given.argument(*SUBSETS[name])
            return replace(tainted(numbers), instance=name) if numbers is not None and numbers.ranked else None
        if name in _FIELDS:
            factory, default = given.argument("default_factory", "factory"), given.argument("default")
            return default if factory is None and default is not None else self._made(frame, factory, given.span)
        if name == "functools.partial" and given.values:
            return replace(given.values[0], bound=given.values[1:], told=given.keywords)
        if name in COMPILERS and given.values:
            made = compiled(given.values[0], name, frozenset(key for key, v in given.keywords if "here" not in v.flags))
            return parting(made, given.argument("out_shardings"))
        if name in SHARD_MAPS and given.values:
            here = any("here" in value.flags for value in given.all())
            return given.values[0] if here else parting(given.values[0], given.argument("out_specs", 3))
        if name in TREE_MAPS and given.values:
            one = given.without_first()
            return self.called(frame, given.values[0], one._replace(values=tuple(map(leaf, one.values))))
        if given.values and (gated := self._given_to(frame, name, given.values[0])) is not None:
            return gated
        if name in WRAPPING and given.values and (given.values[0].reference or given.values[0].instance):
            return given.values[0]
        return None

    def behind(self, frame: Frame, query: RankQuery, function: Value, text: str) -> Value:
        """Return a function that only those ranks run which a decorator lets through."""
        frame.result.evidence.add("rank")
        gate = "DDDD" if query.last or not query.first else self.answer(frame, query).true()
        return replace(function, gate=gate, text=text)

    def _given_to(self, frame: Frame, name: str, function: Value) -> Value | None:
        """Return a function of the project behind a decorator that it is given to: ``rank_zero_only(save)``."""
        table, last = self.apis.ranks["decorator"], name.rpartition(".")[2]
        query = table.named(name) or table.tail(last)
        return self.behind(frame, query, function, last) if query and "::" in function.reference else None

    def _made(self, frame: Frame, factory: Value | None, span: Span) -> Value:
        """Return what a function makes for a field: one of the project, or of a library."""
        known = factory is not None and ("." in factory.reference or self.project.function(factory.reference))
        return self.invoke(frame, factory, span) if factory is not None and known else ANYTHING


def _overwritten(frame: Frame) -> None:
    """What is switched on or off by a variable, may be switched by who can reach all variables: a configuration."""
    for name, value in frame.env.items():
        if isinstance(value.constant, bool):
            frame.env[name] = replace(value, constant=NO_CONSTANT)


def _is_of_sent(frame: Frame, given: Given) -> bool:
    """Whether bytes are those that all have been sent, not a part that the rank says."""
    names = (node[1] for node in nodes_in(given.node[2][:1]) if node[0] == "name" and len(node) == 2)
    held = [frame.env[name] for name in names if isinstance(name, str) and name in frame.env]
    return any("agreed" in value.flags for value in held) and not any(value.ranked for value in held)
