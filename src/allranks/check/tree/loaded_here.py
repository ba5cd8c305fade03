"""Data sets of a class that the file of the class loads itself, in the order in which they number their samples."""

from __future__ import annotations

import ast

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import reached
from allranks.check.tree.syntax import calls_of, given, keyword, tail_of

_DRAWS = ("sampler", "batch_sampler")


def is_loaded_here(kind: str, file: File) -> bool:
    """Whether this file gives what it makes of the class ``kind`` to loaders, none of which is given a sampler."""
    loaders = [call for call in calls_of(file).get("DataLoader", ()) if _is_over(kind, call, file)]
    return bool(loaders) and not any(keyword(call, word) is not None for call in loaders for word in _DRAWS)


def _is_over(kind: str, loader: ast.Call, file: File) -> bool:
    data = given(loader, 0, "dataset")
    parts = (part for at in reached(data, file) for part in walk(at)) if data is not None else ()
    return any(isinstance(part, ast.Call) and tail_of(part) == kind for part in parts)
