"""Record gradients that a program sums over the ranks by itself, and norms of gradients and weights.

A gradient is summed if all_reduce got it as the backward pass left it, and the optimizer gets what all_reduce returned.
This module is imported while torch is being imported (``detect``), so its top level must not use torch.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from allranks.rehearse.probe.record import Recorder, is_main_thread
from allranks.rehearse.probe.saves import Fingerprint, fingerprint
from allranks.rehearse.probe.torch import replace_everywhere

# At how many first steps of an optimizer the way of the gradients is recorded, and norms.
_SUMS, _NORMS = 4, 8
# How many losses are recorded: they are compared with what the program logs.
_LOSSES = 400
# Modules whose results depend on how samples are spread over ranks, or are random.
_DEPENDENT = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


class GradientProbe:
    """The hooks of one process. Each ``watch_*`` is called with the torch module for which it is named.

    ``modules`` returns the probe that knows the last wrapper in training. ``with_norms``: record norms at the first
    steps. They cost more than digests.
    """

    def __init__(self, recorder: Recorder, modules: Callable[[], Any], *, with_norms: bool) -> None:
        self._recorder, self._modules, self._with_norms = recorder, modules, with_norms
        self._optimizers: dict[int, list[int]] = {}
        self._known: list[Any] = []
        self._left: set[Fingerprint | None] = set()
        self._summed: dict[Fingerprint, int] = {}
        self._is_mean, self._clips, self._losses = False, 0, 0
        self._reductions = 0
        self._dependent: dict[str, None] = {}

    def watch_reductions(self, c10d: Any) -> None:
        original = c10d.all_reduce

        @functools.wraps(original)
        def all_reduce(tensor: Any, *args: Any, **options: Any) -> Any:
            is_sum = options.get("op", args[0] if args else c10d.ReduceOp.SUM) == c10d.ReduceOp.SUM
            mark = _mark(tensor) if self._left and is_sum else None
            if mark is None or mark not in self._left:
                return original(tensor, *args, **options)
            place = self._recorder.place()
            result = original(tensor, *args, **options)
            if result is None and (summed := _mark(tensor)) is not None:
                self._summed[summed] = place
            return result

        replace_everywhere(c10d, "all_reduce", all_reduce)

    def watch_backward(self, module: Any) -> None:
        original = module.Tensor.backward

        @functools.wraps(original)
        def backward(loss: Any, *args: Any, **options: Any) -> Any:
            began = time.monotonic()
            result = original(loss, *args, **options)
            self._record_reductions(began)
            if self._losses < _LOSSES and is_main_thread() and loss.numel() == 1:
                self._losses += 1
                self._recorder.write(
                    "value", place=0, value=float(loss.detach().double().cpu().numpy()), count=self._losses
                )
            if is_main_thread() and any(entry[1] < _SUMS for entry in self._optimizers.values()):
                self._is_mean = _is_mean(loss.grad_fn)
                gradients = [one.grad for one in self._known if one.grad is not None]
                self._left = set(_marks(gradients))
            return result

        module.Tensor.backward = backward

    def _record_reductions(self, began: float) -> None:
        """Record the backward pass of a wrapper (DDP) that has reduced its gradients in it. It began at ``began``."""
        modules = self._modules()
        wrapper, modules.wrapper = modules.wrapper, None
        if getattr(wrapper, "require_backward_grad_sync", False) and is_main_thread() and self._reductions < _LOSSES:
            self._reductions += 1
            name = f"{type(wrapper).__name__}: gradients"
            self._recorder.write("reduction", key=f"reduction/{self._reductions}", name=name, began=began)

    def watch_clipping(self, module: Any) -> None:
        original = module.clip_grad_norm_

        @functools.wraps(original)
        def clip(*args: Any, **options: Any) -> Any:
            norm = original(*args, **options)
            self._clips += 1
            if self._clips <= _SUMS and is_main_thread() and not hasattr(norm, "placements"):
                self._recorder.write("clip", norm=float(norm))
            return norm

        places: list[Any] = [module, sys.modules["torch.nn.utils"]]
        for place in places:
            place.clip_grad_norm_ = clip

    def watch_steps(self, module: Any) -> None:
        module.register_optimizer_step_pre_hook(self._before_step)

    def watch_modules(self, module: Any) -> None:
        if self._with_norms:
            module.register_module_forward_pre_hook(self._before_forward)

    def _before_forward(self, module: Any, *_: Any) -> None:
        name = type(module).__name__
        if module.training and name in _DEPENDENT and getattr(module, "p", 1.0) > 0:
            self._dependent[name] = None

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if not is_main_thread():
            return
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = [len(self._optimizers), 0]
            self._known += [one for group in optimizer.param_groups for one in group["params"]]
        entry = self._optimizers[id(optimizer)]
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        if self._summed and entry[1] < _SUMS:
            self._record_sums(entry, parameters)
        if self._with_norms and entry[0] == 0 and entry[1] < _NORMS:
            self._record_norms(optimizer, entry[1], parameters)
        entry[1] += 1

    def _record_sums(self, entry: list[int], parameters: list[Any]) -> None:
        gradients = [one.grad for one in parameters if one.grad is not None]
        *each, whole = _marks(gradients)
        unchanged = [self._summed[mark] for mark in each if mark is not None and mark in self._summed]
        if whole is not None and whole in self._summed:
            unchanged = [self._summed[whole]] * len(gradients)
        self._summed = {}
        if unchanged and self._is_mean:
            self._recorder.write(
                "summed", place=unchanged[0], optimizer=entry[0], number=entry[1], count=len(unchanged),
                total=len(gradients),
            )  # fmt: skip

    def _record_norms(self, optimizer: Any, number: int, parameters: list[Any]) -> None:
        trained = [one for one in parameters if one.requires_grad]
        self._recorder.write(
            "norms",
            number=number,
            weights=[_norm(one) for one in trained],
            gradients=[0.0 if one.grad is None else _norm(one.grad) for one in trained],
            rates=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            random=list(self._dependent),
            parts=any(hasattr(one, "placements") for one in trained),
        )


def _mark(tensor: Any) -> Fingerprint | None:
    """Return the fingerprint of a tensor's local elements, or None for zeros and for elements of unknown size."""
    found = fingerprint(getattr(tensor, "_local_tensor", tensor))
    return found if found is not None and found.total else None


def _marks(gradients: list[Any]) -> list[Fingerprint | None]:
    """Return the fingerprint of each gradient, and at the end that of all together, as in one flat buffer."""
    each = [_mark(one) for one in gradients]
    known = [mark for mark in each if mark is not None]
    whole = functools.reduce(lambda a, b: a + b, known) if known and len(known) == len(each) else None
    return [*each, whole]


def _norm(tensor: Any) -> float:
    local = getattr(tensor, "_local_tensor", tensor)
    return float(local.detach().double().norm())


def _is_mean(function: Any) -> bool:
    """Return whether a loss is the mean over the samples of this rank, as far as its last operation shows."""
    if function is None:
        return False
    name = str(function.name())
    return name.startswith("MeanBackward") or getattr(function, "_saved_reduction", 0) == _MEAN


# What torch calls a reduction by the mean inside its C++ code.
_MEAN = 1
