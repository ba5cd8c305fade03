"""A rank: runs an example's programs, one after the other, and rank 0 writes how each ended on every rank, as JSON.

Of each run that is for every rank ["returned", what main() returned], or [the error's name, its text].
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch  # noqa: F401  so that it carries the world

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


found = [world.all_gather(ended(*flags.split())) for flags in runs]
if world.is_main:
    Path(out).write_text(json.dumps(found))
