"""A rank: trains as each argument says, and rank 0 writes the losses of every run to the file named first."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "jax_fsdp_lm"))

import train

import allranks

out, *runs = sys.argv[1:]
losses = [train.main(flags.split()) for flags in runs]
if allranks.current().is_main:
    Path(out).write_text(json.dumps(losses))
