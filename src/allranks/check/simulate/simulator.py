"""The simulation of a project: its modules, its objects, and the parts that run expressions, statements and calls."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from allranks.check.knowledge.tables import Knowledge
from allranks.check.project.modules import Modules
from allranks.check.simulate.calls import Calls
from allranks.check.simulate.expressions import Expressions
from allranks.check.simulate.given import Given
from allranks.check.simulate.library import Libraries
from allranks.check.simulate.members import Members
from allranks.check.simulate.parts import Gap
from allranks.check.simulate.recording import Recording
from allranks.check.simulate.results import Results
from allranks.check.simulate.state import Frame, Heap, place_of
from allranks.check.simulate.statements import Statements
from allranks.check.simulate.values import (
    ANYTHING,
    EVERY,
    FALSE,
    Class,
    Const,
    Either,
    Function,
    Library,
    Made,
    ModuleObject,
    Value,
)
from allranks.check.sources.source import module_name
from allranks.check.traces.nodes import Enter, Result

_MOST_STEPS = 2_000_000


class Simulator:
    """Runs the code of a project for four roles.

    - ``trees``: the files by path. ``modules``: which file an import means.
    - ``watched``: names of functions that rules ask about, beside those of the tables.
    - ``shards``: the project keeps models in parts (FSDP, ZeRO). ``wraps``: it wraps models (DDP, FSDP). ``seeded``: it
      seeds its random numbers.
    """

    def __init__(
        self,
        trees: Mapping[str, ast.Module],
        modules: Modules,
        knowledge: Knowledge,
        *,
        watched: Collection[str] = (),
        shards: bool = False,
        wraps: bool = False,
        seeded: bool = False,
    ) -> None:
        self.trees = trees
        self.modules = modules
        self.knowledge = knowledge
        self.watched = frozenset(watched)
        self.shards, self.wraps = shards, wraps
        self.seeded = seeded
        self.builtins = frozenset(dir(builtins))
        self.heap = Heap()
        self.members = Members(self)
        self.recording = Recording(self)
        self.library = Libraries(self)
        self.calls = Calls(self)
        self.results = Results(self)
        self.expressions = Expressions(self)
        self.statements = Statements(self)
        self.steps = 0
        self.chosen: dict[str, Either] = {}
        self.program = ""
        self.no_grad = 0  # contexts around that switch gradients off
        self.gaps: list[Gap] = []
        self._objects: dict[str, ModuleObject] = {}
        self._modules: dict[str, Result] = {}  # of modules

    @property
    def spent(self) -> bool:
        """Whether so much was run that from here on results are used again."""
        return self.steps > _MOST_STEPS

    def step(self) -> None:
        """Count a statement."""
        self.steps += 1

    # Modules

    def module(self, path: str) -> ModuleObject:
        """Return a module, run if it was not yet."""
        found = self._objects.get(path)
        above = self.modules.package(path) if found is None else None
        if above is not None:
            self.module(above)
            found = self._objects.get(path)  # the package may have imported it
        if found is None:
            found = self._objects[path] = ModuleObject(path, module_name(path))
            if path in self.trees:
                with self.heap.base_layer():
                    self._run(found)
            found.done = True
            if above is not None:  # a package has its modules as attributes
                self.heap.set(self._objects[above], found.name.rpartition(".")[2], found)
        return found

    def _run(self, module: ModuleObject) -> None:
        frame = Frame(module, module.name, {})
        self.heap.set(module, "__name__", Const("<module>"))
        self.heap.set(module, "__file__", Const(module.path))
        self._modules[module.path] = Result(module.name, module.path, 1, ANYTHING)
        self.statements.block(frame, self.trees[module.path].body)
        self._modules[module.path] = Result(module.name, module.path, 1, ANYTHING, tuple(frame.trace))

    def result_of_module(self, path: str) -> Result:
        """Return what a module does where it is imported."""
        self.module(path)
        return self._modules.get(path, Result("", path, 1, ANYTHING))

    def run_program(self, path: str, *, alone: bool = False) -> Result:
        """Return what a file does where it is started: its ``__name__`` is ``__main__``. ``alone``: it asks whether it
        has joined the others before it does."""
        module = ModuleObject(path, module_name(path))
        self.program = path
        self.heap.forget_settings()
        if alone:
            self.heap.set(Made("<world>"), "joined", FALSE)
        before = self._objects.get(path)
        self._objects[path] = module
        self.heap.set(module, "__name__", Const("__main__"))
        self.heap.set(module, "__file__", Const(path))
        frame = Frame(module, module.name, {})
        self.statements.block(frame, self.trees[path].body)
        module.done = True
        if before is not None:
            self._objects[path] = before
        self.program = ""
        self.heap.forget_settings()
        return Result(module.name, path, 1, ANYTHING, tuple(frame.trace))

    def variable(self, module: ModuleObject, name: str) -> Value | None:
        """Return a variable of a module; None if it has none."""
        return self.heap.get(module, name)

    def member_of_module(self, module: ModuleObject, name: str) -> Value | None:
        """Return an attribute of a module: a variable, or a module in it."""
        found = self.heap.get(module, name)
        if found is not None:
            return found
        inside = self.modules.submodule(module.path, name)
        return self.module(inside) if inside is not None else None

    def import_module(self, dotted: str, importer: ModuleObject) -> Value:
        """Import a module, and the packages that it is in; return it."""
        path = self._find(dotted, importer)
        if path is None:
            return Library(self.knowledge.documented(dotted)) if not dotted.startswith(".") else ANYTHING
        return self.module(path)

    def import_name(self, dotted: str, name: str, importer: ModuleObject) -> Value:
        """Return what ``from dotted import name`` gives."""
        path = self._find(dotted, importer)
        if path is None:
            if dotted.startswith("."):
                return ANYTHING
            full = self.knowledge.documented(f"{dotted}.{name}")
            query = self.knowledge.rank("attribute", full)
            if full == "typing.TYPE_CHECKING":
                return FALSE
            if query is None and name.isupper():
                return self.members.called(name) or Library(full)
            return self.members.rank(query) if query is not None else Library(full)
        module = self.import_module(dotted, importer) if not dotted.startswith(".") else self.module(path)
        if not isinstance(module, ModuleObject):
            return ANYTHING
        found = self.member_of_module(module, name)
        return found if found is not None else ANYTHING

    def _find(self, dotted: str, importer: ModuleObject) -> str | None:
        """Return the file of a module (`Modules.find`). While a program runs, its folder comes first."""
        beside = self.modules.beside(self.program, dotted) if self.program and dotted[:1] != "." else None
        return beside if beside is not None else self.modules.find(dotted, importer.path)

    def star(self, dotted: str, importer: ModuleObject) -> Iterator[tuple[str, Value]]:
        """Yield what ``from dotted import *`` binds."""
        path = self._find(dotted, importer)
        if path is None:
            return
        module = self.module(path)
        for name, value in self.heap.names(module):
            if not name.startswith("_"):
                yield name, value

    # Functions

    def symbol(self, function: Function) -> str:
        """Return the qualified name of a function."""
        if function.scope is not None:
            return f"{function.scope.symbol}.{function.name}"
        owner = f"{function.owner.name}." if function.owner is not None else ""
        return f"{module_name(function.module.path)}.{owner}{function.name}"

    def home(self, function: Function) -> Frame:
        """Return a frame in which the defaults and annotations of a function are evaluated."""
        return function.scope or Frame(function.module, function.module.name, {}, live=EVERY)

    def make(self, cls: Class) -> Value:
        """Return an object of a class that nobody makes: its constructor is called with nothing known."""
        made = self.calls.object(cls, cls.module.path, cls.node)
        if isinstance(init := cls.find("__init__"), Function):
            method = init.with_receiver(made)
            self.results.result(method, self.calls.bind(method, Given(made.cls.node), anyhow=True), EVERY)
        return made

    def run_function(self, function: Function, live: int = EVERY) -> Result | None:
        """Return what a function does that nobody calls, with nothing known of its arguments. ``live``: the roles that
        may call it."""
        env = self.calls.bind(function, Given(function.node), anyhow=True)
        found = self.results.result(function, env, live & function.only)
        decorators = getattr(function.node, "decorator_list", ())
        if found is None or not found.trace or not decorators:
            return found
        entered = self.calls.entered(function, Enter(found, place_of(decorators[0]), live & function.only))
        return found if isinstance(entered, Enter) else replace(found, trace=(entered,))
