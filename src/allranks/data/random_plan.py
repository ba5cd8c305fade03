"""Plan an epoch of samples that are drawn at random with replacement, as language models often read tokens.

Draw number n is a function of seed and n alone. Row j of global batch s is draw ``s * global_batch + j``. So all ranks
together take the same draws on any number of ranks, and no two ranks take the same draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allranks.data import order
from allranks.data.index import DatasetIndex
from allranks.data.ledger import mix_ids
from allranks.data.plan import IndexLayout, rows_ids
from allranks.digest import digest, show

VERSION = 1
_STEP = 0x9E3779B97F4A7C15  # of SplitMix64, whose n-th number these draws are
_WORD = (1 << 64) - 1


class RandomPlan:
    """The plan of one epoch of about ``samples`` draws from an index. Draws continue over epochs."""

    once = False

    def __init__(self, index: DatasetIndex, *, global_batch: int, seed: int, samples: int, epoch: int) -> None:
        self.layout = IndexLayout(global_batch, 1, 1, seed, shuffle=True)
        self.index, self.epoch = index, epoch
        self.samples = index.samples
        self._draws = samples

    @property
    def steps(self) -> int:
        """The number of global batches of the epoch, for every rank."""
        return max(1, self._draws // self.layout.global_batch)

    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the draws. They do not depend on the global batch."""
        return show(digest("random", str(VERSION), self.index.digest, str(self.layout.seed)))[:16]

    def facts(self) -> dict[str, str | int]:
        """Return the settings that decide the draws, by name: ranks compare them, and a state stores them."""
        return {
            "plan": self.digest(),
            "index": self.index.digest[:8],
            "samples": self.index.samples,
            "draws": self._draws,
            "seed": self.layout.seed,
        }

    def stream_length(self, _stream: int) -> int:
        return self.steps * self.layout.global_batch

    def stream_ids(self, _stream: int, begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids of the draws ``begin`` to ``end`` of this epoch."""
        return self.ids_of_draws(np.arange(begin, end))

    def ids_of_draws(self, depths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of these draws of this epoch."""
        first = (self._key + self.epoch * self._draws * _STEP) & _WORD
        numbers = depths.astype(np.uint64) * np.uint64(_STEP) + np.uint64(first)
        return (mix_ids(numbers.view(np.int64)) % np.uint64(self.samples)).astype(np.int64)

    def row_ids(self, rows: Sequence[int], begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids of these rows of the global batches ``begin`` to ``end``: (steps, rows)."""
        return rows_ids(self, rows, begin, end)

    @cached_property
    def _key(self) -> int:
        return order.make_key("allranks", "random", VERSION, self.layout.seed) & _WORD
