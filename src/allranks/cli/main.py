"""The command ``allranks``: one file a sub-command, each imported only when it is called."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="allranks", description=__doc__)
    parser.parse_args(argv)
    return 0
