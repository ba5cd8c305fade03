"""Record what torch's modules get and hold: inputs, loaded weights, buffers, weights that are evaluated.

A module is recorded where it is the outermost one of a forward pass. Its buffers are recorded inside a wrapper (DDP),
which may have broadcast them before.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch

from allranks.rehearse.probe.record import Recorder, is_main_thread
from allranks.rehearse.probe.torch import digest, samples_of

# At so many first forward passes, buffers and evaluated weights are recorded; then less and less often.
_FIRST = 4


class ModuleProbe:
    """The hooks of one process. ``names`` has the name of each known parameter, by its identity."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.names: dict[int, str] = {}
        self.is_fully_sharded = False
        self.dropout = ""
        self.trained: list[Any] = []
        self.wrapper: Any = None  # the last module in training that reduces its gradients in the backward pass (DDP)
        self._depth = threading.local()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._kinds: Counter[str] = Counter()
        self._uses: Counter[tuple[int, bool]] = Counter()
        self._buffers: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._versions: dict[str, tuple[Any, int]] = {}
        self._untied: list[tuple[Any, tuple[str, ...], int, str]] = []

    def watch(self, module: Any) -> None:
        self._watch_loading(module.Module)
        for name in ("load_state_dict", "_apply"):
            setattr(module.Module, name, self._watching_ties(getattr(module.Module, name), name))
        module.register_module_forward_pre_hook(self._before_forward)
        module.register_module_forward_hook(self._after_forward, always_call=True)

    def local_buffers(self) -> Mapping[str, Any]:
        """Return the buffers that nothing has changed since the last forward pass in training."""
        return {name: one for name, (one, version) in self._versions.items() if one._version == version}

    def untrained(self, optimized: set[int]) -> list[str]:
        """Return the names of the parameters that have a gradient and are in no optimizer."""
        return [
            name
            for module in self.trained
            for name, one in module.named_parameters()
            if id(one) not in optimized and one.requires_grad and one.grad is not None and bool(one.grad.any())
        ]

    def _watching_ties(self, original: Any, name: str) -> Any:
        """Return a wrapper of a method that may give one name of a tied parameter another parameter."""

        @functools.wraps(original)
        def changing(one: Any, *args: Any, **options: Any) -> Any:
            if getattr(self._depth, "ties", False):
                return original(one, *args, **options)
            self._depth.ties = True
            try:
                tied = _ties(one)
                result = original(one, *args, **options)
            finally:
                self._depth.ties = False
            for names in tied:
                if not _are_tied(one, names):
                    self._untied.append((one, names, self._recorder.place(), name))
            return result

        return changing

    def _record_untied(self) -> None:
        """Record the parameters that a module was made to share, and that it does not share when it is trained."""
        for one, names, place, name in self._untied:
            if place and not _are_tied(one, names):
                call = "to, cuda or to_empty" if name == "_apply" else name
                self._recorder.write("untied", place=place, names=list(names), function=call)
        self._untied = []

    def _watch_loading(self, kind: Any) -> None:
        load = kind.load_state_dict

        @functools.wraps(load)
        def watched(module: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
            result = load(module, state_dict, *args, **options)
            missing, unexpected = list(result.missing_keys), list(result.unexpected_keys)
            self._recorder.write(
                "load",
                module=type(module).__name__,
                keys=len(state_dict),
                missing=missing[:8],
                unexpected=unexpected[:8],
                lost=len(unexpected),
                unset=len(missing),
            )
            return result

        kind.load_state_dict = watched

    def _before_forward(self, module: Any, inputs: Any) -> None:
        depth = getattr(self._depth, "forward", 0)
        self._depth.forward = depth + 1
        if depth > 1 or torch.compiler.is_compiling() or not is_main_thread():
            return
        is_training = module.training and torch.is_grad_enabled()
        if not depth:
            self._depth.wrapper = _is_wrapper(module)
            if is_training:
                self.wrapper = module if hasattr(module, "require_backward_grad_sync") else None
                self._record_input(module, inputs)
            else:
                self._record_weights(module)
        if is_training and depth == int(self._depth.wrapper):
            self._record_buffers(module)

    def _record_input(self, module: Any, inputs: Any) -> None:
        if self._untied:
            self._record_untied()
        if module not in self._numbers:
            self._number(module)
            self.trained.append(module)
            self.names |= {id(module): type(module).__name__}
            self.names |= {id(one): name for name, one in module.named_parameters()}
            self.dropout = self.dropout or next((name for name, one in module.named_modules() if _drops(one)), "")
            self.is_fully_sharded |= any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)
        self._recorder.write("input", module=type(module).__name__, samples=samples_of(inputs))

    def _record_weights(self, module: Any) -> None:
        """Record the weights of a module that is evaluated: a model, a copy of it (EMA), a teacher."""
        label, number = self._number(module), self._use(module, is_training=False)
        if number < 0:
            return
        values = {name: digest(one) for name, one in module.named_parameters() if not hasattr(one, "placements")}
        if values:
            shapes = sorted(f"{list(one.shape)}" for one in module.parameters())
            self._recorder.write("evaluated", module=label, number=number, digests=values, shapes=shapes)

    def _record_buffers(self, module: Any) -> None:
        label, number = self._number(module), self._use(module, is_training=True)
        if module not in self._buffers:
            floating = {name: one for name, one in module.named_buffers() if one.is_floating_point()}
            self._buffers[module] = floating
        floats = self._buffers[module]
        if floats and number >= 0:
            digests = {name: digest(one) for name, one in floats.items()}
            self._recorder.write("buffers", module=label, number=number, digests=digests)
        self._depth.buffers = floats

    def _after_forward(self, *_: Any) -> None:
        self._depth.forward = max(0, getattr(self._depth, "forward", 1) - 1)
        if not self._depth.forward and (floats := getattr(self._depth, "buffers", None)):
            self._versions |= {name: (one, one._version) for name, one in floats.items()}
            self._depth.buffers = None

    def _number(self, module: Any) -> str:
        kind = type(module).__name__
        if module not in self._numbers:
            self._numbers[module] = self._kinds[kind]
            self._kinds[kind] += 1
        return f"{kind} {self._numbers[module]}"

    def _use(self, module: Any, *, is_training: bool) -> int:
        """Return the number of this use of a module, from 0; -1 if this use is not recorded."""
        key = id(module), is_training
        number = self._uses[key]
        self._uses[key] += 1
        return number if number < _FIRST or number & (number - 1) == 0 else -1


def _ties(module: Any) -> list[tuple[str, ...]]:
    """Return the names of each parameter that has several."""
    names: dict[int, list[str]] = {}
    for name, one in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(one), []).append(name)
    return [tuple(those) for those in names.values() if len(those) > 1]


def _are_tied(module: Any, names: tuple[str, ...]) -> bool:
    """Return whether a module has one parameter, or none, under all of these names."""
    found = {name: one for name, one in module.named_parameters(remove_duplicate=False) if name in names}
    return len({id(one) for one in found.values()}) <= 1


def _is_wrapper(module: Any) -> bool:
    return type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")


def _drops(module: Any) -> bool:
    """Return whether a module drops some of its inputs at random (dropout)."""
    return type(module).__name__.endswith("Dropout") and getattr(module, "p", 0) > 0
