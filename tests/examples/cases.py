"""A rank: runs an example's programs, one after the other, and rank 0 writes how each ended on every rank, as JSON.

Of each run that is for every rank ["returned", what main() returned], or [the error's name, its text]. A run behind a
"!" is made last, when all is written; what it raises ends the job.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  torch carries the world; once for all ranks, what optimizers and DDP import

import allranks
from allranks.errors import AllranksError

folder, out, *runs = sys.argv[1:]
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / folder))
world = allranks.init()


def ended(program: str, *flags: str) -> tuple[str, Any]:
    try:
        return "returned", import_module(program).main(flags)
    except AllranksError as error:
        return type(error).__name__, str(error)


found = [world.all_gather(ended(*flags.split())) for flags in runs if not flags.startswith("!")]
if world.is_main:
    Path(out).write_text(json.dumps(found))
for flags in runs:
    if flags.startswith("!"):
        program, *rest = flags[1:].split()
        import_module(program).main(rest)
