"""What a name of a project means: the simulation says what CPython's own import system says."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.check.knowledge.tables import load
from allranks.check.project.modules import Modules
from allranks.check.simulate.simulator import Simulator
from allranks.check.simulate.values import Class, Function, ModuleObject, Value

NAMES = ("train", "model", "utils", "save")
# Prints what each name of a program is: "function MODULE.NAME", "class ...", "module ...", or "missing".
ASK = """\
import importlib, json, sys, types
found = {}
for root in json.load(sys.stdin):
    sys.path.insert(0, root)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pkg", "main")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    told = {}
    try:
        main = importlib.import_module("main")
    except (ImportError, AttributeError):
        found[root] = None
    else:
        for name, value in vars(main).items():
            if name.startswith("_"):
                continue
            if isinstance(value, types.ModuleType):
                told[name] = f"module {value.__name__}"
            elif isinstance(value, type):
                told[name] = f"class {value.__module__}.{value.__qualname__}"
            elif callable(value):
                told[name] = f"function {value.__module__}.{value.__qualname__}"
        found[root] = told
    sys.path.remove(root)
print(json.dumps(found))
"""


def project(chance: random.Random) -> dict[str, str]:
    """Make a project: a package with modules that are named as their functions, re-exports, and a program."""
    files: dict[str, list[str]] = {"pkg/__init__.py": [], "main.py": []}
    if chance.random() < 0.4:
        files["pkg/sub/__init__.py"] = []
    for folder in {path.rpartition("/")[0] for path in files if "/" in path}:
        for name in chance.sample(NAMES, chance.randint(1, 3)):
            defined = chance.choice(NAMES)
            kind = chance.choice(("def {}(): pass", "class {}: pass"))
            files[f"{folder}/{name}.py"] = [kind.format(defined), "def helper(): pass"]
    modules = [path for path in files if path.startswith("pkg/") and not path.endswith("__init__.py")]
    for path in modules:
        folder, _, file = path.rpartition("/")
        name = file.removesuffix(".py")
        inside = files[path][0].replace("def ", "").replace("class ", "").partition("(")[0].partition(":")[0]
        if chance.random() < 0.7:
            line = chance.choice((f"from .{name} import {inside}", f"from .{name} import *", f"from . import {name}"))
            files[f"{folder}/__init__.py"].append(line)
    if "pkg/sub/__init__.py" in files and chance.random() < 0.5:
        files["pkg/__init__.py"].append("from . import sub")
    for at in range(4):
        path = chance.choice(modules)
        dotted = path.removesuffix(".py").replace("/", ".")
        above, _, last = dotted.rpartition(".")
        files["main.py"].append(
            chance.choice(
                (
                    f"from {above} import {last} as n{at}",
                    f"import {dotted} as n{at}",
                    f"from {dotted} import helper as n{at}",
                    f"import {above}\nn{at} = {dotted}",
                    f"from {above} import *",
                )
            )
        )
    return {path: "\n".join(lines) + "\n" for path, lines in files.items()}


def told(value: Value | None) -> str:
    """Return what a value is, as the program that asks CPython prints it."""
    if isinstance(value, ModuleObject):
        return f"module {value.name.removesuffix('.')}"
    if isinstance(value, Class):
        return f"class {value.module.name}.{value.name}"
    if isinstance(value, Function):
        return f"function {value.module.name}.{value.name}"
    return "missing"


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Projects made by chance, each with what CPython says of the names of its program."""
    chance = random.Random(7)
    made: dict[str, dict[str, str]] = {}
    for _ in range(150):
        files, root = project(chance), tmp_path_factory.mktemp("project")
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        made[str(root)] = files
    ran = subprocess.run(
        [sys.executable, "-c", ASK], input=json.dumps(list(made)), text=True, capture_output=True, check=True
    )
    answers: dict[str, dict[str, str] | None] = json.loads(ran.stdout)
    found = [(made[root], names) for root, names in answers.items() if names is not None]
    assert len(found) > 60
    return found


def test_names_mean_what_they_mean_to_python(projects: list[tuple[dict[str, str], dict[str, str]]]) -> None:
    for files, names in projects:
        trees = {path: ast.parse(text) for path, text in files.items()}
        simulator = Simulator(trees, Modules.of(files), load())
        main = simulator.module("main.py")
        assert {name: told(simulator.variable(main, name)) for name in names} == names, files


@pytest.mark.parametrize(
    ("files", "importer", "dotted", "expected"),
    [
        ({"wandb/run.py": "", "train.py": ""}, "train.py", "wandb", None),
        ({"datasets/__init__.py": "", "train.py": ""}, "train.py", "datasets", "datasets/__init__.py"),
        ({"tools/data.py": "", "train.py": ""}, "train.py", "tools.data", "tools/data.py"),
        ({"src/pkg/__init__.py": "", "src/pkg/a.py": "", "run.py": ""}, "run.py", "pkg.a", "src/pkg/a.py"),
        ({"ex/one/model.py": "", "ex/two/model.py": "", "ex/two/t.py": ""}, "ex/two/t.py", "model", "ex/two/model.py"),
        ({"pkg/__init__.py": "", "pkg/a.py": "", "pkg/b.py": ""}, "pkg/b.py", ".a", "pkg/a.py"),
        ({"pkg/__init__.py": "", "pkg/a.py": ""}, "pkg/a.py", "..a", None),
    ],
)
def test_the_folders_of_a_project_are_on_the_path(
    files: dict[str, str], importer: str, dotted: str, expected: str | None
) -> None:
    assert Modules.of(files, installed=load().installed).find(dotted, importer) == expected


def test_modules_are_found_without_a_search_of_the_disk(tmp_path: Path) -> None:
    assert Modules.of(["a.py"]).find("b", str(tmp_path / "a.py")) is None
