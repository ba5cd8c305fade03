"""Print a readiness report of ``doctor`` or ``preflight``: a table on stdout, or one JSON document."""

from __future__ import annotations

import json
import os
import shutil
import sys

from allranks.report.ink import make_painter
from allranks.report.readiness import WIDTH, Readiness


def show_readiness(found: Readiness, tool: str, *, as_json: bool) -> None:
    """Print the report of ``tool``, at most as wide as the terminal.

    Colours are used on a terminal without NO_COLOR.
    """
    if as_json:
        print(json.dumps(found.document(tool), indent=1))
        return
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal or "COLUMNS" in os.environ else WIDTH
    print(found.text(make_painter(on_terminal and "NO_COLOR" not in os.environ), width=min(width, WIDTH)))
