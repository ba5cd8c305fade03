"""Implement ``allranks preflight``: check every rank before a program starts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from allranks.cli.command_parser import CommandParser
from allranks.cli.local_path import local_path

DESCRIPTION = """\
Check on every rank, before the program starts, that it can: the same files, versions, environment and devices
everywhere, flags that XLA knows, no variable that nothing reads, a batch that can be cut. Start it as the program
will be started; alone it looks at this machine."""
EPILOG = """\
examples:
  allranks preflight train.py --batch 256
  srun -N 16 allranks preflight train.py --batch 4096 --accumulation 2
  allranks run -n 4 -d 2 -- allranks preflight train.py --batch 64

The exit code is 0 if there is no error, 1 if there is one, 2 for a wrong command line; of several ranks, rank 0 prints
the table and has it.
In the program, allranks.preflight(world, ...) checks its data, keys and configuration too."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``allranks preflight``."""
    p = CommandParser(
        prog="allranks preflight",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "program", nargs="?", type=local_path, help="a script (with what it imports) or folder: files to compare"
    )
    p.add_argument("--batch", type=int, metavar="ROWS", help="rows of a global batch")
    p.add_argument("--accumulation", type=int, default=1, metavar="K", help="accumulation steps (default 1)")
    p.add_argument("--backend", choices=("jax", "torch", "single"), help="what carries the world (as allranks.init)")
    p.add_argument("--json", action="store_true", help="one JSON document instead of text")
    return p


def main(argv: Sequence[str]) -> int:
    """Run ``allranks preflight`` with these arguments; return its exit code."""
    p = parser()
    arguments = p.parse_args(argv)
    if arguments.program is not None and not arguments.program.exists():
        p.error(f"no such file or folder: {arguments.program}")
    from allranks.cli.verdicts import show_readiness
    from allranks.errors import AllranksError
    from allranks.readiness.code import program_files
    from allranks.readiness.preflight import examine_files
    from allranks.world.detect import init

    try:
        world = init(arguments.backend)
        files = program_files(arguments.program) if arguments.program else []
        found = examine_files(world, files, batch=arguments.batch, accumulation=arguments.accumulation)
    except AllranksError as error:
        print(f"allranks: {error}", file=sys.stderr)
        return 2
    if not world.is_main:
        return 0  # otherwise a launcher would end the job before rank 0 has printed the table
    show_readiness(found, p.prog, as_json=arguments.json)
    return 1 if found.errors else 0
