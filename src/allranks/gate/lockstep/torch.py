"""Compare the collectives of torch.distributed over ranks. Each collective is seen when it is issued, before it starts.

All collectives (``torch.distributed``, functional, DTensor, FSDP, DDP's C++ reducer) become dispatcher operations with
a process group as an argument. A dispatch key that nobody else uses routes these operations to this module first. The
key is included only for the watched thread, and follows the backward pass into autograd's threads. The key costs about
20 microseconds a call. So collectives that Python issues through methods of ProcessGroup (most of them) are seen in
these methods, and continue without the key.

Sends and receives are seen in the methods of ProcessGroup and Work (transfers.py). Collectives in threads that the user
starts are not seen.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from sys import _getframe
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.algorithms import join

from allranks.errors import ContradictingSigns
from allranks.gate.lockstep import call_sites
from allranks.gate.lockstep.c10d import KINDS, describe_group, describe_operation
from allranks.gate.lockstep.calls import GroupCall, make_call
from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.gate.lockstep.predictor import CallPredictor
from allranks.gate.lockstep.sequence import CallSequence
from allranks.gate.lockstep.signatures.torch import METHODS, MethodSignature, Signature, signature_of
from allranks.gate.lockstep.training import torch as training
from allranks.gate.lockstep.transfers import PostedTransfer
from allranks.world.progress import progress

# A mode of the dispatcher that no part of torch uses.
_MODE = "TESTING_ONLY_GenericMode"
_TORCH = torch.__path__[0]
# Our own code between torch's.
_BETWEEN = training.__file__
# How many of torch's own frames may lie between a collective and the user's line.
_DEEPEST = 12
_c10d: Any = dist.distributed_c10d

# A call from a line, with what is needed to make it; and the objects that must live as long as its key is kept.
_Site = tuple[GroupCall, CallSequence, CallPredictor[GroupCall], tuple[Any, ...]]


class _CollectiveWatch:
    """Compares the collectives of one thread over ranks, including those of autograd's threads that work for it."""

    def __init__(self, monitor: LockstepMonitor, same_lines: bool) -> None:
        self.timeout: float | None = None
        self._monitor = monitor
        self._same_lines = same_lines
        self._sites: dict[tuple[Any, ...], _Site] = {}
        # The same for other threads than the one that trains.
        self.side_sites: dict[Any, _Site] = {}

    def is_side_thread(self) -> bool:
        """Return whether this thread is not the training thread."""
        return not self._monitor.is_training_thread()

    def begin_collective(
        self, form: Signature, group: Any, frame: FrameType | None, sites: dict[Any, _Site] | None = None
    ) -> _Site | None:
        """Wait until this rank may start a collective.

        If the collective was predicted, return at once; else when all ranks agree on it.

        Return the call, or None for a collective of only this rank. ``sites`` are the known calls of this kind of
        thread (default: of the training thread).
        """
        line = None if _joins else _frame_outside_torch(frame)
        key = (id(group), *form) if line is None else (id(group), *call_sites.frame_key(line), *form)
        site = (self._sites if sites is None else sites).get(key)
        if site is None:
            site = self._site_of_call(form, group, line, is_side=sites is not None)
            if site is None:
                return None
            (self._sites if sites is None else sites)[key] = site
        made, sequence, predictor, _ = site
        if predictor.expected is made and predictor.count != sequence.steps.due:
            predictor.count_predicted_call()
        else:
            sequence.enter_call(made, self.timeout)
        return site

    def start_transfer(self, original: Any, group: Any, tensors: Any, peer: int, tag: int, *, sends: bool) -> Any:
        """Record a send or receive, start it with ``original``, and return its Work."""
        ranks = _c10d._world.pg_group_ranks.get(group, {})
        globally = next((rank for rank, within in ranks.items() if within == peer), None)
        if globally is None:
            return original(group, tensors, peer, tag)
        ends = (dist.get_rank(), globally) if sends else (globally, dist.get_rank())
        form = f"{tensors[0].numel()} x {str(tensors[0].dtype).removeprefix('torch.')}"
        line = _frame_outside_torch(_getframe(2))
        where = "" if line is None else call_sites.describe_call_site(line)
        post = self._monitor.transfers.post_transfer((group.group_name, *ends, tag), form, where, sends=sends)
        work = original(group, tensors, peer, tag)
        if work is not None:
            _posts[work] = post
        return work

    def wait_for_transfer(self, post: PostedTransfer, go_on: Callable[[], Any]) -> Any:
        """Wait for a send or receive by calling ``go_on``, compare it, and return what ``go_on`` returned."""
        with self._monitor.transfers.record_waiting(post):
            result = go_on()
        self._monitor.transfers.compare_receive(post)
        return result

    def _site_of_call(
        self, form: Signature, group: Any, line: FrameType | None, *, is_side: bool = False
    ) -> _Site | None:
        members = sorted(_c10d._world.pg_group_ranks.get(group, ()))
        if len(members) < 2:
            return None
        monitor = self._monitor
        sequence = (
            monitor.side_sequence(members, f"group {group.group_name}") if is_side else monitor.call_sequence(members)
        )
        where = "" if line is None else call_sites.describe_call_site(line)
        compared = (
            ""
            if line is None or not (KINDS[form[0]].is_symmetric and self._same_lines)
            else call_sites.call_site_without_folders(line)
        )
        name, reduction, root, *tensors = form
        reduced = "" if reduction is None else _c10d.ReduceOp.RedOpType(reduction).name.lower()
        among = "" if group is dist.group.WORLD else describe_group(group.group_name, group.group_desc, members)
        what, listed = describe_operation(name, reduced, root, tensors, group_text=among)
        made = sequence.canonical_call(
            make_call(what, where, lines=listed, hidden_key=f"{group.group_name} {compared}")
        )
        return made, sequence, sequence.predictor, (group, *(() if line is None else call_sites.code_objects(line)))


_watch: _CollectiveWatch | None = None
# The open blocks of ``DistributedDataParallel.join``: in them, a rank without data makes the collectives of the others
# from another line.
_joins: list[Any] = []
# In-flight sends and receives, by their Work.
_posts: WeakKeyDictionary[Any, PostedTransfer] = WeakKeyDictionary()


@contextmanager
def compare_collectives(monitor: LockstepMonitor, *, same_lines: bool, timeout: float | None) -> Iterator[None]:
    """Compare the collectives of this thread in a block; do nothing if torch.distributed is not initialised."""
    global _watch
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    _check_ranks(monitor)
    monitor.set_training_thread()
    training.number_batches(monitor.is_training_thread)
    mode, before = _install_kernels(), _watch
    was_on = mode.is_on()
    _watch = _watch_of(monitor, same_lines)
    _watch.timeout = timeout
    mode.turn(True)
    try:
        yield
    finally:
        mode.turn(was_on)
        _watch = before


def wrap_function(
    monitor: LockstepMonitor, fn: Callable[..., Any], *, same_lines: bool, timeout: float | None
) -> Callable[..., Any]:
    """Return ``fn`` wrapped so that its collectives are compared."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with compare_collectives(monitor, same_lines=same_lines, timeout=timeout):
            return fn(*args, **kwargs)

    return wrapper


@functools.cache
def _watch_of(monitor: LockstepMonitor, same_lines: bool) -> _CollectiveWatch:
    return _CollectiveWatch(monitor, same_lines)


@dataclass(frozen=True, slots=True)
class _CompareSwitch:
    """The functions that tell (``is_on``) and set (``turn``) whether this thread's collectives are watched."""

    is_on: Callable[[], bool]
    turn: Callable[[bool], None]


@functools.cache
def _install_kernels() -> _CompareSwitch:
    """Install our kernels before torch's, once for this process, and return the mode that turns them on and off.

    They stay installed, and are skipped while the mode is off.
    """
    try:
        mode = _dispatch_switch()
    except (AttributeError, RuntimeError):
        _warn_unknown_version()
        of_thread = threading.local()
        mode = _CompareSwitch(
            lambda: getattr(of_thread, "is_on", False), functools.partial(setattr, of_thread, "is_on")
        )
    for name, shape in METHODS.items():
        if hasattr(dist.ProcessGroup, name):
            setattr(dist.ProcessGroup, name, _comparing_method(getattr(dist.ProcessGroup, name), shape, mode))
    for name, sends in (("send", True), ("recv", False)):
        setattr(dist.ProcessGroup, name, _comparing_transfer(getattr(dist.ProcessGroup, name), mode, sends=sends))
    work: Any = _c10d.Work
    work.wait = _comparing_wait(work.wait, mode)
    block: Any = join.Join
    block.__enter__, block.__exit__ = _wrap_enter(block.__enter__), _wrap_exit(block.__exit__)
    return mode


def _wrap_enter(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def enter(block: Any) -> Any:
        found = original(block)
        _joins.append(block)
        return found

    return enter


def _wrap_exit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(block: Any, *args: Any) -> Any:
        try:
            return original(block, *args)
        finally:
            _joins.remove(block)

    return leave


_libraries: list[torch.library.Library] = []


def _dispatch_switch() -> _CompareSwitch:
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
        c10d.impl(name, _comparing_kernel(getattr(torch.ops.c10d, name).default, below), _MODE, with_keyset=True)
    _libraries.extend([everything, c10d])
    return _CompareSwitch(functools.partial(is_included, key), functools.partial(include, key))


def _comparing_kernel(operation: Any, below: Any) -> Callable[..., Any]:
    """Return the kernel that the dispatcher calls instead of an operation; it compares, then runs the operation."""
    name = operation._schema.name.partition("::")[2]
    arguments = [argument.name for argument in operation._schema.arguments]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        def go_on() -> Any:
            return operation.redispatch(keyset & below, *args, **kwargs)

        if _watch is None:
            return go_on()
        given = {**dict(zip(arguments, args, strict=False)), **kwargs}
        group = dist.ProcessGroup.unbox(given["process_group"])
        return _run_collective(_watch.begin_collective(signature_of(name, given), group, _getframe().f_back), go_on)

    return kernel


def _run_collective(site: _Site | None, go_on: Callable[[], Any]) -> Any:
    if site is None:
        return go_on()
    before = progress.enter("collective", site[0].what)
    try:
        return go_on()
    except BaseException:
        site[2].remove_last_call()
        raise
    finally:
        progress.leave(before)


def _comparing_method(original: Callable[..., Any], shape: MethodSignature, mode: _CompareSwitch) -> Callable[..., Any]:
    """Return the replacement of a collective method of ProcessGroup; it compares, and then calls ``original``."""
    is_on, turn, options, read = mode.is_on, mode.turn, shape.options, shape.form
    count = read.__code__.co_argcount

    @functools.wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        # Other overloads of the method come by the dispatcher.
        if _watch is None or len(args) != count or type(args[-1]) is not options:
            return original(group, *args, **kwargs)
        if not is_on():
            if _watch.is_side_thread():
                _watch.begin_collective(read(*args), group, _getframe().f_back, _watch.side_sites)
            return original(group, *args)
        site = _watch.begin_collective(read(*args), group, _getframe().f_back)
        if site is None:
            return original(group, *args)
        before = progress.enter("collective", site[0].what)
        turn(False)
        try:
            return original(group, *args)
        except BaseException:
            site[2].remove_last_call()
            raise
        finally:
            turn(True)
            progress.leave(before)

    return method


def _comparing_transfer(original: Callable[..., Any], mode: _CompareSwitch, *, sends: bool) -> Callable[..., Any]:
    """Return the replacement of the method ``send`` or ``recv`` of ProcessGroup, which records the transfer."""

    @functools.wraps(original)
    def method(group: Any, *args: Any) -> Any:
        if not mode.is_on() or _watch is None or len(args) != 3 or len(args[0]) != 1:
            return original(group, *args)
        return _watch.start_transfer(original, group, *args, sends=sends)

    return method


def _comparing_wait(original: Callable[..., Any], mode: _CompareSwitch) -> Callable[..., Any]:
    """Return the replacement of the method ``wait`` of Work, which also compares a send or receive."""

    @functools.wraps(original)
    def wait(work: Any, *args: Any) -> Any:
        post = _posts.pop(work, None) if _watch is not None and mode.is_on() else None
        if _watch is None or post is None:
            return original(work, *args)
        return _watch.wait_for_transfer(post, functools.partial(original, work, *args))

    return wait


# The files of code seen so far: of torch, and others.
_torchs: set[str] = set()
_others: set[str] = set()


def _frame_outside_torch(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame outside torch; None if it is far away, or absent as in autograd's threads."""
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if file not in _torchs:
            if file in _others:
                return frame
            (_torchs if file.startswith((_TORCH, _BETWEEN, "<")) else _others).add(file)
            return _frame_outside_torch(frame)
        frame = frame.f_back
    return None


def _check_ranks(monitor: LockstepMonitor) -> None:
    mine, world = (dist.get_rank(), dist.get_world_size()), monitor.world
    if mine != (world.rank, world.size):
        raise ContradictingSigns(
            f"rank {world.rank}: lockstep: torch.distributed and the world disagree: expected rank {world.rank} of "
            f"{world.size} in torch.distributed, found rank {mine[0]} of {mine[1]}.",
            remedy="Give init_process_group the ranks of the world, or call allranks.init() instead.",
        )


def _warn_unknown_version() -> None:
    warnings.warn(
        f"lockstep: allranks does not know the dispatcher of torch {torch.__version__}: it compares the most used "
        "collectives that Python starts, not those of DDP's reducer and functional ones.",
        RuntimeWarning,
        stacklevel=2,
    )
