"""Start workers, if any are wanted."""

from __future__ import annotations

from allranks.data.base import Transform
from allranks.data.workers.base import Inline, Workers
from allranks.errors import DataError


def start_workers(chain: Transform, count: int) -> Workers:
    """Start ``count`` processes that apply a chain; with 0, this process does, in ``submit``.

    Raises DataError where the chain's functions cannot be sent to them, or cloudpickle is not installed.
    """
    if count < 0:
        raise DataError(f"workers is {count}.", remedy="It must be 0, for none, or more.")
    if count == 0:
        return Inline(chain)
    try:
        from allranks.data.workers.pool import Pool
    except ModuleNotFoundError as error:
        if error.name != "cloudpickle":
            raise
        remedy = 'Install it: pip install "allranks[data]"; or use workers=0.'
        raise DataError("worker processes need cloudpickle, which is not installed.", remedy=remedy) from error
    return Pool(chain, count)
