"""Activate the agent at the start of every Python of a rank, after the sitecustomize that would otherwise be imported.

Python imports one `sitecustomize`, the first on its path, and the launcher puts this folder first. An exception in the
other one is shown as Python would show it, after the agent is active.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def run_the_next_one() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec(__name__, [folder for folder in sys.path if os.path.abspath(folder) != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


try:
    run_the_next_one()
finally:
    # The rank's first Python reports for it. Those it starts find its pid and stay silent; one it execs is itself.
    if "ALLRANKS_CONTROL" in os.environ and os.environ.get("ALLRANKS_AGENT_PID") in (None, str(os.getpid())):
        from allranks_agent import activate_at_start  # type: ignore[import-not-found]

        activate_at_start()
