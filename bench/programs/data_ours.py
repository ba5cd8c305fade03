"""Our own reading: every call of the data set's interface that the data benches make is in this file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from data_peers import SEED, Opened, Rank, Way

import allranks


def _opened(form: str, *, text: bool = False) -> Way:
    def opened(at: Rank) -> Opened:
        read = getattr(allranks.Dataset, form)
        data = read(str(at.folder / form / f"*.{form}"), seed=SEED).batch(at.batch)
        loader = data.loader(rank=at.rank, size=at.size, state=at.state)
        batches = map(with_text, loader) if text else iter(loader)
        return Opened(batches, documents, lambda: state_at(data, loader.step))

    return opened


def with_text(batch: Any) -> Any:
    """Return a batch whose texts have become a list."""
    batch["text"]
    return batch


def documents(batch: Any) -> Sequence[int]:
    """Return the numbers that stand in the documents, not those of the index; without padding."""
    numbers: list[int] = batch["id"][batch.mask].tolist()
    return numbers


def state_at(data: allranks.Dataset, step: int) -> Any:
    """Return the state at a step. A rank that reads alone has none: it is that of a world of one, for any world."""
    whole = data.loader(allranks.init(backend="single"))
    for _ in islice(whole, step):
        pass
    state = whole.state().gathered()
    whole.close()
    return state


WAYS: dict[str, Way] = {f"ours-{form}": _opened(form) for form in ("jsonl", "parquet")}
WAYS["ours-parquet-text"] = _opened("parquet", text=True)
