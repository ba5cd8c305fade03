"""A rank of the JAX job: rank 2 fails while it reads a row of a step from 31 to 62, as the first argument says."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "jax_fsdp_lm"))

import train
from text import Text

import allranks

how, when, *flags = sys.argv[1:]
read_row, asked = Text.__getitem__, count()


def row_of_a_failing_disk(self: Text, number: int) -> Any:
    if allranks.current().rank == 2 and next(asked) == 40 * 4:  # of 4 rows a step
        Path(when).write_text(str(time.time()))
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the disk is gone")
    return read_row(self, number)


Text.__getitem__ = row_of_a_failing_disk
train.main(flags)
