"""What is done to the samples of a mixture: first what their own part does to them, then what is done to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.transform import Chain


@dataclass(frozen=True, slots=True)
class MixedChain:
    """``chains[i]`` is for the samples with ids from ``bases[i]`` to ``bases[i + 1]``; ``common`` for all."""

    chains: tuple[Chain, ...]
    bases: tuple[int, ...]
    common: Chain

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int) -> list[Any]:
        """Return the samples after all operations, each in its place."""
        done = list(samples)
        part = np.searchsorted(self.bases, ids, side="right") - 1
        for number, chain in enumerate(self.chains):
            places = np.flatnonzero(part == number)
            if chain.operations and len(places):
                results = chain.apply([done[at] for at in places], ids[places] - self.bases[number], epoch)
                for at, result in zip(places.tolist(), results, strict=True):
                    done[at] = result
        return self.common.apply(done, ids, epoch)
