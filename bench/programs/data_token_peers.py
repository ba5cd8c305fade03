"""Read tokens as litdata or mosaicml-streaming does: a folder of theirs, made first, of the tokens of ``train.bin``.

argv: folder, ``litdata`` or ``mosaic``, tokens, length of a window, seconds a turn, rounds.

Tells the tokens a second of every round (``rate``). All give int64 tokens and targets in batches of 24 rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from told import tell

ROWS, SEED = 24, 0
folder, kind, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[5])
tokens, length, rounds = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[6])
place = folder / f"{kind}-{length}"


def windows() -> np.ndarray:
    """Return the tokens, in windows with their targets."""
    found = np.random.default_rng(0).integers(0, 50257, tokens).astype(np.uint16)
    return found[: tokens // (length + 1) * (length + 1)].reshape(-1, length + 1)


def litdata() -> Iterator[Any]:
    import litdata as ld
    from litdata.streaming.writer import BinaryWriter

    loader = ld.TokensLoader(block_size=length + 1)
    if not place.exists():
        place.mkdir()
        writer = BinaryWriter(str(place), chunk_bytes="64MB", item_loader=loader)
        for number, window in enumerate(windows()):
            writer[number] = window
        writer.done()
        writer.merge()
    data = ld.StreamingDataset(str(place), item_loader=loader, shuffle=True, seed=SEED)
    while True:
        for batch in ld.StreamingDataLoader(data, batch_size=ROWS):
            rows = np.asarray(batch)
            yield rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)


def mosaic() -> Iterator[Any]:
    from data_mosaic import without_torchvision

    without_torchvision()
    import streaming.base.dataset as base
    import streaming.base.util as util
    from data_peers import grouped
    from streaming import MDSWriter

    base.maybe_init_dist = util.maybe_init_dist = lambda: False
    if not place.exists():
        with MDSWriter(out=str(place), columns={"tokens": f"ndarray:uint16:{length + 1}"}) as writer:
            for window in windows():
                writer.write({"tokens": window})
    util.clean_stale_shared_memory()
    data: Any = base.StreamingDataset(local=str(place), shuffle=True, shuffle_seed=SEED, batch_size=ROWS)
    while True:
        for batch in grouped(data, ROWS):
            rows = np.stack([sample["tokens"] for sample in batch])
            yield rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)


def rate(batches: Iterator[Any]) -> float:
    """Tokens a second, after the first batch."""
    next(batches)
    begin, taken = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        next(batches)
        taken += 1
    return taken * ROWS * length / (time.perf_counter() - begin)


folder.mkdir(exist_ok=True)
batches = {"litdata": litdata, "mosaic": mosaic}[kind]()
tell(rate=[rate(batches) for _ in range(rounds)])
