"""Lockstep of JAX: a program across processes is compared before its first run, a wrapped function before every run.

Only the first run of a compiled program passes Python, and there it is seen whole (world/guards/jax.py). Later runs are
made by C++ alone. So a function is wrapped: ``Stepped`` knows by what C++ goes by (the forms of arguments, the values
of static ones, JAX's settings) which of its programs is going to run, and takes that for the call. It has a cache of
C++ for itself; so where another program turns up after all, it passes Python, and is compared within the call.

In a JAX whose inside we do not know, no program is seen. Then a wrapped function is lowered by public means for
arguments of a new form, and compared as it is before compilation.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import _getframe
from threading import current_thread, get_ident
from types import CodeType, FrameType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import jax

from allranks.callsite import call_site
from allranks.errors import ContradictingSigns
from allranks.gate.lockstep import lines
from allranks.gate.lockstep.forms import jax as forms
from allranks.gate.lockstep.hlo import collectives
from allranks.gate.lockstep.monitor import Monitor
from allranks.gate.lockstep.predictor import Predictor
from allranks.gate.lockstep.schedule import Call, call
from allranks.gate.lockstep.sequence import CallSequence, Values
from allranks.gate.lockstep.variants import Form, Known, Telling, tell_apart
from allranks.world.guards import jax as inside
from allranks.world.progress import progress

# A call from a line, with what is needed to make it; and the code that must live as long as its place is remembered.
_Site = tuple[Call, CallSequence, Predictor[Call], "Programs", tuple[CodeType, ...]]


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program as all its ranks must have it: a call without the line that starts it."""

    sequence: CallSequence
    name: str
    lines: tuple[str, ...]
    key: str
    source: inside.Source | None = field(default=None, compare=False)

    def call(self, where: str = "", line: str = "") -> Call:
        """Return the call of this program from ``where``, which is compared as ``line``."""
        details = self.source.lines if self.source else tuple
        return call(self.name, where, lines=self.lines, key=f"{self.key} {line}", details=details)


class Programs:
    """What this process runs together with others in one thread: that which made this object.

    ``calling`` is the wrapped function that runs now. ``sees`` says whether programs are seen at all.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.calling: Stepped | None = None
        self.thread = get_ident()
        monitor.trains_here()
        # What was seen of the programs that ran here; None of those of this process alone.
        self._seen: WeakKeyDictionary[Any, Program | None] = WeakKeyDictionary()
        # Where every run passes Python: programs, and their calls by the lines that start them.
        self._programs: WeakKeyDictionary[Any, _Variant] | None = None
        self._agreed: set[str] = set()
        self._has_said = False
        _check_ranks(monitor)
        self.sees = inside.on_programs(self._look)
        # Chooses the cache of JAX's C++ that this thread uses, and returns the one before.
        self.switch: Callable[[Any], Any] = inside.cache_switch() if self.sees else lambda _: None
        if not self.sees:
            _say_what_is_left()

    def follow(self) -> None:
        """Have every run of a program compared from now on, whether its function is wrapped or not."""
        if self.sees and self._programs is None:
            self._programs = WeakKeyDictionary()
            inside.pass_python_always()

    def _look(self, program: Any, *arguments: Any) -> None:
        """Compare a program with the other processes' before it runs here, for the first time or where all are."""
        if self._programs is not None and self.calling is None and get_ident() == self.thread:
            self._call(self._programs, program, arguments)
        elif program not in self._seen or self.calling is not None:
            members = inside.processes_of(program)
            if len(members) > 1 and get_ident() != self.thread:
                self._say_what_is_not_compared(program.name)
                return
            known = self._seen.get(program)
            if len(members) > 1:
                known = known or self._read(program, arguments, members)
                self._compare(known, functools.partial(forms.replicated, arguments))
            self._seen[program] = known

    def _say_what_is_not_compared(self, name: str) -> None:
        """Say, once, that a program across processes runs in another thread."""
        if not self._has_said:
            self._has_said = True
            warnings.warn(
                f"rank {self.monitor.world.rank}: lockstep: {name} runs across processes in another thread, "
                f"{current_thread().name!r} ({call_site()}): what that thread runs is not compared.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _call(self, programs: WeakKeyDictionary[Any, _Variant], program: Any, arguments: Sequence[Any]) -> None:
        """Make a call of a program that no wrapped function runs."""
        variant = programs.get(program)
        if variant is None:
            members = inside.processes_of(program)
            if len(members) == 1:
                return
            variant = programs[program] = _Variant(self._read(program, arguments, members))
        frame = lines.users_frame(_getframe(2))
        site = variant.site(frame, self)
        made, sequence, *_ = site
        sequence.take(made, values=functools.partial(forms.replicated, arguments))

    def _read(self, program: Any, arguments: Sequence[Any], members: Sequence[int]) -> Program:
        sequence, text = self.monitor.sequence(members), inside.text_of(program)
        sequence.executing = self._is_executing
        told = [*_numbered("argument", map(forms.in_words, arguments)), *_numbered("collective", collectives(text))]
        return Program(sequence, program.name, tuple(told), inside.form_of(program, text), inside.source_of(program))

    def _compare(self, program: Program, values: Values) -> None:
        calling, made = self.calling, program.call(call_site())
        if calling is None:
            if made.digest not in self._agreed:
                program.sequence.ask(made, values=values())
        elif calling.unknown is not None and calling.unknown.site is None:
            calling.resolve(program, values)
        elif not calling.is_taken_for(program):
            program.sequence.ask(made, calling.timeout, values=values())
            calling.surprise = program
        self._agreed.add(made.digest)

    def explain(self, error: BaseException) -> None:
        """Raise the Mismatch that is the cause of an error in a call, if there is one."""
        if isinstance(error, Exception):
            self.monitor.explain(error)

    def _is_executing(self) -> bool:
        return inside.is_in_compiled_code(self.thread, Stepped.__call__.__code__)


@functools.cache
def programs_of(monitor: Monitor) -> Programs:
    """Return what this process runs together with others; from now on its programs are seen."""
    return Programs(monitor)


@dataclass(slots=True)
class _Variant:
    """One of the programs of a function; its calls, by the lines that start them."""

    program: Program
    sites: dict[lines.Spot, _Site] = field(default_factory=dict)

    def site(self, frame: FrameType, programs: Programs, *, same_lines: bool = True) -> _Site:
        """Return the call of this program from a frame's line."""
        spot = lines.spot(frame)
        site = self.sites.get(spot)
        if site is None:
            sequence = self.program.sequence
            line = lines.to_compare(frame) if same_lines else ""
            made = sequence.same(self.program.call(lines.in_words(frame), line))
            site = self.sites[spot] = made, sequence, sequence.predictor, programs, lines.codes(frame)
        return site


@dataclass(slots=True)
class _Unknown:
    """A call under way from ``frame``, given ``values`` if what it is given can be named; its program and what it is,
    once its program is seen."""

    frame: FrameType
    values: Values | None
    variant: _Variant | None = None
    site: _Site | None = None


class Stepped:
    """A function of JAX of which every call is made by all ranks of its devices, or by none.

    ``unknown`` is a call under way that runs nobody knows what program; ``surprise`` is a program that turned up in a
    call that was taken for another one's.
    """

    def __init__(
        self, programs: Callable[[], Programs], fn: Callable[..., Any], *, same_lines: bool, timeout: float | None
    ) -> None:
        functools.update_wrapper(self, fn)
        self._name = getattr(fn, "__name__", type(fn).__name__)  # what was compiled ahead of time has none
        self.timeout = timeout
        self.unknown: _Unknown | None = None
        self.surprise: Program | None = None
        self._programs = functools.cache(programs)  # the backend starts when the first function is called
        self._fn = fn
        self._same_lines = same_lines
        # The calls of the only variant, while there is one: then the line is all that is looked at.
        self._sites: dict[lines.Spot, _Site] = {}
        self._variants: dict[Hashable, _Variant] = {}
        self._known: list[Known] = []
        # The arguments that tell the variants apart, and the variants by these arguments.
        self._telling: Telling = {}
        self._told: dict[Form, _Variant] = {}
        self._static = inside.static_arguments(fn)
        self._is_local = False
        self._cache = inside.new_cache()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = _getframe(1)
        caller = frame.f_back or frame
        site = self._sites.get((id(frame.f_code), frame.f_lasti, id(caller.f_code), caller.f_lasti))
        if site is None:
            variant = self._variant(args, kwargs)
            if variant is None:
                return self._first(frame, args, kwargs)
            site = self._site(variant, frame)
        made, sequence, predictor, programs, _ = site
        if get_ident() != programs.thread:
            return self._fn(*args, **kwargs)
        if predictor.expected is made and predictor.count != sequence.steps.due:
            sequence.inside = True  # first, so that the place is never beyond where this rank is
            predictor.advance()
        else:
            sequence.take(made, self.timeout, inside=True, values=self._values(args, kwargs) or list)
        programs.calling = self
        before, cache = progress.enter("collective", made.what), programs.switch(self._cache)
        if cache is True:
            programs.switch(cache)
        try:
            result = self._fn(*args, **kwargs)
        except BaseException as error:
            predictor.take_back()
            programs.explain(error)
            raise
        finally:
            programs.switch(cache)
            sequence.inside, programs.calling = False, None
            progress.leave(before)
        if self.surprise is not None:
            self._learn(args, kwargs, _Variant(self.surprise))
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def _values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values | None:
        """Return the arguments that JAX takes for equal on all ranks; None if this is not what ``jax.jit`` returned."""
        return None if self._static is None else functools.partial(forms.replicated, args, kwargs)

    def resolve(self, program: Program, values: Values) -> None:
        """Take the call that is under way for this program's, which is about to run."""
        assert self.unknown is not None
        variant = self._variants.get(program) or _Variant(program)
        site = self._site(variant, self.unknown.frame)
        made, sequence, *_ = site
        sequence.take(made, self.timeout, inside=True, values=self.unknown.values or values)
        self.unknown.variant, self.unknown.site = variant, site

    def is_taken_for(self, program: Program) -> bool:
        """Say whether the call under way was taken for this program's."""
        variant, last = self._variants.get(program), program.sequence.last_call
        return variant is not None and any(site[0] is last for site in variant.sites.values())

    def _variant(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Variant | None:
        """Return which program runs for such arguments; None if that is not known."""
        found = self._told.get(self._forms(args, kwargs))
        if found is None and not self._programs().sees:
            found = _Variant(_lowered(self._programs().monitor, self._fn, args, kwargs))
            self._learn(args, kwargs, found)
        return found

    def _forms(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Form, ...]:
        return tuple(forms.read(name, args, kwargs, by_value=by_value) for name, by_value in self._telling.items())

    def _site(self, variant: _Variant, frame: FrameType) -> _Site:
        site = variant.site(frame, self._programs(), same_lines=self._same_lines)
        if self._told and not self._telling:
            self._sites[lines.spot(frame)] = site
        return site

    def _first(self, frame: FrameType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make a call of which the program is not known: it passes Python, and is seen before it runs."""
        programs, unknown = self._programs(), _Unknown(frame, self._values(args, kwargs))
        if get_ident() != programs.thread:
            return self._fn(*args, **kwargs)
        self.unknown, programs.calling = unknown, self
        before = progress.enter("compile", self._name)
        cache = programs.switch(self._cache if self._is_local else inside.new_cache())
        if cache is True:
            programs.switch(cache)
        try:
            result = self._fn(*args, **kwargs)
        except BaseException as error:
            if unknown.site is not None:
                unknown.site[2].take_back()
            programs.explain(error)
            raise
        finally:
            programs.switch(cache)
            if unknown.site is not None:
                unknown.site[1].inside = False
            self.unknown = programs.calling = None
            progress.leave(before)
        self._is_local = unknown.variant is None
        if unknown.variant is not None:
            self._learn(args, kwargs, unknown.variant)
        return result

    def _learn(self, args: Sequence[Any], kwargs: Mapping[str, Any], variant: _Variant) -> None:
        """Remember for what arguments a program runs, and what tells it from the others."""
        self.surprise = None
        names = (*range(len(args)), *kwargs, forms.SETTINGS)
        by_form, by_value = (
            {name: forms.read(name, args, kwargs, by_value=reads_value) for name in names}
            for reads_value in (False, True)
        )
        self._known.append(Known(by_form, by_value, variant.program))
        self._variants.setdefault(variant.program, variant)
        self._telling = tell_apart(self._known, self._static, sees=self._programs().sees)
        self._told = {}
        for known in self._known:
            self._told.setdefault(known.key(self._telling), self._variants[known.program])
        self._sites.clear()


def _numbered(what: str, lines: Iterable[str]) -> Iterable[str]:
    return (f"{what} {number} is {line}" for number, line in enumerate(lines, 1))


def _lowered(monitor: Monitor, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """Return what a function would run, by public means: for all ranks, and as it is before compilation."""
    lower = getattr(fn, "lower", None) or jax.jit(fn).lower  # what shard_map returns has none
    told = _numbered("argument", map(forms.in_words, jax.tree.leaves((args, kwargs))))
    name = f"jit({getattr(fn, '__name__', type(fn).__name__)})"
    text = fn.as_text() if isinstance(fn, jax.stages.Compiled) else lower(*args, **kwargs).as_text()
    return Program(monitor.sequence(range(monitor.world.size)), name, tuple(told), text or "")


def _check_ranks(monitor: Monitor) -> None:
    mine, world = (jax.process_index(), jax.process_count()), monitor.world
    if mine != (world.rank, world.size):
        raise ContradictingSigns(
            f"rank {world.rank} of {world.size} is process {mine[0]} of {mine[1]} in JAX.",
            remedy="Give jax.distributed.initialize the ranks of the world, or call allranks.init() instead.",
        )


def _say_what_is_left() -> None:
    warnings.warn(
        f"allranks does not know the inside of jax {jax.__version__}: lockstep compares the functions that are "
        "wrapped, before compilation and for all ranks, and no other program.",
        RuntimeWarning,
        stacklevel=2,
    )
