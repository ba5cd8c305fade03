"""What one rule or another asks of a whole project, found out when it does and once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from allranks.check.sources.around import Around
from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project
from allranks.check.survey.conditions import Conditions
from allranks.check.survey.launches import Launches, on_one_host, on_several_nodes
from allranks.check.survey.trained_by_several import trained_by_several

_STARTS = re.compile(r"\b(spawn|start_processes|Process|launch\w*|Trainer|Fabric)\(")
_PARTS = re.compile(rb"(?i)fsdp|fully_?shard|deepspeed|zero_?stage|zero3")
# Words of a program whose processes wait for each other round by round.
_STEPS = frozenset(
    [
        *("backward", "fit", "train", "train_step", "training_step", "Trainer", "grad", "value_and_grad", "optim"),
        *("optimizer", "apply_gradients", "apply_updates", "prepare", "pmean", "psum", "pmap", "all_reduce"),
        *("all_gather", "all_gather_object", "gather", "gather_for_metrics", "gather_object", "process_allgather"),
        *("allreduce", "allgather", "Allreduce", "FullyShardedDataParallel", "FSDP", "fully_shard"),
    ]
)
# An option of Lightning's Trainer that 1.5 has taken away.
_BEFORE_1_5 = re.compile(r"distributed_backend[\"']?\]?\s*[=:]\s*[\"'](ddp|dp)")
# Who says so goes through data to look at it.
_QUIET = frozenset({"no_grad", "inference_mode"})


class Facts:
    """Facts about a project: its Python files as ``project``, the bytes of these and its scripts (``sources``), its
    ``lines``, and the ``conditions`` in them. ``jax``: whether any of its files imports JAX;
    ``launches``: how its programs are started."""

    def __init__(
        self,
        project: Project,
        sources: Mapping[str, bytes],
        conditions: Conditions,
        lines: Mapping[str, list[str]],
        *,
        jax: bool,
        launches: Launches,
    ) -> None:
        self._launches = launches
        self._project = project
        self._sources = sources
        self.conditions = conditions
        self.lines = lines
        self._jax = jax

    @cached_property
    def one_host(self) -> bool:
        """Whether all processes that are joined were started by one on its own host."""
        return on_one_host(self._sources)

    @cached_property
    def several_nodes(self) -> bool:
        """Whether anything speaks of several nodes."""
        return on_several_nodes(self._sources)

    @property
    def across_nodes(self) -> frozenset[str]:
        """Programs that a script or a page starts on several nodes."""
        return self._launches.across_nodes

    @cached_property
    def one_node(self) -> frozenset[str]:
        """Programs that whoever starts them says to be on one node."""
        return self._launches.on_one_node - self.across_nodes

    @cached_property
    def by_trainer(self) -> frozenset[str]:
        """Files of programs that a trainer runs as several processes, as its settings say."""
        return trained_by_several(self._project, self._sources)

    def starts_alone(self, path: str) -> bool:
        """Whether the scripts start a program of torch as one process, and it starts no others itself."""
        if path not in self._launches.alone or _STARTS.search("\n".join(self.lines[path])):
            return False
        return not self._project.summaries[path].uses("jax")

    def is_of_jax(self, path: str) -> bool:
        """Whether a program computes with JAX, and not with torch: mostly one process on each host."""
        summary = self._project.summaries.get(path)
        return summary is not None and summary.uses("jax") and not summary.uses("torch")

    def imported_by(self, path: str) -> frozenset[str]:
        """Return the files of which a program is made: what it imports, and what that imports."""
        return self._project.reach(path)

    def nobody_calls(self, symbol: str, path: str = "") -> bool:
        """Whether the name of a function stands nowhere in the project but where it is defined; if it is said in what
        file, nowhere there or in what imports that."""
        name = symbol.rpartition(".")[2]
        word = re.compile(rf"\b{re.escape(name)}\b")
        files = {path, *self._project.importers(path)} if path else {one for one in self.lines if not is_test(one)}
        spoken = (line.partition("#")[0] for one in files for line in self.lines[one] if name in line)
        return sum(len(word.findall(line)) for line in spoken) == 1

    @cached_property
    def _around(self) -> Around:
        return Around(self.lines)

    def around(self, path: str) -> frozenset[str]:
        """Return the files of the programs that a file belongs to: those that import it, and all that these import."""
        return self._around.files(path)

    def says(self, path: str, *words: str) -> bool:
        """Return whether one of these texts is in a file of the programs that ``path`` belongs to."""
        return self._around.says(path, *words)

    def uses_old_lightning(self, path: str) -> bool:
        """Whether the programs that a file belongs to are for a Lightning before 1.5."""
        return any(_BEFORE_1_5.search(line) for one in self.around(path) for line in self.lines[one])

    def is_left_out(self, path: str) -> bool:
        """Whether nobody imports a file, in a project with other files that are programs."""
        files = self._project.summaries.items()
        programs = (one for one, summary in files if "__name__" in summary.functions[""].words and not is_test(one))
        return not any(one != path for one in self._project.importers(path)) and any(one != path for one in programs)
