"""Samples that become the columns of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad
from allranks.errors import DataError

Column = NDArray[Any] | list[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Mapping[str, Column]):
    """This rank's rows of a global batch, as columns: arrays whose first dimension is the rows, or lists of values.

    ``mask`` is False for rows that hold no sample: padding behind the last one, samples that were filtered out or could
    not be used; their values are zeros, empty strings, or None. ``ids`` are the samples' numbers in the data set, -1
    for padding. ``rows`` are the rows' numbers in the global batch, ``step`` its number in the epoch.
    """

    columns: dict[str, Column]
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
        """The number of columns."""
        return len(self.columns)


class Collator:
    """Makes columns of samples. Remembers what a row looks like, for batches in which there is none."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._blank: dict[str, Any] | None = None

    @property
    def knows(self) -> bool:
        """Whether it has seen a sample."""
        return self._blank is not None

    def columns(self, samples: Sequence[Any], ids: NDArray[np.int64]) -> tuple[dict[str, Column], NDArray[np.bool_]]:
        """Return the columns and the mask. Raises DataError for samples that do not fit together."""
        mask = np.array([not isinstance(sample, Bad) for sample in samples], np.bool_)
        rows = [fields(sample) for sample, good in zip(samples, mask.tolist(), strict=True) if good]
        if rows:
            self._blank = {name: _blank(value) for name, value in rows[0].items()}
        if self._blank is None:
            raise DataError(f"{self._who}: none of the samples until here can be used, so a row has no shape.")
        names, blank = self._blank.keys(), self._blank
        for row in rows:
            if row.keys() != names:
                raise self._differ(ids[mask], rows)
        if len(rows) < len(samples):
            good = iter(rows)
            rows = [next(good) if here else blank for here in mask.tolist()]
        return {name: self._column(name, [row[name] for row in rows], ids) for name in names}, mask

    def _column(self, name: str, values: list[Any], ids: NDArray[np.int64]) -> Column:
        kind = type(values[0])
        if not issubclass(kind, np.ndarray | np.generic | Number):
            return values
        try:
            return np.stack(values) if issubclass(kind, np.ndarray) else np.array(values)
        except ValueError as error:
            shapes = {np.shape(value): int(one) for value, one in zip(values, ids, strict=True)}
            told = ", ".join(f"{shape} (sample {one})" for shape, one in list(shapes.items())[:4])
            raise DataError(
                f"{self._who}: column {name!r} has rows of different shapes: {told}.",
                remedy="Pack them (.pack), or bring them to one shape in a .map.",
            ) from error

    def _differ(self, ids: NDArray[np.int64], rows: Sequence[Mapping[str, Any]]) -> DataError:
        first = sorted(rows[0])
        at = next(at for at, row in enumerate(rows) if sorted(row) != first)
        return DataError(
            f"{self._who}: sample {ids[at]} has the columns {sorted(rows[at])}, sample {ids[0]} has {first}.",
            sample=int(ids[at]),
            remedy="Choose the columns (columns=[...] where the source has them), or complete them in a .map.",
        )


def fields(sample: Any) -> Mapping[str, Any]:
    """Return a sample's columns: a dict's own, ``0``, ``1``, ... of a tuple, else ``value``."""
    if isinstance(sample, dict):
        return sample
    if isinstance(sample, tuple):
        return {str(number): value for number, value in enumerate(sample)}
    return {"value": sample}


def _blank(value: Any) -> Any:
    """Return what stands in a masked row."""
    if isinstance(value, np.ndarray | np.generic):
        return np.zeros_like(value)
    if isinstance(value, str | bytes | Number):
        return type(value)()
    return None
