"""A rank: runs an example's ``main`` as each argument says; rank 0 writes what came of each run: losses, or the error.

``outcomes.py EXAMPLE OUT RUN...``. After an error that every rank raises, the ranks go on to the next run together; one
that ends the job must come last, and leaves what the runs before have written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / sys.argv[1]))

import equinox  # noqa: F401  once for all ranks, as are the next two
import jax  # noqa: F401
import optax  # noqa: F401
import train

import allranks
from allranks.errors import AllranksError

_, _, out, *runs = sys.argv
world = allranks.init()
outcomes = []
for flags in runs:
    try:
        mine = {"losses": train.main(flags.split())}
    except AllranksError as error:
        mine = {"error": type(error).__name__, "says": str(error)}
    outcomes.append(world.all_gather(mine))
    if world.is_main:
        Path(out).write_text(json.dumps(outcomes))
