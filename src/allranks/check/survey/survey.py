"""From the entries down: who reaches what, by which calls, with what evidence of several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from allranks.check.interpret.given import Given
from allranks.check.interpret.held import is_own
from allranks.check.interpret.interest import Names, interesting, telling
from allranks.check.interpret.registered import built_by_name, is_route, kept_by_name, settings
from allranks.check.interpret.spelled import Scope, Speller
from allranks.check.interpret.standing import gated, through
from allranks.check.interpret.state import Arms, Called, Result, Seen, Span
from allranks.check.interpret.statements import Interpreter
from allranks.check.interpret.truth import EVERY, FIRST, TRUE, named, roles_where
from allranks.check.interpret.values import ASKED, PROCESS, Value
from allranks.check.program import Event, Gap, Program, Step
from allranks.check.sources.source import module_name, place
from allranks.check.summaries.project import Project, mentioned
from allranks.check.summaries.summary import FunctionFacts
from allranks.check.survey.activity import Activity
from allranks.check.survey.alone import is_by_hand
from allranks.check.survey.both_arms import BothArms
from allranks.check.survey.byname import ByName, entries_of
from allranks.check.survey.conditions import Conditions, Held, held
from allranks.check.survey.facts import Facts
from allranks.check.survey.folders import makes_folder
from allranks.check.survey.launches import Launches
from allranks.check.survey.meetings import Meetings
from allranks.check.survey.parted import Parted, symbol
from allranks.check.survey.together import ALWAYS, Together
from allranks.check.tables.apis import Apis
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import JOINED
from allranks.check.tables.gates import NAMED_ON_MAIN, ON_MAIN_ONLY
from allranks.findings import Place

MOST_CALLERS = 8
_READS = ("read", "load", "restore")
_MAKERS = ("__init__", "__post_init__", "setup", "setUp")


class _Way(NamedTuple):
    """A function and who comes to it: for certain (``mask``) and perhaps (``may``). ``earlier``, ``later``: what they
    meet in before it is called and after it has returned; ``under``: what the conditions on the way depend on;
    ``ordered``: in a lock, or one by one; ``alone``: the entry is a tool that one process runs; ``sure``: the entry is
    known to be run, in several processes; ``scope``: how it is called; ``passed``: meetings so far; ``arms``:
    the conditions around each call, ``held`` all of them; ``entry``: where the way begins, None where it is known that
    there are several processes; ``guess``: who comes to it too, if calls of methods by their names mean these."""

    result: Result
    mask: int
    may: int
    active: bool
    chain: tuple[Step, ...] = ()
    ordered: bool = False
    earlier: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    under: int = 0
    guard: Place | None = None
    alone: bool = False
    sure: bool = False
    scope: Scope | None = None
    passed: int = 0
    arms: tuple[Arms, ...] = ()
    held: Held = ALWAYS
    entry: Result | None = None
    guess: int = 0


class Survey:
    """Interprets a project and collects what its entries reach. ``lines`` gives the text of a file, by path."""

    def __init__(
        self,
        project: Project,
        apis: Apis,
        lines: Mapping[str, list[str]],
        *,
        everywhere: bool,
        entries: tuple[str, ...],
        launches: Launches,
    ) -> None:
        self.project = project
        self.apis = apis
        self.everywhere = everywhere
        names = self.names = Names(project)
        self.interpreter = Interpreter(project, apis, interesting(project, names, apis))
        self.launches, self.conditions = launches, Conditions(lines)
        alone, together = launches.alone, launches.together
        self.activity = Activity(
            project, self.interpreter, everywhere=everywhere, entries=entries, alone=alone, together=together
        )
        reached = self.interpreter.interesting
        launched = frozenset(f"{path}::" for path in together)
        starts = reached if everywhere else reached & (telling(project, names, apis) | launched)
        left_out = {path for path in project.summaries if self.activity.left_out(path)}
        self.starts = frozenset(name for name in starts if name.partition("::")[0] not in left_out)
        self.lines = lines
        self.together = Together(project, self.conditions, None if everywhere else launches)
        self.events: dict[tuple[str, Span, str], Event] = {}
        self.folders: list[Event] = []
        self.visited: set[tuple[int, int, bool, bool, bool, bool]] = set()
        self.meetings = Meetings()
        self.both_arms = BothArms()
        self.speller = Speller(project, self.interpreter.modules)
        self.hooks: list[tuple[_Way, str]] = []
        self.by_name = ByName(project, self.interpreter.lineage)
        self.callers: dict[str, dict[Step, None]] = {}
        # Nested functions that are handed to somebody to call, who makes them, and in what function.
        self.nested: list[tuple[Result, int, str]] = []
        self.reached: set[str] = set()  # functions to which programs of several processes come
        self.inside: set[str] = set()  # functions that show, with what they call, that there are several processes

    def program(self, sources: Mapping[str, bytes]) -> Program:
        """Return all that was found; ``sources``: the files of the project, with its scripts."""
        roots = self._roots()
        if self.interpreter.stale:
            self.interpreter.again()
            roots = self._roots()
        active = self.activity.active(roots)
        self.inside = {root.reference for root in active}
        entries = sorted(
            entries_of(roots, self.interpreter.callees), key=lambda root: root.reference not in self.inside
        )
        started = self.activity.started(roots, active)
        bodies = [self.interpreter.imported_body(path) for path in sorted(started)]
        bodies += settings(self.interpreter, started)
        if any(map(self.activity.is_started, active)):
            paths = [path for path in self.lines if not self.activity.left_out(path)]
            bodies += built_by_name(self.interpreter, self.names, paths)
            for kept in kept_by_name(self.interpreter, paths):
                self.by_name.make(kept, EVERY, sure=True)
        self._go_down(entries, bodies)
        parted = Parted(self.project, self.inside, self._place, self.lines)
        for root in parted.come_in(entries):
            is_active = root.reference in self.inside
            if is_active or not self.activity.left_out(root.path):
                parted.go_down(root, EVERY, is_active, ())
        for handed, roles, outer in self.nested:
            is_active = outer in self.inside or outer in self.reached
            if is_active or not self.activity.left_out(handed.path):
                parted.go_down(handed, roles, is_active, ())
        self._tell_callers()
        events = sorted(self.events.values(), key=lambda event: (event.place, event.name))
        packages, _ = mentioned(self.project)
        jax = bool(packages & {"jax", "orbax"})
        facts = Facts(self.project, sources, self.conditions, self.lines, jax=jax, launches=self.launches)
        gaps, folders = tuple(self._gaps()), tuple(self.folders)
        return Program(facts, tuple(events), parted.found(), gaps, packages, folders=folders)

    def _go_down(self, entries: Iterable[Result], bodies: Iterable[Result]) -> None:
        """Go down from the entries; to methods that nobody is known to call, for those who call them by name."""

        def down(root: Result, roles: int) -> None:
            alone = self.activity.is_alone(root)
            sure = self.activity.is_sure(root) or self.by_name.is_sure(root)
            active = root.reference in self.inside
            self._effects(_Way(root, roles, EVERY, active, alone=alone, sure=sure, entry=root))

        methods: list[Result] = []
        for root in entries:
            if self.by_name.is_method(root):
                methods.append(root)
            else:
                down(root, EVERY)
        for body in bodies:
            self._effects(_Way(body, EVERY, EVERY, True, alone=self.activity.is_alone(body), sure=True))
        self.by_name.come_to(methods, down)
        self._called_by_name()
        for way, method in self.hooks:
            self._effects(way._replace(mask=way.mask & self.by_name.callers(method)))

    def _called_by_name(self) -> None:
        """Go down into methods of what several processes make and call by a name, to which no other call has led."""
        run, tried = self.interpreter, set[str]()
        while more := [it for it in self.by_name.unmet(self.reached | tried) if it.method in run.interesting]:
            for it in more:
                tried.add(it.method)
                if self.activity.left_out(it.method.partition("::")[0]):
                    continue
                bound = replace(run.function_value(it.method, None), receiver=Value(instance=it.owner))
                given = Given(it.values, (), ("call", ("const", None), (), (), (1, 0, 1, 0))) if it.values else None
                result = run.run(bound, given) if bound.reference == it.method else None
                if result is not None:
                    roles = it.roles & roles_where(bound.gate or TRUE, "TUP")
                    self._effects(_Way(result, roles, EVERY, True, sure=it.sure))

    def _step(self, result: Result, span: Span) -> Step:
        return self._at(result.reference, span)

    def _at(self, reference: str, span: Span) -> Step:
        return Step(symbol(reference), self._place(reference.partition("::")[0], span))

    def _gaps(self) -> Iterator[Gap]:
        for reference, why in sorted(self.interpreter.gaps.items(), key=lambda gap: gap[0]):
            path, _, key = reference.partition("::")
            facts = self.project.function(reference)
            symbol = f"{module_name(path)}.{key}" if key else module_name(path)
            yield Gap(self._place(path, facts.span if facts is not None else (1, 0, 1, 0)), symbol, why)

    def _roots(self) -> list[Result]:
        run = self.interpreter
        modules = [path for path in self.project.summaries if f"{path}::" in self.starts]
        for path in modules:
            run.module_frame(path)
        roots = [run.program(path) for path in modules]
        self.nested.clear()
        # Constructors first: what they store, the others ask for. Last what a method of the same class calls: it knows
        # who comes there.
        for reference in sorted(self.starts, key=lambda name: (self._is_part(name), not name.endswith(_MAKERS), name)):
            facts = self.project.function(reference)
            if reference in run.entered or reference.endswith("::") or facts is None:
                continue
            path = reference.partition("::")[0]
            scope = run.scopes.get(reference)
            value = run.function_value(reference, scope[0] if scope else None)
            owner = Value(instance=f"{path}::{facts.owner}") if facts.owner else None
            if value.reference != reference and owner is None:
                continue
            made = Value(reference=value.reference, receiver=owner, gate=value.gate, scope=value.scope)
            result = run.run(made, None)
            if result is None:
                continue
            if value.reference != reference:
                result = through(reference, result, facts.span)
            if scope is not None:
                called = Called(facts.span, result, scope[1], scope[2], alone=is_route(facts.decorators))
                scope[0].result.calls.append(called)
                nested = gated(result, value.gate, value.text, facts.span)
                self.nested.append((nested, scope[1], scope[0].result.reference))
            else:
                gate, why = (value.gate, value.text) if value.gate else self._called_on(path, facts)
                roots.append(gated(result, gate, why, facts.span))
        return roots

    def _is_part(self, reference: str) -> bool:
        """Whether another method of its class names a method."""
        facts = self.project.function(reference)
        if facts is None or not facts.owner:
            return False
        methods = self.project.methods(f"{reference.partition('::')[0]}::{facts.owner}")
        others = [self.project.function(one) for name, one in methods.items() if name != facts.name]
        return any(other is not None and facts.name in other.words for other in others)

    def _called_on(self, path: str, facts: FunctionFacts) -> tuple[str, str]:
        """Return where a framework calls a method of the project, empty if on every rank; and that in words."""
        owner = f"{path}::{facts.owner}"
        kinds = self.interpreter.heirs(owner) if facts.owner and facts.name in NAMED_ON_MAIN else ()
        names = (f"{kin.rpartition('.')[2]}.{facts.name}" for kin in kinds if "::" not in kin)
        name = next((name for name in names if name in ON_MAIN_ONLY), "")
        alone = "rank 0" if ON_MAIN_ONLY.get(name) == "global" else "one rank of each node"
        return (FIRST[ON_MAIN_ONLY[name]], f"{name}, which its framework calls on {alone}") if name else ("", "")

    # effects

    def _effects(self, way: _Way) -> None:
        result, chain = way.result, way.chain
        key = (id(result), way.mask | way.guess << 4, way.active, way.ordered, way.alone, way.sure)
        if key in self.visited or len(chain) > 30:
            return
        self.visited.add(key)
        shown = way.active or result.several or result.reference in self.inside
        shown = shown and "launch" not in result.evidence  # who starts the processes does it before
        way = way._replace(active=shown and not way.alone)
        if way.active:
            self.reached |= {result.reference} if way.mask else set()
            self.by_name.note(result, way.mask | way.guess, sure=way.sure)
        self.both_arms.note(result, self._step)
        for seen in result.seen:
            self._event(way, seen)
        for called in result.calls:
            step = self._step(result, called.span)
            into = self._into(way, called, step)
            if called.hook:
                self.hooks.append((into, called.hook))
            else:
                self._effects(into)
            if way.mask & called.mask == EVERY:
                self.callers.setdefault(called.result.reference, {})[step] = None

    def _into(self, way: _Way, called: Called, step: Step) -> _Way:
        """Return the way on, into a call."""
        result, on = way.result, way.held | held(way.result.path, called.arms)
        after = called.met + bool(called.result.meets or called.result.meetings)
        return _Way(
            called.result,
            way.mask & called.mask,
            way.may & called.may,
            way.active or called.started,
            chain=(*way.chain, step),
            ordered=way.ordered or called.ordered,
            earlier=way.earlier | self.meetings.between(result, 0, called.met),
            later=way.later | self.meetings.between(result, after),
            under=way.under | called.under,
            guard=self._place(result.path, called.guard) if called.guard else way.guard,
            sure=called.started or (way.sure and not self._apart(way, on)),
            alone=way.alone
            or (not self.everywhere and (called.alone or is_by_hand(called.result.reference, result.reference))),
            scope=Scope(called.result, called.node, self._scope(way)),
            passed=way.passed + self.meetings.before(result, called.met),
            arms=(*way.arms, called.arms),
            held=on,
            entry=None if called.started else way.entry,
            guess=((way.mask | way.guess) & called.guess) | (way.guess & called.mask),
        )

    def _apart(self, way: _Way, on: Held) -> bool:
        """Whether what holds on the way is so only where no processes are joined, or in a mode of one process."""
        return way.entry is not None and self.together.apart(way.entry, on)

    def _only_looks(self, way: _Way, seen: Seen) -> bool:
        """Whether something is written, made or fetched by a program that mostly one process runs."""
        reads = isinstance(seen.entry, Effect) and seen.entry.kind in _READS
        return way.entry is not None and not reads and self.activity.only_looks(way.entry, way.result, way.chain)

    def _scope(self, way: _Way) -> Scope:
        return way.scope or Scope(way.result)

    def _spelled(self, way: _Way, seen: Seen) -> str:
        if seen.node is None or not (way.active or makes_folder(seen)):
            return ""
        return self.speller.spelled(self._scope(way), seen.node)

    def _event(self, way: _Way, seen: Seen) -> None:
        result, mask = way.result, way.mask & seen.mask
        earlier, later = (
            way.earlier | self.meetings.between(result, 0, seen.met),
            way.later | self.meetings.between(result, seen.met),
        )
        early = mask == 1 and (way.under | seen.under) & ASKED and not earlier & JOINED and later & JOINED
        mask = EVERY if early else mask  # nobody is joined yet: each takes itself for rank 0
        path = seen.receiver
        perhaps = path is not None and "perhaps" in path.flags
        on = way.held | held(result.path, seen.arms)
        event = Event(
            name=seen.name,
            entry=seen.entry,  # type: ignore[arg-type]
            place=self._place(result.path, seen.span),
            symbol=symbol(result.reference),
            function=result.reference,
            arguments=seen.arguments,
            keywords=seen.keywords,
            roles=named(mask),
            active=way.active,
            sure=way.sure and not perhaps and not self._apart(way, on) and not self._only_looks(way, seen),
            per_process=path is not None and is_own(path),
            ordered=way.ordered or seen.ordered,
            target=seen.target,
            chain=way.chain,
            opened=self._place(result.path, path.handle) if path is not None and path.handle else None,
            path=path,
            under=way.under | seen.under,
            looped=seen.looped,
            guard=self._place(result.path, seen.guard) if seen.guard else way.guard,
            met=seen.met,
            spelled=self._spelled(way, seen) if mask or makes_folder(seen) else "",
            passed=way.passed + self.meetings.before(result, seen.met),
            arms=(*way.arms, seen.arms),
            earlier=earlier,
            later=later,
            may=named(EVERY if early else way.may & seen.may),
        )
        if makes_folder(seen):
            self.folders.append(event)
        event = self.both_arms.joined(event)
        site = (result.path, seen.span, seen.name)
        before = self.events.get(site)
        if before is None or _weight(event) > _weight(before):
            self.events[site] = event

    def _tell_callers(self) -> None:
        """A call that every rank makes is part of the fault, also where the shortest way does not lead through it."""
        for site, event in self.events.items():
            others = [step for step in self.callers.get(event.function, ()) if step not in event.chain]
            if event.everyone and others:
                self.events[site] = replace(event, also=tuple(others[:MOST_CALLERS]))

    def _place(self, path: str, span: Span) -> Place:
        return place(path, self.lines.get(path, []), span)


def _weight(event: Event) -> tuple[bool, bool, bool, int, bool, int]:
    whose = not event.per_process and not event.ordered
    own = bool(event.under & PROCESS) and "load" in event.name  # each decides for itself, by the files that it finds
    return (event.active, event.sure, whose, len(event.roles), own, -len(event.chain))
