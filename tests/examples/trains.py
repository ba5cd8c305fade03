"""A rank: trains as each argument says, and rank 0 writes the losses of every run to the file named before them."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import allranks

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "jax_fsdp_lm")]

example, out, *runs = sys.argv[1:]
train = import_module(example)
losses = [train.main(flags.split()) for flags in runs]
if allranks.current().is_main:
    Path(out).write_text(json.dumps(losses))
