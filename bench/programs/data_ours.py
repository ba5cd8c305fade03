"""Our own reading: every call of the data set's interface that the data benches make is in this file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_peers import SEED, Opened, Rank, Way

import _standin as allranks


def _opened(form: str) -> Way:
    def opened(at: Rank) -> Opened:
        read = getattr(allranks.Dataset, form)
        data = read(str(at.folder / form / f"*.{form}"), seed=SEED).batch(global_batch=at.batch)
        loader = data.loader(rank=at.rank, size=at.size, state=at.state)
        return Opened(iter(loader), documents, loader.state)

    return opened


def documents(batch: Any) -> Sequence[int]:
    """Return the numbers that stand in the documents, not those of the index; without padding."""
    numbers: list[int] = batch["id"][batch.mask].tolist()
    return numbers


WAYS: dict[str, Way] = {f"ours-{form}": _opened(form) for form in ("jsonl", "parquet")}
