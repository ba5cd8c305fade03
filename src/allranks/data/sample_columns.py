"""Hold several samples as columns, which become samples only if a program asks for them.

A column is an array whose first dimension is the samples, a list of values, or a lazy column: values in the memory of
another library, which become Python's when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol, TypeGuard, cast, overload

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class LazyColumn(Protocol):
    """A column whose values are made when ``tolist`` is called."""

    @property
    def value_type(self) -> type | None:
        """The type of all values; None if they may be of several types."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice, /) -> LazyColumn: ...

    def take(self, rows: Ids, /) -> LazyColumn:
        """Return the values at these rows, in this order."""

    def followed_by(self, more: Sequence[LazyColumn], /) -> LazyColumn:
        """Return the values of this column, and then those of others of the same type."""

    def tolist(self) -> list[Any]:
        """Return the values as a list."""

    def to_array(self) -> NDArray[Any] | None:
        """Return the values as one array, if they are arrays of one shape; else None."""


Column = NDArray[Any] | list[Any]
AnyColumn = Column | LazyColumn


def is_lazy(column: AnyColumn) -> TypeGuard[LazyColumn]:
    """Return whether a column is a lazy one."""
    return not isinstance(column, list | np.ndarray)


_DTYPES: dict[type, type] = {int: np.int64, float: np.float64, bool: np.bool_}
_OF_PYTHON = frozenset(map(np.dtype, (*_DTYPES.values(), np.complex128)))


def values_of(column: AnyColumn) -> list[Any]:
    """Return the values of a column, as samples have them: numbers of Python, arrays, texts, ...

    Of an array whose dtype numbers of Python would not have, they are numbers of NumPy.
    """
    if isinstance(column, np.ndarray) and (column.ndim > 1 or not _has_values_of_python(column.dtype)):
        return list(column)
    return column if isinstance(column, list) else column.tolist()


def _has_values_of_python(dtype: np.dtype[Any]) -> bool:
    return dtype in _OF_PYTHON or dtype.kind in "OSU"


def compact_values(values: list[Any]) -> Column:
    """Return numbers of Python of one type as an array, from which the same numbers can be made; else the list."""
    kinds = set(map(type, values))
    dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is None:
        return values
    try:
        return np.array(values, dtype)
    except OverflowError:  # an integer from 2**63 on
        return values


Rows = Ids | slice


def as_slice(rows: Ids) -> Rows:
    """Return the slice of these rows if they ascend by one step; else the rows themselves."""
    count = len(rows)
    if not count:
        return slice(0, 0)
    first, last = int(rows[0]), int(rows[-1])
    step = int(rows[1]) - first if count > 1 else 1
    if step <= 0 or last - first != step * (count - 1) or (rows[1:] - rows[:-1] != step).any():
        return rows
    return slice(first, last + 1, step)


def take_rows(column: AnyColumn, rows: Rows) -> AnyColumn:
    """Return the values of a column at these rows, in this order. A slice of an array is not copied."""
    if isinstance(rows, slice):
        return column[rows]
    if isinstance(column, list):
        return list(itemgetter(*rows.tolist())(column)) if len(rows) > 1 else [column[row] for row in rows.tolist()]
    return column[rows] if isinstance(column, np.ndarray) else column.take(rows)


def join_columns(columns: Sequence[AnyColumn]) -> AnyColumn:
    """Return the values of several columns, at least one, one after the other. Of unlike columns, make a list."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if isinstance(first, np.ndarray):
        if all(_is_same_array_type(first, one) for one in columns):
            return np.concatenate(cast(Sequence[NDArray[Any]], columns))
    elif is_lazy(first) and {type(one) for one in columns} == {type(first)}:
        return first.followed_by(cast(Sequence[LazyColumn], columns[1:]))
    return list(chain.from_iterable(map(values_of, columns)))


def scatter_rows(columns: Sequence[AnyColumn], places: Sequence[Rows]) -> AnyColumn:
    """Return one column, in which the values of ``columns[i]`` are at ``places[i]``; together these are all places."""
    count = sum(map(len, columns))
    first = columns[0]
    if isinstance(first, np.ndarray) and all(_is_same_array_type(first, one) for one in columns):
        array = np.empty((count, *first.shape[1:]), first.dtype)
        for column, where in zip(columns, places, strict=True):
            array[where] = column
        return array
    if is_lazy(first):
        lengths = list(map(len, columns))
        parts = [np.arange(end - length, end) for length, end in zip(lengths, np.cumsum(lengths).tolist(), strict=True)]
        return take_rows(join_columns(columns), as_slice(cast(Ids, scatter_rows(parts, places))))
    made: list[Any] = [None] * count
    for column, where in zip(columns, places, strict=True):
        if isinstance(where, slice):
            made[where] = values_of(column)
        else:
            for place, value in zip(where.tolist(), values_of(column), strict=True):
                made[place] = value
    return made


def _is_same_array_type(one: NDArray[Any], other: AnyColumn) -> bool:
    return isinstance(other, np.ndarray) and (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])


class LazyColumns(Mapping[str, Column]):
    """Columns by name, of which lazy ones become lists when they are looked up."""

    def __init__(self, columns: dict[str, AnyColumn]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Column:
        column = self._columns[name]
        if is_lazy(column):
            column = self._columns[name] = column.tolist()
        return cast(Column, column)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(dict(self))


class SampleColumns(Sequence[Any]):
    """Samples, which are dicts with the same keys, in the form of columns.

    ``samples["name"]`` is a column: an array, or a list of values. It is also a sequence of samples: ``len(samples)``,
    ``samples[0]``, ``for sample in samples``. The dicts are made when the first of them is needed, and kept. From
    then on, changes of the dicts count, and columns are made of them.

    ``bad`` has the samples that cannot be used, by position. The columns have any value there. A function of the user
    never gets bad samples.
    """

    def __init__(self, columns: Mapping[str, AnyColumn], count: int, bad: Mapping[int, Any] | None = None) -> None:
        self._columns: dict[str, AnyColumn] | None = dict(columns)
        self._count, self._bad = count, bad or {}
        self._samples: list[Any] = []

    @classmethod
    def from_samples(cls, samples: list[Any]) -> SampleColumns:
        """Return samples that are dicts as an object of which a function can also ask for columns."""
        made = cls({}, len(samples))
        made._columns, made._samples = None, samples
        return made

    @property
    def columns(self) -> dict[str, AnyColumn] | None:
        """The columns; None after dicts were made of them."""
        return self._columns

    @property
    def bad(self) -> Mapping[int, Any]:
        """The bad samples that are not in dicts, by position."""
        return {} if self._columns is None else self._bad

    def copy(self) -> SampleColumns:
        """Return the same samples; a change of their dicts or columns changes none of these."""
        if self._columns is None:
            return SampleColumns.from_samples([dict(sample) for sample in self._samples])
        columns = {
            name: one.copy() if isinstance(one, list | np.ndarray) else one for name, one in self._columns.items()
        }
        return SampleColumns(columns, self._count, self._bad)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, key: str | int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> SampleColumns: ...

    def __getitem__(self, key: slice | str | int) -> Any:
        columns = self._columns
        if isinstance(key, str):
            if columns is None:
                return [sample[key] for sample in self._samples]
            column = columns[key]
            if is_lazy(column):
                column = columns[key] = column.tolist()
            return column
        if isinstance(key, slice) and columns is not None:
            here = range(self._count)[key]
            bad = {here.index(at): sample for at, sample in self._bad.items() if at in here}
            return SampleColumns({name: column[key] for name, column in columns.items()}, len(here), bad)
        found = self._all_samples()[key]
        return SampleColumns.from_samples(found) if isinstance(key, slice) else found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all_samples())

    def _all_samples(self) -> list[Any]:
        columns = self._columns
        if columns is not None:
            names = tuple(columns)
            rows = zip(*map(values_of, columns.values()), strict=True) if names else ((),) * self._count
            self._samples = [dict(zip(names, row, strict=True)) for row in rows]
            for at, sample in self._bad.items():
                self._samples[at] = sample
            self._columns = None
        return self._samples


def select_samples(samples: Sequence[Any], rows: Ids) -> Sequence[Any]:
    """Return the samples at these ascending rows, as columns if they are columns."""
    if len(rows) == len(samples):
        return samples
    if isinstance(samples, SampleColumns) and samples.columns is not None:
        bad = {at: samples.bad[row] for at, row in enumerate(rows.tolist()) if row in samples.bad}
        return SampleColumns(
            {name: take_rows(one, as_slice(rows)) for name, one in samples.columns.items()}, len(rows), bad
        )
    chosen = [samples[row] for row in rows.tolist()]
    return SampleColumns.from_samples(chosen) if isinstance(samples, SampleColumns) else chosen


def replace_samples(samples: Sequence[Any], bad: Mapping[int, Any]) -> Sequence[Any]:
    """Return the samples, with bad ones at the positions of ``bad``. Columns are not copied."""
    if isinstance(samples, SampleColumns) and samples.columns is not None:
        return SampleColumns(samples.columns, len(samples), {**samples.bad, **bad})
    found = list(samples)
    for at, one in bad.items():
        found[at] = one
    return found


def insert_samples(samples: Sequence[Any], rows: Ids, bad: Mapping[int, Any]) -> Sequence[Any]:
    """Return ``samples[i]`` at the position ``rows[i]``, and bad ones at all others, the positions of ``bad``."""
    if not bad:
        return samples
    if not len(samples):
        return [bad[at] for at in range(len(bad))]
    source = np.zeros(len(samples) + len(bad), np.int64)
    source[rows] = np.arange(len(samples))
    if isinstance(samples, SampleColumns) and samples.columns is not None:
        columns = {name: take_rows(one, as_slice(source)) for name, one in samples.columns.items()}
        inner = {int(rows[at]): one for at, one in samples.bad.items()}
        return SampleColumns(columns, len(source), {**bad, **inner})
    return replace_samples([samples[at] for at in source.tolist()], bad)
