"""What a program's branches depend on, and which exceptions it catches: the instrumented source."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from allranks.rehearse.probe.branches import _float
from allranks.rehearse.probe.instrument import CAUGHT, CONDITION, OPERAND, RESET, Site, instrumented
from allranks.rehearse.probe.saves import leaves

STOPPER = """
class Stopper:
    stop = False
    def __call__(self, value):
        self.stop = value > 1

stopper = Stopper()
for value in values:
    stopper(value)
    if stopper.stop:
        break
"""
COUNTER = """
best, bad = 9.0, 0
for value in values:
    if value < best:
        best, bad = value, 0
    else:
        bad += 1
    if bad >= 2:
        break
"""
BRANCHES: dict[str, tuple[str, dict[int, tuple[str, ...]], list[float]]] = {
    "break": ("for value in values:\n    if value > 1:\n        break\n", {2: ("leave",)}, [0.5, 1.5]),
    "a flag": (
        "for value in values:\n    stop = value > 1\n    if stop:\n        break\n",
        {3: ("leave",)},
        [0.5, 1.5],
    ),
    "a stopper": (STOPPER, {10: ("leave",)}, [0.5, 1.5]),
    "a counter": (COUNTER, {8: ("leave",)}, [0.5, 9.0, 1.5, 0.5]),
    "a save": ("def save(): pass\nif values[0] < 1:\n    save()\n", {2: ("save",)}, [0.5]),
    "a loop": ("value = values[0]\nwhile value < 1:\n    value += 1.0\n", {2: ("leave",)}, [0.5, 1.5]),
    "a flag that another branch computes anew, or not": (
        "for value in values:\n stop = value > 1\n if value > 1:\n  stop = values[1] > 9\n if stop: break\n",
        {5: ("leave",)},
        [1.5],
    ),
    "a print": ("if values[0] < 1:\n    print()\n", {}, []),
    "a model": ("class M(Module):\n    def forward(self, x):\n        if x > 1: return 0\n", {}, []),
}


def run(source: str, **names: Any) -> tuple[list[Site], list[float], list[int]]:
    """Run an instrumented program; return its sites, the floats of its conditions, and the exceptions caught."""
    tree, sites = instrumented(source, "train.py")
    floats: list[float] = []
    caught: list[int] = []

    def operand(_: int, value: Any) -> Any:
        floats.extend([value] if isinstance(value, float) else [])
        return value

    def reset(_: int) -> bool:
        floats.clear()
        return True

    program = {OPERAND: operand, CONDITION: lambda _, value: value, CAUGHT: caught.append, RESET: reset}
    program |= {"Module": object, **names}
    exec(compile(tree, "train.py", "exec"), program)
    return sites, floats, caught


@pytest.mark.parametrize("name", BRANCHES)
def test_the_values_are_known_by_which_a_program_decides(name: str) -> None:
    source, controls, values = BRANCHES[name]
    sites, floats, _ = run(source, values=[0.5, 1.5])
    assert {site.line: site.controls for site in sites} == controls
    assert [one for one in floats if one in values] == [one for one in floats if one != 1.0]
    assert set(values) <= set(floats)


@pytest.mark.parametrize(
    ("handler", "controls"),
    [
        ("except Exception: pass", ("broad",)),
        ("except ValueError: pass", ()),
        ("except: raise", ("ends", "broad")),
        ("except Exception:\n    if values is None: raise", ("broad",)),
        ("except Exception:\n    import sys; sys.exit(1)", ("ends", "broad")),
        ("except Exception:\n    import sys; sys.exit(0)", ("broad",)),
    ],
)
def test_a_handler_says_what_it_catches_and_whether_it_ends_the_program(
    handler: str, controls: tuple[str, ...]
) -> None:
    _, sites = instrumented(f"try:\n    f()\n{handler}\n", "train.py")
    assert [site.controls for site in sites if site.line == 3] == [controls]
    assert sites[0].within == (2, 2)


def test_an_exception_is_reported_before_it_is_handled() -> None:
    sites, _, caught = run("try:\n    raise ValueError\nexcept ValueError:\n    x = 1\n")
    assert caught == [0]
    assert sites[0].line == 3


def test_lines_stay_where_they_were() -> None:
    tree, _ = instrumented(COUNTER, "train.py")
    before = [node.lineno for node in ast.walk(ast.parse(COUNTER)) if isinstance(node, ast.stmt)]
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)] == before


def test_many_branches_on_one_value_do_not_nest_without_end() -> None:
    """As in a parser: before a limit, this ended with a RecursionError."""
    lines = ["def choose(f, x):", "    token = f(x)", *(f"    if token > {i}: return {i}" for i in range(300))]
    tree, sites = instrumented("\n".join(lines), "parser.py")
    compile(tree, "parser.py", "exec")
    assert len(sites) == 300
    assert ast.unparse(tree).count(OPERAND) < 2000


def test_objects_of_the_program_are_not_asked_for_attributes() -> None:
    class Strict:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(f"no attribute {name}")

    assert _float(Strict()) is None
    assert list(leaves({"config": Strict()})) == []
