"""Open optimizers and learning-rate schedules of PyTorch by their state.

A new optimizer has no state yet, so the template for it is made from the checkpoint. No optimizer step is taken, and no
code of the program runs except ``state_dict()`` and ``load_state_dict()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from allranks.arrays.leaves.base import OpenContext
from allranks.arrays.optimizer_states import OPTIMIZERS, StateNames
from allranks.arrays.saved_tree import Node, SavedArray, TemplateBuilder, component_key, merge_filled
from allranks.arrays.walk import DeferredChild, OpenedNode, Opener, stateful_node

_UNKNOWN = StateNames()


def opener(node: object, context: OpenContext) -> Opener | None:
    if isinstance(node, torch.optim.Optimizer):
        return lambda optimizer: _open_optimizer(optimizer, context)
    if isinstance(node, LRScheduler):
        return lambda schedule: _open_schedule(schedule, context)
    return None


def _open_schedule(schedule: LRScheduler, context: OpenContext) -> OpenedNode:
    state = schedule.state_dict()

    def template(path: str) -> object:
        saved = context.saved.part_below(path) if context.saved else None
        return (
            state
            if saved is None
            else TemplateBuilder(_empty_tensor, context.kept_settings).template_for(state, saved, path)
        )

    def load(filled: dict[str, Any]) -> None:
        schedule.load_state_dict(merge_filled(state, filled))

    return stateful_node(schedule, DeferredChild(template), load)


def _open_optimizer(optimizer: torch.optim.Optimizer, context: OpenContext) -> OpenedNode:
    state = optimizer.state_dict()

    def template(path: str) -> object:
        saved = context.saved.part_below(path) if context.saved else None
        return (
            state
            if saved is None
            else _OptimizerTemplate(optimizer, context.kept_settings).template_of_optimizer(state, saved, path)
        )

    def load(filled: dict[str, Any]) -> None:
        groups = optimizer.param_groups
        tensors = [{k: v for k, v in group.items() if isinstance(v, torch.Tensor)} for group in groups]
        entries = filled.get("state", {})
        # (A Counter or a named tuple in the settings keeps its type, and a rate that is a tensor stays the same
        # tensor.)
        optimizer.load_state_dict({**merge_filled({**state, "state": {}}, filled), "state": entries})
        for group, kept_settings in zip(optimizer.param_groups, tensors, strict=True):
            for name, tensor in kept_settings.items():
                tensor.copy_(group[name])
                group[name] = tensor
        _as_saved(optimizer, entries)

    return stateful_node(optimizer, DeferredChild(template), load)


def _as_saved(optimizer: torch.optim.Optimizer, entries: Mapping[Any, Any]) -> None:
    """Undo what torch changes in a state that it loads: tensors are cast to the parameter's dtype, strings change."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, saved in entries.items():
        if not isinstance(number, int) or not isinstance(saved, dict):
            continue
        loaded = optimizer.state[parameters[number]]
        for name, value in saved.items():
            if isinstance(value, torch.Tensor) and name in loaded:
                if loaded[name].is_meta:
                    loaded[name] = value
                elif loaded[name].dtype != value.dtype:
                    loaded[name] = value.to(loaded[name].device)
            elif isinstance(value, str):
                loaded[name] = value


class _OptimizerTemplate:
    """Builds the template of an optimizer: the saved state entries, each on the device of its parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer, kept_settings: dict[str, Any]) -> None:
        self._optimizer = optimizer
        self._settings = TemplateBuilder(_empty_tensor, kept_settings)
        kind = type(optimizer)
        known = next((base for base in kind.__mro__ if getattr(torch.optim, base.__name__, None) is base), kind)
        self._names = OPTIMIZERS.get(known.__name__, _UNKNOWN) if known.__module__.startswith("torch.") else _UNKNOWN
        self._strict = known is kind and self._names is not _UNKNOWN

    def template_of_optimizer(self, live: dict[str, Any], saved: Node, path: str) -> object:
        """Return the template for the optimizer at ``path``, given its current state and the checkpoint's."""
        if not isinstance(saved, dict) or not {"state", "param_groups"} <= live.keys():
            return self._settings.template_for(live, saved, path)
        rest = {name: node for name, node in saved.items() if name != "state"}
        settings = {name: value for name, value in live.items() if name != "state"}
        made = self._settings.template_for(settings, rest, path)
        groups = self._optimizer.param_groups
        parameters = list(chain.from_iterable([(p, group) for p in group["params"]] for group in groups))
        entries: dict[Any, Any] = {}
        states = saved.get("state")
        for name, node in states.items() if isinstance(states, dict) else ():
            number = component_key(name)
            if isinstance(number, str):  # it belongs to no parameter
                entries[number] = self._settings.template_of(node)
            elif number < len(parameters) and isinstance(node, dict):
                entries[number] = self._state_entries(node, *parameters[number])
        return {**made, "state": entries}

    def _state_entries(self, saved: dict[str, Node], parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        names = self._names
        known = (*names.unshaped, *names.shaped, *names.may)  # as torch has them, in this order
        there = [*(name for name in known if name in saved), *(name for name in saved if name not in known)]
        made = {
            name: self._state_entry(name, saved[name], parameter, group)
            for name in there
            if not self._strict or name in known
        }
        lacking = [name for name in (*names.shaped, *names.unshaped) if name not in made]
        made |= {name: _expected_entry(parameter, shaped=name in names.shaped) for name in lacking}
        return made | {name: [] for name in names.empty if name not in made}

    def _state_entry(self, name: str, node: Node, parameter: torch.Tensor, group: dict[str, Any]) -> object:
        if isinstance(node, SavedArray) and name in self._names.shaped and node.shape != tuple(parameter.shape):
            return _expected_entry(parameter, shaped=True)

        def make(array: SavedArray) -> object:
            on_device = name != "step" or group.get("capturable") or group.get("fused")
            return _empty_like(parameter, array) if on_device else _empty_tensor(array)

        return TemplateBuilder(make, {}).template_of(node)


def _expected_entry(parameter: torch.Tensor, *, shaped: bool) -> torch.Tensor:
    """Return a meta tensor (without memory) for a state entry that the checkpoint lacks."""
    return torch.empty(parameter.shape if shaped else (), dtype=torch.float32, device="meta")


def _empty_like(parameter: torch.Tensor, array: SavedArray) -> torch.Tensor:
    """Return an empty tensor on the parameter's device; if the shapes are equal, sharded as the parameter is."""
    dtype = _torch_dtype(array)
    if array.shape == tuple(parameter.shape):
        return torch.empty_like(parameter.detach(), dtype=dtype)
    return (
        parameter.detach().new_empty(array.shape, dtype=dtype)
        if array.shape
        else _empty_tensor(array, parameter.device)
    )


def _empty_tensor(array: SavedArray, device: torch.device | None = None) -> torch.Tensor:
    return torch.empty(array.shape, dtype=_torch_dtype(array), device=device)


def _torch_dtype(array: SavedArray) -> torch.dtype:
    name = array.kind.removeprefix("torch.") or array.dtype
    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else torch.uint8
