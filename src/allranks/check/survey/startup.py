"""What a program certainly does before it comes to a call or sets a variable of the environment: from its first line
down, through what it imports and calls, file by file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple, TypeAlias

from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project, closed
from allranks.check.summaries.render import under_main
from allranks.check.summaries.summary import ClassFacts, FunctionFacts, Node, Summary, body_of, statements_in
from allranks.check.tables.names import documented

Span: TypeAlias = tuple[int, int, int, int]
# Functions that call the one they are given.
_RUNNERS = frozenset({"absl.app.run", "fire.Fire", "tyro.cli", "typer.run", "draccus.wrap", "jax.named_call"})
_DEEPEST, _HOPS = 15, 4


class _Leading(NamedTuple):
    """``functions`` that may come to what matters, and the ``words`` by which they and it are called."""

    functions: frozenset[str]
    words: frozenset[str]


class At(NamedTuple):
    """Something that happens in the function ``key`` of a file (empty: in its body)."""

    path: str
    key: str
    span: Span


class Moment(NamedTuple):
    """A call of ``name``, or (``sets``) where a variable of that name is set; and what has certainly happened
    ``before``: calls by their names, and ``import jax``."""

    name: str
    sets: bool
    at: At
    before: Mapping[str, At]


class _Scope(NamedTuple):
    """The function that is gone through: what it imports itself, and the names of its parameters."""

    path: str
    key: str
    owner: str = ""
    taken: frozenset[str] = frozenset()


# What has happened so far.
_State: TypeAlias = dict[str, At]


def moments(project: Project, watched: Set[str], points: Set[str]) -> Iterator[Moment]:
    """Yield the calls of ``watched`` names, and where variables are set, in programs that name one of ``points``: each
    way to begin by itself."""
    parts = {name.rpartition(".")[2] for name in watched}
    files = {path: summary for path, summary in project.summaries.items() if not is_test(path)}
    names = {path: {word for facts in files[path].functions.values() for word in facts.words} for path in files}
    pointed = closed((path for path in files if not points.isdisjoint(names[path])), project.importers)
    roots = [path for path in files if path in pointed and (project.is_program(path) or not project.importers(path))]
    if roots:
        telling = closed((path for path in files if not parts.isdisjoint(names[path])), project.importers)
        startup = _Startup(project, watched, telling | pointed, _leading(files, parts))
        for root in roots:
            startup.go_through(root)
        yield from startup.found.values()


class _Startup:
    """Goes through programs of ``project``. ``watched``: the calls that matter; ``telling``: the files that have or
    import any; ``leading``: what may come to one, as far as names tell."""

    def __init__(self, project: Project, watched: Set[str], telling: Set[str], leading: _Leading) -> None:
        self.project = project
        self.watched = watched
        self.telling = telling
        self.leading, self.words = leading
        self.calls: dict[int, tuple[tuple[Node, bool], ...]] = {}
        self.kept: list[object] = []  # so that no other gets the number of one of them
        self.bodies: dict[bytes, tuple[Node, ...]] = {}
        self.known: dict[tuple[str, tuple[str, ...], int, frozenset[str]], _State] = {}
        self.modules: dict[str, _State] = {}
        self.found: dict[tuple[At, bool], Moment] = {}
        self.names: dict[str, dict[str, str]] = {}
        self.stack: list[str] = []
        self.root = ""

    def go_through(self, root: str) -> None:
        """Go through the program ``root``."""
        self.root = root
        known = self.modules.pop(root, None)
        self._import(root, {})
        del self.modules[root]  # who imports it does not what it does as a program
        if known is not None:
            self.modules[root] = known

    # statements

    def _import(self, path: str, state: _State) -> None:
        """Run the body of a module, and before it those of the packages it lies in: each once for all."""
        parts = path.split("/")
        packages = ("/".join([*parts[:end], "__init__.py"]) for end in range(1, len(parts)))
        for module in (*packages, path):
            if module in self.telling and (path != self.root or module == path):
                if module not in self.modules:
                    self.modules[module] = made = dict[str, At]()
                    inside = dict(state)
                    self._function(self.project.summaries[module].functions[""], _Scope(module, ""), inside)
                    made.update({name: at for name, at in inside.items() if name not in state})
                for name, at in self.modules[module].items():
                    state.setdefault(name, at)

    def _function(self, facts: FunctionFacts | ClassFacts, scope: _Scope, state: _State) -> None:
        """Go through a body; what stands below a `return` that not all come to is not certain for who called it."""
        inside, sure = dict(state), True
        for statement in self._body(facts):
            self._statement(statement, scope, inside)
            if sure and len(inside) > len(state):
                state.update({name: at for name, at in inside.items() if name not in state})
            sure = sure and not _returns(statement)

    def _body(self, facts: FunctionFacts | ClassFacts) -> tuple[Node, ...]:
        if facts.body not in self.bodies:
            self.bodies[facts.body] = body_of(facts)
        return self.bodies[facts.body]

    def _block(self, statements: Iterable[Node], scope: _Scope, state: _State) -> None:
        for statement in statements:
            self._statement(statement, scope, state)

    def _statement(self, statement: Node, scope: _Scope, state: _State) -> None:
        tag = statement[0]
        if tag == "if" and under_main(statement):
            if scope.path == self.root and not scope.key:
                self._block(statement[3], scope, state)
        elif tag in ("if", "while"):
            self._expression(statement[2], scope, state)
            for block in statement[3:5] if tag == "if" else statement[3:4]:
                self._block(block, scope, dict(state))
        elif tag == "for":
            self._expression(statement[3], scope, state)
            self._block(statement[4], scope, dict(state))
        elif tag == "with":
            for item, _, _ in statement[2]:
                self._expression(item, scope, state)
            self._block(statement[3], scope, state)
        elif tag == "try":
            self._block(statement[2], scope, state)
            for handler in statement[3]:
                self._block(handler[2], scope, dict(state))
            self._block((*statement[4], *statement[5]), scope, state)
        else:
            self._plain(statement, scope, state)

    def _plain(self, statement: Node, scope: _Scope, state: _State) -> None:
        tag = statement[0]
        at = At(scope.path, scope.key, (statement[1], 0, statement[1], 0))
        if tag == "import":
            for _, dotted in statement[2]:
                if (found := self.project.split(dotted, scope.path)) is not None:
                    self._import(found[0], state)
                elif dotted.partition(".")[0] == "jax":
                    state.setdefault("import jax", at)
        elif tag == "def":
            facts = self.project.function(f"{scope.path}::{statement[3]}")
            for _, default in facts.defaults if facts is not None else ():
                self._expression(default, scope, state)
        elif tag == "class":
            if (kind := self.project.cls(f"{scope.path}::{statement[3]}")) is not None:
                self._function(kind, scope, state)
        elif tag == "assign":
            self._expression(statement[3], scope, state)
            for target in statement[2]:
                if target[0] == "sub" and self._dotted(target[1], scope) == "os.environ":
                    self._sets(target[2], at, state)
        elif len(statement) > 2:
            self._expression(statement[2], scope, state)

    def _sets(self, variable: Node, at: At, state: _State) -> None:
        if variable[0] == "const" and isinstance(variable[1], str):
            self.found.setdefault((at, True), Moment(variable[1], True, at, dict(state)))

    # expressions

    def _expression(self, node: object, scope: _Scope, state: _State) -> None:
        """Make the calls in an expression that may matter; those of which nobody knows whether they are made, aside."""
        if id(node) not in self.calls:
            self.kept.append(node)
            self.calls[id(node)] = tuple((call, sure) for call, sure in _calls(node) if _last(call[1]) in self.words)
        for call, sure in self.calls[id(node)]:
            self._call(call, scope, state if sure else dict(state))

    def _call(self, call: Node, scope: _Scope, state: _State) -> None:
        _, function, arguments, _, span = call
        at, meant = At(scope.path, scope.key, span), self._meant(function, scope)
        if "::" in meant:
            self._run(meant, call, state)
            return
        name = documented(meant)
        if name == "os.environ.setdefault" and arguments:
            self._sets(arguments[0], at, state)
        elif name in _RUNNERS and arguments and "::" in (ran := self._meant(arguments[0], scope)):
            self._run(ran, call, state)
        elif name in self.watched:
            self.found.setdefault((at, False), Moment(name, False, at, dict(state)))
            state.setdefault(name, at)

    def _run(self, reference: str, call: Node, state: _State) -> None:
        """Go through a function of the project, or through what makes an object of a class."""
        path, _, key = reference.partition("::")
        if reference in self.stack or len(self.stack) > _DEEPEST:
            return
        given = (reference, tuple(name for name, _ in call[3]), len(call[2]), frozenset(state))
        if given in self.known:
            state.update(self.known[given])
            return
        before = dict(state)
        self.stack.append(reference)
        if (kind := self.project.cls(reference)) is not None:
            self._make(reference, kind, call, state)
        elif (
            reference in self.leading and (facts := self.project.function(reference)) is not None and not _yields(facts)
        ):
            taken = frozenset((*facts.positional, *facts.keyword_only))
            self._function(facts, _Scope(path, key, facts.owner, taken), state)
        self.stack.pop()
        self.known[given] = {name: at for name, at in state.items() if name not in before}

    def _make(self, reference: str, kind: ClassFacts, call: Node, state: _State) -> None:
        path = reference.partition("::")[0]
        if (maker := self.project.methods(reference).get("__init__")) is not None:
            self._run(maker, call, state)
            return
        given, scope = {key for key, _ in call[3]}, _Scope(path, "")
        for at, (name, factory) in enumerate(_factories(kind)):
            if name not in given and at >= len(call[2]):
                meant = f"{path}::{factory[1]}" if factory[0] == "fn" else self._meant(factory, scope)
                if "::" in meant:
                    self._run(meant, ("call", factory, (), (), (1, 0, 1, 0)), state)

    # names

    def _meant(self, function: Node, scope: _Scope) -> str:
        """Return the function or class of the project that is called, or the dotted name of another; '' if unknown."""
        if function[0] == "attr" and function[1] == ("name", "self") and scope.owner:
            return self.project.methods(f"{scope.path}::{scope.owner}").get(function[2], "")
        dotted = self._dotted(function, scope)
        if not dotted:
            return ""
        inner = f"{scope.key}.{dotted}" if scope.key else dotted
        functions = self.project.summaries[scope.path].functions
        return f"{scope.path}::{inner}" if inner in functions else self._of_project(dotted, scope.path, _HOPS)

    def _of_project(self, dotted: str, path: str, hops: int) -> str:
        """Follow a dotted name, as a module of the project has it, through imports."""
        summary = self.project.summaries[path]
        if dotted in summary.functions or dotted in summary.classes:
            return f"{path}::{dotted}"
        head, _, rest = dotted.partition(".")
        imported = self._imported(path).get(head)
        if imported is None or not hops:
            return ""
        whole = f"{imported}.{rest}" if rest else imported
        found = self.project.split(whole, path)
        if found is None:
            return whole
        return self._of_project(".".join(found[1]), found[0], hops - 1) if found[1] else ""

    def _dotted(self, node: Node, scope: _Scope) -> str:
        if node[0] == "name":
            return "" if node[1] in scope.taken else str(node[1])
        if node[0] == "attr":
            base = self._dotted(node[1], scope)
            return f"{base}.{node[2]}" if base else ""
        return ""

    def _imported(self, path: str) -> dict[str, str]:
        """Return what a file imports, in functions too, by the name that it has there."""
        if path not in self.names:
            self.names[path] = {}
            for facts in self.project.summaries[path].functions.values():
                for statement in statements_in(body_of(facts)):
                    if statement[0] == "import":
                        self.names[path].update(statement[2])
        return self.names[path]


def _leading(files: Mapping[str, Summary], parts: Set[str]) -> _Leading:
    """Return the functions that name one of ``parts``, or set variables, or name one that does, and so on; and by what
    names these are called."""
    left = [(f"{path}::{key}", facts) for path, one in files.items() for key, facts in one.functions.items() if key]
    named = [(kind.name, _names_in(body_of(kind))) for one in files.values() for kind in one.classes.values()]
    named += [
        (bound, frozenset({dotted.rpartition(".")[2]})) for one in files.values() for dotted, bound in one.imports
    ]
    words, found, before = {*parts, "environ"}, set[str](), 0
    while len(words) > before:
        before = len(words)
        more = [one for one in left if not words.isdisjoint(one[1].words)]
        found.update(reference for reference, _ in more)
        words |= {name for _, facts in more for name in (facts.name, facts.owner.rpartition(".")[2])}
        words |= {name for name, inner in named if not words.isdisjoint(inner)}
        words -= {name for name in words if name.startswith("__") or not name}
        left = [one for one in left if one[0] not in found]
    runners = {name.rpartition(".")[2] for name in _RUNNERS}
    return _Leading(frozenset(found), frozenset({*words, *runners, "setdefault"}))


def _names_in(node: object) -> frozenset[str]:
    if not isinstance(node, tuple):
        return frozenset()
    own = {node[1]} if node[:1] == ("name",) and len(node) == 2 else {node[2]} if node[:1] == ("attr",) else set()
    return frozenset(own).union(*map(_names_in, node))


def _last(function: Node) -> str:
    return str(function[1] if function[0] == "name" else function[2] if function[0] == "attr" else "")


def _calls(node: object, *, sure: bool = True) -> Iterator[tuple[Node, bool]]:
    """Yield the calls in an expression, the inner ones first, and whether each is made for certain."""
    if not isinstance(node, tuple) or not node or node[0] in ("fn", "comp", "const", "name"):
        return
    if node[0] == "ifexp" or (node[0] in ("and", "or") and len(node) == 3):
        first, *others = node[1:4] if node[0] == "ifexp" else node[1]
        yield from _calls(first, sure=sure)
        for other in others:
            yield from _calls(other, sure=False)
        return
    for part in node:
        yield from _calls(part, sure=sure)
    if node[0] == "call" and len(node) == 5:
        yield node, sure


def _returns(statement: Node) -> bool:
    return any(at[0] == "return" for at in statements_in((statement,)))


def _yields(facts: FunctionFacts) -> bool:
    """Whether nothing of a function runs where it is called."""
    return _has(body_of(facts), "yield")


def _has(node: object, tag: str) -> bool:
    return isinstance(node, tuple) and (node[:1] == (tag,) or any(_has(part, tag) for part in node))


def _factories(kind: ClassFacts) -> Iterator[tuple[str, Node]]:
    """Yield the fields of a class, by name, with the function that makes what is not given; nothing for those that
    have none."""
    for statement in body_of(kind):
        if statement[0] == "assign" and statement[2][0][0] == "name":
            value = statement[3]
            made = dict(value[3]) if value[0] == "call" else {}
            yield statement[2][0][1], made.get("default_factory", ("const", None))
