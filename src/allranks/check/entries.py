"""Find the entries of a project: the files that are started, and the functions that nobody calls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from allranks.check.knowledge.tables import Knowledge
from allranks.check.project.modules import Modules
from allranks.check.roots import Kind, Root
from allranks.check.simulate.simulator import Simulator
from allranks.check.simulate.values import EVERY, Class, Function, ModuleObject, Value
from allranks.check.sources.source import is_test

_FIRST = 0b0001
_FEW, _SHORT = 2, 6  # a name that more functions have, or a shorter one, says nothing of what is called
_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"\bdef ([A-Za-z_]\w*)")
_ON = re.compile(r"\b([A-Za-z_]\w*)(?:\[[^]\n]*\])?\.([A-Za-z_]\w*)\(")
_HANDED = re.compile(r"[(,=\[]\s*self\.([A-Za-z_]\w*)\s*[,)\]]")
_CALLED = re.compile(r"(?<!def )\b([A-Za-z_]\w*)\(")
# Methods that a framework calls on every process, by their names.
_HOOK = re.compile(
    r"(write_)?on_\w+|(before|after)_\w+|\w+_start|\w+_step|\w+_dataloader|\w+_end|configure_\w+|setup|teardown|forward"
    r"|compute_loss|evaluate|predict|log|(evaluation|prediction)_loop|(?!_)\w+_checkpoint|save_model"
    r"|_(save|load_from|save_checkpoint|load_from_checkpoint|load_best_model|(save|load)_optimizer_and_scheduler)"
)


def programs(trees: Mapping[str, ast.Module], modules: Modules, entries: Collection[str]) -> Iterator[str]:
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
    if isinstance(node, ast.If | ast.Try):
        return any(map(_acts, node.body))
    return isinstance(node, ast.For | ast.While | ast.With)


def uncalled(simulator: Simulator, trees: Mapping[str, ast.Module], texts: Mapping[str, str]) -> Iterator[Root]:
    """Yield what no program calls: functions and methods, those first whose name nobody mentions."""
    waiting: list[tuple[Function, Class | None]] = []
    words = _Words(texts, trees, simulator.knowledge)
    mentioned = words.mentioned()
    for path in trees:
        if not is_test(path):
            waiting += _functions(simulator, simulator.module(path))
    words.follow(function for function, _ in waiting)

    def later(one: tuple[Function, Class | None]) -> tuple[bool, bool]:
        function, owner = one  # hooks as they stand in their class: those of the beginning come first
        hook = owner is not None and _is_hook(simulator, owner, function.name)
        return not hook and function.name in mentioned, not hook and function.name in words.waits

    for function, owner in words.callers_first(sorted(waiting, key=later)):
        if function.node in simulator.results.by_node or isinstance(function.node, ast.Lambda):
            continue
        called = owner is not None and (_is_hook(simulator, owner, function.name) or simulator.calls.objects_of(owner))
        if not called and not words.says_something(function):
            continue
        root = _run(simulator, function, owner)
        if root is None or not root.result.trace:
            continue
        root.named = function.name in (words.on_objects if root.kind == "method" else mentioned)
        if root.kind == "function" and owner is not None and _is_found_by_name(simulator, function, owner):
            root.kind, root.makers = "method", dict.fromkeys(trees, EVERY)  # some program makes it, or calls it
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
    method = function.with_receiver(receiver)
    result = simulator.run_function(method, live or EVERY)
    again = simulator.run_function(method, live or EVERY) if hook else None  # with what it has stored before
    if result is not None and again is not None and len(again.trace) >= len(result.trace):
        result = again
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

    def __init__(self, texts: Mapping[str, str], trees: Mapping[str, ast.Module], knowledge: Knowledge) -> None:
        self._texts, self._trees = texts, trees
        self._lines = {path: text.split("\n") for path, text in texts.items()}
        self._of_files = {path: Counter(_WORD.findall(text)) for path, text in texts.items()}
        self._telling = knowledge.telling()
        self._collectives = knowledge.names_of_collectives()
        self.waits: frozenset[str] = frozenset()  # functions in which processes wait for each other, by their words

    def mentioned(self) -> frozenset[str]:
        """Return the words that stand anywhere but behind `def`: names that are used, and not only defined."""
        count: Counter[str] = Counter()
        for path, words in self._of_files.items():
            count.update(words)
            count.subtract(_DEFINED.findall("\n".join(self._lines[path])))
        return frozenset(word for word, often in count.items() if often > 0)

    @cached_property
    def on_objects(self) -> frozenset[str]:
        """The names of methods that are called on something that is neither `self` nor a module, or handed on."""
        found: set[str] = set()
        for path, text in self._texts.items():
            imports = [one for one in self._trees[path].body if isinstance(one, ast.Import)]
            modules = {(name.asname or name.name).partition(".")[0] for one in imports for name in one.names}
            found.update(name for owner, name in _ON.findall(text) if owner not in modules and owner != "self")
            found.update(_HANDED.findall(text))
        return frozenset(found)

    def callers_first(self, every: list[tuple[Function, Class | None]]) -> list[tuple[Function, Class | None]]:
        """Return functions in an order in which those of a file come first that call others of it, by their names."""
        callers: dict[tuple[str, str], list[tuple[Function, Class | None]]] = {}
        for one in every:
            for name in set(_CALLED.findall(self._source(one[0]))):
                callers.setdefault((one[0].module.path, name), []).append(one)
        ordered: dict[int, tuple[Function, Class | None]] = {}
        for one in every:
            waiting = [one]
            while waiting:
                function = waiting[-1][0]
                above = callers.get((function.module.path, function.name), ())
                first = next((c for c in above if id(c) not in ordered and c not in waiting), None)
                if first is not None:
                    waiting.append(first)
                else:
                    done = waiting.pop()
                    ordered.setdefault(id(done), done)
        return list(ordered.values())

    def follow(self, functions: Iterable[Function]) -> None:
        """Let the names of the functions that call collectives be words that tell something, too."""
        defined = Counter(one.name for one in functions if self._says(one, self._collectives))
        self.waits = frozenset(name for name, often in defined.items() if often <= _FEW and len(name) > _SHORT)
        self._telling |= self.waits

    def says_something(self, function: Function) -> bool:
        """Return whether the source of a function has a word of the tables."""
        return self._says(function, self._telling)

    def _says(self, function: Function, words: frozenset[str]) -> bool:
        if words.isdisjoint(self._of_files[function.module.path]):
            return False
        return not words.isdisjoint(_WORD.findall(self._source(function)))

    def _source(self, function: Function) -> str:
        node = function.node
        return "\n".join(self._lines[function.module.path][node.lineno - 1 : node.end_lineno])


def _is_hook(simulator: Simulator, owner: Class, name: str) -> bool:
    """Whether a framework calls a method of a class on every process."""
    knowledge = simulator.knowledge
    bases = set(knowledge.lineage(owner.library_bases()))
    hooked = bool(bases & knowledge.signs["hooked"]) or any(base.endswith((".Callback", "Callback")) for base in bases)
    return hooked and _HOOK.fullmatch(name) is not None
