"""Metric objects of torcheval, which count what their own process has seen until somebody asks its toolkit."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import distributed, name_of, rank_guard

_SYNCED = ("sync_and_compute", "get_synced", "toolkit", "all_gather", "gather_object")


def counts_alone(compute: ast.Call, file: File) -> bool:
    """Whether ``metric.compute()`` gives what this process has counted, in a file of several that never syncs it."""
    if "torcheval" not in file.text or not isinstance(compute.func, ast.Attribute) or not distributed(file):
        return False
    if any(word in file.text for word in _SYNCED) or rank_guard(compute, file) is not None:
        return False
    made = (one for one in values(compute.func.value, file) if isinstance(one, ast.Call))
    return any(name_of(one, file).startswith("torcheval.metrics.") for one in made)
