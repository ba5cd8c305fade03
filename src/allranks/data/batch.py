"""Turn samples into a batch: arrays or lists by column, and a mask of usable rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import find_bad_samples
from allranks.data.detect import import_adapter
from allranks.data.sample_columns import AnyColumn, Column, SampleColumns, is_lazy, values_of
from allranks.errors import DataError
from allranks.failure import message_of


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Mapping[str, Column]):
    """This rank's rows of a global batch, as columns: arrays whose first dimension is the rows, or lists of values.

    Numbers and arrays become arrays (Python's int: int64, float: float64), everything else becomes lists.

    - ``mask``: False for rows without a sample. These are padding after the last sample, and samples that a filter
      excluded or that could not be used. Their values are zeros, empty strings, or None.
    - ``ids``: the samples' numbers in the data set, -1 for padding. For packed rows, the numbers of all samples that
      end in these rows.
    - ``rows``: the rows' numbers in the global batch.
    - ``step``: the batch's number in the epoch.
    """

    columns: Mapping[str, Column]
    mask: NDArray[np.bool_]
    ids: NDArray[np.int64]
    rows: Sequence[int]
    epoch: int
    step: int
    global_batch: int

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def to_jax(self, where: Any, *, mask: str = "mask") -> dict[str, Any]:
        """Return the global batch as jax.Arrays. No row is sent between ranks, and no rank waits for another.

        ``where`` is the sharding of the batch: a NamedSharding, or a (mesh, axis names). ``mask`` names the column of
        the mask. Columns that are lists stay local. Raises BatchMismatch if the rows are not those of this process's
        devices; then give the loader the same ``rows=where``.
        """
        arrays, lists = self._with_mask(mask)
        return {**import_adapter("jax").to_jax(arrays, self.rows, where, self.global_batch), **lists}

    def to(self, device: Any) -> dict[str, Any]:
        """Return ``to_torch(device)``; Lightning calls this for each batch before a training step.

        Raises DataError if no gradients are computed. The reason: Lightning stops evaluations early (the first after
        two batches), and a loader continues where it was stopped. So the next evaluation would read only the remaining
        batches.
        """
        return import_adapter("torch").to_training(self, device)  # type: ignore[no-any-return]

    def to_torch(self, device: Any = None, *, pin_memory: bool = False, mask: str = "mask") -> dict[str, Any]:
        """Return this rank's rows as tensors, and the mask as the column ``mask``; columns that are lists stay lists.

        The tensors are on ``device``; by default on the CPU, where they share memory with the arrays. With
        ``pin_memory`` the copy may still be in progress on return.
        """
        arrays, lists = self._with_mask(mask)
        return {**import_adapter("torch").to_torch(arrays, device, pin_memory=pin_memory), **lists}

    def _with_mask(self, mask: str) -> tuple[dict[str, NDArray[Any]], dict[str, list[Any]]]:
        if mask in self.columns:
            raise DataError(
                f"the samples have a column {mask!r}, but this is the name of the mask of the batch.",
                remedy='Give the mask another name: mask="valid".',
            )
        arrays = {name: column for name, column in self.columns.items() if isinstance(column, np.ndarray)}
        lists = {name: column for name, column in self.columns.items() if not isinstance(column, np.ndarray)}
        return {**arrays, mask: self.mask}, lists


class BatchCollator:
    """Converts samples into columns, which are arrays or lists.

    Each column has the same type in all batches and on all ranks.

    ``example`` returns a usable sample. It is called if a row without a sample comes before the first usable sample.
    """

    def __init__(self, example: Callable[[], Any]) -> None:
        self._example = example
        self._blank: dict[str, Any] = {}

    def make_columns(
        self, samples: Sequence[Any], ids: NDArray[np.int64]
    ) -> tuple[dict[str, AnyColumn], NDArray[np.bool_]]:
        """Return the columns of samples, and their mask. Raises DataError if samples differ in columns or types."""
        good = np.ones(len(samples), np.bool_)
        good[[*find_bad_samples(samples)]] = False
        given = samples.columns if isinstance(samples, SampleColumns) else None
        if given is not None and given.keys() == self._blank.keys():
            return self._complete_columns(given, ids, np.flatnonzero(~good)), good
        kinds = set(map(type, samples))
        if not self._blank:
            at = int(good.argmax())
            first = sample_columns(samples[at] if good.any() else self._example())
            self._blank = {name: _masked_value(_array_of(value, name, int(ids[at]))) for name, value in first.items()}
        blank = self._blank
        if kinds == {dict}:
            rows: Sequence[Mapping[str, Any]] = samples
        else:
            rows = [
                sample_columns(sample) if here else blank for sample, here in zip(samples, good.tolist(), strict=True)
            ]
        if set(map(len, rows)) != {len(blank)}:
            raise self._other_columns(rows, ids)
        try:
            return {name: self._make_column(name, [row[name] for row in rows], ids) for name in blank}, good
        except KeyError:
            raise self._other_columns(rows, ids) from None

    def _complete_columns(
        self, given: dict[str, AnyColumn], ids: NDArray[np.int64], masked: NDArray[np.int64]
    ) -> dict[str, AnyColumn]:
        """Return the columns of samples that are columns already, with placeholders in the ``masked`` rows.

        Arrays of the right type are not copied if no row is masked.
        """
        found: dict[str, AnyColumn] = {}
        for name, blank in self._blank.items():
            column = given[name]
            if is_lazy(column) and isinstance(blank, np.ndarray) and (array := column.to_array()) is not None:
                column = array
            if len(masked):
                column = _fill_rows(column, masked, blank)
            like = _is_like(blank, column)
            found[name] = column if like else self._make_column(name, values_of(column), ids)
        return found

    def _make_column(self, name: str, values: list[Any], ids: NDArray[np.int64]) -> Column:
        wanted = type(self._blank[name])
        kinds = set(map(type, values))
        if any(map(_is_array_like, kinds)):
            values = [_array_of(value, name, one) for value, one in zip(values, ids, strict=True)]
            kinds = set(map(type, values))
        if not any(issubclass(kind, _STACKED) and not issubclass(kind, np.character) for kind in kinds | {wanted}):
            return values
        if kinds != {wanted}:
            raise self._other_kind(name, values, ids)
        like = self._blank[name]
        if not isinstance(like, np.ndarray | np.generic):
            return self._make_number_column(name, values, ids)
        for value, one in zip(values, ids, strict=True):
            if value.shape != like.shape or value.dtype != like.dtype:
                raise DataError(
                    f"column {name!r} of sample {one} is {value.dtype}{list(value.shape)}; before it was "
                    f"{like.dtype}{list(like.shape)}.",
                    sample=int(one),
                    remedy="Pack the samples (.pack), or give all samples the same shape and dtype in a .map. A column "
                    "of lists (array.tolist()) may have any lengths.",
                )
        return np.stack(values) if isinstance(like, np.ndarray) else np.array(values, like.dtype)

    def _make_number_column(self, name: str, values: list[Any], ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return numbers of Python as an array, whose dtype depends on their type alone, not on their values."""
        dtype = next((dtype for kind, dtype in _DTYPES.items() if isinstance(self._blank[name], kind)), object)
        try:
            return np.array(values, dtype)
        except OverflowError:
            value, one = next((value, one) for value, one in zip(values, ids, strict=True) if not _is_int64(value))
            raise DataError(
                f"column {name!r} of sample {one} is {value!r:.40}: expected an integer from -2**63 to 2**63 - 1, "
                "because a column of integers is int64 in every batch.",
                sample=int(one),
                remedy="Convert the column of all samples in a .map: np.uint64(value) holds integers below 2**64, and "
                "str(value) holds all.",
            ) from None

    def _other_kind(self, name: str, values: list[Any], ids: NDArray[np.int64]) -> DataError:
        wanted = type(self._blank[name])
        value, one = next((value, one) for value, one in zip(values, ids, strict=True) if type(value) is not wanted)
        return DataError(
            f"column {name!r} of sample {one} is {_short_repr(value)}, a {type(value).__name__}; before it was a "
            f"{wanted.__name__}.",
            sample=int(one),
            remedy="A column has one kind of value, on every rank: convert it in a .map.",
        )

    def _other_columns(self, rows: Sequence[Mapping[str, Any]], ids: NDArray[np.int64]) -> DataError:
        row, one = next((row, one) for row, one in zip(rows, ids, strict=True) if row.keys() != self._blank.keys())
        return DataError(
            f"sample {one} has the columns {sorted(map(str, row))}; before they were {sorted(map(str, self._blank))}.",
            sample=int(one),
            remedy="Choose the columns (columns=[...], where the source has them), or complete them in a .map.",
        )


_STACKED = (np.ndarray, np.generic, Number)
_DTYPES = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}  # a bool is an int, too


def _is_like(blank: Any, column: AnyColumn) -> bool:
    """Return whether a column of several samples is no list, and has the type and the shape of this placeholder."""
    if not isinstance(column, np.ndarray):
        return is_lazy(column) and type(blank) is column.value_type
    if isinstance(blank, np.ndarray):
        return bool(blank.shape == column.shape[1:] and blank.dtype == column.dtype)
    dtype = blank.dtype if isinstance(blank, np.generic) else _DTYPES.get(type(blank))
    return column.ndim == 1 and bool(dtype == column.dtype)


def _fill_rows(column: AnyColumn, rows: NDArray[np.int64], blank: Any) -> Column:
    """Return a copy of a column, with this placeholder in some rows."""
    if isinstance(column, np.ndarray) and _is_like(blank, column):
        array = column.copy()
        array[rows] = blank
        return array
    values = list(values_of(column))
    for row in rows.tolist():
        values[row] = blank
    return values


def _is_int64(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _short_repr(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # it is the user's code
        return "a value without a repr"


def sample_columns(sample: Any) -> Mapping[str, Any]:
    """Return a sample as a dict of columns: a tuple gets the names ``0``, ``1``, ...; any other value the name
    ``value``.
    """
    if isinstance(sample, dict):
        return sample
    if isinstance(sample, tuple):
        return {str(number): value for number, value in enumerate(sample)}
    return {"value": sample}


def _is_array_like(kind: type) -> bool:
    """Return whether values of a type are converted to NumPy arrays, as torch tensors and JAX arrays are."""
    return hasattr(kind, "__array__") and hasattr(kind, "shape") and not issubclass(kind, np.ndarray | np.generic)


def _array_of(value: Any, name: str, sample: int) -> Any:
    """Return an array-like value as a NumPy array, anything else unchanged; DataError if NumPy cannot hold it."""
    if not _is_array_like(type(value)):
        return value
    try:
        return np.asarray(value)
    except Exception as error:  # it is the user's code, or that of another library
        raise DataError(
            f"column {name!r} of sample {sample}, a {type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}, "
            f"cannot become a NumPy array: {message_of(error).rstrip('.')}.",
            sample=int(sample),
            remedy="In a .map, move the value to the CPU, without gradients, and to a dtype that NumPy has.",
        ) from error


def _masked_value(value: Any) -> Any:
    """Return a placeholder for a masked row, of the type and shape of ``value``: zeros, an empty string, or None."""
    if isinstance(value, np.ndarray):
        return np.zeros_like(value)
    if isinstance(value, np.generic):
        return np.zeros_like(value)[()]  # a scalar of the same kind, where zeros_like makes an array
    if not isinstance(value, str | bytes | Number):
        return None
    try:
        return type(value)()
    except Exception:  # an IntEnum has no zero: of the user's types, any value of the column will do
        return value
