"""Match the leaves of a file with those of a template, and report the leaves of either side that have no match."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from allranks.arrays.base import DeclaredArray
from allranks.arrays.cast import is_castable, is_widening
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint.names import canonical_path, first_matching_glob

Kind = Literal["missing", "unexpected", "reshaped", "unlike", "recast", "tied", "conflict", "packed"]
# Those after which a leaf of the template does not hold what the file has.
WRONG: tuple[Kind, ...] = ("missing", "unexpected", "reshaped", "unlike", "conflict", "packed")


@dataclass(frozen=True, slots=True)
class StoredArray:
    """The shape, dtype and kind (as in ``arrays.DeclaredArray``) of an array in a file."""

    shape: tuple[int, ...]
    dtype: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind or self.dtype}{list(self.shape)}"

    @property
    def amount(self) -> LeafAmount:
        return _amount_of(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A quantised weight of a file.

    ``name``: its name without quantisation. ``method``: the library that quantised it.
    ``parts``: the names of its arrays by role; the role ``numbers`` always exists.
    ``ending``: the ending of the name of the numbers, and the ending that replaces it in ``name``.
    """

    name: str
    method: str
    parts: Mapping[str, str]
    ending: tuple[str, str]


@dataclass(frozen=True, slots=True)
class LeafAmount:
    """A number of leaves, of their elements (``parameters``) and of their bytes."""

    leaves: int = 0
    parameters: int = 0
    bytes: int = 0

    @classmethod
    def sum_of_amounts(cls, amounts: Iterable[LeafAmount]) -> LeafAmount:
        """Return the sum of several amounts."""
        leaves = parameters = size = 0
        for one in amounts:
            leaves, parameters, size = leaves + one.leaves, parameters + one.parameters, size + one.bytes
        return cls(leaves, parameters, size)

    def share_of(self, total: LeafAmount) -> float:
        """Return the smallest of three fractions of a total: of leaves, of parameters and of bytes."""
        pairs = [(self.leaves, total.leaves), (self.parameters, total.parameters), (self.bytes, total.bytes)]
        return min((mine / all_ for mine, all_ in pairs if all_), default=1.0)


@lru_cache(maxsize=1 << 10)
def _amount_of(shape: tuple[int, ...], dtype: str) -> LeafAmount:
    size = math.prod(shape)
    return LeafAmount(1, size, size * DTYPES[dtype].itemsize)


@dataclass(frozen=True, slots=True)
class LoadDifference:
    """A leaf on which the template (``path``) and the file (``name``) differ; "" on the side that lacks it.

    ``kind`` is one of:
    - ``missing``: the template's leaf gets nothing from the file;
    - ``unexpected``: the file's leaf is not used;
    - ``reshaped``: the shapes differ; not loaded;
    - ``unlike``: the dtype cannot be cast; not loaded;
    - ``recast``: loaded with a cast, which rounds if ``lossy``;
    - ``tied``: the leaf shares its memory with the template's leaf ``name``, which is loaded;
    - ``conflict``: as ``tied``, but the file has different bytes for the two;
    - ``packed``: quantised in the file, not in the template.
    ``allowed``: the glob that allows the difference, or "".
    """

    kind: Kind
    path: str
    name: str
    wanted: str
    found: str
    allowed: str = ""
    lossy: bool = False


@dataclass(frozen=True, slots=True)
class FitResult:
    """The result of matching a file with a template.

    ``pairs``: (array number in the template, name in the file) of each loaded leaf.
    """

    pairs: tuple[tuple[int, str], ...]
    differences: tuple[LoadDifference, ...]

    @property
    def refused_differences(self) -> tuple[LoadDifference, ...]:
        """The differences that are not allowed."""
        return tuple(one for one in self.differences if one.kind in WRONG and not one.allowed)


def fit_leaves(
    declared_arrays: Sequence[DeclaredArray],
    stored_arrays: Mapping[str, StoredArray],
    file_names: Mapping[str, str],
    *,
    used_elsewhere: Container[str] = (),
    tied: Mapping[int, int] | None = None,
    conflicts: Mapping[int, int] | None = None,
    quantized: Mapping[str, QuantizedWeight] | None = None,
) -> FitResult:
    """Return which leaf of the file fills which leaf of the template.

    ``file_names``: the file's names, by the template's paths.
    ``used_elsewhere``: names in the file that something else uses; they are not reported as unexpected.
    ``tied``: for arrays of the template, the number of another array with the same memory.
    ``conflicts``: the same, for arrays whose bytes differ in the file.
    ``quantized``: the file's quantised weights by path in the template. They fill only arrays of their dtype and shape.
    """
    pairs: list[tuple[int, str]] = []
    found: list[LoadDifference] = []
    lacking: list[int] = []
    used: set[str] = set()
    for number, one in enumerate(declared_arrays):
        name = file_names.get(canonical_path(one.path))
        weight = (quantized or {}).get(canonical_path(one.path))
        if weight is not None and (name is None or _describe_change(one, name, stored_arrays[name]) is not None):
            numbers = weight.parts["numbers"]
            used.update(weight.parts.values())
            found.append(
                LoadDifference(
                    "packed", one.path, numbers, _array_text(one), f"{stored_arrays[numbers]} by {weight.method}"
                )
            )
            continue
        if name is None:
            lacking.append(number)
            continue
        used.add(name)
        if conflicts and number in conflicts:
            other = declared_arrays[conflicts[number]].path
            found.append(LoadDifference("conflict", one.path, other, f"one memory with {other}", "other bytes"))
            continue
        change = _describe_change(one, name, stored_arrays[name])
        if change is None or change.kind == "recast":
            pairs.append((number, name))
        if change is not None:
            found.append(change)
    loaded = {number for number, _ in pairs}
    ties = {number: other for number, other in (tied or {}).items() if other in loaded}
    missing = [_missing_or_tied(declared_arrays, number, ties.get(number)) for number in lacking]
    unexpected = [
        LoadDifference("unexpected", "", name, "", str(stored_arrays[name]))
        for name in file_names.values()
        if name not in used and name not in used_elsewhere
    ]
    return FitResult(tuple(pairs), (*missing, *unexpected, *found))


def fit_values(
    template_values: Mapping[str, Any],
    values: Mapping[str, Any],
    stored_arrays: Mapping[str, StoredArray],
    file_names: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str], list[LoadDifference]]:
    """Match JSON values. Return new values by path, names of scalar arrays that provide values, and differences.

    A value keeps its type. None fits any type, and may be missing.
    """
    found: dict[str, Any] = {}
    scalars: dict[str, str] = {}
    differences = []
    for path, here in template_values.items():
        name, text = file_names.get(canonical_path(path)), f"value of type {type(here).__name__}"
        if name is None and here is None:
            continue
        if name is None:
            differences.append(LoadDifference("missing", path, "", text, ""))
        elif name in stored_arrays and stored_arrays[name].shape == () and type(here) in (bool, int, float):
            scalars[path] = name
        elif name in values and (None in (here, values[name]) or type(values[name]) is type(here)):
            found[path] = values[name]
        else:
            kind = str(stored_arrays[name]) if name in stored_arrays else f"value of type {type(values[name]).__name__}"
            differences.append(LoadDifference("unlike", path, name, text, kind))
    return found, scalars, differences


def mark_allowed(fit_result: FitResult, *, allow_missing: Sequence[str], allow_unexpected: Sequence[str]) -> FitResult:
    """Return the result with those differences marked that a glob of the user allows.

    ``allow_missing``: globs for template leaves that get no value. ``allow_unexpected``: globs for file leaves that are
    not used.
    """

    def allowed(one: LoadDifference) -> LoadDifference:
        if one.kind not in WRONG:
            return one
        glob = (
            first_matching_glob(one.name, allow_unexpected)
            if one.kind == "unexpected"
            else first_matching_glob(one.path, allow_missing)
        )
        return replace(one, allowed=glob)

    return replace(fit_result, differences=tuple(map(allowed, fit_result.differences)))


def _missing_or_tied(declared: Sequence[DeclaredArray], number: int, other: int | None) -> LoadDifference:
    one = declared[number]
    if other is not None:
        return LoadDifference("tied", one.path, declared[other].path, _array_text(one), "")
    return LoadDifference("missing", one.path, "", _array_text(one), "")


def _describe_change(one: DeclaredArray, name: str, stored: StoredArray) -> LoadDifference | None:
    wanted, found = _array_text(one), str(stored)
    if one.shape != stored.shape:
        return LoadDifference("reshaped", one.path, name, wanted, found)
    if (one.dtype, one.kind) == (stored.dtype, stored.kind):
        return None
    if stored.kind == "" and one.dtype == stored.dtype:  # the bits of PRNG keys: other formats know no keys
        return LoadDifference("recast", one.path, name, wanted, found)
    if one.kind != stored.kind or not is_castable(stored.dtype, one.dtype):
        return LoadDifference("unlike", one.path, name, wanted, found)
    return LoadDifference("recast", one.path, name, wanted, found, lossy=not is_widening(stored.dtype, one.dtype))


def _array_text(one: DeclaredArray) -> str:
    return str(StoredArray(one.shape, one.dtype, one.kind))
