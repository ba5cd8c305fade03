"""What rules ask of the texts of a whole project, found out when they do and once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from allranks.check.sources.around import Around
from allranks.check.sources.launches import Launches, on_one_host, on_several_nodes
from allranks.check.sources.source import is_test

# How many devices a trainer is given, by which strategy, and what nobody asks for who has one.
_SEVERAL_DEVICES = re.compile(
    rb"(?i)(strategy|accelerator|distributed_backend)[\"']?\s*[=:,]\s*[\"']?(ddp|fsdp|deepspeed)"
    rb"|(ddp|fsdp|deepspeed)(strategy|plugin)|\b(devices|gpus|num_nodes)[\"']?\s*[=:]\s*[\"']?(-1|[2-9]|\[0, ?1)"
    rb"|sync_dist\s*=\s*True|\brank_zero_(only|info|warn)\b"
)


class Facts:
    """Facts about a project: the bytes of its Python files, scripts and pages (``sources``), and their ``lines``."""

    def __init__(self, sources: Mapping[str, bytes], lines: Mapping[str, list[str]]) -> None:
        self._sources = sources
        self.lines = lines
        self.launches = Launches(sources)

    @cached_property
    def one_host(self) -> bool:
        """Whether all processes that are joined were started by one on its own host."""
        return on_one_host(self._sources)

    @cached_property
    def several_nodes(self) -> bool:
        """Whether anything speaks of several nodes."""
        return on_several_nodes(self._sources)

    @cached_property
    def one_node(self) -> frozenset[str]:
        """Programs that whoever starts them says to be on one node."""
        return self.launches.on_one_node - self.launches.across_nodes

    @cached_property
    def by_trainer(self) -> frozenset[str]:
        """Files of programs that a trainer runs as several processes: those whose settings say so, and all that they
        import; where a configuration, a script or a page says so, all files."""
        found = {path for path, raw in self._sources.items() if not is_test(path) and _SEVERAL_DEVICES.search(raw)}
        programs = {path for path in self.lines if path.endswith(".py")}
        if not found <= programs:
            return frozenset(programs)
        return self._around.used_by(found)

    @cached_property
    def _around(self) -> Around:
        return Around(self.lines)

    def around(self, path: str) -> frozenset[str]:
        """Return the files of the programs that a file belongs to: those that import it, and all that these import."""
        return self._around.files(path)

    def says(self, path: str, *words: str) -> bool:
        """Return whether one of these texts is in a file of the programs that ``path`` belongs to."""
        return self._around.says(path, *words)
