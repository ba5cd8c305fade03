"""Reduce numbers over all ranks for validation, without counting the padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allranks.errors import DataError
from allranks.world.base import World


def masked_mean(values: ArrayLike, mask: ArrayLike, world: World) -> float:
    """Return the mean of the values over all ranks, of the rows with a true mask. **Every rank must call.**

    ``values`` are this rank's: one or several numbers for each row. ``mask`` has one entry a row, or the values' shape.
    Masked values may be NaN. The sum is exact except for its last bit, so the mean does not depend on the number of
    ranks. A row that several ranks hold counts several times, unless the mask is ``batch.mask & loader.counted``.
    Raises DataError on every rank if no mask is true, or if on some rank the mask does not fit the values.
    """
    numbers, kept = np.asarray(values), np.asarray(mask, bool)
    fits = numbers.shape[: kept.ndim] == kept.shape
    wrong = "" if fits else f"the mask of rank {world.rank} is {kept.shape}, and its values are {numbers.shape}"
    counted = numbers[kept].astype(np.float64).ravel() if fits else np.empty(0)
    said = [wrong, counted.size, *_two_floats(counted)]
    mean, wrong = world.exchange("masked_mean", "mean", said, decide=_exact_mean)
    if wrong:
        raise DataError(f"rank {world.rank}: masked_mean: {wrong}.")
    return float(mean)


def _two_floats(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the sum of the values, and the rounding error of that sum."""
    if not np.isfinite(values).all():
        return float(values.sum()), 0.0
    high = math.fsum(values)
    return high, math.fsum([*values, -high])


def _exact_mean(values: Sequence[Any]) -> tuple[float, str]:
    wrong = next((wrong for wrong, *_ in values if wrong), "")
    count = sum(count for _, count, _, _ in values)
    if wrong or not count:
        return 0.0, wrong or "no row of any rank counts"
    total, lost = _two_floats(np.array([part for _, _, high, low in values for part in (high, low)]))
    return (total + lost) / count, ""
