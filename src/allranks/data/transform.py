"""Transform samples by maps and filters, in order; no sample changes its position.

A sample's result depends only on the sample, its id and the epoch, not on the rank, the worker or the chunk. So a list
of samples may be divided anywhere, and any process may transform a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from allranks.data import order
from allranks.data.base import BadSample, find_bad_samples
from allranks.data.copies import take_sample
from allranks.data.sample_columns import Column, SampleColumns, insert_samples, replace_samples, select_samples
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
        done: Sequence[Any] = samples
        for number, operation in enumerate(self.operations):
            run = _OperationRun(operation, (int(self.seed), int(epoch)), number)
            bad = find_bad_samples(done)
            rows = np.setdiff1d(np.arange(len(done)), [*bad]) if bad else np.arange(len(done))
            done = insert_samples(run.apply(select_samples(done, rows), ids[rows].tolist()), rows, bad)
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
        done = list(samples) if any(chain.operations for chain in self.chains) else []
        part = np.searchsorted(self.bases, ids, side="right") - 1
        for number, chain in enumerate(self.chains):
            places = np.flatnonzero(part == number)
            if chain.operations and len(places):
                results = chain.apply([done[at] for at in places], ids[places] - self.bases[number], epoch)
                for at, result in zip(places.tolist(), results, strict=True):
                    done[at] = result
        return self.common.apply(done or samples, ids, epoch)


class _ResultsError(Exception):
    """What a function returned for several samples has not the form of results. That is no fault of one sample.

    The only argument is the DataError.
    """


@dataclass(frozen=True, slots=True)
class _OperationRun:
    """Applies operation number ``number`` of a chain to samples of one epoch."""

    operation: MapOperation | FilterOperation
    seed: tuple[int, int]
    number: int

    def apply(self, samples: Sequence[Any], ids: list[int]) -> Sequence[Any]:
        """Return the samples, none of which is bad, after the operation."""
        if not self.operation.takes_many:
            return [self._apply_to_one(sample, name) for sample, name in zip(samples, ids, strict=True)]
        if not isinstance(samples, SampleColumns) and set(map(type, samples)) == {dict}:
            samples = SampleColumns.from_samples(list(samples))
        try:
            return self._apply_to_batch(samples, ids)
        except _ResultsError as error:
            raise error.args[0] from None

    def _apply_to_one(self, sample: Any, name: int) -> Any:
        operation = self.operation
        try:
            held = [operation.fn(sample, self._generator(name)) if operation.random else operation.fn(sample)]
            if isinstance(operation, FilterOperation):
                return operation.value_after(sample, held[0])  # bool(result) may raise, too
        except Exception as error:
            return self._handle_failure(error, name)
        if held[0] is None:
            raise self._none_error(name)
        return take_sample(held, sample)

    def _apply_to_batch(self, samples: Sequence[Any], ids: list[int]) -> Sequence[Any]:
        """Call the function for all samples; if that raises, find the samples for which it does, and leave them out."""
        if not len(samples):
            return samples
        try:
            return self._call_function(samples, ids)
        except _ResultsError:
            raise
        except Exception as error:
            failed = self._find_failed(samples, ids, error)
            if not failed:
                where = f"{len(ids)} samples together (from {ids[0]} on), and for none alone"
                raise self._error(error, where) from error
        rows = np.setdiff1d(np.arange(len(ids)), [*failed])
        others = self._apply_to_batch(select_samples(samples, rows), [ids[row] for row in rows.tolist()])
        return insert_samples(others, rows, failed)

    def _find_failed(self, samples: Sequence[Any], ids: list[int], error: Exception) -> dict[int, BadSample]:
        """Return the samples for which the function raises, by position. It raised ``error`` for all of them."""
        if len(samples) == 1:
            return {0: self._handle_failure(error, ids[0])}
        failed: dict[int, BadSample] = {}
        middle = len(samples) // 2
        for begin, half in ((0, slice(None, middle)), (middle, slice(middle, None))):
            try:
                self._call_function(samples[half], ids[half])
            except _ResultsError:
                raise
            except Exception as of_half:
                found = self._find_failed(samples[half], ids[half], of_half)
                failed |= {begin + at: one for at, one in found.items()}
        return failed

    def _call_function(self, samples: Sequence[Any], ids: list[int]) -> Sequence[Any]:
        """Return the samples after the operation. Raises what the function raises, or _ResultsError."""
        operation = self.operation
        generators = ([self._generator(name) for name in ids],) if operation.random else ()
        given = samples.copy() if isinstance(samples, SampleColumns) else list(samples)  # it may change them, and raise
        held = [operation.fn(given, *generators)]
        results: Any = held[0]
        if isinstance(results, dict):
            del results
            results = take_sample(held, given.columns if isinstance(given, SampleColumns) else None)
        is_map = isinstance(operation, MapOperation)
        if results is None and is_map:
            raise _ResultsError(self._none_error(ids[0]))
        if isinstance(results, Mapping):
            return SampleColumns(self._columns_of(results, ids), len(ids))
        many = None if isinstance(results, str | bytes) else getattr(results, "__len__", None)
        if many is None:
            raise _ResultsError(self._results_error(f"a {type(results).__name__}", ids))
        if many() != len(ids):
            raise _ResultsError(self._results_error(f"{len(results):,} results", ids))
        if is_map:
            return given if results is given else self._samples_of(results, ids)
        bad = {at: operation.value_after(None, kept) for at, kept in enumerate(results) if not kept}
        return replace_samples(given, bad) if bad else given

    def _samples_of(self, results: Any, ids: list[int]) -> list[Any]:
        found = [take_sample([one]) for one in results]
        for name in (name for one, name in zip(found, ids, strict=True) if one is None):
            raise _ResultsError(self._none_error(name))
        return found

    def _columns_of(self, results: Mapping[str, Any], ids: list[int]) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for name, column in results.items():
            if not isinstance(column, Iterable) or isinstance(column, str | bytes) or getattr(column, "ndim", 1) == 0:
                raise _ResultsError(self._results_error(f"a {type(column).__name__} in column {name!r}", ids))
            columns[name] = column if isinstance(column, np.ndarray) else list(column)
            if len(columns[name]) != len(ids):
                raise _ResultsError(self._results_error(f"{len(columns[name]):,} values in column {name!r}", ids))
        return columns

    def _results_error(self, found: str, ids: list[int]) -> DataError:
        samples = f"{len(ids):,} samples (the first is {ids[0]})"
        return DataError(
            f"{self.operation.function_name} returned {found} for {samples} in epoch {self.seed[1]}: expected a list "
            "with one result for each sample, or a dict of such columns.",
            remedy="Return a result for each sample, in the same order, and without yield. To leave out samples, use "
            ".filter.",
        )

    def _none_error(self, name: int) -> DataError:
        """Return the error for a map that returned None, as a function without ``return`` does.

        ``on_error`` does not mask it, because it is a fault of the function, and not of the sample.
        """
        what = f"{self.operation.function_name} returned None for sample {name} in epoch {self.seed[1]}"
        return DataError(
            f"{what}: expected a sample.",
            sample=name,
            remedy="Does the function end without return? To leave out samples, use .filter; if the value None is "
            'meant, return {"value": None}.',
        )

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
