"""Metrics as objects, which gather what all processes have seen before they say how it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from allranks.check.interpret.given import Given
from allranks.check.interpret.values import Value
from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.tables.receivers import BASES

Lineage: TypeAlias = Callable[[str], tuple[str, ...]]  # of a class: itself and what it inherits

METRIC = "torchmetrics.Metric"
_PACKAGE = METRIC.partition(".")[0]
# What is computed of this process alone: times, and what is put off until it is asked for.
_OTHERS = re.compile(r"(?i)time|throughput|speed|monitor|flops|lazy|dask|ddf|delayed|super\(")
_ALONE = b"sync_on_compute"  # metrics may be told to stay by themselves


def is_metric(project: Project, path: str, lineage: Lineage, base: Value, given: Given) -> bool:
    """Whether ``.compute()`` is asked of a metric: of a class that is made of one, or, where nothing is known of the
    object, in a file that imports metrics."""
    summary = project.summaries[path]
    if given.all() or any(_ALONE in facts.body for facts in summary.functions.values()):
        return False
    if base.instance:
        return "::" in base.instance and _descends(lineage(base.instance))
    if base.reference or base.elements or _OTHERS.search(render(given.node[1])):
        return False
    return any(_brings_metrics(project, path, dotted, lineage) for dotted, _ in summary.imports)


def _brings_metrics(project: Project, path: str, dotted: str, lineage: Lineage) -> bool:
    if dotted.partition(".")[0] == _PACKAGE:
        return True
    found = project.split(dotted, path)
    return found is not None and len(found[1]) == 1 and _descends(lineage(f"{found[0]}::{found[1][0]}"))


def _descends(line: tuple[str, ...]) -> bool:
    return any(BASES.get(one.partition(".")[0]) == METRIC for one in line)
