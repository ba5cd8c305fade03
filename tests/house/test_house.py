"""The laws of the house, read from the imports of every file (those inside functions and ``if`` blocks too)."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "allranks"
FILES = sorted(ROOT.rglob("*.py"))

FLOOR = {
    **dict.fromkeys(
        [
            "errors",
            "callsite",
            "topology",
            "arguments",
            "extent",
            "digest",
            "clock",
            "deprecation",
            "events",
            "findings",
            "names",
            "report",
            "evidence",
            "failure",
            "process",
            "program",
            "secret_values",
            "messages",
            "settings",
            "engine_variables",
            "source",
            "storage",
            "agent",
        ],
        1,
    ),
    **dict.fromkeys(["world", "arrays", "launch", "engines", "check"], 2),
    **dict.fromkeys(["gate", "engines"], 3),
    **dict.fromkeys(["consistency", "data", "hang", "readiness"], 4),
    **dict.fromkeys(["checkpoint", "doctor", "guard", "rehearse"], 5),
    "loading": 6,
    **dict.fromkeys(["cli", "integrations", "testing"], 7),
    **dict.fromkeys(["__init__", "__main__"], 8),
}
# Within a part: a package may import those before it alone. What stands in the part itself may import all.
STOREYS = {"check": ["project", "sources", "knowledge", "simulate", "queries", "tree", "rules", "results"]}
# Every file is pure (values in, values out: no clock, environment, file, process, network) but for those listed there.
WITH_EFFECTS = frozenset(Path(__file__).with_name("effects.txt").read_text().split())
EFFECTS = {"os", "sys", "time", "random", "socket", "subprocess", "threading", "select", "selectors", "pathlib"}
FRAMEWORKS = {
    "jax": "jax.py",
    "jaxlib": "jax.py",
    "torch": "torch.py",
    "obstore": "object.py",
    "cloudpickle": "wire.py",
    "orjson": "jsonl.py",
    "tensorstore": "orbax.py",
    "zstandard": "zstd.py",
    "grain": "grain.py",
    "tokenizers": "huggingface.py",
    "transformers": "huggingface.py",
    "lightning": "lightning.py",
    "accelerate": "accelerate.py",
    "kubernetes": "kubernetes.py",
    "sky": "skypilot.py",
    "ray": "ray.py",
}
# The name of one of our modules, or its beginning, as an f-string may have it.
_MODULE = re.compile(r"allranks(\.\w+)+\.?")
# The agent is started before we are imported, and imports parts of us by their names when they are needed.
ENTRANCES = {"agent/allranks_agent_guard.py", "agent/allranks_agent_hang.py"}
# These may import the whole library, as a program does: the fork server has it imported for the ranks that it forks.
AS_A_PROGRAM = {"launch/fork_server_main.py"}
# Only these may import inside a function: they choose among what is installed, or keep the command line fast.
LAZY = {"detect.py"}
LAZY_PARTS = {"cli"}
LONGEST_FILE, LONGEST_FUNCTION, P90_FUNCTION = 400, 60, 30


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def storey_of(parts: list[str]) -> float:
    """Return how high a package of a part stands; nothing else is above or below anything."""
    within = STOREYS.get(parts[0], []) if len(parts) > 1 else []
    return within.index(parts[1]) if parts[1:] and parts[1] in within else math.nan


def imports(tree: ast.AST, *, of: Path) -> Iterator[tuple[str, ast.stmt | ast.Constant]]:
    """Every module that a file names in an import, dotted and absolute, or, of ours, in a string."""
    package = ["allranks", *of.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield node.value.rstrip("."), node


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a file of ours."""
    return ast.parse(path.read_text())


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code of a function: its docstring is the contract and does not count."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def faults_of(path: Path, source: str) -> list[str]:
    """Every law that this source, standing at this path, breaks."""
    tree, here, faults = ast.parse(source), part(path), []
    if here not in FLOOR:
        return [f"{name(path)}: part {here!r} stands on no floor; add it to FLOOR and to docs/architecture.md"]
    lazy = {n for f in functions(tree) for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)}
    for module, node in imports(tree, of=path):
        top, *rest = module.split(".")
        where = f"{name(path)}:{node.lineno}"
        if top == "allranks" and rest and rest[0] in FLOOR and rest[0] != here and FLOOR[rest[0]] >= FLOOR[here]:
            both_ground = FLOOR[rest[0]] == FLOOR[here] == 1
            if not both_ground and name(path) not in ENTRANCES:
                faults.append(f"{where}: {here} (floor {FLOOR[here]}) imports {rest[0]} (floor {FLOOR[rest[0]]})")
        if storey_of(name(path).split("/")) < storey_of(rest):
            faults.append(f"{where}: a package imports {rest[1]}, which stands above it")
        if name(path) not in WITH_EFFECTS and top in EFFECTS:
            faults.append(f"{where}: a pure file imports {top}")
        if module == "allranks" and isinstance(node, ast.Import) and name(path) not in AS_A_PROGRAM:
            faults.append(f"{where}: imports allranks as a whole, which stands above all parts")
        framework_file = FRAMEWORKS.get(top)
        if framework_file and path.name != framework_file and here != "integrations":
            faults.append(f"{where}: imports {top} outside a file called {framework_file}")
        if node in lazy and path.name not in LAZY and here not in LAZY_PARTS:
            faults.append(f"{where}: imports inside a function")
    if (lines := source.count("\n")) > LONGEST_FILE:
        faults.append(f"{name(path)}: {lines} lines, at most {LONGEST_FILE}")
    for function in functions(tree):
        if length(function) > LONGEST_FUNCTION:
            faults.append(f"{name(path)}:{function.lineno}: {function.name} has {length(function)} lines")
    return faults


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_keeps_the_laws(path: Path) -> None:
    """Floors, purity, frameworks in their own files, no hidden import, bounded lengths."""
    assert faults_of(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("where", "source", "says"),
    [
        ("world/base.py", "from allranks.gate import main_rank", "floor 3"),
        ("world/base.py", "from ..checkpoint import paths", "floor 5"),
        ("world/tree.py", "import time", "pure"),
        ("check/rules/ar999.py", "import os", "pure"),
        ("check/knowledge/data.py", "from allranks.check.simulate.values import Value", "stands above"),
        ("world/base.py", "import_module('allranks.gate')", "floor 3"),
        ("world/base.py", "import_module(f'allranks.checkpoint.{name}')", "floor 5"),
        ("world/base.py", "import allranks", "as a whole"),
        ("gate/main_rank.py", "import torch.distributed", "torch.py"),
        ("gate/main_rank.py", "def f():\n    import json", "inside a function"),
        ("cli/run.py", "x = 1\n" * 401, "401 lines"),
        ("cli/run.py", "def f():\n" + "    x = 1\n" * 60, "61 lines"),
        ("helper.py", "", "no floor"),
    ],
)
def test_a_broken_law_is_found(where: str, source: str, says: str) -> None:
    """The reader of laws can fail: each fault, planted, is named."""
    faults = faults_of(ROOT / where, source)
    assert len(faults) >= 1
    assert says in faults[0]


def test_files_with_effects_have_some() -> None:
    """The list names no file that is pure, or gone."""
    trees = {name(path): imports(tree_of(path), of=path) for path in FILES if name(path) in WITH_EFFECTS}
    modules = {path: {module.split(".")[0] for module, _ in found} for path, found in trees.items()}
    assert [path for path in sorted(WITH_EFFECTS) if not modules.get(path, set()) & EFFECTS] == []


def test_nine_functions_in_ten_are_short() -> None:
    lengths = sorted(length(f) for path in FILES for f in functions(tree_of(path)))
    assert lengths[int(len(lengths) * 0.9)] <= P90_FUNCTION


# Packages whose own names are those of their parts, imported when they are first asked for.
_FACES = ("allranks.__init__", "allranks.checkpoint")


def test_no_import_goes_in_a_circle() -> None:
    """Hidden imports counted."""
    modules = {"allranks." + name(p).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): p for p in FILES}
    graph = {
        module: {m for m, _ in imports(tree_of(path), of=path) if m in modules and m != module}
        for module, path in modules.items()
        if module not in _FACES
    }
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module in done:
            return
        for other in sorted(graph.get(module, ())):
            walk(other, (*trail, module))
        done.add(module)

    for module in sorted(graph):
        walk(module, ())


def test_files_of_tests_have_names_of_their_own() -> None:
    """The folders are no packages: of two with one name, one would not be run."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
