"""Transform samples by maps and filters, in order; no sample changes its position.

A sample's result depends only on the sample, its id and the epoch, not on the rank, the worker or the chunk. So a list
of samples may be divided anywhere, and any process may transform a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from allranks.data import order
from allranks.data.base import BadSample
from allranks.data.sample_columns import SampleColumns
from allranks.errors import DataError
from allranks.failure import message_of, text_of

OnError = Literal["raise", "mask"]


@dataclass(frozen=True, slots=True)
class _Operation:
    """A user's function of a sample, with the options that say how to call it.

    - ``random``: the function also gets a numpy Generator for the sample, the same in every run of this seed and epoch.
    - ``batched``: the function gets many samples (and a list of Generators), and returns a list of equal length or a
      dict of columns. Samples that are dicts come as SampleColumns. The function must treat each sample independently,
      because the world's size decides which samples come together. None: use the function's attribute ``batched``.
    - ``on_error``: if the function raises, "mask" makes the sample a BadSample, and "raise" ends the run with a
      DataError.
    """

    fn: Callable[..., Any]
    random: bool = False
    batched: bool | None = None
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise DataError(f"expected a function of a sample, found {self.function_name}.")
        if self.on_error not in ("raise", "mask"):
            raise DataError(f'on_error of {self.function_name} is {self.on_error!r}; expected "raise" or "mask".')

    @property
    def function_name(self) -> str:
        """The name of the function, for errors."""
        return str(getattr(self.fn, "__qualname__", None) or type(self.fn).__qualname__)

    @property
    def takes_many(self) -> bool:
        return bool(getattr(self.fn, "batched", False) if self.batched is None else self.batched)

    def value_after(self, sample: Any, result: Any) -> Any:
        """Return the sample after the operation. ``result`` is what the function returned for the sample."""
        if isinstance(self, FilterOperation):
            return sample if result else BadSample(f"left out by {self.function_name}", filtered=True)
        return result


@dataclass(frozen=True, slots=True)
class MapOperation(_Operation):
    """Replaces each sample by the function's result. If the result is a BadSample, the row is masked."""


@dataclass(frozen=True, slots=True)
class FilterOperation(_Operation):
    """Masks the rows of samples for which the function returns a false value. All samples keep their rows."""


@dataclass(frozen=True, slots=True)
class TransformChain:
    """Several operations, applied one after the other. ``seed`` decides their random numbers."""

    operations: tuple[MapOperation | FilterOperation, ...] = ()
    seed: int = 0

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Sequence[Any]:
        """Return the samples with these ids after all operations, in the same positions; a BadSample is unchanged.

        Raises DataError that names sample and function, with the function's error as its cause.
        """
        if not self.operations:
            return samples
        done: Sequence[Any] = samples if isinstance(samples, SampleColumns) else list(samples)
        names = ids.tolist()
        for number, operation in enumerate(self.operations):
            turn = _OperationRun(operation, (int(self.seed), int(epoch)), number)
            if isinstance(done, SampleColumns) and operation.takes_many:
                done = turn.apply_to_columns(done, names)
                continue
            done = done if isinstance(done, list) else list(done)
            live = [at for at, sample in enumerate(done) if not isinstance(sample, BadSample)]
            results = turn.apply_to_all([done[at] for at in live], [names[at] for at in live])
            for at, result in zip(live, results, strict=True):
                done[at] = result
        return done


@dataclass(frozen=True, slots=True)
class MixedChain:
    """The operations for a mixture.

    ``chains[i]`` is for the samples with ids from ``bases[i]`` to ``bases[i + 1]``; then ``common`` is for all samples.
    """

    chains: tuple[TransformChain, ...]
    bases: tuple[int, ...]
    common: TransformChain

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> Sequence[Any]:
        """Return the samples with these ids after all operations, in the same positions."""
        done = list(samples)
        part = np.searchsorted(self.bases, ids, side="right") - 1
        for number, chain in enumerate(self.chains):
            places = np.flatnonzero(part == number)
            if chain.operations and len(places):
                results = chain.apply([done[at] for at in places], ids[places] - self.bases[number], epoch)
                for at, result in zip(places.tolist(), results, strict=True):
                    done[at] = result
        return self.common.apply(done, ids, epoch)


def _columns_of_results(results: Mapping[str, Any], count: int) -> SampleColumns:
    """Return the columns that a function returned. Raises ValueError if one has not a value for each sample."""
    columns = {name: column if isinstance(column, np.ndarray) else list(column) for name, column in results.items()}
    for name, column in columns.items():
        if not np.ndim(column) or len(column) != count:
            many = len(column) if np.ndim(column) else "no"
            raise ValueError(
                f"the function returned {many} values in column {name!r} for {count} samples: expected one value per "
                "sample"
            )
    return SampleColumns(columns, count)


@dataclass(frozen=True, slots=True)
class _OperationRun:
    """Applies operation number ``number`` of a chain to samples of one epoch."""

    operation: MapOperation | FilterOperation
    seed: tuple[int, int]
    number: int

    def apply_to_all(self, samples: list[Any], ids: list[int]) -> list[Any]:
        if not self.operation.takes_many:
            return [self._apply_to_one(sample, name) for sample, name in zip(samples, ids, strict=True)]
        if not samples:
            return []
        as_columns = set(map(type, samples)) == {dict}
        return list(self._apply_to_batch(SampleColumns.from_samples(samples) if as_columns else samples, ids))

    def apply_to_columns(self, samples: SampleColumns, ids: list[int]) -> Sequence[Any]:
        """Return the samples, in columns, after an operation that takes many."""
        return self._apply_to_batch(samples, ids) if len(samples) else samples

    def _apply_to_one(self, sample: Any, name: int) -> Any:
        operation = self.operation
        try:
            result = operation.fn(sample, self._generator(name)) if operation.random else operation.fn(sample)
            return operation.value_after(sample, result)  # of a filter: bool(result) may raise, too
        except Exception as error:
            return self._handle_failure(error, name)

    def _apply_to_batch(self, samples: Sequence[Any], ids: list[int]) -> Sequence[Any]:
        """Call the function once for all samples; if that raises, once for each sample, to find the one that fails."""
        try:
            return self._call_function(samples, ids)
        except Exception as error:
            if len(samples) == 1:
                return [self._handle_failure(error, ids[0])]
            found = [self._apply_to_batch(samples[at : at + 1], [name])[0] for at, name in enumerate(ids)]
            if not any(isinstance(one, BadSample) and not one.filtered for one in found):
                raise self._error(
                    error, f"{len(ids)} samples together (from {ids[0]} on), and for none alone"
                ) from error
            return found

    def _call_function(self, samples: Sequence[Any], ids: list[int]) -> Sequence[Any]:
        operation = self.operation
        generators = ([self._generator(name) for name in ids],) if operation.random else ()
        results = operation.fn(samples, *generators)
        if isinstance(results, Mapping):
            return _columns_of_results(results, len(samples))
        if len(results) != len(samples):
            raise ValueError(
                f"the function returned {len(results)} results for {len(samples)} samples: expected one "
                "result per sample"
            )
        if isinstance(operation, MapOperation):
            return samples if results is samples else list(results)
        if isinstance(samples, SampleColumns) and all(results):
            return samples
        return [operation.value_after(sample, result) for sample, result in zip(samples, results, strict=True)]

    def _generator(self, name: int) -> np.random.Generator:
        return order.generator(order.make_key("augment", *self.seed, name, self.number))

    def _handle_failure(self, error: Exception, name: int) -> BadSample:
        """Return the BadSample for a sample that failed, or raise DataError. A MemoryError is never masked."""
        if self.operation.on_error == "raise" or isinstance(error, MemoryError):
            raise self._error(error, f"sample {name}", name) from error
        return BadSample(f"{self.operation.function_name} raised {text_of(error)}")

    def _error(self, error: Exception, where: str, sample: int | None = None) -> DataError:
        what = f"{self.operation.function_name} raised {type(error).__name__} for {where} in epoch {self.seed[1]}"
        return DataError(
            f"{what}: {message_of(error)}.",
            sample=sample,
            remedy='Repair the function or the sample, or give on_error="mask" to mask its row.',
        )
