"""The laws of the house, read from the imports of every file (those inside functions and ``if`` blocks too)."""

from __future__ import annotations

import ast
import math
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
            "extent",
            "digest",
            "clock",
            "events",
            "findings",
            "names",
            "report",
            "evidence",
            "failure",
            "process",
            "program",
            "messages",
            "storage",
            "agent",
        ],
        1,
    ),
    **dict.fromkeys(["world", "arrays", "launch", "check"], 2),
    "gate": 3,
    **dict.fromkeys(["consistency", "data", "hang", "readiness"], 4),
    **dict.fromkeys(["checkpoint", "doctor", "guard", "rehearse"], 5),
    "loading": 6,
    **dict.fromkeys(["cli", "integrations", "testing"], 7),
    **dict.fromkeys(["__init__", "__main__"], 8),
}
# Within a part: a package may import those before it alone. What stands in the part itself may import all.
STOREYS = {"check": ["sources", "tables", "summaries", "interpret", "survey", "tree", "rules", "results"]}
# Values in, values out: no clock, no environment, no file, no process, no network.
PURE = {
    "arrays/base.py",
    "arrays/batch.py",
    "arrays/grid.py",
    "arrays/leaves/base.py",
    "arrays/opened.py",
    "arrays/walk.py",
    "checkpoint/cadence.py",
    "checkpoint/chunks.py",
    "checkpoint/commit.py",
    "checkpoint/commit_words.py",
    "checkpoint/cover.py",
    "checkpoint/dtypes.py",
    "checkpoint/export_plan.py",
    "checkpoint/facts.py",
    "checkpoint/image.py",
    "checkpoint/json_value.py",
    "checkpoint/leftovers.py",
    "checkpoint/manifest.py",
    "checkpoint/manifest_encode.py",
    "checkpoint/manifest_json.py",
    "checkpoint/match.py",
    "checkpoint/metrics.py",
    "checkpoint/paths.py",
    "checkpoint/restore_plan.py",
    "checkpoint/resume_gate.py",
    "checkpoint/retention.py",
    "checkpoint/save_plan.py",
    "checkpoint/shards.py",
    "checkpoint/sound.py",
    "consistency/fingerprint.py",
    "consistency/plan.py",
    "consistency/verdict.py",
    "consistency/vote.py",
    "data/agreement.py",
    "data/base.py",
    "data/gaps.py",
    "data/guarantees.py",
    "data/index.py",
    "data/ledger.py",
    "data/lineage.py",
    "data/mix.py",
    "data/order.py",
    "data/outlook.py",
    "data/pack.py",
    "data/plan.py",
    "data/sources/columns.py",
    "data/sources/lines.py",
    "data/sources/parts.py",
    "data/sources/tar.py",
    "data/tokenizers/base.py",
    "data/transform.py",
    "data/under_way.py",
    "digest.py",
    "doctor/clocks.py",
    "doctor/devices.py",
    "doctor/disk.py",
    "doctor/machine.py",
    "doctor/network.py",
    "doctor/page.py",
    "doctor/ranks.py",
    "doctor/row.py",
    "doctor/software.py",
    "errors.py",
    "extent.py",
    "failure.py",
    "findings.py",
    "gate/lockstep/c10d.py",
    "gate/lockstep/world_order.py",
    "gate/lockstep/predictor.py",
    "gate/lockstep/hlo.py",
    "gate/lockstep/outcome.py",
    "gate/lockstep/schedule.py",
    "gate/lockstep/steps.py",
    "gate/lockstep/variants.py",
    "gate/ticket.py",
    "guard/replicas.py",
    "hang/alarm.py",
    "hang/beat.py",
    "hang/calls.py",
    "hang/diagnose.py",
    "hang/flight.py",
    "hang/limits.py",
    "hang/sites.py",
    "hang/stragglers.py",
    "hang/words.py",
    "loading/fit.py",
    "loading/formats/crc.py",
    "loading/formats/unpickle.py",
    "loading/guess.py",
    "checkpoint/names.py",
    "loading/report.py",
    "evidence.py",
    "launch/chatter.py",
    "launch/crash.py",
    "launch/environment.py",
    "launch/explain.py",
    "launch/fold.py",
    "launch/found.py",
    "launch/job.py",
    "launch/limits.py",
    "launch/lines.py",
    "launch/merge.py",
    "launch/page.py",
    "launch/paint.py",
    "launch/restarts.py",
    "launch/standstill.py",
    "launch/supervise.py",
    "launch/verdict.py",
    "messages/book.py",
    "messages/known.py",
    "messages/known_gloo.py",
    "messages/known_jax.py",
    "messages/known_system.py",
    "messages/known_torch.py",
    "names/variables.py",
    "readiness/batch.py",
    "readiness/facts.py",
    "readiness/report.py",
    "readiness/variables.py",
    "report/base.py",
    "report/columns.py",
    "report/document.py",
    "report/excerpt.py",
    "report/forms.py",
    "report/full.py",
    "report/github.py",
    "report/html.py",
    "report/ink.py",
    "report/markdown.py",
    "report/moved.py",
    "report/page_style.py",
    "report/readiness.py",
    "report/sarif.py",
    "storage/base.py",
    "storage/faults.py",
    "topology.py",
    "world/codec.py",
    "world/faults.py",
    "world/outcome.py",
    "world/rendezvous.py",
    "world/signs.py",
    "world/ticket.py",
    "world/tree.py",
}
# Parts that are pure but for these files.
PURE_PARTS = {"check": {"cache.py", "crew.py", "files.py", "pages.py"}}
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
}
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


def is_pure(path: Path) -> bool:
    return name(path) in PURE or path.name not in PURE_PARTS.get(part(path), {path.name})


def imports(tree: ast.AST, *, of: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every module that a file names in an import, dotted and absolute."""
    package = ["allranks", *of.relative_to(ROOT).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


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
            if not both_ground:
                faults.append(f"{where}: {here} (floor {FLOOR[here]}) imports {rest[0]} (floor {FLOOR[rest[0]]})")
        if storey_of(name(path).split("/")) < storey_of(rest):
            faults.append(f"{where}: a package imports {rest[1]}, which stands above it")
        if is_pure(path) and top in EFFECTS:
            faults.append(f"{where}: a pure file imports {top}")
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
        ("check/tables/data.py", "from allranks.check.interpret.values import Value", "stands above"),
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


def test_nine_functions_in_ten_are_short() -> None:
    lengths = sorted(length(f) for path in FILES for f in functions(ast.parse(path.read_text())))
    assert lengths[int(len(lengths) * 0.9)] <= P90_FUNCTION


# Packages whose own names are those of their parts, imported when they are first asked for.
_FACES = ("allranks.__init__", "allranks.checkpoint")


def test_no_import_goes_in_a_circle() -> None:
    """Hidden imports counted."""
    modules = {"allranks." + name(p).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): p for p in FILES}
    graph = {
        module: {m for m, _ in imports(ast.parse(path.read_text()), of=path) if m in modules and m != module}
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
