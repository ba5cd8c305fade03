"""Which files belong to programs that a trainer runs as several processes, as its settings say. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from allranks.check.sources.around import closed
from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project

# How many devices a trainer is given, by which strategy, and what nobody asks for who has one.
_SETS = re.compile(
    rb"(?i)(strategy|accelerator|distributed_backend)[\"']?\s*[=:,]\s*[\"']?(ddp|fsdp|deepspeed)"
    rb"|(ddp|fsdp|deepspeed)(strategy|plugin)|\b(devices|gpus|num_nodes)[\"']?\s*[=:]\s*[\"']?(-1|[2-9]|\[0, ?1)"
    rb"|sync_dist\s*=\s*True|\brank_zero_(only|info|warn)\b"
)


def trained_by_several(project: Project, sources: Mapping[str, bytes]) -> frozenset[str]:
    """Return the files that speak of several devices, and all that they import; where a configuration, a script or a
    page does so, all files."""
    told = {path for path, raw in sources.items() if not is_test(path) and _SETS.search(raw)}
    if not told <= project.summaries.keys():
        return frozenset(project.summaries)
    return frozenset(closed(told, project.imported))
