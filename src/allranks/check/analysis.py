"""A project run for four ranks: its entries, what each reaches, where ranks part. What the rules ask."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeAlias

from allranks.check.knowledge.tables import Knowledge, load
from allranks.check.project.modules import Modules
from allranks.check.simulate.simulator import Simulator
from allranks.check.simulate.values import EVERY, FILES, SEEN, Class, Function, ModuleObject, Value
from allranks.check.sources.source import is_test
from allranks.check.traces.compare import Divergence, compare
from allranks.check.traces.nodes import Result
from allranks.check.traces.walk import Reach, walk

Kind: TypeAlias = Literal["program", "function", "hook", "method"]
_FIRST = 0b0001
_STRONG = frozenset(["sign initialise", "sign wrap", "sign sample"])
_FEW, _SHORT = 2, 6  # a name that more functions have, or a shorter one, says nothing of what is called
_WORD = re.compile(r"[A-Za-z_]\w*")
_SEEDS = re.compile(r"\b(seed_everything|set_seed|manual_seed|random\.seed|seed_all|set_random_seed|fix_seed)\s*\(")
_SHARDS = re.compile(r"fsdp|fully_?shard|deepspeed|zero_?stage|zero3|DTensor|distribute_tensor", re.IGNORECASE)
# Methods that a framework calls on every process, by their names.
_HOOK = re.compile(
    r"(write_)?on_\w+|(before|after)_\w+|\w+_start|\w+_step|\w+_dataloader|\w+_end|configure_\w+|setup|teardown|forward"
    r"|compute_loss|evaluate|predict|log|(evaluation|prediction)_loop|\w+_checkpoint|save_model|_save\w*|_load\w*"
)


@dataclass(slots=True, eq=False)
class Root:
    """Where a run begins: a program, a function that nobody calls, a method that a framework calls (a hook), or another
    method that nobody calls of an object that programs make: who made it will have it called.

    ``makers``: those programs, and the roles that make it.
    ``active``: something on its way shows that it runs as several processes. ``sure``: it is known to run so; else what
    it does has low confidence. ``starts``: it starts the processes itself; what it does beside is done by one.
    ``by_trainer``: nothing but a Trainer starts the other processes, which then run the program from its beginning.
    """

    result: Result
    kind: Kind
    reached: list[Reach] = field(default_factory=list)
    parted: list[Divergence] = field(default_factory=list)
    signs: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()  # how it asks for its rank
    active: bool = False
    sure: bool = False
    starts: bool = False
    by_trainer: bool = False
    named: bool = True  # its name is used somewhere
    born: Result | None = None  # what the constructor of its object does
    makers: Mapping[str, int] = field(default_factory=dict)

    def is_shared(self, reach: Reach) -> bool:
        """Return whether a call that it reaches is made in several processes, as far as anything shows."""
        return self.active and (reach.started or not self.starts)

    def finds_done(self, reach: Reach) -> bool:
        """Return whether the first process has done it before the others are started, and they find that."""
        return self.by_trainer and reach.collectives == 0 and bool(reach.under & (FILES | SEEN))


@dataclass(frozen=True, slots=True)
class Starts:
    """How programs are started. ``together``, ``alone``: those that the project's scripts start as several processes,
    or as one. ``nodes``: something in the project mentions several nodes. ``everywhere``: the user says that everything
    runs as several processes. ``entries``: files that the user says are started."""

    together: Collection[str] = ()
    alone: Collection[str] = ()
    nodes: bool = True
    everywhere: bool = False
    entries: Collection[str] = ()

    def judge(self, root: Root, knowledge: Knowledge, programs: Mapping[str, Root]) -> None:
        """Say of an entry whether it runs as several processes. ``programs``: those that were judged before."""
        strong = bool(root.signs & _STRONG)
        root.active = self.everywhere or strong or bool(root.signs & {"sign rank", "collective"})
        if root.kind == "hook":
            root.sure = root.active = True
        elif root.kind == "method":
            makers = [programs[path] for path in root.makers if path in programs]
            root.active = root.active or any(maker.active for maker in makers)
            root.sure = root.named and (strong or any(maker.sure for maker in makers))
        elif root.kind == "function":
            root.sure = self.everywhere or (strong and root.named)
        elif self.everywhere or root.result.path in self.together:
            root.sure = root.active = True
        else:
            asks_torch = "sign rank" in root.signs and not all(name.startswith("jax.") for name in root.asks)
            root.sure = root.active and (strong or "collective" in root.signs or asks_torch)
            if root.result.path in self.alone and "sign launch" not in root.signs:
                root.sure = False
            root.sure = root.sure and not _is_run_once(root.result.path, knowledge)


def _signs(reached: Iterable[Reach]) -> frozenset[str]:
    return frozenset(one.call.kind for one in reached if one.call.kind.startswith(("sign ", "collective")))


def _is_started(reach: Reach) -> bool:
    """Whether it is a call of one of several processes that the program has started."""
    return reach.started and reach.call.kind in ("sign initialise", "sign wrap", "collective")


def _is_by_trainer(root: Root) -> bool:
    first = next((reach.call.name for reach in root.reached if reach.call.kind == "collective"), "")
    return first.startswith("lightning.pytorch.Trainer.") and not root.signs & _STRONG


def _is_run_once(path: str, knowledge: Knowledge) -> bool:
    """Whether a program, by its name, converts something or looks at something: mostly one process does that."""
    name = path.rpartition("/")[2].removesuffix(".py")
    looks = knowledge.says("looks", name) and not knowledge.says("trains", name)
    return looks or knowledge.says("tool", path.removesuffix(".py"))


@dataclass(slots=True, eq=False)
class Analysis:
    """All that was found out. ``unfollowed``: calls of programs that lead nowhere, by their place."""

    roots: list[Root]
    simulator: Simulator
    trees: Mapping[str, ast.Module]
    starts: Starts

    def is_run_once(self, reach: Reach) -> bool:
        """Return whether a call is made in a function, or below one, for which mostly one process is started."""
        says = self.simulator.knowledge.says
        names = [symbol.rpartition(".")[2] for symbol in (*(step[0] for step in reach.chain[1:]), reach.call.symbol)]
        return any(says("once", name) and not says("trains", name) for name in names)

    def reached(self, *kinds: str) -> Iterator[tuple[Root, Reach]]:
        """Yield what is reached of these kinds, each place once: the surest way to it."""
        best: dict[tuple[str, tuple[int, int, int, int], str], tuple[tuple[int, ...], Root, Reach]] = {}
        for root in self.roots:
            for reach in root.reached:
                if kinds and reach.call.kind not in kinds:
                    continue
                key = (reach.call.path, reach.call.span, reach.call.name)
                shared = root.is_shared(reach)
                clear = shared and reach.everyone and not reach.ordered
                rank = (clear, shared, root.sure, reach.certain.bit_count(), not reach.ordered)
                if key not in best or rank > best[key][0]:
                    best[key] = (rank, root, reach)
        yield from ((root, reach) for _, root, reach in best.values())


def analyse(
    trees: Mapping[str, ast.Module],
    texts: Mapping[str, str],
    *,
    starts: Starts | None = None,
    watched: Collection[str] = (),
    knowledge: Knowledge | None = None,
) -> Analysis:
    """Run the files of a project. ``watched``: functions that rules ask about, beside those of the tables."""
    knowledge, starts = knowledge or load(), starts or Starts()
    shards = any(_SHARDS.search(text) for text in texts.values())
    seeded = any(_SEEDS.search(text) for text in texts.values())
    modules = Modules.of(trees, installed=knowledge.installed)
    simulator = Simulator(trees, modules, knowledge, watched=watched, shards=shards, seeded=seeded)
    roots = [Root(simulator.run_program(path), "program") for path in _programs(trees, modules, starts.entries)]
    roots += _rest(simulator, trees, texts)
    programs: dict[str, Root] = {}
    signs_of = cache(lambda result: _signs(walk(result)))  # the methods of a class share one constructor
    for root in roots:
        root.reached = walk(root.result)
        root.parted = compare(root.result)
        root.signs = _signs(root.reached) | (signs_of(root.born) if root.born is not None else frozenset())
        root.starts = root.result.path not in starts.together and any(map(_is_started, root.reached))
        root.by_trainer = root.result.path not in starts.together and _is_by_trainer(root)
        root.asks = frozenset(reach.call.name for reach in root.reached if reach.call.kind == "sign rank")
        starts.judge(root, knowledge, programs)
        if root.kind == "program":
            programs[root.result.path] = root
    return Analysis(roots, simulator, trees, starts)


def _programs(trees: Mapping[str, ast.Module], modules: Modules, entries: Collection[str]) -> Iterator[str]:
    """Yield the files that are started: they have a main guard, or do something and nobody imports them."""
    imported: set[str] = set()
    for path, tree in trees.items():
        for node in tree.body:
            for dotted in _imports(node):
                if (found := modules.find(dotted, path)) is not None:
                    imported.add(found)
    for path, tree in trees.items():
        if is_test(path) and path not in entries:
            continue
        if (
            path in entries
            or _has_guard(tree)
            or path.endswith("__main__.py")
            or (path not in imported and not path.endswith("__init__.py") and any(map(_acts, tree.body)))
        ):
            yield path


def _imports(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        yield base
        joint = "" if base.endswith(".") or not base else "."
        yield from (f"{base}{joint}{alias.name}" for alias in node.names)


def _has_guard(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
        for node in tree.body
    )


def _acts(node: ast.stmt) -> bool:
    """Whether a statement of a module does something: a loop, a context, or a call whose result nobody keeps."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.For | ast.While | ast.With)


def _rest(simulator: Simulator, trees: Mapping[str, ast.Module], texts: Mapping[str, str]) -> Iterator[Root]:
    """Yield what no program calls: functions and methods, those first whose name nobody mentions."""
    waiting: list[tuple[Function, Class | None]] = []
    words = _Words(texts, simulator.knowledge)
    mentioned = words.mentioned()
    for path in trees:
        if not is_test(path):
            waiting += _functions(simulator, simulator.module(path))
    words.follow(function for function, _ in waiting)
    for function, owner in sorted(waiting, key=lambda one: (one[0].name in mentioned, one[0].name in words.waits)):
        if function.node in simulator.results.by_node or isinstance(function.node, ast.Lambda):
            continue
        called = owner is not None and (_is_hook(simulator, owner, function.name) or simulator.calls.objects_of(owner))
        if not called and not words.says_something(function):
            continue
        root = _run(simulator, function, owner)
        if root is not None and root.kind == "function" and _is_found_by_name(simulator, function, owner):
            root.kind, root.makers = "method", dict.fromkeys(trees, EVERY)  # some program makes it, or calls it
        if root is not None and root.result.trace:
            root.named = function.name in mentioned
            yield root


def _is_found_by_name(simulator: Simulator, function: Function, owner: Class | None) -> bool:
    """Whether programs find a function or its class in a registry, or by a name in their settings, as data sets and
    models are found."""
    nodes = [function.node] if owner is None else [function.node, owner.node]
    decorators = [ast.unparse(one) for node in nodes for one in getattr(node, "decorator_list", ())]
    if any("regist" in text.lower() for text in decorators) or not simulator.calls.registered.isdisjoint(nodes):
        return True
    bases = owner.library_bases() if owner is not None else ()
    everywhere = simulator.knowledge.signs["made_everywhere"]
    return any(simulator.knowledge.documented(base) in everywhere for base in bases)


def _run(simulator: Simulator, function: Function, owner: Class | None) -> Root | None:
    """Run a function that nobody calls."""
    if owner is None:
        result = simulator.run_function(function)
        return Root(result, "function") if result is not None else None
    known = simulator.calls.objects_of(owner)
    receiver: Value = known[-1] if known else simulator.make(owner)
    every = [simulator.calls.makers[one] for one in known if one in simulator.calls.makers]
    makers = {path: roles for made in every for path, roles in made.items() if path}
    live = 0
    for roles in makers.values():
        live |= roles
    hook = _is_hook(simulator, owner, function.name)
    gated = simulator.knowledge.classes["on_main_only"]
    if any(f"{base.rpartition('.')[2]}.{function.name}" in gated for base in owner.library_bases()):
        live = _FIRST  # the framework calls it on one process, of each host or of all
    result = simulator.run_function(function.with_receiver(receiver), live or EVERY)
    kind: Kind = "hook" if hook else "method" if makers else "function"
    init = owner.find("__init__")
    born = simulator.results.by_node.get(init.node, [None])[-1] if isinstance(init, Function) else None
    return Root(result, kind, makers=makers, born=born) if result is not None else None


def _functions(simulator: Simulator, module: ModuleObject) -> Iterator[tuple[Function, Class | None]]:
    """Yield the functions that a module defines, and the methods of its classes."""
    for _, value in list(simulator.heap.names(module)):
        if isinstance(value, Function) and value.module is module and value.receiver is None:
            yield value, value.owner
        elif isinstance(value, Class) and value.module is module:
            for member in value.members.values():
                inside = member.about if hasattr(member, "about") else member
                if isinstance(inside, Function) and inside.owner is value:
                    yield inside, None if getattr(member, "cls", "") in ("staticmethod", "classmethod") else value


class _Words:
    """The words of a project: which functions are named anywhere, and which may do something that matters."""

    def __init__(self, texts: Mapping[str, str], knowledge: Knowledge) -> None:
        self._lines = {path: text.split("\n") for path, text in texts.items()}
        self._of_files = {path: Counter(_WORD.findall(text)) for path, text in texts.items()}
        self._telling = knowledge.telling()
        self._collectives = knowledge.names_of_collectives()
        self.waits: frozenset[str] = frozenset()  # functions in which processes wait for each other, by their words

    def mentioned(self) -> frozenset[str]:
        """Return the words that stand more than once: names that are used, and not only defined."""
        count: Counter[str] = Counter()
        for words in self._of_files.values():
            count.update(words)
        return frozenset(word for word, often in count.items() if often > 1)

    def follow(self, functions: Iterable[Function]) -> None:
        """Let the names of the functions that call collectives be words that tell something, too."""
        defined = Counter(one.name for one in functions if self._says(one, self._collectives))
        self.waits = frozenset(name for name, often in defined.items() if often <= _FEW and len(name) > _SHORT)
        self._telling |= self.waits

    def says_something(self, function: Function) -> bool:
        """Return whether the source of a function has a word of the tables."""
        return self._says(function, self._telling)

    def _says(self, function: Function, words: frozenset[str]) -> bool:
        path, node = function.module.path, function.node
        if words.isdisjoint(self._of_files[path]):
            return False
        source = "\n".join(self._lines[path][node.lineno - 1 : node.end_lineno])
        return not words.isdisjoint(_WORD.findall(source))


def _is_hook(simulator: Simulator, owner: Class, name: str) -> bool:
    """Whether a framework calls a method of a class on every process."""
    knowledge = simulator.knowledge
    bases = {knowledge.documented(base) for base in owner.library_bases()}
    hooked = bool(bases & knowledge.signs["hooked"]) or any(base.endswith((".Callback", "Callback")) for base in bases)
    return hooked and _HOOK.fullmatch(name) is not None
