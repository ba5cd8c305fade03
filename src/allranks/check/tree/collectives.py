"""Which calls in one file are collectives, by the tables."""

from __future__ import annotations

import ast

from allranks.check.knowledge.tables import Collective, load
from allranks.check.sources.source import File
from allranks.check.tree.syntax import name_of, tail_of


def collective(call: ast.Call, file: File) -> Collective | None:
    """Return the row of the collective that a call is by its name; None for other calls, and for what waits for others
    without its name saying so."""
    tables = load().collectives["call"]
    dotted = name_of(call, file)
    found = tables.get(dotted)
    if found is None and isinstance(call.func, ast.Attribute) and not _is_of_library(dotted):
        found = tables.get(f"*.{tail_of(call)}")
    return found if found is not None and not found.hidden else None


def _is_of_library(dotted: str) -> bool:
    return dotted.startswith(("torch.", "jax.", "numpy.", "os."))
