"""Compare a template with a checkpoint: report all differences at once, with the likely reason."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from allranks.arrays.base import DeclaredArray
from allranks.arrays.cast import is_castable
from allranks.arrays.saved_tree import SavedArray, SavedTree
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.names import Rename, canonical_path, first_matching_glob, map_names
from allranks.errors import AllranksError
from allranks.failure import one_line

# The most lines of a group in the message; the most names that a leaf is compared with.
_LISTED = 20
_COMPARED = 64

Kind = Literal["missing", "unexpected", "reshaped", "recast", "array or value", "tied"]


@dataclass(frozen=True, slots=True)
class LeafDifference:
    """One leaf on which a template and a checkpoint differ.

    ``kind``: a ``missing`` leaf is not in the checkpoint, an ``unexpected`` leaf is not in the template. A ``tied``
    leaf shares its memory with the leaf ``meant`` in the template, but has other bytes in the checkpoint.
    ``wanted``, ``found``: the leaf's shape, dtype or type in the template and in the checkpoint; "" if it is not there.
    ``meant``: the path on the other side that this leaf probably is, with the same shape and dtype; "" if there is
    none.
    """

    kind: Kind
    path: str
    wanted: str
    found: str
    meant: str = ""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The differences between template and checkpoint that the program allows.

    ``rename``: maps paths of the checkpoint to paths of the template.
    ``allow_missing``: globs of template leaves that may be missing in the checkpoint.
    ``allow_unexpected``: globs of checkpoint leaves that are left out.
    ``cast``: floats take the dtype of the template.
    """

    rename: Rename | None = None
    allow_missing: tuple[str, ...] = ()
    allow_unexpected: tuple[str, ...] = ()
    cast: bool = False

    def allows(self, difference: LeafDifference, manifest: Manifest) -> bool:
        """Return whether a difference is allowed."""
        match difference.kind:
            case "missing":
                return bool(first_matching_glob(difference.path, self.allow_missing))
            case "unexpected":
                return bool(first_matching_glob(difference.path, self.allow_unexpected))
            case "recast":
                leaf = manifest.leaves.get(difference.path)
                return self.cast and leaf is not None and not leaf.kind and is_castable(leaf.dtype, difference.wanted)
        return False


def rename_manifest(manifest: Manifest, template: Iterable[str], rename: Rename | None) -> Manifest:
    """Return a manifest whose leaves have the paths of the template. Raises AllranksError if two get the same path."""
    if rename is None:
        return manifest
    known = {canonical_path(path): path for path in template}
    there = {name: known.get(new, new) for new, name in map_names([*manifest.leaves, *manifest.values], rename).items()}
    leaves = {there[name]: leaf for name, leaf in manifest.leaves.items()}
    values = {there[name]: value for name, value in manifest.values.items()}
    rows = frozenset(there[name] for name in manifest.rank_values)
    return replace(manifest, leaves=leaves, values=values, ties={}, rank_values=rows)


@dataclass(frozen=True, slots=True)
class _LeavesByPath:
    """The arrays (shape, dtype) and values of a template or a checkpoint, by path."""

    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    values: Mapping[str, Any]

    def __contains__(self, path: str) -> bool:
        return path in self.arrays or path in self.values

    def __iter__(self) -> Iterator[str]:
        yield from self.arrays
        yield from self.values

    def describe_leaf(self, path: str) -> str:
        """Return the shape, dtype or type of a leaf as text. It is equal for leaves that could replace each other."""
        if path in self.arrays:
            shape, dtype = self.arrays[path]
            return f"{dtype}{list(shape)}"
        return f"value of type {type(self.values[path]).__name__}"


def saved_tree(manifest: Manifest, rename: Rename | None = None) -> SavedTree:
    """Return the leaves of a checkpoint as a SavedTree, for templates that take their structure from it."""
    seen = rename_manifest(manifest, (), rename)
    arrays = {path: SavedArray(leaf.shape, leaf.dtype, leaf.kind) for path, leaf in seen.leaves.items()}
    return SavedTree({**arrays, **seen.values}, separators="/" if rename is None else "./")


def find_differences(
    declared_arrays: Sequence[DeclaredArray], values: Mapping[str, bool | int | float | str | None], manifest: Manifest
) -> tuple[LeafDifference, ...]:
    """Return all differences between a template (its arrays and values) and a checkpoint, in the order of the paths.

    Values may differ, but not their types; None fits any type. Arrays must agree in shape, dtype and kind.
    """
    template = _LeavesByPath(
        {one.path: (one.shape, _dtype_text(one.dtype, one.kind)) for one in declared_arrays}, values
    )
    saved = _LeavesByPath(
        {p: (leaf.shape, _dtype_text(leaf.dtype, leaf.kind)) for p, leaf in manifest.leaves.items()}, manifest.values
    )
    changed = [found for path in template if path in saved for found in _leaf_differences(path, template, saved)]
    missing = [path for path in template if path not in saved]
    unexpected = [path for path in saved if path not in template]
    meant = _probable_renames(missing, unexpected, template, saved)
    back = {new: old for old, new in meant.items()}
    return (
        *(LeafDifference("missing", path, template.describe_leaf(path), "", meant.get(path, "")) for path in missing),
        *(LeafDifference("unexpected", path, "", saved.describe_leaf(path), back.get(path, "")) for path in unexpected),
        *changed,
    )


def find_tied_differences(
    tied_pairs: Mapping[int, int], declared_arrays: Sequence[DeclaredArray]
) -> tuple[LeafDifference, ...]:
    """Return a difference for each array that shares memory with another one in the template, but not in the
    checkpoint.

    Two such arrays fit only if the checkpoint has the same bytes for both.
    """
    return tuple(
        LeafDifference("tied", declared_arrays[number].path, "one memory", "other bytes", declared_arrays[other].path)
        for number, other in tied_pairs.items()
    )


def report_differences(
    found_differences: Sequence[LeafDifference], declared_arrays: Sequence[DeclaredArray], manifest: Manifest
) -> str:
    """Return the differences as one message, grouped by kind. Long groups are shortened. It ends with how much fits.

    A leaf of the checkpoint is not listed again if it is named beside the leaf of the template that it probably is.
    """
    lines = [f"the template does not fit the checkpoint of step {manifest.step}: {_counts_by_kind(found_differences)}."]
    lines += _report_section(
        "in the template, not in the checkpoint",
        [_describe_one_sided(d) for d in found_differences if d.kind == "missing"],
    )
    left = [one for one in found_differences if one.kind == "unexpected" and not one.meant]
    lines += _report_section("in the checkpoint, not in the template", [_describe_one_sided(one) for one in left])
    for kind, title in (
        ("reshaped", "different shape"),
        ("recast", "different type"),
        ("array or value", "an array on one side and a value on the other"),
    ):
        lines += _report_section(
            title,
            [f"{d.path!r}: {d.found} in the checkpoint, {d.wanted} here" for d in found_differences if d.kind == kind],
        )
    lines += _report_section(
        "one memory in the template, different arrays in the checkpoint",
        [f"{d.path!r} is {d.meant!r} here" for d in found_differences if d.kind == "tied"],
    )
    lines += _rename_advice(found_differences, [one.path for one in declared_arrays], manifest)
    lines += [
        f"  {one.path!r} has one for each of the {manifest.world_size} ranks that saved. Rank 0's, for any number of "
        f"ranks: Checkpointer(..., from_main=[{one.path!r}])."
        for one in found_differences
        if (one.kind == "reshaped" and manifest.leaves[one.path].per_rank)
        or (one.kind == "recast" and one.path in manifest.rank_values)
    ]
    lines.append(_coverage_text(found_differences, declared_arrays, manifest))
    return "\n".join(map(one_line, lines))


def describe_allowed(allowed_differences: Sequence[LeafDifference]) -> tuple[str, ...]:
    """Return one line of text for each kind of difference among these allowed differences."""
    words = {
        "missing": "are not in the checkpoint and keep the program's values:",
        "unexpected": "are in the checkpoint only, and not restored:",
        "recast": "are cast:",
    }
    lines = []
    for kind, text in words.items():
        paths = [repr(one.path) for one in allowed_differences if one.kind == kind]
        if paths:
            more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
            lines.append(f"{len(paths)} {text} {', '.join(paths[:_LISTED])}{more}")
    return tuple(lines)


def _dtype_text(dtype: str, kind: str) -> str:
    return f"{kind} in {dtype}" if kind else dtype


def _leaf_differences(path: str, template: _LeavesByPath, saved: _LeavesByPath) -> Iterator[LeafDifference]:
    wanted, found = template.describe_leaf(path), saved.describe_leaf(path)
    if (path in template.arrays) != (path in saved.arrays):
        yield LeafDifference("array or value", path, wanted, found)
    elif path in template.arrays:
        (shape, dtype), (old_shape, old_dtype) = template.arrays[path], saved.arrays[path]
        if shape != old_shape:
            yield LeafDifference("reshaped", path, str(list(shape)), str(list(old_shape)))
        if dtype != old_dtype:
            yield LeafDifference("recast", path, dtype, old_dtype)
    elif wanted != found and None not in (template.values[path], saved.values[path]):
        yield LeafDifference("recast", path, wanted, found)


def _probable_renames(
    missing: Sequence[str], unexpected: Sequence[str], template: _LeavesByPath, saved: _LeavesByPath
) -> dict[str, str]:
    """Return, for missing paths, the unexpected path that each probably is.

    Paths are matched by one common change; paths that are left are matched by similarity.
    """
    meant: dict[str, str] = {}
    free = set(unexpected)
    for change in _likely_changes(missing, unexpected):
        pairs = {path: other for path in missing if (other := change.changed_path(path)) in free}
        pairs = {
            path: other for path, other in pairs.items() if template.describe_leaf(path) == saved.describe_leaf(other)
        }
        meant = max(meant, pairs, key=len)
    by_text: dict[str, list[str]] = {}
    for path in unexpected:
        by_text.setdefault(saved.describe_leaf(path), []).append(path)
    taken = set(meant.values())
    for path in [path for path in missing if path not in meant][:_COMPARED]:
        like = [other for other in by_text.get(template.describe_leaf(path), ())[:_COMPARED] if other not in taken]
        for close in difflib.get_close_matches(path, like, n=1):
            meant[path] = close
            taken.add(close)
    return meant


@dataclass(frozen=True, slots=True)
class _PathChange:
    """A rule that turns template paths into checkpoint paths: a leading (or trailing) ``wanted`` becomes ``found``."""

    at_end: bool
    wanted: str
    found: str

    def changed_path(self, path: str) -> str | None:
        """Return the changed path; None if the path does not begin (or end) with ``wanted``."""
        if self.at_end:
            return path.removesuffix(self.wanted) + self.found if path.endswith(self.wanted) else None
        return self.found + path.removeprefix(self.wanted) if path.startswith(self.wanted) else None

    @property
    def rename_argument(self) -> dict[str, str]:
        """The change as the argument ``rename`` of ``restore``, from checkpoint paths to template paths."""
        old, new = (f"*{part}" if self.at_end else f"{part}*" for part in (self.found, self.wanted))
        return {old: new}

    def __str__(self) -> str:
        side = "suffix" if self.at_end else "prefix"
        if self.wanted and self.found:
            return f"the {side}: {self.found!r} in the checkpoint, {self.wanted!r} in the template"
        where = "template" if self.wanted else "checkpoint"
        return f"the {side} {self.wanted or self.found!r}, which only the {where} has"


def _changes_between(wanted: str, found: str) -> Iterator[_PathChange]:
    """Yield the two rules that turn path ``wanted`` into path ``found``: a new prefix, and a new suffix, of whole
    components.
    """
    old, new = _path_components(wanted), _path_components(found)
    same = _common_prefix(old[::-1], new[::-1])
    yield _PathChange(False, "".join(old[: len(old) - same]), "".join(new[: len(new) - same]))
    same = _common_prefix(old, new)
    yield _PathChange(True, "".join(old[same:]), "".join(new[same:]))


def _path_components(path: str) -> list[str]:
    return [part for part in re.split(r"([./])", path) if part]


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _likely_changes(missing: Sequence[str], unexpected: Sequence[str]) -> list[_PathChange]:
    """Return changes that may explain many differences, found from a few missing paths and similar unexpected paths."""
    changes: dict[_PathChange, None] = {}
    for path in {*missing[:1], *missing[len(missing) // 2 :][:1], *missing[-1:]}:
        like = [other for other in unexpected if other.endswith(path) or path.endswith(other)]
        like += [other for other in unexpected if other.startswith(path) or path.startswith(other)]
        like += difflib.get_close_matches(path, unexpected[:_COMPARED], n=3)
        changes.update((change, None) for other in like[:_COMPARED] for change in _changes_between(path, other))
    return list(changes)


def _counts_by_kind(found: Iterable[LeafDifference]) -> str:
    kinds = [one.kind for one in found]
    said = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    return ", ".join(said) or "no differences"


def _describe_one_sided(one: LeafDifference) -> str:
    meant = f"; is it {one.meant!r}?" if one.meant else ""
    return f"{one.path!r}: {one.wanted or one.found}{meant}"


def _report_section(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = [f"    ... and {len(items) - _LISTED} more"] if len(items) > _LISTED else []
    return [f"  {title} ({len(items)}):", *(f"    {item}" for item in items[:_LISTED]), *more]


def _rename_advice(found: Sequence[LeafDifference], arrays: Sequence[str], manifest: Manifest) -> list[str]:
    """Return one line that proposes ``rename=...``, with the change of paths that explains most missing leaves.

    Returns [] if no change explains at least two missing leaves and half of them.
    """
    missing = [one for one in found if one.kind == "missing"]
    pairs = [(one.path, one.meant) for one in missing if one.meant]
    changes = dict.fromkeys(change for pair in pairs[:_COMPARED] for change in _changes_between(*pair))
    explained = {change: sum(change.changed_path(path) == meant for path, meant in pairs) for change in changes}
    many = max(explained.values(), default=0)
    if many < 2 or 2 * many < len(missing):
        return []
    change = next(change for change, count in explained.items() if count == many)
    who = f"all {many}" if many == len(missing) else f"{many} of {len(missing)}"
    line = (
        f" To restore them: restore(..., rename={change.rename_argument})"
        if _improves_fit(change, arrays, manifest)
        else ""
    )
    return [f"  {who} missing leaves differ by {change}.{line}"]


def _improves_fit(change: _PathChange, arrays: Sequence[str], manifest: Manifest) -> bool:
    """Return whether more arrays fit if the change is passed as ``rename=``."""
    try:
        after = rename_manifest(manifest, arrays, change.rename_argument)
    except AllranksError:
        return False
    return sum(path in after.leaves for path in arrays) > sum(path in manifest.leaves for path in arrays)


def _coverage_text(found: Sequence[LeafDifference], declared: Sequence[DeclaredArray], manifest: Manifest) -> str:
    wrong = {one.path for one in found}
    fits = [one for one in declared if one.path not in wrong]
    filled, wanted = (
        _elements_and_bytes((one.shape, one.dtype) for one in fits),
        _elements_and_bytes((d.shape, d.dtype) for d in declared),
    )
    stored = _elements_and_bytes((leaf.shape, leaf.dtype) for leaf in manifest.leaves.values())
    return (
        f"  matching: {len(fits)} of the template's {len(declared)} arrays ({filled[0]:,} of {wanted[0]:,} elements, "
        f"{filled[1]:,} of {wanted[1]:,} bytes); the checkpoint has {len(manifest.leaves)} ({stored[0]:,} elements, "
        f"{stored[1]:,} bytes)."
    )


def _elements_and_bytes(arrays: Iterable[tuple[tuple[int, ...], str]]) -> tuple[int, int]:
    sizes = [(math.prod(shape), DTYPES[dtype].size) for shape, dtype in arrays]
    return sum(many for many, _ in sizes), sum(many * size for many, size in sizes)
