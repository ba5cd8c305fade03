"""Calls: of rank queries, collectives and effects, as the tables have them, and of what the tables do not know."""

from __future__ import annotations

from allranks.check.interpret import collected
from allranks.check.interpret.computed import COMPILED, laid_out
from allranks.check.interpret.ending import leave_with
from allranks.check.interpret.few import is_world, of_few, of_strangers, stays_alone, trainer
from allranks.check.interpret.given import Given
from allranks.check.interpret.held import of_those_who_have
from allranks.check.interpret.in_parts import IN_PARTS, forward_of
from allranks.check.interpret.logged import CLI, FABRIC, TRAINER
from allranks.check.interpret.making import is_super, own_object
from allranks.check.interpret.measuring import METRIC, is_metric
from allranks.check.interpret.naming import filled_in
from allranks.check.interpret.plain import Plain
from allranks.check.interpret.started import is_told_its_gpu, joins
from allranks.check.interpret.state import Frame, Span
from allranks.check.interpret.strangers import meeting_of, of_another, of_part, own_of, rank_of, unknown
from allranks.check.interpret.truth import BY_PROCESS
from allranks.check.interpret.values import (
    AGREED,
    ALONE,
    ANYTHING,
    CLOCK,
    IDENTITY,
    ONE_OF,
    PRIVATE,
    PROCESS,
    Value,
    boolean,
    options,
    rank,
    replace,
    still_open,
    tainted,
    uncounted,
)
from allranks.check.interpret.whole import is_whole
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import Node
from allranks.check.tables.collectives import GROUPS, Collective
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import JOIN, JOINING, WAIT
from allranks.check.tables.gates import GATED
from allranks.check.tables.local import LocalQuery
from allranks.check.tables.names import documented
from allranks.check.tables.passing import BAGS, FILLING, PASSING, PASSING_METHODS, SELVES, TELLING
from allranks.check.tables.ranks import BEGUN, BESIDE, OF_MESH
from allranks.check.tables.receivers import BASES, RECEIVERS, REGISTERS, RETURNS, is_trainer, trainer_of
from allranks.check.tables.shown import SHOWN
from allranks.check.tables.spoken import data_set, effect_of


class Caller(Plain):
    """Evaluates calls."""

    def invoke(self, frame: Frame, function: Value, span: Span) -> Value:
        return self.called(frame, function, Given((), (), ("call", ("const", None), (), (), span)))

    def call(self, frame: Frame, node: Node) -> Value:
        function = node[1]
        if function[0] == "attr":
            base = self._base(frame, function)
            if base == ANYTHING:
                base = self._by_name(frame, function[1])
            if not base.reference:
                return self._method_call(frame, base, function, self._given(frame, node))
            if base.flags & COMPILED and function[2] in ("lower", "compile"):
                return base
        target, given = self.value(frame, function), self._given(frame, node)
        if function[0] == "call" and function[1] == ("name", "getattr") and target == ANYTHING and len(function[2]) > 1:
            name = self.value(frame, function[2][1]).constant  # getattr(hook, event)(self)
            self._called_by_name(frame, name if isinstance(name, str) else "", given)
        return self.called(frame, target, given)

    def _base(self, frame: Frame, function: Node) -> Value:
        name = function[1]
        if name[0] == "name" and (found := frame.env.get(f"{name[1]}.{function[2]}")) is not None and found.reference:
            return found
        if is_super(name):
            return self._parent_of(frame)
        return self.value(frame, name)

    def _by_name(self, frame: Frame, node: Node) -> Value:
        """Take a receiver of which nothing is known at its name."""
        name = node[1] if node[0] == "name" else node[2] if node[0] == "attr" else ""
        if name == "trainer":
            return Value(instance=trainer_of(dotted for dotted, _ in self.project.summaries[frame.path].imports))
        return Value(instance=RECEIVERS[name]) if name in RECEIVERS else ANYTHING

    def _parent_of(self, frame: Frame) -> Value:
        kin = self.lineage(f"{frame.path}::{frame.owner}") if frame.owner else ()
        if len(kin) == 1 and "Trainer" in frame.owner:  # it is mixed in with the library's
            return Value(instance=trainer_of(dotted for dotted, _ in self.project.summaries[frame.path].imports))
        return replace(own_object(frame), instance=kin[1]) if len(kin) > 1 else Value()

    def _given(self, frame: Frame, node: Node) -> Given:
        told = (node[1][0] == "attr" and node[1][2] in TELLING) or node[1] == ("name", "print")
        evidence = set(frame.result.evidence) if told else set()
        values: tuple[Value, ...] = ()
        for argument in node[2]:
            value = self.value(frame, argument)
            if argument[0] == "name" and argument[1] in frame.env:  # it may be filled there
                frame.env[argument[1]] = still_open(value)
            value = of_another(argument, value)
            several = argument[0] == "star" and value.elements is not None
            values = (*values, *(value.elements or ())) if several else (*values, value)
        keywords = tuple(
            [one for name, argument in node[3] for one in collected.keywords(name, self.value(frame, argument))]
        )
        if any(value.taint & CLOCK for _, value in keywords):
            self.options(frame, Given(values, keywords, node))
        if told:  # a program that writes its rank into the log need not be made for others
            frame.result.evidence &= evidence | {"collective"}
        return Given(values, keywords, node)

    def called(self, frame: Frame, function: Value, given: Given) -> Value:
        """Call whatever ``function`` is known to be."""
        given = given.told(function) if function.told else given
        if function.flags & ONE_OF and function.elements:
            return self.any_of(frame, function.elements, given)
        if function.flags & COMPILED:
            return self.computed(frame, function, given)
        if kind := forward_of(function):
            return self._known_method(frame, Value(instance=kind), "__call__", given)
        reference = function.reference
        if "::" in reference:
            before = len(frame.result.calls)
            made = self.run_call(frame, function, given)
            self.changed_below(frame, function, given, frame.result.calls[before:])
            leave_with(frame, frame.result.calls[before:], function.gate)
            meant = self.apis.collectives["call"].named(f"torch.distributed.{reference.rpartition('::')[2]}")
            self._sent(frame, meant, given)
            return made
        if reference:
            made = self._outside_call(frame, documented(reference), given)
            return self.parts(frame, documented(reference)) or self.changed(frame, documented(reference), given, made)
        if "::" in function.instance and given.node[1] == ("name", "cls"):
            return self.run_call(frame, Value(reference=function.instance), given)
        if "::" in function.instance:
            for name in ("__call__", "forward"):
                if (method := self.method(function.instance, name)) is not None:
                    bound = replace(self.function_value(method, None), receiver=function)
                    return self.called(frame, of_those_who_have(function, bound), given)
        if function.instance:
            return self._known_method(frame, function, "__call__", given)
        self._callbacks(frame, given)
        return unknown(given)

    def _method_call(self, frame: Frame, base: Value, function: Node, given: Given) -> Value:
        name = function[2]
        self._missed(frame, base, function, given)
        if name == "compute" and is_metric(self.project, frame.path, self.lineage, base, given):
            base = Value(instance=METRIC)
        if "::" in base.instance or base.elements is not None or base.truth:
            found = self.attribute(frame, base, name, ())
            if found.reference or found.instance or found.flags & ONE_OF:
                if found.receiver == base and is_super(function[1]):
                    found = replace(found, receiver=own_object(frame))
                return self.called(frame, of_those_who_have(base, found), given)
        if name in FILLING and given.values:
            self._fill(frame, function[1], base, given.values[-1])
        key = f"{function[1][1]}.{name}" if function[1][0] == "name" else ""
        if key in frame.env:
            return self.called(frame, frame.env[key], given)
        if "::" in base.instance and self.method(base.instance, "__getattr__") is not None:
            base = ANYTHING  # it hands on what it has not
        return self._known_method(frame, base, name, given)

    def _known_method(self, frame: Frame, base: Value, name: str, given: Given) -> Value:
        kin = tuple(k for k in self.lineage(base.instance) if "::" not in k)
        kin += tuple(BASES[top] for k in kin if (top := k.partition(".")[0]) in BASES)
        ours = "::" in base.instance and not kin
        if (computed := self.of_array(frame, base, name, given)) is not None:
            return computed
        if name in REGISTERS.values():
            frame.result.loose.append((name, frame.mask, ()))
        if name == "call":  # of hooks by their name: `fabric.call("on_save")`
            self._named(frame, given)
        if any(f"{k}.{name}" in GATED for k in kin) and not any(
            self.apis.collectives["call"].named(f"{k}.{name}") for k in kin
        ):
            return ANYTHING
        if not ours:
            for tables in (self.apis.ranks["call"], self.apis.collectives["call"], self.apis.effects, self.apis.local):
                if (entry := tables.method(kin, name)) is not None:
                    return self._entry(frame, entry, f"{kin[0] if kin else '*'}.{name}", given, base)
        if not base.instance and (meant := self.likely(name, given.node[1][1])):
            if not (certain := self.is_certain(name)):
                self._called_by_name(frame, name, given)
            return self.among(frame, meant, given, certain=certain)
        if not base.instance:
            self._called_by_name(frame, name, given)
            self._named(frame, given)
            if (spoken := self._told_by_what(frame, name, given, base)) is not None:
                return spoken
        self._callbacks(frame, given, name)
        if name == "start" and not BEGUN.isdisjoint(kin) and (begun := self.method(base.instance, "run")) is not None:
            self._apart(frame, Value(reference=begun, receiver=base), Given((), (), given.node))
        if name == "wait" and "store" in render(given.node[1][1]).lower():  # of torch: until another rank has set a key
            frame.result.meetings.append(WAIT)
        if name == "open" and given.values:
            return self._opened(frame, base, given)
        if name == "acquire" and "lock" in base.flags:
            return base
        if name in ("pop", "popleft"):
            return Value(flags=base.flags & PRIVATE)
        if name in ("get", "get_nowait") and "queue" in render(given.node[1]).lower():
            return Value(flags=frozenset({"own"}))  # what this process has put in
        if name in SELVES and (kin or base.flags & (IN_PARTS | PRIVATE)):
            own = given.all() if base.instance == "pathlib.Path" else ()  # who is named in the path
            flags = base.flags.union(*(value.flags & PRIVATE for value in own))
            return replace(base, taint=tainted(base, *own).taint, flags=flags) if own else base
        if name in BAGS:
            self.bag(given)
        if name in ("get", "pop", "setdefault") and given.values and isinstance(given.values[0].constant, str):
            kept = self.entry(frame, base, given.values[0].constant)
            if kept is not None:
                return kept
        if name == "get" and "choice" in base.flags:
            return Value(elements=base.elements, flags=ONE_OF)
        if (part := self.dealt(frame, name, given)) is not None:
            return part
        if name in PASSING_METHODS:
            return filled_in(base, name, given)
        return Value(base.taint & (CLOCK | ALONE)) if base.taint & (CLOCK | ALONE) else ANYTHING

    def _outside_call(self, frame: Frame, name: str, given: Given) -> Value:
        if (plain := self.plain_call(frame, name, given)) is not None:
            return plain
        sign = self.apis.signs.named(name) or self.apis.signs.tail(name.rpartition(".")[2])
        if sign is not None and not stays_alone(frame, given):
            frame.shows(sign.kind)
        elif name == CLI:
            return trainer(frame, name, given)
        says_it = sign is not None and sign.pattern.startswith("*.")
        if name in JOINING or is_trainer(name) or says_it:
            frame.result.meetings.append(JOIN)
        for table in (self.apis.ranks["call"], self.apis.collectives["call"], self.apis.effects, self.apis.local):
            if (entry := table.named(name)) is not None:
                return self._entry(frame, entry, name, given, None)
        if name.endswith(".open") and given.values:
            return self._opened(frame, ANYTHING, given)
        if (query := rank_of(self.apis, name, "call", bare=not given.values)) is not None:
            return self.answer(frame, query)
        if (meeting := meeting_of(self.apis, name)) is not None:
            return self._collective(frame, meeting, name, given)
        if (own := own_of(name)) is not None and (given.values or own.kind != "lock"):
            return self._local(frame, own, name, given)
        if (spoken := effect_of(name)) is not None and (given.values or given.keywords):
            return self._spoken(frame, spoken, name, given)
        if (fetching := data_set(name)) is not None:
            self._effect(frame, fetching, name, given, None)
        if sign is not None or name in SHOWN or is_trainer(name):
            self._record(frame, None, name, given, None, "")
        if name == "signal.signal":
            self._signalled(given)
        self._starts(frame, name, given)
        if name in PASSING:
            made = tainted(*given.values, *(v for _, v in given.keywords))
            flags = frozenset().union(*(v.flags for v in given.values)) if given.values else frozenset()
            kind = "pathlib.Path" if name.endswith("Path") else ""
            if name in ("any", "all") and made.taint == PROCESS:
                return boolean(BY_PROCESS, PROCESS)
            return replace(made, flags=flags, instance=kind) if flags or kind else made
        if name in RETURNS:
            return Value(instance=RETURNS[name])
        if (layout := laid_out(name, given)) is not None:
            return layout
        if name in (TRAINER, FABRIC):
            return trainer(frame, name, given)
        kind = name if "." in name and name.rpartition(".")[2][:1].isupper() else ""
        return Value(instance=kind, flags=of_part(name, given)) if kind else unknown(given)

    def _named(self, frame: Frame, given: Given) -> None:
        """A method that is called by its name as text: ``self.call("after_epoch")``."""
        for value in given.values:
            name = value.constant
            if isinstance(name, str) and "_" in name and name.isidentifier() and self.project.defined(name):
                frame.result.loose.append((name, frame.mask, ()))

    def _called_by_name(self, frame: Frame, name: str, given: Given) -> None:
        """Keep that a method of something unknown is called, if classes here have one, and what it is given by
        position."""
        levels = any(value.reference.startswith("logging.") for value in given.values)  # of a logger
        if levels or (name and not self.project.defined(name)):
            return
        values = () if given.keywords else tuple(value.passed() for value in given.values)
        frame.result.loose.append((name, frame.mask, values))

    def _starts(self, frame: Frame, name: str, given: Given) -> None:
        """A function that is passed to somebody else is called there, by all that pass it, or that are started so."""
        calls, before = frame.result.calls, len(frame.result.calls)
        if name in ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"):
            for function in options(given.values[0]) if given.values else ():
                if "::" not in function.reference:
                    continue
                self.spawned.add(function.reference)
                spread = given.argument("args", 1)
                told = spread.elements or () if spread else ()  # by the one process that starts them
                more = (replace(v, taint=v.taint & ~(CLOCK | PROCESS | IDENTITY)) for v in told)
                kind = "local" if is_told_its_gpu(self.project.function(function.reference)) else "global"
                self._apart(frame, function, Given((rank(kind), *more), (), given.node).told(function))
        elif not name.startswith("inspect."):
            self._callbacks(frame, given, name.rpartition(".")[2])
        sign = self.apis.signs.named(name)
        by_hand = name.endswith("multiprocessing.Process") and any(joins(call.result) for call in calls[before:])
        if by_hand:
            frame.shows("launch")
        if by_hand or (sign is not None and sign.kind == "launch"):
            calls[before:] = [call._replace(started=True) for call in calls[before:]]

    def _apart(self, frame: Frame, function: Value, given: Given) -> None:
        """Call a function that runs beside this one or later, in a process of its own or as a hook: it meets whom it
        meets there."""
        nodes, meetings, calls = len(frame.nodes), len(frame.result.meetings), len(frame.result.calls)
        self.run_call(frame, function, given)
        del frame.nodes[nodes:], frame.result.meetings[meetings:]
        frame.nodes += [("apart", called) for called in frame.result.calls[calls:] if called.result.meets]

    def _callbacks(self, frame: Frame, given: Given, name: str = "") -> None:
        functions = [
            one
            for handed in given.handed()
            for one in options(handed)
            if "::" in one.reference and self.project.function(one.reference) is not None
        ]
        if not functions:
            return
        spread = given.argument("args")
        others = () if spread or name in BESIDE else (("**", ANYTHING),)  # who calls it gives what it has
        passed = Given(uncounted((spread.elements or ()) if spread else ()), others, given.node)
        if name == "submit":
            passed = Given(uncounted(given.values[1:]), given.keywords, given.node)
        call = self._apart if name in BESIDE or name.startswith("register") else self.run_call
        calls, before = frame.result.calls, len(frame.result.calls)
        for value in functions:
            call(frame, value, passed.told(value))
        if name in REGISTERS:
            calls[before:] = [called._replace(hook=REGISTERS[name]) for called in calls[before:]]

    def _entry(self, frame: Frame, entry: object, name: str, given: Given, base: Value | None) -> Value:
        if isinstance(entry, Collective):
            return self._collective(frame, entry, name, given)
        if isinstance(entry, Effect):
            return self._effect(frame, entry, name, given, base)
        if isinstance(entry, LocalQuery):
            return self._local(frame, entry, name, given)
        if given.values and name.startswith("torch.distributed.get_rank"):
            return rank("group")
        if name.endswith("get_local_rank") and (given.values or OF_MESH.search(render(given.node[1]))):
            return rank("group")
        table = self.apis.ranks["call"]
        query = table.named(name) or table.tail(name.rpartition(".")[2])
        return self.answer(frame, query) if query is not None else ANYTHING

    def _collective(self, frame: Frame, entry: Collective, name: str, given: Given) -> Value:
        off = any((v := given.argument(key)) is not None and v.constant == constant for key, constant in entry.unless)
        on = [(v := given.argument(key)) is not None and v.constant == c for key, c in entry.only_if]
        self._callbacks(frame, given)
        if off or (on and not any(on)):
            return ANYTHING
        if entry.sharded and is_whole(self.project, frame, given):
            self._record(frame, None, name, given, None, "")
            return ANYTHING
        group = given.argument(*entry.group) if entry.group else None
        if of_strangers(frame, entry, name, given) or of_few(frame, entry, given):
            return ANYTHING
        if entry.op == "DDP forward" and frame.graphless:
            return ANYTHING  # nothing is reduced, and its buffers are sent but once
        of_some = name.rpartition(".")[0].rpartition(".")[2] in GROUPS
        whole = (group is None and not of_some) or is_world(group)
        whole = whole or (
            group is not None and group.constant is None and not self._made_elsewhere(frame, entry, given)
        )
        theirs = name.startswith("mpi4py.") and given.owner is not None and self.value(frame, given.owner).ranked
        kind = "hidden" if entry.hidden else "" if whole and not theirs else "sub"  # who has it, meets on it
        frame.nodes.append(("meet", entry.op, kind, given.span, name))
        if not name.startswith("orbax."):  # which processes that are alone save with too
            frame.result.evidence.add("collective")
        self._record(frame, entry, name, given, None, name.rpartition(".")[2])
        frame.result.meetings.append(entry.op)
        self._sent(frame, entry, given)
        return Value(instance=name) if name.rpartition(".")[2][:1].isupper() else self.prepared(frame, name, given)

    def _sent(self, frame: Frame, entry: Collective | None, given: Given) -> None:
        """What a collective, or what the project calls as one, sends to all in the place of what they had is alike."""
        for position in entry.in_place if entry is not None else ():
            if position < len(given.node[2]) and given.node[2][position][0] in ("name", "attr"):
                alike = entry is not None and entry.uniform
                self.store(frame, given.node[2][position], AGREED if alike else Value(ALONE))

    def _made_elsewhere(self, frame: Frame, entry: Collective, given: Given) -> bool:
        """Whether the group is a module's variable, or what a function returns: None stands there until it is made."""
        node = given.expression(*entry.group)
        return node is not None and (node[0] == "call" or (node[0] == "name" and node[1] not in frame.env))
