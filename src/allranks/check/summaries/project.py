"""The repository's own names: which file a module is, what a dotted name leads to, what a class inherits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from allranks.check.sources.around import closed
from allranks.check.summaries.render import under_main
from allranks.check.summaries.summary import ClassFacts, FunctionFacts, Node, Summary, body_of
from allranks.check.tables.names import documented
from allranks.check.tables.python import OWN_MODULES

_PROPERTIES = ("property", "functools.cached_property", "cached_property")
_TELLING = re.compile(
    r"(?i)init|set_?up|launch|join|start|spawn|epoch|device|cuda|backward|zero_grad|value_and_grad|cycle|StopIteration|seed|"
    r"Trainer$|DistributedSampler$|Accelerator$|^split_dataset_by_node$"
)
_TRAINER = re.compile(r"Trainer$|TrainingArguments$")
# Who imports one of these means what is installed, whatever folders of that name there are.
_INSTALLED = frozenset(
    [
        *(
            "torch",
            "jax",
            "numpy",
            "tensorflow",
            "flax",
            "transformers",
            "accelerate",
            "deepspeed",
            "lightning",
            "apex",
        ),
        *("pytorch_lightning", "horovod", "wandb", "optax", "torchvision", "torchaudio", "mpi4py", "ray"),
    ]
)
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+")
SHARDS = re.compile(r"fsdp|fully_?shard|deepspeed|zero_?stage|zero3|DTensor|distribute_tensor", re.IGNORECASE)
# Members of an enumeration: who asks whether it is one of these need not have it.
_METRICS = re.compile(r"torchmetrics|lightning.*\bmetrics\b")
_ASKED = frozenset({"FSDP", "DEEPSPEED"})


@dataclass(slots=True)
class Project:
    """Summaries by path. A function or class of the project is written ``path::key``, a module ``@path``."""

    summaries: Mapping[str, Summary]
    _modules: dict[str, list[str]] = field(default_factory=dict)
    _defined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _functions: dict[str, FunctionFacts | None] = field(default_factory=dict)
    _classes: dict[str, ClassFacts | None] = field(default_factory=dict)
    _properties: dict[str, str] = field(default_factory=dict)
    _methods: dict[str, dict[str, str]] = field(default_factory=dict)
    _filled: dict[str, bool] = field(default_factory=dict)
    _sharding: frozenset[str] | None = None
    _started: frozenset[str] | None = None
    _reduces_logs: bool | None = None
    _splits: dict[tuple[str, str], tuple[str, tuple[str, ...]] | None] = field(default_factory=dict)
    _imported: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _users: dict[str, dict[str, None]] = field(default_factory=dict)
    _calls: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defined: dict[str, list[str]] = {}
        for path, summary in self.summaries.items():
            parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
            for start in range(len(parts)):
                self._modules.setdefault(".".join(parts[start:]), []).append(path)
            for key, facts in summary.functions.items():
                if facts.owner and key == f"{facts.owner}.{facts.name}":
                    defined.setdefault(facts.name, []).append(f"{path}::{key}")
        self._defined = {name: tuple(found) for name, found in defined.items()}

    def function(self, reference: str) -> FunctionFacts | None:
        if reference not in self._functions:
            path, _, key = reference.partition("::")
            known = path in self.summaries and key
            self._functions[reference] = self.summaries[path].functions.get(key) if known else None
        return self._functions[reference]

    def cls(self, reference: str) -> ClassFacts | None:
        if reference not in self._classes:
            path, _, key = reference.partition("::")
            known = path in self.summaries and key
            self._classes[reference] = self.summaries[path].classes.get(key) if known else None
        return self._classes[reference]

    def class_body(self, reference: str) -> tuple[Node, ...]:
        """Return the statements of a class of the project; none for what is no such class."""
        facts = self.cls(reference)
        return body_of(facts) if facts is not None else ()

    def only_property(self, name: str) -> str:
        """Return the property of this name that one class of the project has; '' if none or several have one."""
        if not self._properties:
            self._properties[""] = ""
            for path, summary in self.summaries.items():
                for kind in summary.classes.values():
                    for method, key in kind.methods:
                        if is_property(summary.functions[key].decorators):
                            self._properties[method] = "" if method in self._properties else f"{path}::{key}"
        return self._properties.get(name, "")

    def methods(self, reference: str) -> Mapping[str, str]:
        """Return the functions that a class of the project defines, by name; none for what is no such class."""
        if reference not in self._methods:
            facts, path = self.cls(reference), reference.partition("::")[0]
            self._methods[reference] = {
                name: f"{path}::{key}" for name, key in reversed(facts.methods if facts else ())
            }
        return self._methods[reference]

    def is_filled(self, reference: str) -> bool:
        """Whether a class of the project is filled by names that are settings, or does nothing but hold what others
        store in it: what is stored there are defaults."""
        if reference not in self._filled:
            facts, methods = self.cls(reference), map(self.function, self.methods(reference).values())
            named = [method for method in methods if method is not None]
            empty = facts is not None and not named and not body_of(facts)
            self._filled[reference] = empty or any("setattr" in method.words for method in named)
        return self._filled[reference]

    def defined(self, name: str) -> tuple[str, ...]:
        """Return all methods of the project that are called ``name``."""
        return self._defined.get(name, ())

    def shards(self, path: str) -> bool:
        """Whether a file, one that it imports or one that imports it names what keeps a model in parts."""
        if self._sharding is None:
            self._sharding = self.around({p for p, summary in self.summaries.items() if _names_shards(summary)})
        return path in self._sharding

    def reduces_logs(self) -> bool:
        """Whether a file imports metrics that are objects, or speaks of Lightning's ``sync_dist``."""
        if self._reduces_logs is None:
            self._reduces_logs = any(map(_reduces_logs, self.summaries.values()))
        return self._reduces_logs

    def around(self, paths: Collection[str]) -> frozenset[str]:
        """Return these files, all that lead to them by imports, and all that they import."""
        if not paths:
            return frozenset()
        return frozenset(closed(paths, self.importers) | closed(paths, self.imported))

    def calls(self, package: str, words: frozenset[str]) -> bool:
        """Return whether a file that imports ``package`` names one of ``words``."""
        key = (package, words)
        if key not in self._calls:
            self._calls[key] = any(
                not words.isdisjoint(facts.words)
                for summary in self.summaries.values()
                if summary.uses(package)
                for facts in summary.functions.values()
            )
        return self._calls[key]

    def is_program(self, path: str) -> bool:
        """Return whether a file does something where it is run that it does not do where it is imported."""
        body = body_of(self.summaries[path].functions[""])
        return any(map(under_main, body))

    def reach(self, path: str) -> frozenset[str]:
        """Return the files that a file imports, those that these import, and so on, and itself."""
        return frozenset(closed([path], self.imported))

    def users(self, path: str) -> frozenset[str]:
        """Return the files that import a file, those that import these, and so on, and itself."""
        return frozenset(closed([path], self.importers))

    def importers(self, path: str) -> Mapping[str, None]:
        """Return the files that import a file."""
        if not self._users:
            for user in self.summaries:
                for used in self.imported(user):
                    self._users.setdefault(used, {})[user] = None
        return self._users.get(path, {})

    def module(self, dotted: str, seen_from: str, name: str = "") -> str | None:
        """Return the path of a module as ``seen_from`` imports ``name`` of it; None if it is not the project's."""
        if dotted.startswith("."):
            return self._relative(dotted, seen_from)
        found = self._modules.get(dotted)
        if not found:
            return None
        if len(found) == 1:
            return found[0] if "." in dotted or self._plausible(found[0], dotted, seen_from) else None
        near = [p for p in found if self._plausible(p, dotted, seen_from)] or (found if "." in dotted else [])
        near = [p for p in near if self._has(p, name)] or near
        if "." not in dotted and len(near) > 1:
            near = [p for p in near if not self._is_part(p)] or near
        if not near:
            return None
        return max(near, key=lambda p: (_shared(p, seen_from), -p.removesuffix("/__init__.py").count("/"), -len(p)))

    def _has(self, path: str, name: str) -> bool:
        """Whether a module of several of one name is that which has what is asked of it."""
        summary = self.summaries[path]
        known = name in summary.functions or name in summary.classes or name in summary.functions[""].stored
        return known or any(bound == name for _, bound in summary.imports)

    def _plausible(self, path: str, dotted: str, seen_from: str) -> bool:
        """A bare name means a module beside the importer, above it, or at a root of imports: in no other package."""
        if path == seen_from:  # tracker/wandb.py imports the wandb that is installed
            return False
        stem = path.removesuffix(".py").removesuffix("/__init__")
        root = stem.removesuffix(dotted.replace(".", "/"))
        if dotted in _INSTALLED:
            return root in ("", "src/")
        in_package = f"{root}__init__.py" in self.summaries
        if dotted in OWN_MODULES:  # only what lies beside a script comes before Python's own
            return root == seen_from[: seen_from.rfind("/") + 1] and not in_package
        return seen_from.startswith(root) or root in ("", "src/") or not in_package

    def _is_part(self, path: str) -> bool:
        """Whether a module lies in a package that no program lies in: a bare name does not lead there."""
        inside = path.removesuffix("/__init__.py") if path.endswith("/__init__.py") else path
        folder = inside.rpartition("/")[0]
        if f"{folder}/__init__.py" not in self.summaries:
            return False
        if self._started is None:
            self._started = frozenset(p.rpartition("/")[0] for p in self.summaries if self.is_program(p))
        return folder not in self._started

    def _relative(self, dotted: str, seen_from: str) -> str | None:
        level = len(dotted) - len(dotted.lstrip("."))
        folder = seen_from.split("/")[:-level]
        stem = "/".join([*folder, *[part for part in dotted[level:].split(".") if part]])
        for path in (f"{stem}.py", f"{stem}/__init__.py") if stem else ("__init__.py",):
            if path in self.summaries:
                return path
        return None

    def split(self, dotted: str, seen_from: str) -> tuple[str, tuple[str, ...]] | None:
        """Return (path of the module, names inside it) of a dotted name; None if no part of it is the project's."""
        key = (dotted, seen_from)
        if key not in self._splits:
            self._splits[key] = self._split(dotted, seen_from)
        return self._splits[key]

    def _split(self, dotted: str, seen_from: str) -> tuple[str, tuple[str, ...]] | None:
        dots = len(dotted) - len(dotted.lstrip("."))
        parts = dotted[dots:].split(".") if dotted[dots:] else []
        for end in range(len(parts), -1 if dots else 0, -1):
            path = self.module("." * dots + ".".join(parts[:end]), seen_from, parts[end] if end < len(parts) else "")
            if path is None:
                continue
            whole = end == len(parts) and end > (0 if dots else 1)
            package = self.module("." * dots + ".".join(parts[: end - 1]), seen_from) if whole else None
            if package is not None and self.rebinds(package, parts[-1], path):
                return package, (parts[-1],)
            return path, tuple(parts[end:])
        return None

    def rebinds(self, package: str, name: str, module: str) -> bool:
        """Whether a package binds the name of one of its modules to something else: ``from .train import train``."""
        summary = self.summaries[package]
        if not package.endswith("__init__.py") or package == module:
            return False
        if name in summary.functions or name in summary.classes:
            return True
        bound = [dotted for dotted, other in summary.imports if other == name]
        return bool(bound) and self.module(bound[-1], package) != module

    def imported(self, path: str) -> tuple[str, ...]:
        """Return the modules of the project that a file imports, in functions too, each once."""
        if path not in self._imported:
            self._imported[path] = tuple(dict.fromkeys(self._find_imported(path)))
        return self._imported[path]

    def _find_imported(self, path: str) -> Iterator[str]:
        for dotted, _ in self.summaries[path].imports:
            found = self.split(dotted, path)
            if found is not None:
                inner = self.module(f".{found[1][0]}", found[0]) if found[1] and "__init__" in found[0] else None
                yield inner or found[0]
        if self.summaries[path].uses("importlib"):
            for dotted in _modules_named(body_of(self.summaries[path].functions[""])):
                if (found := self.split(dotted, path)) is not None and not found[1]:
                    yield found[0]


def _modules_named(node: object) -> Iterator[str]:
    """Yield the texts in the code of a module that may be dotted names: modules that are brought in when asked for."""
    if isinstance(node, tuple):
        if len(node) == 2 and node[0] == "const" and isinstance(node[1], str) and _DOTTED.fullmatch(node[1]):
            yield node[1]
        for part in node:
            yield from _modules_named(part)


def is_property(decorators: Iterable[Node]) -> bool:
    return any(d[0] in ("name", "attr") and d[-1 if d[0] == "name" else 2] in _PROPERTIES for d in decorators)


def mentioned(project: Project, paths: Iterable[str] | None = None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the packages that files (all) import, and the words that may speak of a start, of training or of devices.

    Of transformers its trainer counts: who imports models from there starts and splits nothing with it.
    """
    summaries = [project.summaries[path] for path in (project.summaries if paths is None else paths)]
    packages = {documented(dotted).partition(".")[0] for summary in summaries for dotted, _ in summary.imports}
    functions = (facts for summary in summaries for facts in summary.functions.values())
    words = set().union(*(facts.words for facts in functions))
    trained = any(map(_TRAINER.search, words)) or any(_TRAINER.search(d) for s in summaries for d, _ in s.imports)
    if not trained:
        packages.discard("transformers")
    return frozenset(packages), frozenset(word for word in words if _TELLING.search(word))


def _shared(path: str, other: str) -> int:
    count = 0
    for one, two in zip(path.split("/"), other.split("/"), strict=False):
        if one != two:
            break
        count += 1
    return count


def _names_shards(summary: Summary) -> bool:
    return SHARDS.search("\n".join(word for word in _words(summary) if word not in _ASKED)) is not None


def _reduces_logs(summary: Summary) -> bool:
    bodies = (facts.body for facts in summary.functions.values())  # where keywords and texts stand as they are written
    return any(_METRICS.search(dotted) for dotted, _ in summary.imports) or any(b"sync_dist" in body for body in bodies)


def _words(summary: Summary) -> Iterator[str]:
    """Yield what a file imports, and the names that it uses."""
    yield from (dotted for dotted, _ in summary.imports)
    yield from summary.functions[""].words
