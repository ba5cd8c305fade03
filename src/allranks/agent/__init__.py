"""Load the modules of the agent. The agent reports to the launcher how a rank ends, before anything can hang.

The modules import nothing of allranks, and import each other by plain names: `allranks run` puts this folder on the
path of ranks whose Python may not have allranks. A process has one copy of each module, whoever imported it first.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


def load(name: str = "allranks_agent") -> ModuleType:
    """Import and return one of the agent's modules: the same copy that a rank of `allranks run` uses."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
