"""Convert Arrow columns to Python values, with a fast method for each type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from allranks.data.base import BadSample, BlockRows
from allranks.data.block_columns import BlockColumns
from allranks.data.sample_columns import AnyColumn, LazyColumn
from allranks.errors import DataError
from allranks.failure import text_of

Getter = Callable[[list[int]], list[Any]]


def table_rows(table: pa.Table, where: str) -> BlockRows:
    """Return the rows of an Arrow table: as columns, or as TableRows if samples are needed to decode it.

    Samples are needed for a column of dates, of structs, or with text that is not UTF-8. ``where`` is for errors.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        found = _compact_column(_plain_values(_combine_chunks(column)))
        if found is None:
            return TableRows(table, where)
        columns[name] = found
    return BlockColumns(columns, table.num_rows) if columns else TableRows(table, where)


def check_columns(columns: Collection[str] | None, names: Collection[str], path: str) -> None:
    """Raise DataError if one of the wanted columns (None: whatever there is) is not among those of a file."""
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise DataError(
            f"{path} has no column {', '.join(map(repr, missing))}.",
            path=path,
            remedy=f"It has {', '.join(map(repr, names))}.",
        )


def _plain_values(values: pa.Array) -> pa.Array:
    """Return the values without extension types, dictionaries and views, and with offsets of 64 bits."""
    kind = values.type
    if isinstance(kind, pa.ExtensionType):
        return _plain_values(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain_values(values.dictionary_decode())
    if pa.types.is_string_view(kind) or pa.types.is_string(kind):
        return values.cast(pa.large_string())
    if pa.types.is_binary(kind):
        return values.cast(pa.large_binary())
    if pa.types.is_list(kind) and _is_number(kind.value_type):
        return values.cast(pa.large_list(kind.value_field))
    return values


def _compact_column(values: pa.Array) -> AnyColumn | None:
    """Return values as a column; None if not all values of their type can be decoded."""
    kind = values.type
    if pa.types.is_large_string(kind):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return ArrowValues(values, None if values.null_count else str)
    if pa.types.is_large_binary(kind):
        return ArrowValues(values, None if values.null_count else bytes)
    if _is_number(kind):
        return ArrowValues(values, None) if values.null_count else _number_column(values)
    if pa.types.is_large_list(kind) and _is_number(kind.value_type) and not values.values.null_count:
        return ArrowValues(values, None)
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        if values.null_count or values.flatten().null_count:
            return None
        numbers: NDArray[Any] = values.flatten().to_numpy(zero_copy_only=False)
        return numbers.reshape(len(values), kind.list_size)
    return None


def _number_column(values: pa.Array) -> AnyColumn:
    """Return numbers as an array of the dtype that a column of Python's numbers has; large uint64 as a list."""
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "u" and numbers.dtype.itemsize == 8 and len(numbers) and numbers.max() >= 1 << 63:
        return cast(list[Any], numbers.tolist())
    wide = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}[numbers.dtype.kind]
    found: NDArray[Any] = numbers.astype(wide, copy=False)
    return found


@dataclass(frozen=True, slots=True)
class ArrowValues:
    """A lazy column: values in an Arrow array, which become Python's when ``tolist`` is called."""

    values: pa.Array
    value_type: type | None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: slice) -> ArrowValues:
        return ArrowValues(self.values[key], self.value_type)

    def take(self, rows: NDArray[np.int64]) -> ArrowValues:
        return ArrowValues(self.values.take(pa.array(rows)), self.value_type)

    def followed_by(self, more: Sequence[LazyColumn]) -> ArrowValues:
        columns = [self, *cast(Sequence[ArrowValues], more)]
        same = all(column.value_type is self.value_type for column in columns)
        return ArrowValues(pa.concat_arrays([column.values for column in columns]), self.value_type if same else None)

    def tolist(self) -> list[Any]:
        if self.value_type is not None:
            return cast(list[Any], self.values.to_pylist())
        return _column_getter(self.values)(list(range(len(self.values))))

    def to_array(self) -> NDArray[Any] | None:
        """Return lists of numbers as an array, without a copy, if all lists have one length; else None."""
        values = self.values
        if not pa.types.is_large_list(values.type) or values.null_count or not len(values):
            return None
        bounds = _value_offsets(values, np.int64)
        size = int(bounds[1] - bounds[0])
        if (np.diff(bounds) != size).any():
            return None
        numbers = values.values[int(bounds[0]) : int(bounds[-1])].to_numpy(zero_copy_only=False)
        return cast(NDArray[Any], numbers.reshape(len(values), size))


class TableRows:
    """The rows of an Arrow table, as dicts. A row with text that is not UTF-8 is a BadSample.

    Text becomes str, a list of numbers a NumPy array, everything else as Arrow's to_pylist converts it.
    """

    def __init__(self, table: pa.Table, where: str) -> None:
        self._names = tuple(table.column_names)
        self._getters = [_column_getter(_combine_chunks(column)) for column in table.columns]
        self._rows = table.num_rows
        self._where = where

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        numbers = rows.tolist()
        try:
            return self._rows_as_dicts(numbers)
        except MemoryError:
            raise
        except Exception:
            return [self._row_as_dict(number) for number in numbers]

    def _rows_as_dicts(self, numbers: list[int]) -> list[Any]:
        if not self._names:
            return [{} for _ in numbers]
        first = self._names[0]
        found = [{first: value} for value in self._getters[0](numbers)]
        for name, getter in zip(self._names[1:], self._getters[1:], strict=True):  # three times as fast as dict(zip())
            for one, value in zip(found, getter(numbers), strict=True):
                one[name] = value
        return found

    def _row_as_dict(self, number: int) -> Any:
        try:
            return self._rows_as_dicts([number])[0]
        except UnicodeDecodeError as error:
            return BadSample(f"{self._where}: row {number} has text that is no UTF-8: {error}")
        except Exception as error:  # a time beyond the year 9999, a time zone that this host does not know, ...
            raise DataError(
                f"{self._where}: row {number} has a value that Python does not hold: {text_of(error)}.",
                remedy="Leave its column out (columns=[...]), or write it with another type.",
            ) from error


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _column_getter(values: pa.Array) -> Getter:
    kind = values.type
    if isinstance(kind, pa.ExtensionType):  # known only where Python code of somebody's was imported: not on every rank
        return _column_getter(values.storage)
    if pa.types.is_dictionary(kind):
        return _column_getter(values.dictionary_decode())
    if pa.types.is_string_view(kind):
        return _column_getter(values.cast(pa.large_string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _nullable_getter(values, _text_getter(values))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _nullable_getter(values, _bytes_getter(values))
    if _is_number(kind):
        return _nullable_getter(values, _number_getter(values))
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_number(kind.value_type):
        return (
            _nullable_getter(values, _array_getter(values)) if not values.values.null_count else _object_getter(values)
        )
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        return (
            _fixed_list_getter(values)
            if not (values.null_count or values.flatten().null_count)
            else _object_getter(values)
        )
    return _object_getter(values)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _nullable_getter(values: pa.Array, getter: Getter) -> Getter:
    """Return a getter that returns None for null values, and what ``getter`` returns for the others."""
    if not values.null_count:
        return getter
    valid = values.is_valid().to_numpy(zero_copy_only=False).data

    def get(rows: list[int]) -> list[Any]:
        return [got if valid[row] else None for row, got in zip(rows, getter(rows), strict=True)]

    return get


def _value_offsets(values: pa.Array, kind: type) -> NDArray[Any]:
    """Return the start of each value, and then the end of the last value."""
    buffer = values.buffers()[1]
    if not len(values) or buffer is None:
        return np.zeros(1, kind)
    return np.frombuffer(buffer, kind, len(values) + 1, values.offset * np.dtype(kind).itemsize)


def _value_bytes(values: pa.Array, *, wide: bool) -> tuple[bytes, memoryview]:
    """Return the bytes of all values in one, and the start of each value in these, then the end of the last value.

    The offsets are a memoryview, which yields Python's numbers. A list of numbers would be eight times as large.
    """
    offsets = _value_offsets(values, np.int64 if wide else np.int32)
    low, high = int(offsets[0]), int(offsets[-1])
    buffer = values.buffers()[2]
    data = buffer.slice(low, high - low).to_pybytes() if buffer is not None else b""
    return data, (offsets - low).data


def _text_getter(values: pa.Array) -> Getter:
    data, at = _value_bytes(values, wide=pa.types.is_large_string(values.type))
    return lambda rows: [data[at[row] : at[row + 1]].decode() for row in rows]


def _bytes_getter(values: pa.Array) -> Getter:
    data, at = _value_bytes(values, wide=pa.types.is_large_binary(values.type))
    return lambda rows: [data[at[row] : at[row + 1]] for row in rows]


def _number_getter(values: pa.Array) -> Getter:
    if values.null_count and not pa.types.is_floating(values.type):
        values = values.fill_null(pa.scalar(0).cast(values.type))  # NumPy would make floats of integers: not exact
    array = values.to_numpy(zero_copy_only=False)
    numbers = (array.astype(np.float32) if array.dtype == np.float16 else array).data  # of which no memoryview reads
    return lambda rows: [numbers[row] for row in rows]


def _array_getter(values: pa.Array) -> Getter:
    wide = pa.types.is_large_list(values.type)
    at = _value_offsets(values, np.int64 if wide else np.int32).data
    numbers = values.values.to_numpy(zero_copy_only=False)
    return lambda rows: [numbers[at[row] : at[row + 1]].copy() for row in rows]  # a view would keep the block alive


def _fixed_list_getter(values: pa.Array) -> Getter:
    numbers = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), values.type.list_size)
    return lambda rows: list(numbers[rows])  # of one copy: these rows


def _object_getter(values: pa.Array) -> Getter:
    return lambda rows: [values[row].as_py() for row in rows]
