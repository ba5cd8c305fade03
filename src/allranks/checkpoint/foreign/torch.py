"""Write checkpoints with torch: files of ``torch.save``, and folders of torch.distributed.checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save


def write_pt(tree: Any, path: Path) -> None:
    """Write a file that ``torch.load`` reads."""
    torch.save(tree, path)


def write_dcp(tree: Any, folder: Path) -> None:
    """Write a folder that ``torch.distributed.checkpoint.load`` reads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled|.*assum.*single process")
        try:
            save(tree, checkpoint_id=str(folder), no_dist=True)
        except CheckpointException as error:  # which is no Exception
            first, *_ = [found for found, _ in error.failures.values()] or [error]
            raise RuntimeError(f"{type(first).__name__}: {first}") from error
