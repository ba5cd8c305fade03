"""A program whose last save still goes on when it ends: it closes nothing and waits for nothing.

python ends_unclosed.py FOLDER [BROKEN]; with BROKEN, rank 0 fails to write the manifest.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import allranks
from allranks.checkpoint.save_operation import SaveOperation


def broken(*_: Any) -> None:
    raise OSError("the disk is gone")


if len(sys.argv) > 2:
    SaveOperation.write_manifest = broken  # type: ignore[method-assign]
ckpt = allranks.Checkpointer(sys.argv[1], allranks.init("torch"))
ckpt.save(5, {"w": np.ones(4_000_000)})
