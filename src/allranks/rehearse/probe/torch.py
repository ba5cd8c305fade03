"""Record what a rank does with torch: synchronisations that block the host, steps, batches, weights and gradients.

This module is imported while torch is being imported (``detect``), so its top level must not use torch.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from xxhash import xxh3_64_hexdigest

from allranks.rehearse.accelerator.state import STATE as ACCELERATOR
from allranks.rehearse.judge.replicas import FULLY_SHARDED
from allranks.rehearse.probe.batches import END, Batches
from allranks.rehearse.probe.calls import CallRecorder, without_local_groups
from allranks.rehearse.probe.page import STEP
from allranks.rehearse.probe.record import Recorder, is_main_thread

# By function of torch.distributed: whom its leaving waits for, and the argument that names the root.
_SYNCHRONISATIONS = {
    **dict.fromkeys(
        [
            *("barrier", "monitored_barrier", "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_object"),
            *("all_gather_into_tensor", "all_gather_coalesced", "reduce_scatter", "reduce_scatter_tensor"),
            *("all_to_all", "all_to_all_single"),
        ],
        ("all", ""),
    ),
    **dict.fromkeys(["broadcast", "broadcast_object_list", "scatter", "scatter_object_list"], ("from", "src")),
    **dict.fromkeys(["reduce", "gather", "gather_object"], ("to", "dst")),
}
# The functions of two ranks, and the argument that names the other one.
_PAIRS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
# Positions of the root and the group among the arguments are read from the functions themselves.
_ALL_RANKS = ("init_process_group", "new_group")


class TorchProbe:
    """The hooks of one process. Each ``watch_*`` is called with the torch module for which it is named."""

    def __init__(self, recorder: Recorder, steps: int) -> None:
        self._recorder, self._steps = recorder, steps
        self._calls = CallRecorder(recorder)
        self.modules: Any = None
        self._posts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._optimizers: dict[int, list[int]] = {}
        self._kept: list[Any] = []
        self._groups: list[Any] = []
        self._loaders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers = itertools.count()
        self._has_loader = False  # also of a loader that lives only for its loop
        self._is_cheap = False

    # ---- synchronisations ----

    def watch_synchronisations(self, c10d: Any) -> None:
        for name, (way, root) in _SYNCHRONISATIONS.items():
            if (original := getattr(c10d, name, None)) is not None:
                replace_everywhere(c10d, name, self._synchronisation(c10d, original, name, way, root))
        for name, other in _PAIRS.items():
            replace_everywhere(c10d, name, self._pair(c10d, getattr(c10d, name), name, other))
        for name in _ALL_RANKS:
            made = self._keeping(c10d, getattr(c10d, name))
            replace_everywhere(c10d, name, without_local_groups(self._calls.of_all(made, name, label=name), made))
        work: Any = c10d.Work
        work.wait = self._waiting(work.wait)

    def _keeping(self, c10d: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper that keeps the group that a function makes.

        A group of gloo that is destroyed with its last model can deadlock: see ``has_gloo`` of the agent.
        """

        @functools.wraps(original)
        def make(*args: Any, **options: Any) -> Any:
            group = original(*args, **options)
            self._groups.append(c10d.group.WORLD if group is None else group)
            return group

        return make

    def _synchronisation(
        self, c10d: Any, original: Callable[..., Any], name: str, way: str, root: str
    ) -> Callable[..., Any]:
        names = _parameters(original)

        @functools.wraps(original)
        def synchronisation(*args: Any, **kwargs: Any) -> Any:
            if self._calls.is_inside or not c10d.is_initialized():
                return original(*args, **kwargs)
            given = dict(zip(names, args, strict=False)) | kwargs
            data = self._data(c10d, name, way, given.get(root, given.get(f"group_{root}")) if root else None, given)
            return self._entered(lambda: original(*args, **kwargs), data, is_async=bool(given.get("async_op")))

        return synchronisation

    def _entered(self, call: Callable[[], Any], data: dict[str, Any], *, is_async: bool) -> Any:
        """Make a call between its two records; that of an asynchronous call's end is written when it is waited for."""
        result = self._calls.enter(call, **data)
        if is_async and result is not None:
            self._posts[result] = data
        else:
            self._calls.leave(**data)
        return result

    def _pair(self, c10d: Any, original: Callable[..., Any], name: str, other: str) -> Callable[..., Any]:
        """Return a wrapper of a function by which one rank sends to another one: the receiver waits for the sender."""
        names = _parameters(original)

        @functools.wraps(original)
        def pair(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | kwargs
            partner = given.get(other)
            if partner is None and (local := given.get(f"group_{other}")) is not None:
                partner = c10d.get_global_rank(given["group"], local)
            if self._calls.is_inside or not c10d.is_initialized() or partner is None:
                return original(*args, **kwargs)
            ranks = [self._recorder.rank, partner] if other == "dst" else [partner, self._recorder.rank]
            data = {
                "key": self._calls.next_key("pair {}, {}, {}".format(*ranks, given.get("tag", 0))),
                "name": name,
                "way": "from",
                "root": ranks[0],
                "members": sorted(ranks),
            }
            return self._entered(lambda: original(*args, **kwargs), data, is_async=name[0] == "i")

        return pair

    def _data(self, c10d: Any, name: str, way: str, root: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        group = given.get("group") or c10d.group.WORLD
        members = sorted(c10d.get_process_group_ranks(group)) if group is not None else []
        label = getattr(group, "group_name", "")
        return {
            "key": self._calls.next_key(label),
            "name": name,
            "way": way,
            "root": root,
            "members": members,
        }

    def _waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(work: Any, *args: Any) -> Any:
            result = original(work, *args)
            if (data := self._posts.pop(work, None)) is not None:
                self._calls.leave(**data)
            return result

        return wait

    # ---- steps, weights, gradients ----

    def watch_steps(self, module: Any) -> None:
        module.register_optimizer_step_pre_hook(self._before_step)
        module.register_optimizer_step_post_hook(self._after_step)

    def watch_joins(self, module: Any) -> None:
        enter = module.Join.__enter__

        @functools.wraps(enter)
        def entering(one: Any) -> Any:
            self._recorder.write("join")
            return enter(one)

        module.Join.__enter__ = entering

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if not is_main_thread() or _makes_state():
            return
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            self._recorder.run_single("torch", "an optimizer's step", queried=False)
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = [len(self._optimizers), 0]
            self._kept.append(optimizer)  # so that no other one gets its identity
        entry = self._optimizers[id(optimizer)]
        if self._is_recorded(entry[1]):
            began = time.perf_counter()
            self._record_weights(optimizer, entry)
            self._is_cheap = time.perf_counter() - began < _CHEAP
            if entry[1] in _LATER_STEPS:
                self._record_untrained(entry)
        entry[1] += 1

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if id(optimizer) not in self._optimizers or _makes_state():
            return
        entry = self._optimizers[id(optimizer)]
        self._recorder.write("step", optimizer=entry[0], number=entry[1])
        self._recorder.step_done(entry[1])
        # Loaders have ended at the last step. A program that reads no loader, or goes on, is ended here.
        if self._steps and entry[1] >= self._steps * (_PATIENCE if self._has_loader else 1):
            self._recorder.write("ended", steps=entry[1])
            raise SystemExit(0)

    def _is_over(self) -> bool:
        return bool(self._steps) and self._recorder.page.get(STEP) >= self._steps

    def _is_recorded(self, step: int) -> bool:
        """Return whether weights are recorded before this step (from 0).

        They are recorded at the first steps, then less and less often.
        """
        return step < _ALL_STEPS[self._is_cheap] or step & (step - 1) == 0

    def _record_weights(self, optimizer: Any, entry: list[int]) -> None:
        rows = []
        for number, group in enumerate(optimizer.param_groups):
            for one in group["params"]:
                what, layout, *digests = _of_parameter(one)
                layout = FULLY_SHARDED + layout if layout and self.modules.is_fully_sharded else layout
                rows.append([self.modules.names.get(id(one), ""), number, what, layout, *digests])
        rates = [_number(group.get("lr")) for group in optimizer.param_groups]
        self._recorder.write(
            "weights",
            optimizer=entry[0],
            number=entry[1],
            rows=rows,
            rates=rates,
            random=digest(torch.cuda.get_rng_state() if ACCELERATOR.is_used else torch.get_rng_state()),
            dropout=self.modules.dropout,
        )

    def _record_untrained(self, entry: list[int]) -> None:
        """Record the parameters of trained modules that have a gradient, and that no optimizer changes."""
        optimized = {id(p) for optimizer in self._kept for group in optimizer.param_groups for p in group["params"]}
        names = self.modules.untrained(optimized)
        self._recorder.write("untrained", optimizer=entry[0], number=entry[1], names=names[:16], count=len(names))

    # ---- metrics that decide ----

    def watch_schedulers(self, module: Any) -> None:
        plateau = module.ReduceLROnPlateau
        step = plateau.step

        @functools.wraps(step)
        def stepping(one: Any, metrics: Any, *args: Any, **options: Any) -> Any:
            if (value := _number(metrics)) is not None:
                self._recorder.write("plateau", values=[value])
            return step(one, metrics, *args, **options)

        plateau.step = stepping

    # ---- data ----

    def watch_loaders(self, module: Any) -> None:
        loader = module.DataLoader
        iterate = loader.__iter__

        @functools.wraps(iterate)
        def watched(one: Any) -> Any:
            self._has_loader = True
            if one not in self._loaders:
                self._loaders[one] = next(self._numbers)  # a loader that is gone keeps its number
            number, epoch = self._loaders[one], getattr(one, "_allranks_epoch", -1) + 1
            one._allranks_epoch = epoch
            sampler = getattr(one, "sampler", None)
            self._recorder.write(
                "epoch",
                loader=number,
                epoch=epoch,
                sampler=type(sampler).__name__,
                shuffle=bool(getattr(sampler, "shuffle", type(sampler).__name__ == "RandomSampler")),
                replacement=bool(getattr(sampler, "replacement", False)),
                length=_length(one),
                samples=_length(sampler),
                dataset=_length(getattr(one, "dataset", None)),
                workers=int(getattr(one, "num_workers", 0)),
                part=_part(sampler),
            )
            return Batches(iterate(one), functools.partial(self._batch, number, epoch), self._is_over)

        loader.__iter__ = watched

    def _batch(self, loader: int, epoch: int, number: int, batch: Any) -> None:
        if batch is END:
            self._recorder.write("exhausted", loader=loader, epoch=epoch, batches=number)
            return
        self._recorder.write("batch", loader=loader, epoch=epoch, number=number, samples=samples_of(batch))

    # ---- values that the program takes out of tensors ----

    def watch_values(self, module: Any) -> None:
        tensor = module.Tensor
        for name in ("item", "__float__"):
            setattr(tensor, name, self._calls.reading(getattr(tensor, name)))


# A program whose loaders have ended goes on for as many steps, and then is ended.
_PATIENCE = 2


def replace_everywhere(c10d: Any, name: str, function: Any) -> None:
    """Replace a function of torch.distributed also in the modules that have already imported it."""
    original = getattr(c10d, name)
    for module in [c10d, *_importers(original, name)]:
        setattr(module, name, function)


def _importers(original: Any, name: str) -> list[Any]:
    """Return the modules of torch.distributed that have already imported a function under this name."""
    modules = [module for key, module in list(sys.modules.items()) if key.startswith("torch.distributed")]
    return [module for module in modules if getattr(module, name, None) is original]


def _parameters(function: Any) -> tuple[str, ...]:
    inner = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    return tuple(inner.__code__.co_varnames[: inner.__code__.co_argcount])


# At how many first steps weights are recorded: if it takes _CHEAP seconds or longer, and if it takes less.
_ALL_STEPS, _CHEAP = (32, 128), 0.001
# Before which steps of an optimizer the parameters are recorded that it leaves out.
_LATER_STEPS = (3, 8)
# How many frames may be between a function that makes a step and a hook of the step.
_DEPTH = 6
_LARGE = 1 << 12  # elements of a tensor that is digested as a whole


def _makes_state() -> bool:
    """Return whether a step is made with a learning rate of 0, by get_state_dict for an optimizer without state."""
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and depth < _DEPTH:
        frame, depth = frame.f_back, depth + 1
        if frame.f_code.co_name == "_init_optim_state":
            return True
    return False


def _of_parameter(parameter: Any) -> list[Any]:
    """Return the compared properties of a parameter: dtype and shape, layout, digests of its value and of its gradient.

    The last item is whether the parameter is trained.
    """
    gradient = parameter.grad
    local = getattr(parameter, "_local_tensor", parameter)
    layout = str(parameter.placements) if hasattr(parameter, "placements") else ""
    what = f"{str(parameter.dtype).removeprefix('torch.')}{list(parameter.shape)}"
    local_gradient = getattr(gradient, "_local_tensor", gradient)
    zero = local_gradient is None or not bool(local_gradient.any())
    return [what, layout, digest(local), "" if zero else digest(local_gradient), bool(parameter.requires_grad)]


def digest(tensor: Any) -> str:
    """Return a digest of a tensor's elements on this rank. For a large tensor, it covers only some of them."""
    flat = getattr(tensor, "_local_tensor", tensor).detach().reshape(-1)
    if flat.numel() > _LARGE:
        flat = flat[:: flat.numel() // _LARGE + 1]
    return str(xxh3_64_hexdigest(flat.contiguous().cpu().view(torch.uint8).numpy()))


def samples_of(batch: Any) -> list[str]:
    """Return a digest of each row of a batch's largest tensor that has rows."""
    tensors = [one for one in _leaves(batch) if isinstance(one, torch.Tensor) and one.numel() and one.dim()]
    if not tensors:
        return []
    first = max(tensors, key=lambda one: one.numel())
    return [digest(row) for row in first[:256]]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for one in value.values() for leaf in _leaves(one)]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _leaves(one)]
    return [value]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _part(sampler: Any) -> list[int]:
    """Return which part of the data a sampler yields, of how many parts; [] if it does not say."""
    part, parts = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
    return [part, parts] if isinstance(part, int) and isinstance(parts, int) else []


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        return -1
