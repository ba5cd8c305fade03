"""See computations of JAX across processes before they run, through JAX's internals.

The guard: inside a section that only one rank runs, a computation on arrays of several processes raises before it runs.

JAX keeps compiled programs in a C++ cache that never returns to Python. But the key of that cache includes JAX's
thread-local settings, and we add a setting of our own. So inside a section every program passes through Python once
(``ExecuteReplicated``), without being traced or compiled again, and there its devices are checked. A program that uses
only devices of this process goes into the cache under the new key and is as fast as before. A program that needs other
processes is refused.

Lockstep uses the same hook at the first run of every program (``on_programs``). With the same setting it makes the
programs of a function pass through Python once more (``new_cache``). XLA's text of a compiled program leaves large
constants out, and depends on trials on a GPU. So where JAX compiles a program, we compute a digest of its input:
StableHLO with its constants.

``multihost_utils`` ends in such programs. A section also refuses the coordination service's barriers, the start of the
backend (which waits for all processes), and reads of a value that other processes hold.

All this is private API of JAX: ``_self_test`` checks it in the running version. If the test fails, a warning says so,
and only the functions of ``multihost_utils`` are refused (lockstep has its own fall-back). Not seen: threads that the
user starts, and the experimental ``device_put`` between hosts (one process sends, one receives).
"""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import CodeType, SimpleNamespace
from typing import Any

import jax
import numpy as np
import xxhash
from jax.experimental import multihost_utils
from jax.extend.mlir import passmanager

from allranks.world.main_rank_section import MainRankSection, current_section, refuse_collective

# Platforms on which equal programs are compiled to equal texts: on others, what is fastest may be chosen by trial.
_DETERMINISTIC = ("cpu", "tpu")
_PUBLIC = ("process_allgather", "broadcast_one_to_all", "sync_global_devices", "assert_equal")


# JAX's own modules, by attribute: an import of a private module that has moved would fail before we can say anything.
_jax: Any = jax._src
_hlo: Any = getattr(_jax.lib, "hlo", None) or getattr(_jax.lib, "_jax", None)
# pmap is a function in Python that calls a compiled one.
_PMAP = getattr(getattr(_jax, "pmap", None), "__file__", "")
# Those below are equal to False and True, which mark sections.
_numbers = itertools.count(2)
# Returns JAX's settings, global and of this thread, by which JAX distinguishes programs.
settings: Callable[[], Any] = getattr(_jax.config, "trace_context", tuple)
# The program of the self-test.
_tried: list[Any] = []
# In the text for people, constants of more elements are left out.
_SHOWN_ELEMENTS = 16


@contextmanager
def guard(section: MainRankSection) -> Iterator[None]:
    """Make computations across processes raise CollectiveOnOneRank in this thread, while the ``with`` block runs."""
    del section
    setting = _section_setting() if _spans_processes() else None
    if setting is None:
        yield
        return
    before = setting.swap_local(True)
    try:
        yield
    finally:
        setting.set_local(before)


def _spans_processes() -> bool:
    """Return whether this process is one of several processes of JAX. Does not start a backend."""
    return jax.distributed.is_initialized() or (_backend_is_up() and jax.process_count() > 1)


def _backend_is_up() -> bool:
    return bool(_jax.xla_bridge.backends_are_initialized())


def _section_setting() -> Any | None:
    """Return the thread-local setting that marks a section. If it has no effect, install the fall-back; return None."""
    hooked = _install_hooks()
    # Before the backend is up nothing can be tried, and nothing is cached that could pass us by.
    if hooked is not None and (not _backend_is_up() or _self_test(*hooked)):
        return hooked[0]
    _fall_back()
    return None


@functools.cache
def _install_hooks() -> tuple[Any, ExitStack] | None:
    """Hook JAX, once in this process; return our setting and an undo stack.

    Return None if JAX's private names have moved.
    """
    with ExitStack() as undo, suppress(AttributeError, TypeError):
        setting = _jax.config.config_ext.Config("allranks_one_rank", None, include_in_jit_key=True)
        client = _jax.distributed._jax.DistributedRuntimeClient
        _ahead_of(undo, _jax.interpreters.pxla.ExecuteReplicated, "__call__", _refuse_program)
        _ahead_of(undo, _jax.xla_bridge, "backends", _refuse_start)
        _ahead_of(undo, client, "wait_at_barrier", lambda *_: refuse_collective("JAX's coordination-service barrier"))
        _ahead_of(undo, client, "get_live_nodes", lambda *_: refuse_collective("JAX's query for live processes"))
        _ahead_of_value(undo, _jax.array.ArrayImpl)
        return setting, undo.pop_all()
    return None


def _ahead_of(undo: ExitStack, owner: Any, name: str, callback: Callable[..., object]) -> None:
    """Call ``callback`` before each call of a function, with its positional arguments, until ``undo`` is closed.

    The function is the attribute ``name`` of ``owner``.
    """
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        callback(*args)
        return original(*args, **kwargs)

    setattr(owner, name, watched)
    undo.callback(setattr, owner, name, original)


def _ahead_of_value(undo: ExitStack, array_type: Any) -> None:
    """Refuse to read an array of which this process holds only a part. (JAX's own error would advise a collective.)"""
    original = array_type._value
    read = original.fget

    def value(array: Any) -> Any:
        if not (array.is_fully_addressable or array.is_fully_replicated):
            refuse_collective("reading a jax.Array that lies on several processes")
        return read(array)

    array_type._value = property(value)
    undo.callback(setattr, array_type, "_value", original)


def _is_local(program: Any) -> bool:
    """Return whether a compiled program (an ``ExecuteReplicated``) runs on devices of this process only."""
    shardings = (*program.in_handler.in_shardings, *program.out_handler.out_shardings)
    return all(sharding.is_fully_addressable for sharding in shardings)


def _refuse_program(program: Any, *_: object) -> None:
    if current_section() is not None and not _is_local(program):
        refuse_collective(f"the JAX computation {program.name}")


def _refuse_start() -> None:
    if current_section() is not None and _spans_processes() and not _backend_is_up():
        refuse_collective("the start of JAX's backend (its first use on any rank)")


@functools.cache
def _self_test(setting: Any, hooks: ExitStack) -> bool:
    """Return whether a program in the C++ cache passes through Python under the setting, and can be checked there.

    If not, remove the hooks.
    """
    seen: list[Any] = []
    works = False
    with ExitStack() as undo, ThreadPoolExecutor(1) as fresh_thread, suppress(AttributeError, TypeError):
        fresh_thread.submit(_run_cached, setting, undo, seen).result()
        works = [_is_local(program) for program in seen] == [True]
        _tried.extend(seen)
    if not works:
        hooks.close()
    return works


def _run_cached(setting: Any, undo: ExitStack, seen: list[Any]) -> None:
    """Put a local program into the C++ cache and run it under the setting, in a thread without the user's settings."""
    with jax.disable_jit(False):
        program = jax.jit(lambda x: x + 1)
        x = jax.device_put(np.float32(0), jax.local_devices()[0])
        program(x)
        program(x)
        _ahead_of(undo, _jax.interpreters.pxla.ExecuteReplicated, "__call__", lambda p, *_: seen.append(p))
        setting.set_local(True)
        program(x)


@functools.cache
def _fall_back() -> None:
    """Refuse the public functions of ``multihost_utils``, and warn that nothing else is refused."""
    warnings.warn(
        f"allranks does not know the internals of jax {jax.__version__}: in code that one rank runs, only "
        f"{', '.join(_PUBLIC)} of multihost_utils are refused; a jit on arrays of several processes may hang.",
        RuntimeWarning,
        stacklevel=2,
    )
    for name in _PUBLIC:
        _ahead_of(
            ExitStack(), multihost_utils, name, lambda *_, name=name: refuse_collective(f"multihost_utils.{name}")
        )


class ProgramSource:
    """The input that a program was compiled from: its StableHLO, without source lines.

    ``digest`` covers constants of any size; ``lines()`` is the text for people.
    """

    def __init__(self, module: Any) -> None:
        self._module = weakref.ref(module)
        state = xxhash.xxh3_128()
        bare = module.operation.clone()
        with module.context:
            passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(bare.operation)
        bare.operation.write_bytecode(SimpleNamespace(write=state.update))
        self.digest = state.hexdigest()

    def lines(self) -> tuple[str, ...]:
        """Return the text of the program, one line for each operation, without large constants.

        Empty if JAX has dropped it.
        """
        module = self._module()
        if module is None:
            return ()
        text = module.operation.get_asm(enable_debug_info=False, large_elements_limit=_SHOWN_ELEMENTS)
        return tuple(line.strip() for line in text.splitlines())


# The sources by program (an ``ExecuteReplicated``): for programs across processes compiled after ``_note_sources``.
_sources: weakref.WeakKeyDictionary[Any, ProgramSource] = weakref.WeakKeyDictionary()


def source_of(program: Any) -> ProgramSource | None:
    """Return the source of a compiled program, or None if the program was compiled before ``on_programs``."""
    return _sources.get(program)


@functools.cache
def _note_sources() -> bool:
    """From now on, keep the source of each program compiled for several processes. Return whether that works."""
    with suppress(AttributeError, TypeError, ValueError):
        compilers = _jax.interpreters.pxla.UnloadedMeshExecutable
        compile_it, is_tried = compilers.from_hlo, True

        @functools.wraps(compile_it)
        def noting(name: str, module: Any, *args: Any, **kwargs: Any) -> Any:
            compiled = compile_it(name, module, *args, **kwargs)
            if is_tried or len({device.process_index for device in kwargs["device_list"]}) > 1:
                compiled.build_unsafe_call = functools.partial(
                    _note_source, compiled.build_unsafe_call, ProgramSource(module)
                )
            return compiled

        compilers.from_hlo = staticmethod(noting)
        executable: Any = jax.jit(lambda x: x * 2).lower(np.float32(0)).compile()._executable
        program = executable.unsafe_call
        is_tried = False
        return source_of(program) is not None
    return False


def _note_source(build: Callable[[], Any], source: ProgramSource) -> Any:
    program = build()
    _sources[program] = source
    return program


def on_programs(callback: Callable[..., None]) -> bool:
    """Call ``callback(program, *arguments)`` before every run that passes through Python.

    At least each program's first run does. Return False, and do nothing, if this JAX version does not support this
    function or the functions below. Starts the backend, so all processes must call.
    """
    jax.process_count()
    hooked = _install_hooks()
    if hooked is None or not _self_test(*hooked) or not _can_be_read(_tried[0]) or not _note_sources():
        return False
    _ahead_of(hooked[1], _jax.interpreters.pxla.ExecuteReplicated, "__call__", callback)
    return True


def before_programs(callback: Callable[..., None]) -> None:
    """Call ``callback(program, *arguments)`` before every run of a program across processes, from now on.

    Starts no backend. Raises AttributeError if the internals of this JAX version are different.
    """
    pass_python_always()
    _ahead_of(ExitStack(), _jax.interpreters.pxla.ExecuteReplicated, "__call__", callback)


def pass_python_always() -> None:
    """Make every run of a program across processes pass through Python from now on, not only the first run.

    Call after ``on_programs``. Each such run then costs what JAX's own Python costs, 30 microseconds and more.
    """
    pjit = _jax.pjit
    cached: Callable[..., Any] = pjit._get_fastpath_data

    @functools.wraps(cached)
    def only_local(executable: Any, *args: Any) -> Any:
        data = cached(executable, *args)
        return data if data is None or _is_local(executable.unsafe_call) else None

    pjit._get_fastpath_data = only_local


def _can_be_read(program: Any) -> bool:
    with suppress(AttributeError, TypeError):
        return processes_of(program) == (jax.process_index(),) and "ENTRY" in text_of(program) and bool(program.name)
    return False


def processes_of(program: Any) -> tuple[int, ...]:
    """Return the processes on whose devices a compiled program (an ``ExecuteReplicated``) runs."""
    return tuple(sorted({device.process_index for device in _devices_of(program)}))


def _devices_of(program: Any) -> Sequence[Any]:
    for sharding in (*program.in_handler.in_shardings, *program.out_handler.out_shardings):
        return tuple(sharding._device_assignment)
    return tuple(program.xla_executable.local_devices())


def text_of(program: Any) -> str:
    """Return XLA's text of a compiled program, without names and source lines, which do not change its results.

    The text has small constants. (``HloPrintOptions.fingerprint`` would leave out all constants except zero.)
    """
    options = _hlo.HloPrintOptions.canonical()
    for name in ("print_metadata", "print_ids", "print_percent"):
        setattr(options, name, False)
    options.canonicalize_computations = True
    return "\n".join(module.to_string(options) for module in program.xla_executable.hlo_modules())


def form_of(program: Any, text: str) -> str:
    """Return the properties of a program that must be equal on all processes, as text.

    These are the devices, the results, the source and, on platforms where equal programs have equal texts, the text.
    Arguments and collectives are compared elsewhere.
    """
    source = source_of(program)
    exact = program.xla_executable.client.platform in _DETERMINISTIC
    devices = [device.id for device in _devices_of(program)]
    digest = source.digest if source else ""
    return f"{devices} {program.out_handler.out_avals} {digest} {text if exact else ''}"


def static_arguments(fn: Any) -> tuple[int | str, ...] | None:
    """Return the positions and names of a jitted function's static arguments, or None if they are unknown (a pmap)."""
    info = getattr(fn, "_jit_info", None)
    try:
        return (*info.static_argnums, *info.static_argnames)  # type: ignore[union-attr]
    except (AttributeError, TypeError):
        return None


def new_cache() -> int:
    """Return the number of a new, empty C++ cache of JAX. A program's first run with it passes through Python."""
    return next(_numbers)


def cache_switch() -> Callable[[Any], Any]:
    """Return a function that makes this thread use a numbered C++ cache of JAX, and returns the previous cache.

    None means JAX's own cache. Call only after ``on_programs`` has returned True. In a section, the previous cache is
    True, and must stay in use.
    """
    hooked = _install_hooks()
    assert hooked is not None
    swap: Callable[[Any], Any] = hooked[0].swap_local
    return swap


def is_in_compiled_code(thread: int, caller: CodeType) -> bool:
    """Return whether a thread is inside a compiled function that ``caller`` called, so neither traces nor compiles."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename == _PMAP:
        frame = frame.f_back
    return frame is not None and frame.f_code is caller
