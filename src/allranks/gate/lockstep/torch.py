"""Lockstep of torch.distributed: every collective is seen as it is issued, and compared before it starts.

All collectives (``torch.distributed``, functional, DTensor, FSDP, DDP's C++ reducer) end as dispatcher operations that
take a process group. A dispatch key that nobody else uses, included for the watched thread only, brings them here
first; it follows the backward pass into autograd's threads. That way costs some 20 microseconds. So what Python issues
by the methods of ProcessGroup (as most do) is seen there, and goes on with the key left out.

Not seen: sends and receives, which two ranks agree on, and threads that the user starts.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from sys import _getframe
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from allranks.errors import ContradictingSigns
from allranks.gate.lockstep import lines
from allranks.gate.lockstep.c10d import KINDS, group_in_words, in_words
from allranks.gate.lockstep.monitor import Monitor
from allranks.gate.lockstep.predictor import Predictor
from allranks.gate.lockstep.schedule import Call, call
from allranks.gate.lockstep.sequence import CallSequence
from allranks.gate.lockstep.training.torch import count_steps
from allranks.world.progress import progress

# A mode of the dispatcher that no part of torch uses.
_MODE = "TESTING_ONLY_GenericMode"
_TORCH = torch.__path__[0]
# How many of torch's own frames may lie between a collective and the user's line.
_DEEPEST = 12
_c10d: Any = dist.distributed_c10d

# What must be alike on all ranks: operation, reduction, root, then dtype and shape of every tensor. Flat, to be hashed.
_Form = tuple[Any, ...]
# A call from a line, with what is needed to make it; and what must live as long as it is remembered.
_Site = tuple[Call, CallSequence, Predictor[Call], tuple[Any, ...]]


class _Watch:
    """The collectives of one thread, and of autograd for it."""

    def __init__(self, monitor: Monitor, same_lines: bool) -> None:
        self.timeout: float | None = None
        self._monitor = monitor
        self._same_lines = same_lines
        self._sites: dict[tuple[Any, ...], _Site] = {}

    def begin(self, form: _Form, group: Any, frame: FrameType | None) -> _Site | None:
        """Return when this rank may start a collective: as the calls foretell, or as all ranks agree.

        None for one in which no other rank that torch.distributed knows takes part.
        """
        line = _line(frame)
        key = (id(group), *form) if line is None else (id(group), *lines.spot(line), *form)
        site = self._sites.get(key)
        if site is None:
            site = self._site(form, group, line)
            if site is None:
                return None
            self._sites[key] = site
        made, sequence, predictor, _ = site
        if predictor.expected is made and predictor.count != sequence.steps.due:
            predictor.advance()
        else:
            sequence.take(made, self.timeout)
        return site

    def _site(self, form: _Form, group: Any, line: FrameType | None) -> _Site | None:
        members = _c10d._world.pg_group_ranks.get(group, ())
        if len(members) < 2:
            return None
        sequence = self._monitor.sequence(sorted(members))
        where = "" if line is None else lines.in_words(line)
        compared = "" if line is None or not (KINDS[form[0]].one_part and self._same_lines) else lines.to_compare(line)
        name, reduction, root, *tensors = form
        reduced = "" if reduction is None else _c10d.ReduceOp.RedOpType(reduction).name.lower()
        among = "" if group is dist.group.WORLD else group_in_words(group.group_name, group.group_desc, members)
        what, listed = in_words(name, reduced, root, tensors, among=among)
        made = sequence.same(call(what, where, lines=listed, key=f"{group.group_name} {compared}"))
        return made, sequence, sequence.predictor, (group, *(() if line is None else lines.codes(line)))


_watch: _Watch | None = None


@contextmanager
def watched(monitor: Monitor, *, same_lines: bool, timeout: float | None) -> Iterator[None]:
    """Have the collectives of this thread compared, for the length of a block."""
    global _watch
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    _check_ranks(monitor)
    monitor.trains_here()
    count_steps(monitor.is_training_thread)
    mode, before = _installed(), _watch
    was_on = mode.is_on()
    _watch = _watch_of(monitor, same_lines)
    _watch.timeout = timeout
    mode.turn(True)
    try:
        yield
    finally:
        mode.turn(was_on)
        _watch = before


def wrapped(monitor: Monitor, fn: Callable[..., Any], *, same_lines: bool, timeout: float | None) -> Callable[..., Any]:
    """Return a function whose collectives are compared."""

    @functools.wraps(fn)
    def in_step(*args: Any, **kwargs: Any) -> Any:
        with watched(monitor, same_lines=same_lines, timeout=timeout):
            return fn(*args, **kwargs)

    return in_step


@functools.cache
def _watch_of(monitor: Monitor, same_lines: bool) -> _Watch:
    return _Watch(monitor, same_lines)


@dataclass(frozen=True, slots=True)
class _Mode:
    """Whether this thread's collectives are watched."""

    is_on: Callable[[], bool]
    turn: Callable[[bool], None]


@functools.cache
def _installed() -> _Mode:
    """Put our kernels ahead of torch's, once for this process; they stay, and are passed by while the mode is off."""
    try:
        mode = _dispatched()
    except (AttributeError, RuntimeError):
        _say_what_is_left()
        of_thread = threading.local()
        mode = _Mode(lambda: getattr(of_thread, "is_on", False), functools.partial(setattr, of_thread, "is_on"))
    for name, shape in _METHODS.items():
        if hasattr(dist.ProcessGroup, name):
            setattr(dist.ProcessGroup, name, _method(getattr(dist.ProcessGroup, name), shape, mode))
    return mode


_libraries: list[torch.library.Library] = []


def _dispatched() -> _Mode:
    private: Any = torch._C
    key = private._parse_dispatch_key(_MODE)
    below = private._dispatch_keyset_full_after(key)
    is_included, include = (
        private._dispatch_tls_is_dispatch_key_included,
        private._dispatch_tls_set_dispatch_key_included,
    )
    library: Any = torch.library.Library
    everything, c10d = library("_", "IMPL"), library("c10d", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _MODE)
    for name in KINDS:
        c10d.impl(name, _kernel(getattr(torch.ops.c10d, name).default, below), _MODE, with_keyset=True)
    _libraries.extend([everything, c10d])
    return _Mode(functools.partial(is_included, key), functools.partial(include, key))


def _kernel(operation: Any, below: Any) -> Callable[..., Any]:
    """Return what the dispatcher calls ahead of an operation."""
    name = operation._schema.name.partition("::")[2]
    arguments = [argument.name for argument in operation._schema.arguments]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        def go_on() -> Any:
            return operation.redispatch(keyset & below, *args, **kwargs)

        if _watch is None:
            return go_on()
        given = {**dict(zip(arguments, args, strict=False)), **kwargs}
        group = dist.ProcessGroup.unbox(given["process_group"])
        return _run(_watch.begin(_form(name, given), group, _getframe().f_back), go_on)

    return kernel


def _run(site: _Site | None, go_on: Callable[[], Any]) -> Any:
    if site is None:
        return go_on()
    before = progress.enter("collective", site[0].what)
    try:
        return go_on()
    except BaseException:
        site[2].take_back()
        raise
    finally:
        progress.leave(before)


def _form(name: str, given: Mapping[str, Any]) -> _Form:
    """Return the form of an operation from its arguments by name."""
    reduction = int(given["reduce_op"].op()) if "reduce_op" in given else None
    if name == "alltoall_base_":
        even = not (given["output_split_sizes"] or given["input_split_sizes"])
        tensors = [(t.dtype, t.shape if even else ("*", *t.shape[1:])) for t in (given["output"], given["input"])]
    elif name == "alltoall_":
        tensors = [(t.dtype, "*") for t in given["input_tensors"]]
    else:
        tensors = [(t.dtype, t.shape) for one in KINDS[name].tensors for t in _flat(given[one])]
    return name, reduction, given.get("root_rank"), *chain.from_iterable(tensors)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How torch.distributed calls a method of ProcessGroup: tensors, then options; and the form that this has."""

    options: type
    form: Callable[..., _Form]


def _allreduce(tensors: Any, options: Any) -> _Form:
    return "allreduce_", int(options.reduceOp.op), None, *_shapes(tensors)


def _broadcast(tensors: Any, options: Any) -> _Form:
    return "broadcast_", None, options.rootRank, *_shapes(tensors)


def _allgather(outputs: Any, _: Any, options: Any) -> _Form:
    del options
    return "allgather_", None, None, *chain.from_iterable([_shapes(one) for one in outputs])


def _gather_into(output: Any, part: Any, options: Any) -> _Form:
    del options
    return "_allgather_base_", None, None, output.dtype, output.shape, part.dtype, part.shape


def _scatter_from(output: Any, part: Any, options: Any) -> _Form:
    reduction = int(options.reduceOp.op)
    return "_reduce_scatter_base_", reduction, None, output.dtype, output.shape, part.dtype, part.shape


def _shapes(tensors: Sequence[Any]) -> tuple[Any, ...]:
    if len(tensors) == 1:
        return tensors[0].dtype, tensors[0].shape
    return tuple([fact for tensor in tensors for fact in (tensor.dtype, tensor.shape)])


# The methods that training loops call most; the others come by the dispatcher.
_METHODS = {
    "allreduce": _Shape(_c10d.AllreduceOptions, _allreduce),
    "broadcast": _Shape(_c10d.BroadcastOptions, _broadcast),
    "allgather": _Shape(_c10d.AllgatherOptions, _allgather),
    "_allgather_base": _Shape(_c10d.AllgatherOptions, _gather_into),
    "all_gather_single": _Shape(_c10d.AllgatherOptions, _gather_into),
    "_reduce_scatter_base": _Shape(_c10d.ReduceScatterOptions, _scatter_from),
    "reduce_scatter_single": _Shape(_c10d.ReduceScatterOptions, _scatter_from),
}


def _method(original: Callable[..., Any], shape: _Shape, mode: _Mode) -> Callable[..., Any]:
    """Return what Python calls for a method of ProcessGroup."""
    is_on, turn, options, form_of = mode.is_on, mode.turn, shape.options, shape.form
    count = form_of.__code__.co_argcount

    @functools.wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        # Other overloads of the method come by the dispatcher.
        if not is_on() or _watch is None or len(args) != count or type(args[-1]) is not options:
            return original(group, *args, **kwargs)
        site = _watch.begin(form_of(*args), group, _getframe().f_back)
        if site is None:
            return original(group, *args)
        before = progress.enter("collective", site[0].what)
        turn(False)
        try:
            return original(group, *args)
        except BaseException:
            site[2].take_back()
            raise
        finally:
            turn(True)
            progress.leave(before)

    return method


# The files of code seen so far: torch's own, and others.
_torchs: set[str] = set()
_others: set[str] = set()


def _line(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that is not torch's own; None if it is far away, or there is none (autograd's)."""
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if file not in _torchs:
            if file in _others:
                return frame
            (_torchs if file.startswith((_TORCH, "<")) else _others).add(file)
            return _line(frame)
        frame = frame.f_back
    return None


def _flat(tensors: Any) -> Iterator[Any]:
    if isinstance(tensors, torch.Tensor):
        yield tensors
    else:
        for one in tensors:
            yield from _flat(one)


def _check_ranks(monitor: Monitor) -> None:
    mine, world = (dist.get_rank(), dist.get_world_size()), monitor.world
    if mine != (world.rank, world.size):
        raise ContradictingSigns(
            f"rank {world.rank} of {world.size} is rank {mine[0]} of {mine[1]} in torch.distributed.",
            remedy="Give init_process_group the ranks of the world, or call allranks.init() instead.",
        )


def _say_what_is_left() -> None:
    warnings.warn(
        f"allranks does not know the dispatcher of torch {torch.__version__}: lockstep compares the most used "
        "collectives that Python starts, not those of DDP's reducer and functional ones.",
        RuntimeWarning,
        stacklevel=2,
    )
