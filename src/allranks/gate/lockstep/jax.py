"""Compare JAX programs across processes: any program before its first run, a wrapped function before every run.

Only the first run of a compiled program passes through Python, where allranks can see the whole program
(world/guards/jax.py). C++ makes the later runs. That is why a function is wrapped. ``LockstepFunction`` knows how the
C++ code selects a program: by the signatures of arguments, the values of static arguments, and JAX's settings. So it
predicts which program will run, and compares the call of that program. It has its own C++ cache, so an unexpected
program still passes through Python, and is compared within the call.

In a JAX version whose internals are unknown, no program can be seen. Then a wrapped function is lowered through the
public API for arguments of a new signature, and compared before compilation.
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
from allranks.gate.lockstep import call_sites
from allranks.gate.lockstep.calls import GroupCall, make_call
from allranks.gate.lockstep.hlo import collectives_of_module
from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.gate.lockstep.predictor import CallPredictor
from allranks.gate.lockstep.sequence import CallSequence, Values
from allranks.gate.lockstep.signatures import jax as signatures
from allranks.gate.lockstep.variants import KeyArguments, KnownCall, Signature, find_key_arguments
from allranks.world.guards import jax as inside
from allranks.world.progress import progress

# A call from a line, with what is needed to make it; and the code that must live as long as its key is kept.
_Site = tuple[GroupCall, CallSequence, CallPredictor[GroupCall], "ProgramMonitor", tuple[CodeType, ...]]


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled program that several ranks run together. It must be the same on all of them."""

    sequence: CallSequence
    name: str
    lines: tuple[str, ...]
    key: str
    source: inside.ProgramSource | None = field(default=None, compare=False)

    def make_call(self, call_line: str = "", compared_line: str = "") -> GroupCall:
        """Return the GroupCall that runs this program from ``call_line``.

        ``compared_line``: the line as the ranks compare it.
        """
        details = self.source.lines if self.source else tuple
        return make_call(
            self.name, call_line, lines=self.lines, hidden_key=f"{self.key} {compared_line}", more_details=details
        )


class ProgramMonitor:
    """Compares the programs that this process runs together with other processes, in the thread that made this object.

    ``current_function`` is the wrapped function that is running. ``sees_programs``: whether programs can be seen.
    """

    def __init__(self, monitor: LockstepMonitor) -> None:
        self.monitor = monitor
        self.current_function: LockstepFunction | None = None
        self.thread = get_ident()
        monitor.set_training_thread()
        # The programs that ran here; None for those of this process only.
        self._seen: WeakKeyDictionary[Any, CompiledProgram | None] = WeakKeyDictionary()
        # Programs and their calls by line, where every run passes Python (``follow``).
        self._programs: WeakKeyDictionary[Any, _ProgramVariant] | None = None
        self._agreed: set[str] = set()
        self._has_warned = False
        _check_ranks(monitor)
        self.sees_programs = inside.on_programs(self._compare_program)
        # Chooses the cache of JAX's C++ that this thread uses, and returns the one before.
        self.switch: Callable[[Any], Any] = inside.cache_switch() if self.sees_programs else lambda _: None
        if not self.sees_programs:
            _warn_unknown_version()

    def compare_every_run(self) -> None:
        """Compare every run of every program across processes from now on, whether its function is wrapped or not."""
        if self.sees_programs and self._programs is None:
            self._programs = WeakKeyDictionary()
            inside.pass_python_always()

    def _compare_program(self, program: Any, *arguments: Any) -> None:
        """Compare a program across processes before its first run, or before each run after ``follow``."""
        if self._programs is not None and self.current_function is None and get_ident() == self.thread:
            self._compare_unwrapped_run(self._programs, program, arguments)
        elif program not in self._seen or self.current_function is not None:
            members = inside.processes_of(program)
            if len(members) > 1 and get_ident() != self.thread:
                self._warn_other_thread(program.name)
                return
            known = self._seen.get(program)
            if len(members) > 1:
                known = known or self._read_program(program, arguments, members)
                self._compare_run(known, functools.partial(signatures.replicated_arguments, arguments))
            self._seen[program] = known

    def _warn_other_thread(self, name: str) -> None:
        """Warn, once, that a program across processes runs in another thread and is not compared."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"rank {self.monitor.world.rank}: lockstep: {name} runs across processes in another thread, "
                f"{current_thread().name!r} ({call_site()}): the programs of that thread are not compared.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _compare_unwrapped_run(
        self, programs: WeakKeyDictionary[Any, _ProgramVariant], program: Any, arguments: Sequence[Any]
    ) -> None:
        """Compare a run of a program that is not run by a wrapped function."""
        variant = programs.get(program)
        if variant is None:
            members = inside.processes_of(program)
            if len(members) == 1:
                return
            variant = programs[program] = _ProgramVariant(self._read_program(program, arguments, members))
        frame = call_sites.users_frame(_getframe(2))
        site = variant.call_site(frame, self)
        made, sequence, *_ = site
        sequence.enter_call(made, values=functools.partial(signatures.replicated_arguments, arguments))

    def _read_program(self, program: Any, arguments: Sequence[Any], members: Sequence[int]) -> CompiledProgram:
        sequence, text = self.monitor.call_sequence(members), inside.text_of(program)
        sequence.executing = self._is_executing
        reported = [
            *_numbered_lines("argument", map(signatures.describe_argument, arguments)),
            *_numbered_lines("collective", collectives_of_module(text)),
        ]
        return CompiledProgram(
            sequence, program.name, tuple(reported), inside.form_of(program, text), inside.source_of(program)
        )

    def _compare_run(self, program: CompiledProgram, values: Values) -> None:
        current_function, made = self.current_function, program.make_call(call_site())
        if current_function is None:
            if made.digest not in self._agreed:
                program.sequence.agree_on_call(made, values=values())
        elif current_function.unknown_call is not None and current_function.unknown_call.site is None:
            current_function.set_program(program, values)
        elif not current_function.was_predicted_as(program):
            program.sequence.agree_on_call(made, current_function.timeout, values=values())
            current_function.unexpected_program = program
        self._agreed.add(made.digest)

    def raise_cause(self, error: BaseException) -> None:
        """Raise the Mismatch that caused this error of a call, if one is known."""
        if isinstance(error, Exception):
            self.monitor.raise_cause(error)

    def _is_executing(self) -> bool:
        return inside.is_in_compiled_code(self.thread, LockstepFunction.__call__.__code__)


@functools.cache
def programs_of(monitor: LockstepMonitor) -> ProgramMonitor:
    """Return the object that compares the programs of this process, and start to compare them."""
    return ProgramMonitor(monitor)


@dataclass(slots=True)
class _ProgramVariant:
    """One of the programs of a function, with its calls by the lines that start them."""

    program: CompiledProgram
    sites: dict[call_sites.FrameKey, _Site] = field(default_factory=dict)

    def call_site(self, frame: FrameType, programs: ProgramMonitor, *, same_lines: bool = True) -> _Site:
        """Return the call of this program from the current line of a frame, with what is needed to make it."""
        frame_key = call_sites.frame_key(frame)
        site = self.sites.get(frame_key)
        if site is None:
            sequence = self.program.sequence
            line = call_sites.call_site_without_folders(frame) if same_lines else ""
            made = sequence.canonical_call(self.program.make_call(call_sites.describe_call_site(frame), line))
            site = self.sites[frame_key] = made, sequence, sequence.predictor, programs, call_sites.code_objects(frame)
        return site


@dataclass(slots=True)
class _UnknownProgram:
    """A running call, from ``frame``, of which it is not known yet which program it runs.

    ``values`` returns its arguments; None if the arguments have no names. ``variant`` and ``site`` are set when the
    program is seen.
    """

    frame: FrameType
    values: Values | None
    variant: _ProgramVariant | None = None
    site: _Site | None = None


class LockstepFunction:
    """A JAX function whose every call must be made by all ranks of its devices.

    ``unknown_call`` is a running call whose program is not known yet. ``unexpected_program`` is a program that ran in a
    call for which another program was predicted.
    """

    def __init__(
        self, programs: Callable[[], ProgramMonitor], fn: Callable[..., Any], *, same_lines: bool, timeout: float | None
    ) -> None:
        functools.update_wrapper(self, fn)
        self._name = getattr(fn, "__name__", type(fn).__name__)  # a function that was compiled ahead of time has none
        self.timeout = timeout
        self.unknown_call: _UnknownProgram | None = None
        self.unexpected_program: CompiledProgram | None = None
        self._programs = functools.cache(programs)  # the backend starts when the first function is called
        self._fn = fn
        self._same_lines = same_lines
        # The calls of the only variant, while there is one: then the line is the whole key.
        self._sites: dict[call_sites.FrameKey, _Site] = {}
        self._variants: dict[Hashable, _ProgramVariant] = {}
        self._known: list[KnownCall] = []
        # The arguments that distinguish the variants, and the variants by these arguments.
        self._key_arguments: KeyArguments = {}
        self._variants_by_key: dict[Signature, _ProgramVariant] = {}
        self._static = inside.static_arguments(fn)
        self._is_local = False
        self._cache = inside.new_cache()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = _getframe(1)
        caller = frame.f_back or frame
        site = self._sites.get((id(frame.f_code), frame.f_lasti, id(caller.f_code), caller.f_lasti))
        if site is None:
            variant = self._known_variant(args, kwargs)
            if variant is None:
                return self._first_call(frame, args, kwargs)
            site = self._call_site(variant, frame)
        made, sequence, predictor, programs, _ = site
        if get_ident() != programs.thread:
            return self._fn(*args, **kwargs)
        if predictor.expected is made and predictor.count != sequence.steps.due:
            sequence.inside = True  # first, so that the reported place is never past the real one
            predictor.count_predicted_call()
        else:
            sequence.enter_call(
                made, self.timeout, is_inside=True, values=self._replicated_values(args, kwargs) or list
            )
        programs.current_function = self
        before, cache = progress.enter("collective", made.what), programs.switch(self._cache)
        if cache is True:
            programs.switch(cache)
        try:
            result = self._fn(*args, **kwargs)
        except BaseException as error:
            predictor.remove_last_call()
            programs.raise_cause(error)
            raise
        finally:
            programs.switch(cache)
            sequence.inside, programs.current_function = False, None
            progress.leave(before)
        if self.unexpected_program is not None:
            self._learn_arguments(args, kwargs, _ProgramVariant(self.unexpected_program))
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def _replicated_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values | None:
        """Return a function that returns the arguments that JAX assumes to be equal on all ranks.

        Return None if the wrapped function is not a result of ``jax.jit``.
        """
        return None if self._static is None else functools.partial(signatures.replicated_arguments, args, kwargs)

    def set_program(self, program: CompiledProgram, values: Values) -> None:
        """Record that the running call is a call of this program, which is about to run."""
        assert self.unknown_call is not None
        variant = self._variants.get(program) or _ProgramVariant(program)
        site = self._call_site(variant, self.unknown_call.frame)
        made, sequence, *_ = site
        sequence.enter_call(made, self.timeout, is_inside=True, values=self.unknown_call.values or values)
        self.unknown_call.variant, self.unknown_call.site = variant, site

    def was_predicted_as(self, program: CompiledProgram) -> bool:
        """Return whether the running call was predicted to be a call of this program."""
        variant, last = self._variants.get(program), program.sequence.last_call
        return variant is not None and any(site[0] is last for site in variant.sites.values())

    def _known_variant(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _ProgramVariant | None:
        """Return the program that runs for these arguments; None if that program is not known."""
        found = self._variants_by_key.get(self._argument_signatures(args, kwargs))
        if found is None and not self._programs().sees_programs:
            found = _ProgramVariant(_lower_program(self._programs().monitor, self._fn, args, kwargs))
            self._learn_arguments(args, kwargs, found)
        return found

    def _argument_signatures(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Signature, ...]:
        return tuple(
            signatures.read_signature(name, args, kwargs, by_value=by_value)
            for name, by_value in self._key_arguments.items()
        )

    def _call_site(self, variant: _ProgramVariant, frame: FrameType) -> _Site:
        site = variant.call_site(frame, self._programs(), same_lines=self._same_lines)
        if self._variants_by_key and not self._key_arguments:
            self._sites[call_sites.frame_key(frame)] = site
        return site

    def _first_call(self, frame: FrameType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make a call whose program is not known: the program passes through Python, and is seen before it runs."""
        programs, unknown = self._programs(), _UnknownProgram(frame, self._replicated_values(args, kwargs))
        if get_ident() != programs.thread:
            return self._fn(*args, **kwargs)
        self.unknown_call, programs.current_function = unknown, self
        before = progress.enter("compile", self._name)
        cache = programs.switch(self._cache if self._is_local else inside.new_cache())
        if cache is True:
            programs.switch(cache)
        try:
            result = self._fn(*args, **kwargs)
        except BaseException as error:
            if unknown.site is not None:
                unknown.site[2].remove_last_call()
            programs.raise_cause(error)
            raise
        finally:
            programs.switch(cache)
            if unknown.site is not None:
                unknown.site[1].inside = False
            self.unknown_call = programs.current_function = None
            progress.leave(before)
        self._is_local = unknown.variant is None
        if unknown.variant is not None:
            self._learn_arguments(args, kwargs, unknown.variant)
        return result

    def _learn_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any], variant: _ProgramVariant) -> None:
        """Record for which arguments a program runs, and which arguments distinguish this program from the others."""
        self.unexpected_program = None
        names = (*range(len(args)), *kwargs, signatures.SETTINGS)
        by_form, by_value = (
            {name: signatures.read_signature(name, args, kwargs, by_value=reads_value) for name in names}
            for reads_value in (False, True)
        )
        self._known.append(KnownCall(by_form, by_value, variant.program))
        self._variants.setdefault(variant.program, variant)
        self._key_arguments = find_key_arguments(
            self._known, self._static, sees_programs=self._programs().sees_programs
        )
        self._variants_by_key = {}
        for known in self._known:
            self._variants_by_key.setdefault(known.signature_key(self._key_arguments), self._variants[known.program])
        self._sites.clear()


def _numbered_lines(what: str, lines: Iterable[str]) -> Iterable[str]:
    return (f"{what} {number} is {line}" for number, line in enumerate(lines, 1))


def _lower_program(
    monitor: LockstepMonitor, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> CompiledProgram:
    """Return the program of a function, before compilation and for all ranks, through JAX's public API."""
    lower = getattr(fn, "lower", None) or jax.jit(fn).lower  # a function of shard_map has none
    reported = _numbered_lines("argument", map(signatures.describe_argument, jax.tree.leaves((args, kwargs))))
    name = f"jit({getattr(fn, '__name__', type(fn).__name__)})"
    text = fn.as_text() if isinstance(fn, jax.stages.Compiled) else lower(*args, **kwargs).as_text()
    return CompiledProgram(monitor.call_sequence(range(monitor.world.size)), name, tuple(reported), text or "")


def _check_ranks(monitor: LockstepMonitor) -> None:
    mine, world = (jax.process_index(), jax.process_count()), monitor.world
    if mine != (world.rank, world.size):
        raise ContradictingSigns(
            f"rank {world.rank}: lockstep: JAX and the world disagree: expected process {world.rank} of {world.size} "
            f"in JAX, found process {mine[0]} of {mine[1]}.",
            remedy="Give jax.distributed.initialize the ranks of the world, or call allranks.init() instead.",
        )


def _warn_unknown_version() -> None:
    warnings.warn(
        f"lockstep: allranks does not know the internals of jax {jax.__version__}: it compares only wrapped functions, "
        "before compilation and for all ranks, and no other program.",
        RuntimeWarning,
        stacklevel=2,
    )
