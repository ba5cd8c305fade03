"""Suggest renames that would make more of a file fit a template.

There are three methods, each applied to the names that the methods before have not matched:
- One side has a prefix (``model.``, ``_orig_mod.``).
- Children of one module have other names, in the same order and with the same shapes (``fc1``, ``fc2`` for ``0``,
  ``2``).
- Names are similar.
A rename is suggested only if both leaves of every pair have the same shape.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from allranks.checkpoint.names import canonical_path, make_renamer

Shapes = Mapping[str, tuple[int, ...]]

WRAPPERS = ("module.", "_orig_mod.", "model.", "_forward_module.", "_fsdp_wrapped_module.", "network.", "net.")
# Leaves that are compared by likeness, each with as many others of its shape.
_COMPARED = 256
# Changes of the beginning that are tried, and names that each is tried on.
_TRIED, _SCORED = 40, 200


def suggest_rename(
    missing_shapes: Shapes, unexpected_shapes: Shapes, fitting_names: Iterable[str] = ()
) -> dict[str, str]:
    """Return a ``rename`` that maps unexpected names of a file to missing paths of a template; {} if there is none.

    ``fitting_names``: the names that fit unchanged. The rename does not change them.
    """
    rest = _SearchState(
        {canonical_path(path): shape for path, shape in missing_shapes.items()},
        {canonical_path(name): shape for name, shape in unexpected_shapes.items()},
        tuple(canonical_path(name) for name in fitting_names),
    )
    before = rest
    found: dict[str, str] = {}
    for look in (_best_prefix, _best_prefix, _best_prefix, _sibling_patterns):
        step = look(rest)
        if not step.keys() & found.keys():  # a pattern occurs once in a rename
            found |= step
            rest = rest.state_after(step)
    # A name of the file is looked up before any pattern.
    origin = {make_renamer(found)(name): canonical_path(name) for name in unexpected_shapes}
    names = {origin[old]: new for old, new in _matches_by_shape(rest).items()}
    if not names and len(rest.kept) == len(before.kept):
        return {}
    return before.needed_renames(names | found)


@dataclass(frozen=True, slots=True)
class _SearchState:
    """The state of the search for renames.

    ``wanted``: template leaves without a match. ``left``: file leaves without one.

    Both have shapes by name. ``kept``: the names that fit.
    """

    wanted: Shapes
    left: Shapes
    kept: tuple[str, ...]

    def count_gained_leaves(self, rename: Mapping[str, str]) -> int:
        """Return how many more leaves fit after a rename; 0 if the rename changes a fitting name, or maps two names to
        one.
        """
        change = make_renamer(rename)
        new = [change(name) for name in self.left]
        if len(set(new)) != len(new) or any(change(name) != name for name in self.kept):
            return 0
        return sum(self.wanted.get(name) == shape for name, shape in zip(new, self.left.values(), strict=True))

    def needed_renames(self, rename: dict[str, str]) -> dict[str, str]:
        """Return a rename without those of its patterns that make no leaf fit."""
        for pattern in [old for old in rename if "*" in old]:
            rest = {old: new for old, new in rename.items() if old != pattern}
            if self.count_gained_leaves(rest) >= self.count_gained_leaves(rename):
                rename = rest
        return rename

    def state_after(self, rename: Mapping[str, str]) -> _SearchState:
        """Return the state of the search after a rename."""
        change = make_renamer(rename)
        now = {change(name): shape for name, shape in self.left.items()}
        pairs = {name: None for name, shape in now.items() if self.wanted.get(name) == shape}
        return _SearchState(
            {path: shape for path, shape in self.wanted.items() if path not in pairs},
            {name: shape for name, shape in now.items() if name not in pairs},
            (*self.kept, *pairs),
        )

    def is_exact(self, rename: Mapping[str, str]) -> bool:
        """Return whether every name that a rename changes becomes a wanted path with the same shape."""
        change = make_renamer(rename)
        changed = {name: new for name in self.left if (new := change(name)) != name}
        right = all(self.wanted.get(new) == self.left[old] for old, new in changed.items())
        return right and all(change(name) == name for name in self.kept)


def _best_prefix(rest: _SearchState) -> dict[str, str]:
    """Return the change of a prefix after which most of the file's names begin like template paths; {} if none."""
    heads = {path[: at.start()] for path in (*rest.wanted, *rest.kept) for at in re.finditer(r"\.|$", path)}
    names = _sample_names(rest.left, _SCORED)
    steps = [step for step in _prefix_changes(rest) if all(make_renamer(step)(name) == name for name in rest.kept)]
    scores = [(_name_likeness(rest, names, make_renamer(step), heads), step) for step in steps[:_TRIED]]
    most, best = max(scores, key=lambda one: one[0], default=(0.0, {}))
    return best if most > _name_likeness(rest, names, canonical_path, heads) + 0.1 * len(names) else {}


def _name_likeness(
    rest: _SearchState, names: Iterable[str], change: Callable[[str], str], heads: Container[str]
) -> float:
    """Return how well changed names begin like paths of the template: the sum of a fraction from 0 to 1 for each name.

    A name that is a complete path, but has another shape, counts 0.
    """
    total = 0.0
    for name in names:
        new = change(name)
        parts = new.split(".")
        known = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in heads), 0)
        if known < len(parts) or rest.wanted.get(new) == rest.left[name]:
            total += known / len(parts)
    return total


def _prefix_changes(rest: _SearchState) -> list[dict[str, str]]:
    """Return changes of a prefix that may explain many names: known wrappers, and differences between a few pairs."""
    found: list[dict[str, str]] = []
    for wrapper in WRAPPERS:
        if any(wrapper in name for name in rest.left):
            found += [{f"{wrapper}*": "*"}, {f"*.{wrapper}*": "*.*"}]
        if any(path.startswith(wrapper) for path in rest.wanted):
            found.append({"*": f"{wrapper}*"})
    heads: Counter[tuple[str, str]] = Counter()
    for path in _sample_names(rest.wanted, 5):
        mine = path.split(".")
        for name in _sample_names(rest.left, 50):
            its = name.split(".")
            heads.update(
                ("".join(f"{part}." for part in its[:old]), "".join(f"{part}." for part in mine[:new]))
                for old in range(min(4, len(its)))
                for new in range(min(4, len(mine)))
                if its[old] == mine[new] and its[:old] != mine[:new]
            )
    return found + [{f"{old}*": f"{new}*"} for (old, new), _ in heads.most_common(_TRIED)]


def _sample_names(names: Iterable[str], many: int) -> list[str]:
    found = list(names)
    return found[:: -(-len(found) // many)] if found else []


def _sibling_patterns(rest: _SearchState) -> dict[str, str]:
    """Return patterns for modules with the same parent and the same order, but different names."""
    found: dict[str, str] = {}
    for parent, old, new in _paired_children(rest.wanted, rest.left):
        if make_renamer(found)(f"{parent}{old}.x") == f"{parent}{new}.x":
            continue
        *higher, above = parent.split(".")[:-1] or [""]
        steps = [{f"*.{old}.*": f"*.{new}.*"}] if above else []
        steps += [{f"*.{above}.{old}.*": f"*.{above}.{new}.*"}] if higher else []
        exact = {f"{parent}{old}.*": f"{parent}{new}.*"}
        step = next((step for step in steps if rest.is_exact(step)), exact)
        if rest.count_gained_leaves(found | step) > rest.count_gained_leaves(found):
            found |= step
    return found


def _paired_children(wanted: Shapes, left: Shapes) -> Iterator[tuple[str, str, str]]:
    """Yield (parent with its dot, child of the file, child of the template) for children with equal leaf shapes.

    Children are paired, in order, only if both sides have the same number of such children.
    """
    mine, its = _shapes_by_child(wanted), _shapes_by_child(left)
    for parent in [parent for parent in mine if parent in its]:
        groups: defaultdict[object, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, children in enumerate((its[parent], mine[parent])):
            for child, shapes in children.items():
                groups[frozenset(shapes.items())][side].append(child)
        for old, new in groups.values():
            if len(old) == len(new):
                yield from ((parent, one, other) for one, other in zip(old, new, strict=True))


def _shapes_by_child(shapes: Shapes) -> dict[str, dict[str, dict[str, tuple[int, ...]]]]:
    """Return the shapes of leaves in nested dicts: by parent, by child, and by the leaf's name below the child."""
    found: defaultdict[str, dict[str, dict[str, tuple[int, ...]]]] = defaultdict(dict)
    for path, shape in shapes.items():
        parts = path.split(".")
        for at in range(len(parts) - 1):
            parent = "".join(f"{part}." for part in parts[:at])
            found[parent].setdefault(parts[at], {})[".".join(parts[at + 1 :])] = shape
    return found


def _matches_by_shape(rest: _SearchState) -> dict[str, str]:
    """Return, by name in the file, the template path of leaves with the same shape and a similar name; each once."""
    by_shape: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, shape in rest.left.items():
        by_shape[shape].append(name)
    found: dict[str, str] = {}
    for path in list(rest.wanted)[:_COMPARED]:
        free = [name for name in by_shape[rest.wanted[path]] if name not in found][:_COMPARED]
        for close in difflib.get_close_matches(path, free, n=1, cutoff=0.5):
            found[close] = path
    return found
