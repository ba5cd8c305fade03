"""Hold several samples as columns, which become samples only if a program asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


class SampleColumns(Sequence[Any]):
    """Samples as columns: arrays whose first dimension is the samples.

    It is a sequence of samples, which are dicts: ``len(samples)``, ``samples[0]``, ``for sample in samples``. A number
    in a column of one dimension is Python's in a sample. ``samples["name"]`` is a column.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], count: int) -> None:
        self.columns = dict(columns)
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, key: str | int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> SampleColumns: ...

    def __getitem__(self, key: slice | str | int) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        if isinstance(key, slice):
            rows = range(self._count)[key]
            return SampleColumns({name: column[key] for name, column in self.columns.items()}, len(rows))
        number = range(self._count)[key]
        return {name: _value_at(column, number) for name, column in self.columns.items()}

    def __iter__(self) -> Iterator[Any]:
        values = [column.tolist() if column.ndim == 1 else list(column) for column in self.columns.values()]
        if not values:
            yield from ({} for _ in range(self._count))
            return
        names = list(self.columns)
        for row in zip(*values, strict=True):
            yield dict(zip(names, row, strict=True))


def _value_at(column: NDArray[Any], number: int) -> Any:
    value = column[number]
    return value.item() if isinstance(value, np.generic) else value
