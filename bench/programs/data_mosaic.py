"""mosaicml-streaming, which needs an older NumPy than all others and so an environment of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any

from data_peers import SEED, Opened, Rank, grouped, of_samples

CANONICAL_NODES = 12  # which 3 and 4 divide: its order then is the same for both


def without_torchvision() -> None:
    """Stand in for what it imports and only images need: the package's builds do not go with every build of torch."""
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        empty = module_from_spec(ModuleSpec(f"torchvision{name}", None, is_package=True))
        vars(empty).update(VisionDataset=object, CIFAR10=object, to_tensor=None)
        sys.modules[empty.__name__] = empty


def mosaic(at: Rank) -> Opened:
    """Every rank is a node of its own; that they meet at the start is left out."""
    os.environ.update(WORLD_SIZE=str(at.size), RANK=str(at.rank), LOCAL_WORLD_SIZE="1", LOCAL_RANK="0")
    without_torchvision()
    import streaming.base.dataset as base
    import streaming.base.util as util

    base.maybe_init_dist = util.maybe_init_dist = lambda: False
    util.clean_stale_shared_memory()
    data: Any = base.StreamingDataset(
        local=str(at.folder / "mds"),
        shuffle=True,
        shuffle_seed=SEED,
        batch_size=at.rows,
        num_canonical_nodes=CANONICAL_NODES,
    )
    if at.state is not None:
        data.load_state_dict(at.state)
    taken = 0 if at.state is None else at.state["sample_in_epoch"]

    def batches() -> Iterator[Any]:
        nonlocal taken
        for batch in grouped(data, at.rows):
            taken += at.batch
            yield batch

    return Opened(batches(), of_samples, lambda: data.state_dict(taken, from_beginning=True))


WAYS = {"mosaic": mosaic}
