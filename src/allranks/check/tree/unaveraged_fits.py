"""Keras under Horovod: ``model.fit`` measures on this process' part, unless a callback averages what it measures."""

from __future__ import annotations

import ast

from allranks.check.sources.source import File
from allranks.check.tree.origins import origins
from allranks.check.tree.syntax import calls_of, keyword

# By this callback all processes begin alike: who makes one trains with Keras under Horovod.
_BEGINS, _AVERAGES = "BroadcastGlobalVariablesCallback", "MetricAverageCallback"


def is_unaveraged(fit: ast.Call, file: File) -> bool:
    """Whether ``model.fit`` is given held-out data of this process' part, where no callback averages the metrics."""
    held_out, calls = keyword(fit, "validation_data"), calls_of(file)
    if held_out is None or _BEGINS not in calls or _AVERAGES in calls:
        return False
    return {"global", "size"} <= origins(held_out, file)
