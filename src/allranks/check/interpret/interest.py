"""Which functions of a project can matter: those that name something of the tables, or call one that does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from allranks.check.program import Event
from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project, mentioned
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Summary
from allranks.check.tables.apis import Apis
from allranks.check.tables.arrays import COMPILERS
from allranks.check.tables.collectives import COLLECTIVES
from allranks.check.tables.data import LEADERS, SAMPLERS
from allranks.check.tables.evidence import DEALING, OF_EACH_HOST
from allranks.check.tables.items import COPIES
from allranks.check.tables.local import LOCAL
from allranks.check.tables.names import documented
from allranks.check.tables.receivers import is_trainer
from allranks.check.tables.seeds import ORDERS
from allranks.check.tables.spoken import effect_of
from allranks.findings import Place

# Names that say nothing of what they call: a call of one does not make a function interesting.
_COMMON = frozenset(
    [
        *("forward", "get", "set", "update", "run", "call", "close", "items", "keys", "values", "append", "extend"),
        *("pop", "add", "copy", "format", "join", "split", "reset", "load", "build", "create", "apply", "start"),
        *("stop", "read", "size", "name", "shape", "device", "dtype", "config", "__call__", "__iter__", "__next__"),
        *("__len__", "__getitem__", "__repr__", "__str__", "state_dict", "load_state_dict", "log"),
        *("logger", "parser", "router", "app"),
    ]
)
# Bases, by the end of their names.
_HOOKED = (
    *("Trainer", "Callback", "Hook", "HookBase", "LightningModule", "LightningDataModule", "LoggerDestination"),
    *("Algorithm", "PredictionWriter", "ModelCheckpoint", "ProgressBar", "Logger", "LoggerBase", "LightningCLI"),
    *("DatasetEvaluator", "ModelPT", "TrainUnit", "AutoUnit"),
)
_MAKERS = ("__init__", "__post_init__", "setup", "setUp")
_CLASSES = ("__init__", "__enter__", "__exit__", "__post_init__")
FEW, MANY, OFTEN = 3, 60, 150
FEW_WORDS = 600  # bytes of a body
_EXITS = frozenset(("exit", "_exit", "quit", "SystemExit"))
# By package, the words that ask for what is this process' own: a clock, files, random numbers.
_OWN = {
    package: frozenset(q.pattern.rpartition(".")[2] for q in LOCAL if q.pattern.startswith(f"{package}."))
    for package in ("time", "datetime", "os", "pathlib", "glob", "random", "secrets")
}
_SIZES = frozenset(("WORLD_SIZE", "get_world_size", "device_count"))
# What looks for a checkpoint, by its name, may be longer.
_SEEKS = re.compile(r"(?i)latest|last|resum|newest|recent|ckpt|checkpoint|complete|commit|saved|steps$")
MORE_WORDS = 2000
SHORT = 300  # bytes of a body: a line or two
_TOLD_TO_FETCH = b"\x08download"  # an option of that name, as it stands in a body
# Parameters under which wrapped models are handed on: calling one names nothing of the tables.
_MODELS = frozenset(["model", "net", "network", "ddp_model", "fsdp_model", "model_engine"])


_OWNERS = {
    (entry.pattern.partition(".")[0], kind)
    for entry in COLLECTIVES
    if (kind := entry.pattern.rpartition(".")[0].rpartition(".")[2])[:1].isupper()
}
# Of packages that are imported whole (``L.Trainer``), the classes whose methods meet; torch is imported everywhere.
_CLASSES_OF: dict[str, frozenset[str]] = {
    package: frozenset(kind for name, kind in _OWNERS if name == package)
    for package in {name for name, _ in _OWNERS} - {"torch"}
}
_COMPILES = frozenset(name.rpartition(".")[2] for name in COMPILERS) | {"pjit"}


def interesting(project: Project, names: Names, apis: Apis) -> frozenset[str]:
    """Return the functions whose effects, collectives or ranks can matter to somebody."""
    reached = _reaching(project, names, apis.words, models=True) | _own(project)
    return frozenset(reached | _makers(project, reached) | _factories(project, names, reached))


def _own(project: Project) -> set[str]:
    """Return functions of few words that ask for what each process finds for itself, or how many there are, or end it:
    others decide by it; and those of few words that call one which looks for a checkpoint."""
    found: set[str] = set()
    for path, summary in project.summaries.items():
        imports = {dotted.partition(".")[0] for dotted, _ in summary.imports}
        words = _EXITS.union(COPIES, *(_OWN[package] for package in imports & _OWN.keys()))
        for key, facts in summary.functions.items():
            most = MORE_WORDS if _SEEKS.search(facts.name) else FEW_WORDS
            counts = len(facts.body) < SHORT and not _SIZES.isdisjoint(facts.words)
            if key and (counts or (len(facts.body) < most and not words.isdisjoint(facts.words))):
                found.add(f"{path}::{key}")
    seekers = {name for key in found if _SEEKS.search(name := key.rpartition(".")[2].rpartition("::")[2])}
    for path, summary in project.summaries.items():
        short = ((key, facts) for key, facts in summary.functions.items() if key and len(facts.body) < FEW_WORDS)
        found.update(f"{path}::{key}" for key, facts in short if not seekers.isdisjoint(facts.words))
    return found


def telling(project: Project, names: Names, apis: Apis) -> frozenset[str]:
    """Return the functions that can show that there are several processes, and the methods of a class with such one."""
    reached = _reaching(project, names, apis.several)
    more: set[str] = set()
    for path, summary in project.summaries.items():
        for facts in summary.classes.values():
            methods = {f"{path}::{method}" for _, method in facts.methods}
            if not reached.isdisjoint(methods) or any(render(base).endswith(_HOOKED) for base in facts.bases):
                more |= methods
    return frozenset(reached | more)


def stored_elsewhere(project: Project, interesting: frozenset[str]) -> dict[str, set[str]]:
    """Return the attributes that methods store which are not run, by name: of what classes."""
    found: dict[str, set[str]] = {}
    for path, summary in project.summaries.items():
        for key, facts in summary.functions.items():
            if facts.owner and facts.stored and f"{path}::{key}" not in interesting:
                for name in facts.stored:
                    found.setdefault(name, set()).add(f"{path}::{facts.owner}")
    return found


def deals(facts: FunctionFacts | None) -> bool:
    """Whether it asks which process of JAX it is and of how many: who reads data so, reads a part of them."""
    if facts is None or DEALING[0].isdisjoint(facts.words):
        return False
    return not DEALING[1].isdisjoint(facts.words) or OF_EACH_HOST.issubset(facts.words)


def _reaching(project: Project, names: Names, words: Mapping[str, frozenset[str]], *, models: bool = False) -> set[str]:
    walk = _Walk(project, names)
    for path, summary in project.summaries.items():
        packages = _packages(summary)
        here = words_here(words, packages)
        here |= {bound for dotted, bound in summary.imports if documented(dotted).rpartition(".")[2] in here}
        if models:
            here |= {bound for dotted, bound in summary.imports if dotted[:1] != "." and effect_of(dotted)}
        for key, facts in summary.functions.items():
            runs = models and "torch" in packages and (_runs_model(facts) or _runs_own(facts, project, path))
            if (
                runs
                or (models and (_dispatches(facts) or _TOLD_TO_FETCH in facts.body))
                or not here.isdisjoint(facts.words)
            ):
                walk.found(f"{path}::{key}", facts)
                if not key or (models and not _COMPILES.isdisjoint(facts.words)):  # what it leaves for others to call
                    walk.waiting += [(name, path) for name in facts.stored if name not in _COMMON]
    walk.spread()
    return walk.reached


def _runs_model(facts: FunctionFacts) -> bool:
    """Whether it may call a wrapped model: one that it is given, or, in a step of training, its object's own."""
    given = any(name in _MODELS and name in facts.words for name in facts.positional)
    return given or (bool(facts.owner) and "backward" in facts.words and not _MODELS.isdisjoint(facts.words))


def _runs_own(facts: FunctionFacts, project: Project, path: str) -> bool:
    """Whether a method may call its object's model, where models are kept in parts: who runs one meets the others."""
    return bool(facts.owner) and not _MODELS.isdisjoint(facts.words) and project.shards(path)


def _dispatches(facts: FunctionFacts) -> bool:
    """Whether it does little but to call methods by a name that it is given."""
    return "getattr" in facts.words and bool(facts.owner) and len(facts.positional) > 1 and len(facts.body) < SHORT


def words_here(words: Mapping[str, frozenset[str]], packages: set[str]) -> frozenset[str]:
    """Return the words of the tables that can mean something in a file that imports these."""
    return frozenset().union(*(words.get(package, frozenset()) for package in ("*", "", *packages)))


def _packages(summary: Summary) -> set[str]:
    """Return the packages and the classes that a file imports, or reads of a package that it imports, under their
    documented names. A trainer that is made of another counts as that."""
    names = [documented(dotted.lstrip(".")) for dotted, _ in summary.imports]
    packages = {name.partition(".")[0] for name in names}
    classes = frozenset().union(*(_CLASSES_OF.get(package, ()) for package in packages))
    read = {word for facts in summary.functions.values() for word in facts.words} & classes if classes else set()
    trained = {"Trainer", "transformers"} if any(map(is_trainer, names)) else set()
    return packages | {name.rpartition(".")[2] for name in names} | read | trained


def around(project: Project, events: Iterable[Event]) -> dict[Place, tuple[frozenset[str], frozenset[str]]]:
    """Return what is mentioned around samplers and what orders data: in what their programs import, and by who imports
    their files; of a program that comes to what orders data from another file, what it imports decides."""
    found = {}
    for event in events:
        if event.name in SAMPLERS | ORDERS:
            start = event.start.place.path
            led = event.name in ORDERS and start != event.place.path
            paths = project.reach(start) | (frozenset() if led else project.users(event.place.path))
            packages, words = mentioned(project, paths)
            found[event.place] = packages - idle(project, paths), words
    return found


def idle(project: Project, paths: Iterable[str]) -> frozenset[str]:
    """Return the packages of which files import nothing that goes over loaders by itself."""
    summaries = [project.summaries[path] for path in paths]
    used = {word for summary in summaries for facts in summary.functions.values() for word in facts.words}
    used -= {name for summary in summaries for name in summary.classes}  # a Trainer of its own
    used |= {dotted.rpartition(".")[2] for summary in summaries for dotted, _ in summary.imports if dotted[:1] != "."}
    classes = (facts for summary in summaries for facts in summary.classes.values())
    used |= {render(base).rpartition(".")[2] for facts in classes for base in facts.bases}
    return frozenset(package for package, leaders in LEADERS.items() if used.isdisjoint(leaders))


class Names:
    """Which functions of a project name what. ``parts``: file -> the parts of the names that it imports; ``named_by``:
    word -> file -> functions; ``count``: how many functions are called under a name."""

    def __init__(self, project: Project) -> None:
        self.parts: dict[str, set[str]] = {}
        self.named_by: dict[str, dict[str, list[str]]] = {}
        self.count: Counter[str] = Counter()
        for path, summary in project.summaries.items():
            tests = is_test(path)
            self.parts[path] = {part for dotted, _ in summary.imports for part in dotted.split(".")}
            for key, facts in summary.functions.items():
                self.count[_called_by(facts)] += not tests  # a test may call its own as the program does
                for word in facts.words:
                    self.named_by.setdefault(word, {}).setdefault(path, []).append(key)


class _Walk:
    """From functions that matter to those that name them, as far as a file can see them."""

    def __init__(self, project: Project, names: Names) -> None:
        self.project = project
        self.names = names
        self.reached: set[str] = set()
        self.waiting: list[tuple[str, str]] = []

    def found(self, reference: str, facts: FunctionFacts) -> None:
        if reference not in self.reached:
            self.reached.add(reference)
            path = reference.partition("::")[0]
            self.waiting.append((_called_by(facts), path))

    def spread(self) -> None:
        done: set[tuple[str, str]] = set()
        while self.waiting:
            name, path = self.waiting.pop()
            if not name or name in _COMMON or (name, path) in done:
                continue
            done.add((name, path))
            users = self.names.named_by.get(name, {})
            variable = not self.names.count[name]
            rare = self._is_rare(name, users)
            if variable and not self.project.importers(path):
                users = {path: users.get(path, [])}  # nobody else can mean the variable of a program
            for seen_from in users if rare else self.sees(name, path, users):
                functions = self.project.summaries[seen_from].functions
                if variable and seen_from != path and name in functions[""].stored:
                    continue  # it has one of its own
                for key in users.get(seen_from, ()):
                    facts = functions[key]
                    if not (variable and (name in facts.positional or name in facts.keyword_only)):
                        self.found(f"{seen_from}::{key}", facts)

    def _is_rare(self, name: str, users: Mapping[str, list[str]]) -> bool:
        few = self.names.count[name] <= FEW or sum(map(len, users.values())) <= MANY
        return few and "_" in name.strip("_")

    def sees(self, name: str, path: str, users: Mapping[str, list[str]]) -> list[str]:
        """Return the files where ``name`` means that of ``path``: that import it, or the package that passes it on;
        so common a name, in its own file alone."""
        if sum(map(len, users.values())) > OFTEN:
            return [path]
        package = f"{path.removesuffix('.py').removesuffix('/__init__').rpartition('/')[0]}/__init__.py"
        passed_on = self.names.parts.get(package, ())
        near = self.project.importers(path)
        through = self.project.importers(package) if name in passed_on or "*" in passed_on else ()
        return [user for user in users if user == path or user in near or user in through]


def _called_by(facts: FunctionFacts) -> str:
    """Return the name under which others call a function: a constructor's is its class."""
    return facts.owner.rpartition(".")[2] if facts.name in _CLASSES else facts.name


def _makers(project: Project, found: set[str]) -> set[str]:
    """Return constructors of classes that matter: what they store, the methods read."""
    more: set[str] = set()
    for reference in found:
        path, _, key = reference.partition("::")
        owner = project.summaries[path].functions[key].owner
        if owner:
            methods = project.summaries[path].classes[owner].methods
            more.update(f"{path}::{made}" for name, made in methods if name in _MAKERS)
    return more


def _factories(project: Project, names: Names, found: set[str]) -> set[str]:
    """Return functions that may return an object of a class that matters, or keep one in their own object: whoever
    calls its methods asks what it is."""
    walk, more = _Walk(project, names), set[str]()
    split = (one.split("::") for one in found)
    for path, owner in {(path, project.summaries[path].functions[key].owner) for path, key in split}:
        name = owner.rpartition(".")[2]
        users = names.named_by.get(name, {})
        for seen_from in walk.sees(name, path, users):
            functions = project.summaries[seen_from].functions
            makes = ((key, functions[key]) for key in users.get(seen_from, ()))
            gives = (key for key, facts in makes if b"return" in facts.body or (facts.owner and facts.stored))
            more.update(f"{seen_from}::{key}" for key in gives)
    return more
