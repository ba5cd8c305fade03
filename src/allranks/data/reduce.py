"""Numbers of all ranks made one, as validation needs it: padding does not count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from allranks.errors import DataError
from allranks.world.base import World


def masked_mean(values: ArrayLike, mask: ArrayLike, world: World) -> float:
    """Return the mean of the values over all ranks, where the mask is true. **Every rank must call.**

    ``values`` are this rank's: one or several of each row; ``mask`` is of the rows, or has the values' shape. What is
    masked may be NaN. The sum is exact to the last bit but one, so the mean does not depend on the number of ranks.
    Rows that several ranks hold weigh as often: mask them on all but one. Raises DataError on every rank where the mask
    is true nowhere.
    """
    numbers, kept = np.asarray(values), np.asarray(mask, bool)
    if numbers.shape[: kept.ndim] != kept.shape:
        raise DataError(f"rank {world.rank}: the mask is {kept.shape}, and the values {numbers.shape}.")
    counted = numbers[kept].astype(np.float64).ravel().tolist()
    high = math.fsum(counted)
    low = math.fsum([*counted, -high]) if math.isfinite(high) else 0.0
    mean = world.exchange("masked_mean", "mean", [len(counted), high, low], decide=_mean)
    if mean is None:
        raise DataError(f"rank {world.rank}: masked_mean: no row of any rank counts.")
    return float(mean)


def _mean(values: Sequence[Any]) -> float | None:
    count = sum(count for count, _, _ in values)
    parts = [part for _, high, low in values for part in (high, low)]
    total = math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts)
    return total / count if count else None
