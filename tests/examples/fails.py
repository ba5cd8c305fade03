"""A rank of the JAX job: rank 2 fails while it reads the rows of step 6, in the way that the first argument says."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "jax_fsdp_lm"))

import train
from text import Text

import allranks

how, when, *flags = sys.argv[1:]
read_rows = Text.rows


def rows_of_a_failing_disk(self: Text, step: int, numbers: range, **how_to: Any) -> Any:
    if step == 6 and allranks.current().rank == 2:
        Path(when).write_text(str(time.time()))
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the disk is gone")
    return read_rows(self, step, numbers, **how_to)


Text.rows = rows_of_a_failing_disk
train.main(flags)
