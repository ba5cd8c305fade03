"""Which entries run as several processes: the evidence for it in what they reach, and how much that says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatch

from allranks.check.interpret.below import calls, deepest_first
from allranks.check.interpret.given import Given, has_one_device
from allranks.check.interpret.interest import deals
from allranks.check.interpret.registered import is_route
from allranks.check.interpret.state import Result
from allranks.check.interpret.statements import Interpreter
from allranks.check.program import Step
from allranks.check.sources.around import closed
from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project
from allranks.check.survey.alone import is_apart, is_tool, only_looks, uses_model
from allranks.check.tables.evidence import TRAINERS, is_hooked
from allranks.check.tables.names import documented
from allranks.check.tables.receivers import WITH_TRAINERS

_STRONG = frozenset({"initialise", "wrap", "sample"})
_INTERFACES = ("gradio", "streamlit")
_STARTERS = ("lightning", "pytorch_lightning", "catalyst", "ray")
# Whoever names one of these thinks of other processes.
_OF_OTHERS = re.compile(
    r"(?i)(^|_)rank(_|$)|world_|process_index|distributed|deepspeed|fsdp|ddp|main_process|n_gpu|device_count|should_save|zero_?3|accelerat|nproc"
)
# The same of a program that has Accelerate.
_ASKS = re.compile(
    r"(?i)^(global_|local_|node_|dist_|get_)?rank$|world_|main_process|process_index|(num|on|split_between)_\w*process"
    r"|distributed|deepspeed|fsdp|(^|_)ddp(_|$)|unwrap|gather|reduce|wait_for_everyone|nproc|device_count|n_gpu|num_gpu"
    r"|init_trackers|save_state"
)
_LAUNCH, _JOIN, _MEET = "<launch>", "<join>", "<meet>"  # no file's name
# Methods of such classes that a framework calls, or that the constructor's caller does.
_HOOK = re.compile(
    r"(write_)?on_\w+|(before|after)_\w+|init|run_event|log_\w+|\w+_start|\w+_step|\w+_dataloader|\w+_epoch_(start|end)|\w+_end|configure_\w+|__init__|setup|teardown|forward|train"
    r"|compute_loss|evaluate|predict|log|(evaluation|prediction)_loop|\w+_checkpoint|save_model|_save\w*|_load\w*|_inner_training_loop|get_\w+_dataloader"
)


class Activity:
    """What the entries of an interpreted project show. ``everywhere``: the user says that all of them are several;
    ``alone``, ``together``: programs that scripts start as one process each, or as several (`launches`)."""

    def __init__(
        self,
        project: Project,
        interpreter: Interpreter,
        *,
        everywhere: bool,
        entries: tuple[str, ...],
        alone: frozenset[str],
        together: frozenset[str] = frozenset(),
    ) -> None:
        self.project = project
        self.interpreter = interpreter
        self.everywhere = everywhere
        self.entries = entries
        self.alone = alone
        self.together = together
        self.parts: set[str] = set()  # files that ask for the rank, where what joins the processes is out of sight
        self.several: set[str] = set()  # classes of which objects are made for several processes
        self.single: frozenset[str] = frozenset()  # files of which the trainers start no other process
        self._known: dict[int, frozenset[str]] = {}

    def active(self, roots: Iterable[Result]) -> list[Result]:
        """Return the entries for which there is evidence, in themselves or in what belongs to their class."""
        every = list(roots)
        if not any(self._shown(root) & {"", _LAUNCH, _JOIN} for root in every):
            self.parts = {root.path for root in every if root.path in self._shown(root)}
        self.single = self._of_one_device([*self.interpreter.results.values(), *every])
        makers = [made for made in self.interpreter.results.values() if made.reference.endswith(".__init__")]
        self.several = {self._owner(maker) for maker in makers if "" in self._shown(maker)}
        families: dict[str, list[Result]] = {}
        for root in every:
            families.setdefault(self._family(root), []).append(root)
        return [root for root in every if self._is_active(root, families)]

    def is_sure(self, root: Result) -> bool:
        """Whether somebody is known to run an entry in several processes: it joins them, it is a program, a framework
        calls it, it meets others and its class is made for that, or its file asks for the rank and nothing that was
        read joins processes. A program of JAX that only asks for its rank is mostly run alone, on all devices of a
        host; a program of torch is alone where scripts start it so, and it starts no processes itself, and may well be
        where a trainer of transformers is all that it has of others.
        """
        if self.everywhere:
            return True
        facts, shown = self.project.function(root.reference), self._shown(root)
        if facts is not None and facts.name:
            is_part = root.path in self.parts and not self._is_of_jax(root.path) and not self._is_extra(root)
            return "" in shown or is_part or self._is_hook(root) or (_MEET in shown and self._is_of_several(root))
        if self._is_launched(root):
            return True
        of_jax = any(map(self._is_of_jax, shown))
        if root.path in self.alone and _LAUNCH not in shown and not of_jax and not self._may_start(root.path):
            return False
        if self._only_accelerates(root):
            return False
        return not self._only_trains(root) and (not of_jax or bool(shown & {"", _LAUNCH, _JOIN, _MEET}))

    def only_looks(self, root: Result, at: Result, chain: Iterable[Step]) -> bool:
        """Whether a program, by its name, evaluates or prepares something, and nothing starts several processes of it:
        its authors mostly start one. So it is with one that calls the main function of such a program, on its way
        (``chain``) to where something is done (``at``)."""
        spared = self.everywhere or self._is_launched(root) or _LAUNCH in self._shown(root)
        mains = [step.place.path for step in chain if step.symbol.endswith(".main")]
        mains += [at.path] if at.reference.endswith("::main") else []
        looks = only_looks(root.path) or any(path != root.path and only_looks(path) for path in mains)
        return root.reference.endswith(("::", "::main")) and looks and not spared

    def _only_trains(self, root: Result) -> bool:
        """Whether all that a program has of other processes is the trainer of transformers, which works alone as well,
        and it speaks of none."""
        summary = self.project.summaries.get(root.path)
        if summary is None or self._shown(root) - {root.path, _MEET} or not any(map(summary.uses, WITH_TRAINERS)):
            return False
        return not any(_OF_OTHERS.search(word) for facts in summary.functions.values() for word in facts.words)

    def _only_accelerates(self, root: Result) -> bool:
        """Whether all that a program has of other processes is Accelerate, which works alone as well, say for its mixed
        precision: it neither asks who it is, nor meets the others, nor takes the model out again."""
        summary = self.project.summaries.get(root.path)
        if summary is None or not summary.uses("accelerate"):
            return False
        below = (one for one in deepest_first(root, ()) if one.path != root.path)
        if any(one.evidence & (_STRONG | {"launch", "rank", "collective"}) for one in below):
            return False
        return not any(_ASKS.search(word) for facts in summary.functions.values() for word in facts.words)

    def is_alone(self, root: Result) -> bool:
        """Whether one process runs an entry: a tool, an interface for people, or what only shows that it can tell its
        rank."""
        facts = self.project.function(root.reference)
        route = facts is not None and is_route(facts.decorators)
        apart = route or (is_apart(root.reference) and "" not in self._shown(root))
        shows = any(map(self._shows_people, self._begins(root)))
        spared = self.everywhere or self._is_launched(root) or self._is_hook(root)
        other = is_tool(root.reference) or self._borrows(root) or self._declines(root)
        return (apart or shows or other) and not spared

    def _of_one_device(self, results: Collection[Result]) -> frozenset[str]:
        """Return the programs that nobody imports of which each trainer is given one device: what it calls back there
        is called in one process."""
        alone = {one.path for one in results if "alone" in one.evidence}
        made = ((one.path, seen) for one in results if one.path in alone for seen in one.seen if seen.name in TRAINERS)
        others = {path for path, seen in made if not has_one_device(Given(seen.arguments, seen.keywords, ()))}
        others |= {one.path for one in results if one.evidence & (_STRONG | {"launch"})}
        return frozenset(path for path in alone - others if not self.project.importers(path).keys() - {path})

    def _shows_people(self, path: str) -> bool:
        summary = self.project.summaries.get(path)
        return summary is not None and any(map(summary.uses, _INTERFACES))

    def _begins(self, root: Result) -> set[str]:
        """Return the file of an entry, and those of what a program calls first: its main function, and what that
        calls."""
        if not root.reference.endswith("::"):
            return {root.path}
        first = list(calls(root))
        return {root.path, *(one.path for one in first), *(below.path for one in first for below in calls(one))}

    def _borrows(self, root: Result) -> bool:
        """Whether a program that uses a model, by its name, has all that joins processes from another program, which
        trains it."""
        if not root.reference.endswith("::") or not uses_model(root.path):
            return False

        def own(result: Result) -> Iterator[Result]:
            return (one for one in calls(result) if one.path == root.path or not self.project.is_program(one.path))

        joins = _STRONG | {"launch"}
        if any(one.evidence & joins or (one.path == root.path and one.several) for one in deepest_first(root, (), own)):
            return False
        return any(one.evidence & joins for one in deepest_first(root, ()))

    def _declines(self, root: Result) -> bool:
        """Whether a program calls a function that joins processes as one that is alone, and joins none elsewhere, nor
        starts any."""
        if not root.reference.endswith("::") or self._shown(root) & {_JOIN, _LAUNCH}:
            return False
        alone = (called.result.reference for one in deepest_first(root, ()) for called in one.calls if called.alone)
        functions = map(self.project.function, alone)
        return any(facts is not None and "init_process_group" in facts.words for facts in functions)

    def _is_launched(self, root: Result) -> bool:
        """Whether it is a program of which a launcher starts several processes."""
        return root.reference.endswith("::") and root.path in self.together

    def _owner(self, root: Result) -> str:
        facts = self.project.function(root.reference)
        return f"{root.path}::{facts.owner}" if facts is not None and facts.owner else ""

    def _is_of_several(self, root: Result) -> bool:
        """Whether it is a method of objects that are made for several processes."""
        owner = self._owner(root)
        return bool(owner) and not self.several.isdisjoint(self.interpreter.lineage(owner))

    def _is_hook(self, root: Result) -> bool:
        """Whether a framework calls it on every process."""
        owner = self._owner(root)
        return bool(owner and _HOOK.fullmatch(root.reference.rpartition(".")[2]) and self._is_hooked(owner))

    def _is_extra(self, root: Result) -> bool:
        """Whether it is a method of a class of Lightning's that no hook is, and that shows nothing of others: whoever
        has a model calls it, before the training or after it."""
        owner, facts = self._owner(root), self.project.function(root.reference)
        hidden = facts is not None and facts.name.startswith("_")
        return bool(owner and self._is_hooked(owner) and not (hidden or self._is_hook(root) or self._shown(root)))

    def is_started(self, root: Result) -> bool:
        """Whether an entry joins processes, or starts them, or meets them itself."""
        return self._is_launched(root) or bool(self._shown(root) & {"", _LAUNCH}) or "collective" in root.evidence

    def started(self, roots: Iterable[Result], active: Iterable[Result]) -> set[str]:
        """Return the modules that are imported where several processes run for certain."""
        shows = {id(root) for root in active}
        certain = (
            root
            for root in roots
            if _LAUNCH in self._shown(root)
            or (id(root) in shows and (self._is_launched(root) or "" in self._shown(root)))
        )
        return closed((path for root in certain for path in self._imported(root.path)), self._imported)

    def _imported(self, path: str) -> list[str]:
        return [imported for imported in self.project.imported(path) if not self.left_out(imported)]

    def left_out(self, path: str) -> bool:
        """Tests, and what is not one of the entries that the user names."""
        if self.entries and not any(fnmatch(path, entry) for entry in self.entries):
            return True
        return is_test(path)

    def _is_active(self, root: Result, families: Mapping[str, list[Result]]) -> bool:
        if self.everywhere:
            return True
        path = root.path
        if self.left_out(path) or self.is_alone(root):
            return False
        if self._evidence(root, path) or self._is_launched(root):
            return True
        owner = self._owner(root)
        if not owner:
            return False
        if self._is_hooked(owner):
            return path not in self.single
        family = self.interpreter.family(owner)
        return any(self._evidence(other, path) for other in families.get(family, ()))

    def _may_start(self, path: str) -> bool:
        """Whether a program uses a package that starts the other processes itself."""
        summaries = (self.project.summaries.get(below) for below in closed([path], self._imported))
        return any(summary is not None and any(map(summary.uses, _STARTERS)) for summary in summaries)

    def _is_of_jax(self, path: str) -> bool:
        summary = self.project.summaries.get(path)
        return summary is not None and summary.uses("jax")

    def _is_hooked(self, owner: str) -> bool:
        return any(is_hooked(documented(kin)) for kin in self.interpreter.lineage(owner))

    def _family(self, root: Result) -> str:
        owner = self._owner(root)
        return self.interpreter.family(owner) if owner else ""

    def _evidence(self, result: Result, path: str) -> bool:
        """Whether it, or what it calls, shows several processes; a mere rank query counts in the entry's file only."""
        return bool(self._shown(result) & {path, ""})

    def _shown(self, start: Result) -> frozenset[str]:
        """Return the files in which evidence is reached; the empty name stands for evidence that counts everywhere.

        What processes do that are started, or a process alone, shows nothing of who calls them.
        """
        for result in deepest_first(start, self._known):
            shown = self._own(result)
            for called in result.calls:
                if not (called.started or called.alone):
                    below = self._known.get(id(called.result))  # a nested function may call the one around it
                    below = self._own(called.result) if below is None else below
                    shown |= below if not called.ready or _JOIN in below else below & {_LAUNCH}
            self._known[id(result)] = shown
        return self._known[id(start)]

    def _own(self, result: Result) -> frozenset[str]:
        """Return the same of what a function does itself."""
        own = {result.path} if result.several else set()
        dealt = "rank" in result.evidence and deals(self.project.function(result.reference))
        own |= {""} if result.evidence & _STRONG or dealt else set()
        own |= {_LAUNCH} if "launch" in result.evidence else set()
        own |= {_JOIN} if "initialise" in result.evidence else set()
        own |= {_MEET} if "collective" in result.evidence else set()
        return frozenset(own)
