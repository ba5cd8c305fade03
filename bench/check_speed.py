"""How fast ``allranks check`` is: cold, warm and after a change, beside a bare ``ast.parse`` and the peers' linters."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.measure import ROOT
from bench.page import duration, table, times

PEERS = ("torchfix==0.7.0", "torch-preflight==0.5.0")
PEERS_FOLDER = Path(tempfile.gettempdir(), "allranks-bench-check-peers")
PARSE = """
import ast, pathlib, sys, warnings
warnings.simplefilter("ignore")
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    ast.parse(file.read_bytes())
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to go through a tree. ``before`` brings the tree into the state that the way is about."""

    name: str
    command: tuple[str, ...]
    before: Callable[[], None]


def tables(*, quick: bool) -> str:
    """One table a tree: 100 files, and the whole of torch."""
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])  # type: ignore[union-attr, index]
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        _copy(torch / "distributed", small, 100)
        texts = [_compared(small, "100 files", 1 if quick else 3, peers=True)]
        if not quick:
            _copy(torch, large, None)
            texts.append(_compared(large, "all of torch", 3, peers=False))
    return "\n\n".join(texts)


def _copy(package: Path, into: Path, most: int | None) -> None:
    for file in sorted(package.rglob("*.py"))[:most]:
        target = into / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    (into / "pyproject.toml").write_text("[tool.allranks.check]\n")


def _compared(tree: Path, name: str, rounds: int, *, peers: bool) -> str:
    ways = [*_ours(tree), *(_theirs(tree) if peers else [])]
    took: Mapping[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:  # in turns, so that a slow minute of the machine is everybody's
            way.before()
            took[way.name].append(_timed(way.command, tree))
    seconds = {way: median(second for second, _ in runs) for way, runs in took.items()}
    parse = seconds["ast.parse alone"]
    files = list(tree.rglob("*.py"))
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    rows = [
        (way, duration(second), times(second, parse), f"{lines / second:,.0f}", f"{_largest(took[way]):.0f} MB")
        for way, second in seconds.items()
    ]
    head = f"{name}: {len(files):,} files, {lines:,} lines"
    return table((head, "median", "of ast.parse", "lines a second", "memory, largest process"), rows)


def _ours(tree: Path) -> list[Way]:
    check = (sys.executable, "-m", "allranks", "check", "--exit-zero", "--output-format", "concise", str(tree))
    cache = tree / ".allranks_cache"
    first = min(tree.rglob("*.py"))
    text = first.read_bytes()

    def changed() -> None:
        first.write_bytes(text + f"# {time.monotonic_ns()}\n".encode())

    return [
        Way("ast.parse alone", (sys.executable, "-c", PARSE, str(tree)), lambda: None),
        Way("allranks check, no cache yet", check, lambda: shutil.rmtree(cache, ignore_errors=True)),
        Way("allranks check, again", check, lambda: None),
        Way("allranks check, one file changed", check, changed),
    ]


def _theirs(tree: Path) -> list[Way]:
    tools = PEERS_FOLDER / "bin"
    if not all((tools / name.partition("==")[0]).exists() for name in PEERS):
        venv.create(PEERS_FOLDER, with_pip=True, clear=True)
        subprocess.run([tools / "pip", "install", "--quiet", *PEERS], check=True)
    return [
        Way("torchfix, all its rules", (str(tools / "torchfix"), "--select", "ALL", str(tree)), lambda: None),
        Way("torch-preflight", (str(tools / "torch-preflight"), "check", str(tree)), lambda: None),
    ]


def _timed(command: Sequence[str], tree: Path) -> tuple[float, float]:
    """Return the seconds of a command, and the memory of its largest process in MB. It may find what it likes."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # torch has a types.py, which is not Python's
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # who installs a program has it compiled
    begin = time.monotonic()
    child = subprocess.Popen(command, cwd=tree, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    told = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise RuntimeError(
            f"{' '.join(command)} ended with {child.returncode}:\n{told.decode(errors='replace')[-2000:]}"
        )
    return time.monotonic() - begin, usage.ru_maxrss * 1024 / 1e6


def _largest(runs: Sequence[tuple[float, float]]) -> float:
    return max(memory for _, memory in runs)
