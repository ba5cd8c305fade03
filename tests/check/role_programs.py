"""Small programs of four ranks: made by chance, really run for each rank, and simulated."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from allranks.check.knowledge.tables import load
from allranks.check.project.modules import Modules
from allranks.check.simulate.simulator import Simulator
from allranks.check.traces.nodes import Result

# Rank and local rank of the four roles.
ROLES = ((0, 0), (8, 0), (3, 3), (5, 5))
HEAD = """\
import os
import torch.distributed as dist

rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
"""
CONDITIONS = (
    "rank == 0",
    "rank != 0",
    "rank > 0",
    "not rank",
    "local_rank == 0",
    "rank == 0 and flag",
    "rank == 0 or other",
    "rank in (0,)",
    "is_main()",
    "flag",
    "not other",
    "world > 1",
)


def simulate(files: dict[str, str], entry: str) -> Result:
    """Return what a program does, for the four roles."""
    trees = {path: ast.parse(text) for path, text in files.items()}
    knowledge = load()
    return Simulator(trees, Modules.of(files, installed=knowledge.installed), knowledge).run_program(entry)


@st.composite
def blocks(draw: st.DrawFn, depth: int = 3, *, leaves: tuple[str, ...], exits: bool = False) -> list[str]:
    """Make the statements of a block: calls of ``leaves``, conditions on the rank, loops, and returns if ``exits``."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["leaf", "leaf", "if", "ifelse", "for", "try"] if depth else ["leaf"]))
        if kind == "leaf":
            lines.append(draw(st.sampled_from(leaves)))
            continue
        # Who leaves a loop early may meet the others as often as they meet each other, by chance.
        inside = draw(blocks(depth - 1, leaves=leaves, exits=exits and kind != "for"))
        if kind in ("if", "ifelse"):
            lines.append(f"if {draw(st.sampled_from(CONDITIONS))}:")
            lines += [f"    {line}" for line in inside]
            if exits and draw(st.booleans()):
                lines.append("    return")
            if kind == "ifelse":
                lines.append("else:")
                lines += [f"    {line}" for line in draw(blocks(depth - 1, leaves=leaves, exits=exits))]
        elif kind == "for":
            lines += ["for _ in rounds():", *(f"    {line}" for line in inside)]
        else:
            lines += ["try:", *(f"    {line}" for line in inside), "finally:", "    pass"]
    return lines


def program(*bodies: list[str]) -> str:
    """Return a program whose function ``work`` has the last body; the others are those of ``helper0``, ``helper1``."""
    lines = ["flag, other, world = True, False, dist.get_world_size()", "def is_main():", "    return rank == 0"]
    for at, body in enumerate(bodies[:-1]):
        lines += [f"def helper{at}():", *(f"    {line}" for line in body)]
    lines += ["def work():", *(f"    {line}" for line in bodies[-1]), "work()", ""]
    return HEAD + "\n".join(lines)


def run(text: str, role: int) -> list[str]:
    """Run a program for one role, and return what it calls: ``barrier``, ``all_reduce``, ``open NAME``; what is called
    in a loop stands between brackets."""
    rank, local = ROLES[role]
    calls: list[str] = []
    dist = SimpleNamespace(
        get_rank=lambda: rank,
        get_world_size=lambda: 16,
        barrier=lambda: calls.append("barrier"),
        all_reduce=lambda _: calls.append("all_reduce"),
    )
    modules: dict[str, Any] = {
        "os": SimpleNamespace(environ={"LOCAL_RANK": str(local)}),
        "torch.distributed": SimpleNamespace(distributed=dist),
    }

    def rounds() -> Iterator[int]:
        calls.append("(")
        yield from (1, 2)
        if calls[-1] == "(":
            calls.pop()
        else:
            calls.append(")")

    def find(name: str, *_: Any) -> Any:
        return modules[name]

    def write(name: str, _: str) -> None:
        calls.append(f"open {name}")

    # `import torch.distributed as dist` takes the attribute `distributed` of what the import gives.
    names = {
        "__builtins__": {**vars(builtins), "__import__": find, "open": write, "rounds": rounds},
        "__name__": "__main__",
    }
    exec(compile(text, "train.py", "exec"), names)
    return calls
