"""Build templates whose structure is that of a checkpoint, for objects whose state grows as they run.

An optimizer or a learning-rate schedule creates its state as it runs, and a newer library adds settings. So such a
state takes the structure of the checkpoint. What the checkpoint lacks keeps the running program's values.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, slots=True)
class SavedArray:
    """The shape, dtype and kind (as in ``DeclaredArray``) of an array in a checkpoint."""

    shape: tuple[int, ...]
    dtype: str
    kind: str = ""


# A part of a checkpoint: nested dictionaries by the components of the paths, down to SavedArrays and JSON values.
Node = Any

# What schedules add to the groups of an optimizer, and their counters: a difference is not another optimizer.
_BOOKKEEPING = frozenset(
    ["initial_lr", "min_lr", "max_lr", "base_momentum", "max_momentum", "swa_lr", "last_epoch", "base_lrs", "verbose"]
)


class SavedTree:
    """The leaves of a checkpoint (SavedArrays and JSON values) by the paths that they have in a template.

    ``separators``: the characters that separate the components of a path. Formats other than allranks' own use dots,
    too.
    """

    def __init__(self, leaves: Mapping[str, Any], *, separators: str = "/") -> None:
        self._leaves = leaves
        self._between = re.compile(f"[{separators}]")

    @cached_property
    def _nested_dicts(self) -> dict[str, Node]:
        tree: dict[str, Node] = {}
        for path, leaf in self._leaves.items():
            *parents, last = self._between.split(path)
            node = tree
            for name in parents:
                node = node.setdefault(name, {})
                if not isinstance(node, dict):  # a leaf at the begin of other paths: no state has one
                    break
            else:
                node.setdefault(last, leaf)
        return tree

    def part_below(self, path: str) -> Node | None:
        """Return the part of the checkpoint below a path ("" for the top); None if nothing is saved there."""
        node: Node = self._nested_dicts
        for name in self._between.split(path) if path else ():
            node = node.get(name) if isinstance(node, dict) else None
        return node


@dataclass(frozen=True, slots=True)
class TemplateBuilder:
    """Builds templates with the structure of a checkpoint.

    ``make``: returns a new array that is to be filled with a saved one.
    ``kept_settings``: collects, by path, the settings that the checkpoint lacks, with the values that stay.
    """

    make: Callable[[SavedArray], object]
    kept_settings: dict[str, Any]

    def template_for(self, current_state: Any, saved_node: Node, path: str) -> Any:
        """Return a template for ``saved_node``; ``current_state`` is the running program's state at this path.

        If only one of the two has a setting, its value is used. If each has settings that the other lacks, they belong
        to different objects: the template is then ``current_state``, and a restore reports that it does not fit.
        """
        if isinstance(current_state, dict) and isinstance(saved_node, dict):
            attributes = all(isinstance(key, str) for key in current_state)
            return (
                self._template_of_attributes(current_state, saved_node, path)
                if attributes
                else self.template_of(saved_node)
            )
        if isinstance(current_state, list | tuple) and isinstance(saved_node, dict):
            return self._template_of_sequence(current_state, saved_node, path)
        if current_state is None:
            return self.template_of(saved_node)
        if _is_number(saved_node) and (_is_number(current_state) or _is_scalar_tensor(current_state)):
            return saved_node
        if isinstance(saved_node, SavedArray) and saved_node.shape == (
            () if _is_number(current_state) else getattr(current_state, "shape", None)
        ):
            return self.make(saved_node)  # (the live value may be one tensor in several places)
        return current_state

    def template_of(self, saved_node: Node) -> Any:
        """Return a template made from the checkpoint only. Children called 0, 1, 2, ... become a list."""
        if isinstance(saved_node, SavedArray):
            return self.make(saved_node)
        if not isinstance(saved_node, dict):
            return saved_node
        if set(saved_node) == {str(number) for number in range(len(saved_node))}:
            return [self.template_of(saved_node[str(number)]) for number in range(len(saved_node))]
        return {component_key(name): self.template_of(node) for name, node in saved_node.items()}

    def _template_of_attributes(self, live: dict[str, Any], saved: dict[str, Node], path: str) -> dict[str, Any]:
        lacking = [key for key, value in live.items() if key not in saved and _has_leaves(value)]
        extra = [key for key in saved if key not in live]
        both = {
            key: self.template_for(value, saved[key], f"{path}/{key}") for key, value in live.items() if key in saved
        }
        if _has_settings(lacking) and _has_settings(extra):
            return both | {key: live[key] for key in lacking}
        self.kept_settings.update((f"{path}/{key}", live[key]) for key in lacking)
        return both | {key: self.template_of(saved[key]) for key in extra}

    def _template_of_sequence(self, live: list[Any] | tuple[Any, ...], saved: dict[str, Node], path: str) -> Any:
        if not live:
            return self.template_of(saved)
        if set(saved) != {str(number) for number in range(len(live))}:
            return live
        return [self.template_for(one, saved[str(number)], f"{path}/{number}") for number, one in enumerate(live)]


def merge_filled(current_state: Any, filled: Any) -> Any:
    """Return a filled template with the types and kept settings of ``current_state``, the running program's state."""
    if isinstance(current_state, dict) and isinstance(filled, dict):
        if not all(isinstance(key, str) for key in current_state):
            made = copy.copy(current_state)  # a Counter stays one
            made.clear()
            made.update(filled)
            return made
        rest = {key: value for key, value in current_state.items() if key not in filled}
        return {key: merge_filled(current_state.get(key), value) for key, value in filled.items()} | rest
    if (
        isinstance(current_state, list | tuple)
        and isinstance(filled, list | tuple)
        and len(current_state) == len(filled)
    ):
        return type(current_state)([merge_filled(one, other) for one, other in zip(current_state, filled, strict=True)])
    if _is_scalar_tensor(current_state):
        return current_state.detach().clone().fill_(filled)
    if _is_number(current_state) and _is_scalar_tensor(filled):
        return filled.item()
    return filled


def notes_on_settings(kept_settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one line of text for each setting that a template keeps."""
    return tuple(
        f"{path!r} keeps this program's value {value!r:.60}: the checkpoint has none"
        for path, value in kept_settings.items()
    )


def component_key(name: str) -> str | int:
    """Return the key for a component of a path: an integer if the component consists of digits."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name


def _has_settings(names: list[str]) -> bool:
    """Return whether any of these names is a setting, not a counter or similar bookkeeping."""
    return any(not name.startswith("_") and name not in _BOOKKEEPING for name in names)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_scalar_tensor(value: Any) -> bool:
    """Return whether a value is a tensor without dimensions."""
    return hasattr(value, "fill_") and value.dim() == 0


def _has_leaves(value: object) -> bool:
    return any(True for _ in _leaves_below(value))


def _leaves_below(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves_below(one)
    else:
        yield value
