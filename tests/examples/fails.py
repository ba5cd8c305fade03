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

import allranks
from allranks.data.step_chunks import SampleDecoder

how, when, *flags = sys.argv[1:]
decode, asked = SampleDecoder.decode_samples, count()
CHUNK = 5  # after 1, 2, 4, 8 and 16 steps


def decode_from_a_failing_disk(self: SampleDecoder, *places: Any) -> Any:
    if allranks.current().rank == 2 and next(asked) == CHUNK:
        Path(when).write_text(str(time.time()))
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the disk is gone")
    return decode(self, *places)


SampleDecoder.decode_samples = decode_from_a_failing_disk
train.main(flags)
