"""Record what a rank does with JAX: synchronisations, programs across processes, rows of global arrays, values.

Imported after JAX was imported (``detect``).
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from xxhash import xxh3_64_hexdigest

from allranks.rehearse.probe.calls import CallRecorder
from allranks.rehearse.probe.page import STEP
from allranks.rehearse.probe.record import Recorder, is_main_thread
from allranks.rehearse.probe.saves import SaveRecorder
from allranks.world.guards.jax import before_programs, processes_of

# By function of multihost_utils: whom its leaving waits for.
_SYNCHRONISATIONS = (
    "sync_global_devices",
    "process_allgather",
    "broadcast_one_to_all",
    "assert_equal",
    "reached_preemption_sync_point",
)
_MAKERS = ("make_array_from_process_local_data", "make_array_from_callback")
# Functions by which a program queries its processes and devices.
_QUERIES = ("process_index", "process_count", "devices", "device_count")
# How the name of the event ends by which JAX reports that it has compiled a function.
_COMPILED = "backend_compile_duration"
_BATCHES, _ROWS = 200, 256
# Replicated arguments are recorded at so many runs of a program, and so many elements of each; they are compared
# between the ranks at the first runs.
_COMPARED, _ELEMENTS, _FIRST = 128, 1 << 12, 3


class JaxProbe:
    """The hooks of one process.

    ``watch`` is called with the module jax, ``watch_synchronisations`` with multihost_utils.
    """

    def __init__(self, recorder: Recorder, steps: int, saves: SaveRecorder) -> None:
        self._recorder, self._steps, self._saves = recorder, steps, saves
        self._calls = CallRecorder(recorder)
        self._programs: Counter[int] = Counter()
        self._trains: dict[int, bool] = {}
        self._kept: list[Any] = []
        self._lines: Counter[int] = Counter()
        self._compiled: Counter[str] = Counter()

    def watch(self, module: Any) -> None:
        module.distributed.initialize = self._synchronisation(
            module.distributed.initialize, "jax.distributed.initialize"
        )
        private = sys.modules["jax._src.distributed"]
        client: Any = private._jax.DistributedRuntimeClient
        client.wait_at_barrier = self._synchronisation(client.wait_at_barrier, "wait_at_barrier")
        for name in _MAKERS:
            setattr(module, name, self._making(getattr(module, name), name))
        array: Any = sys.modules["jax._src.array"].ArrayImpl
        for name in ("asarray", "array"):  # they read an array's memory without a call of its methods
            setattr(np, name, _for_arrays(getattr(np, name), array, self._calls.reading(getattr(np, name))))
        for name in ("item", "__float__"):
            setattr(array, name, self._calls.reading(getattr(array, name)))
        self._watch_parts(array)
        for name in _QUERIES:
            setattr(module, name, self._querying(getattr(module, name), name))
        before_programs(self._before_program)
        module.monitoring.register_event_duration_secs_listener(self._after_compiling)

    def _after_compiling(self, event: str, _: float, **about: Any) -> None:
        """Record that JAX has compiled a function which the program called."""
        if event.endswith(_COMPILED) and is_main_thread() and (place := self._recorder.place()):
            name = str(about.get("fun_name", ""))
            self._compiled[name] += 1
            if name and self._compiled[name] <= _BATCHES:
                self._recorder.write("compiled", place=place, name=name, count=self._compiled[name])

    def _querying(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a wrapper that records whether this process is the only one for JAX when the program queries."""

        @functools.wraps(original)
        def query(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            is_program = self._recorder.is_users(sys._getframe(1).f_code.co_filename)
            if is_program and is_main_thread() and sys.modules["jax._src.xla_bridge"].process_count() == 1:
                self._recorder.run_single("jax", f"jax.{name}()", queried=name.startswith("process"))
            return result

        return query

    def _watch_parts(self, array: Any) -> None:
        """Watch how the program takes its part of a global array."""
        shards, data = array.addressable_shards, array.addressable_data
        get_shards = getattr(shards, "func", None) or shards.fget

        def taking_shards(one: Any) -> Any:
            result = get_shards(one)
            self._take(one, {str(shard.index): shard.data for shard in result})
            return result

        def taking_data(one: Any, index: int) -> Any:
            result = data(one, index)
            self._take(one, {"": result})
            return result

        array.addressable_shards, array.addressable_data = property(taking_shards), taking_data

    def _take(self, array: Any, parts: dict[str, Any]) -> None:
        if self._recorder.is_users(sys._getframe(2).f_code.co_filename):
            self._saves.take(parts, array.shape)

    def watch_synchronisations(self, module: Any) -> None:
        for name in _SYNCHRONISATIONS:
            if hasattr(module, name):
                setattr(module, name, self._synchronisation(getattr(module, name), name))
        module.host_local_array_to_global_array = self._making(module.host_local_array_to_global_array, "local")

    def _synchronisation(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        return self._calls.of_all(original, name, label="jax", applies=self._is_of_program)

    def _is_of_program(self) -> bool:
        return is_main_thread() and bool(self._recorder.place())

    # ---- programs ----

    def _before_program(self, program: Any, *arguments: Any) -> None:
        if not is_main_thread() or self._calls.is_inside:
            return
        processes = processes_of(program)
        if len(processes) < 2:
            return
        if id(program) not in self._programs:
            self._kept.append(program)
        place = self._recorder.place()
        if not place:
            return
        if not self._programs[id(program)]:
            self._recorder.write("program", place=place, name=program.name, processes=sorted(processes))
        self._programs[id(program)] += 1
        count = self._programs[id(program)]
        if count <= _BATCHES:
            self._local_arguments(program, arguments, count, place, processes)
        trains = self._trains.setdefault(id(program), _returns_state(program, arguments))
        if trains and count > self._recorder.page.get(STEP):
            if self._steps and count > self._steps:
                self._recorder.write("ended", steps=count - 1)
                raise SystemExit(0)
            self._recorder.write("step", place=place, program=program.name, number=count)
            self._recorder.step_done(count)

    def _local_arguments(self, program: Any, arguments: Any, count: int, place: int, processes: Any) -> None:
        """Record the process-local arrays that are passed to a program of several processes.

        These arrays must be equal on all processes.
        """
        given = {
            str(number): [f"{one.dtype}{list(one.shape)}", _digest(one), _rows(one)]
            for number, one in enumerate(arguments)
            if isinstance(one, np.ndarray) and one.ndim
        }
        replicas = dict(self._replicas(arguments)) if count <= _COMPARED else {}
        if replicas:
            rows = [[f"argument {n}", 0, one[0], "", one[1], "", True] for n, one in replicas.items()]
            self._recorder.write("replicas", place=place, program=program.name, number=count - 1, rows=rows)
        given |= {str(n): one for n, one in replicas.items()} if count <= _FIRST else {}
        if given:
            name, members = program.name, list(processes)
            self._recorder.write("arguments", place=place, program=name, number=count, given=given, processes=members)

    def _replicas(self, arguments: Any) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the digest of each array that should be equal on all processes."""
        for number, one in enumerate(arguments):
            is_replica = getattr(one, "is_fully_replicated", False) and not one.is_fully_addressable
            if is_replica and not str(one.dtype).startswith("key<"):
                local = one.addressable_data(0)
                yield number, [f"{one.dtype}{list(one.shape)}", _digest(local.reshape(-1)[:_ELEMENTS]), []]

    # ---- data ----

    def _making(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **options: Any) -> Any:
            array = original(*args, **options)
            if is_main_thread():
                source = _source(array, args, options) if name == "make_array_from_callback" else ""
                for leaf in jax.tree.leaves(array):
                    self._made(leaf, name, source)
            return array

        return make

    def _made(self, array: Any, name: str, source: str) -> None:
        place = self._recorder.place()
        if not place or self._lines[place] >= _BATCHES or not getattr(array, "ndim", 0):
            return
        self._lines[place] += 1
        shards = {str(shard.index): shard.data for shard in array.addressable_shards}
        rows = [row for data in shards.values() for row in _rows(data)]
        self._recorder.write(
            "global", place=place, name=name, number=self._lines[place], parts=sorted(shards), samples=rows,
            replicated=bool(array.is_fully_replicated), shape=list(array.shape), source=source,
        )  # fmt: skip


def _returns_state(program: Any, arguments: Any) -> bool:
    """Return whether a program returns an array like one of its arguments, as a training step does.

    An evaluation, which may run more often than the step, returns numbers.
    """
    given = {(one.shape, str(one.dtype) if one.ndim == 0 else "") for one in arguments if hasattr(one, "ndim")}
    results = program.out_handler.out_avals
    return any((one.shape, str(one.dtype) if one.ndim == 0 else "") in given for one in results)


def _for_arrays(original: Callable[..., Any], kind: Any, other: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``other`` if its first argument is an array of this kind, else ``original``."""

    @functools.wraps(original)
    def function(*args: Any, **options: Any) -> Any:
        call = other if args and type(args[0]) is kind else original
        return call(*args, **options)

    return function


def _source(array: Any, args: Any, options: Any) -> str:
    """Return the digest of the host array that a callback cuts into parts: one of the global shape, in its closure."""
    callback = options.get("data_callback", args[2] if len(args) > 2 else None)
    cells = getattr(callback, "__closure__", None) or ()
    values = [cell.cell_contents for cell in cells if _is_filled(cell)]
    found = [one for one in values if isinstance(one, np.ndarray) and one.shape == getattr(array, "shape", None)]
    return _digest(found[0]) if len(found) == 1 else ""


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _digest(array: Any) -> str:
    return str(xxh3_64_hexdigest(np.ascontiguousarray(array).tobytes()))


def _rows(array: Any) -> list[str]:
    local = np.asarray(array)
    return [_digest(row) for row in local[:_ROWS]] if local.ndim else [_digest(local)]
