"""What one rule or another asks of a whole project, found out when it does and once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from allranks.check.sources.source import is_test, module_name, place
from allranks.check.summaries.project import Project, closed
from allranks.check.survey import feeds
from allranks.check.survey import own_parts as parts
from allranks.check.survey import several as files
from allranks.check.survey import steady as steps
from allranks.check.survey.altered import alters
from allranks.check.survey.conditions import Conditions
from allranks.check.survey.endless import is_drawn_endlessly
from allranks.check.survey.in_threads import learns_in_threads
from allranks.check.survey.launches import Launches, on_one_host, on_several_nodes
from allranks.check.survey.rounds import beginning_again
from allranks.check.survey.startup import At, Moment, moments
from allranks.check.survey.trained_by_several import trained_by_several
from allranks.check.survey.visible import sees_own_gpu
from allranks.check.tables.backend import AT_START, WATCHED
from allranks.findings import Place
from allranks.names.variables import NAMES

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
    def in_parts(self) -> bool:
        """Whether anything, also a script, speaks of what keeps a model in parts."""
        return any(_PARTS.search(raw) for raw in self._sources.values())

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
    def own_gpus(self) -> frozenset[str]:
        """Files that let each process see a GPU of its own."""
        return frozenset(path for path, lines in self.lines.items() if sees_own_gpu("\n".join(lines)))

    @cached_property
    def steady(self) -> frozenset[str]:
        """Files whose data feeds steps that are the same number for all."""
        return steps.steady(self._project)

    @cached_property
    def by_trainer(self) -> frozenset[str]:
        """Files of programs that a trainer runs as several processes, as its settings say."""
        return trained_by_several(self._project, self._sources)

    @cached_property
    def own_parts(self) -> frozenset[str]:
        """Functions of programs that deal out held-out data, where neither they nor who calls them meet the others."""
        return parts.own_parts(self._project, self.lines)

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """What programs do first: where they join, and where they set what is read once."""
        points = frozenset({"initialize", *AT_START, *NAMES["JAX_"]}) if self._jax else frozenset[str]()
        return tuple(moments(self._project, WATCHED, points | {"CUDA_VISIBLE_DEVICES"}))

    def stands(self, at: At) -> tuple[Place, str]:
        """Return where a moment of a program stands, the whole statement if it is one, and in what function."""
        lines, span = self.lines[at.path], at.span
        if span[1:] == (0, span[0], 0):
            tree = ast.parse("\n".join(lines))
            found = next((one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno == span[0]), None)
            if found is not None:
                span = (found.lineno, found.col_offset, found.end_lineno or 0, found.end_col_offset or 0)
        return place(at.path, lines, span), f"{module_name(at.path)}.{at.key}".removesuffix(".")

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
    def meeting_kinds(self) -> frozenset[str]:
        """Names of classes whose objects meet the other processes, or may."""
        return parts.meeting_kinds(self._project)

    @cached_property
    def beginning_again(self) -> frozenset[str]:
        """Files that give what is in a loader for ever."""
        return beginning_again(self._project)

    @cached_property
    def meeting_functions(self) -> frozenset[str]:
        """Names of functions that meet the other processes."""
        return parts.meeting_functions(self._project)

    def is_drawn_endlessly(self, kind: str) -> bool:
        """Whether a class of streams goes round for ever in an order that each process draws by itself."""
        return is_drawn_endlessly(self._project, kind)

    def around(self, path: str) -> frozenset[str]:
        """Return the files of the programs that a file belongs to: those that import it, and all that these import."""
        users = closed([path], self._importers)
        return frozenset(one for one in closed(users, self._project.imported) if not is_test(one))

    def learns_in_threads(self, path: str) -> bool:
        """Whether the programs that a file belongs to share out a model among threads, and nothing among processes."""
        return learns_in_threads("\n".join(self.lines[one]) for one in self.around(path))

    def uses_old_lightning(self, path: str) -> bool:
        """Whether the programs that a file belongs to are for a Lightning before 1.5."""
        return any(_BEFORE_1_5.search(line) for one in self.around(path) for line in self.lines[one])

    def around_says(self, path: str, word: str) -> bool:
        """Whether a file of the programs that a file belongs to speaks of something."""
        return any(word in line for one in self.around(path) for line in self.lines[one])

    def goes_alone(self, path: str) -> bool:
        """Whether a file belongs to programs whose processes go through their data without each other: none trains, or
        gathers; or is such a program itself, whatever else what it imports could do."""
        own = frozenset().union(*(facts.words for facts in self._project.summaries[path].functions.values()))
        if "__name__" in own and not _QUIET.isdisjoint(own) and _STEPS.isdisjoint(own):
            return not any(one != path for one in self._project.importers(path))
        around = [self._project.summaries[one].functions for one in self.around(path)]
        is_program = any("__name__" in functions[""].words for functions in around)
        meets = any(not _STEPS.isdisjoint(facts.words) for functions in around for facts in functions.values())
        return is_program and not meets

    def is_left_out(self, path: str) -> bool:
        """Whether nobody imports a file, in a project with other files that are programs."""
        files = self._project.summaries.items()
        programs = (one for one, summary in files if "__name__" in summary.functions[""].words and not is_test(one))
        return not any(one != path for one in self._project.importers(path)) and any(one != path for one in programs)

    def _importers(self, path: str) -> Iterator[str]:
        """Yield who imports a file; who imports a package need not mean that part of it."""
        return (user for user in self._project.importers(path) if not user.endswith("__init__.py"))

    def alters(self, kind: str, method: str, asked: str) -> bool:
        """Whether a method of a class of the project changes what its objects say when they are asked."""
        return alters(self._project, kind, method, asked)

    def stores(self, attribute: str, *, but: str) -> bool:
        """Whether a function of another file than this stores something in an attribute of that name."""
        files = (summary for path, summary in self._project.summaries.items() if path != but and not is_test(path))
        return any(attribute in facts.stored for summary in files for facts in summary.functions.values())

    @cached_property
    def several(self) -> frozenset[str]:
        """Files of JAX programs that ask which of several processes they are."""
        return files.several(self._project) if self._jax else frozenset()

    @cached_property
    def own_seeds(self) -> frozenset[str]:
        """Files of JAX programs that have a seed of their process."""
        return files.files_with_own_seeds(self._project, self.lines) if self._jax else frozenset()

    @cached_property
    def fed_alike(self) -> frozenset[str]:
        """Files of JAX programs that feed all processes the same as rows of their own."""
        return feeds.fed_alike(self._project, self.lines) if self._jax else frozenset()

    @cached_property
    def awaits_saves(self) -> bool:
        """Whether something may wait for saves in the background."""
        return not self._jax or files.awaits_saves(self._project, self.lines)

    @cached_property
    def cuts_state(self) -> bool:
        """Whether arrays of JAX may lie in parts of more than rows."""
        return not self._jax or files.cuts_state(self._project, self.lines)
