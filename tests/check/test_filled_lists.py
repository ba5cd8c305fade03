"""Lists that are empty where they are made: what is put in them later, nobody knows."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = "import torch\nimport torch.distributed as dist\n\n"
LOCAL = """\
def main(batches):
    dist.init_process_group("nccl")
    losses = []
    {fills}
    if not losses:
        return
    torch.save(losses, "losses.pt")

main(load())
"""
ROUND = """\
def main(batches):
    dist.init_process_group("nccl")
    best = []
    for batch in batches:
        if best:
            torch.save(best, "best.pt")
        best.append(batch)

main(load())
"""
KEPT = """\
waiting = []

class Keeper:
    def __init__(self):
        self.kept = []

    def save(self):
        if {where}:
            torch.save({{}}, "kept.pt")

dist.init_process_group("nccl")
Keeper().save()
"""


def lines(text: str) -> list[int]:
    found = check({"train.py": (START + text).encode()}, Settings(select=("AR101",))).findings
    return [one.place.line for one in found]


@pytest.mark.parametrize(
    ("fills", "expected"),
    [
        ("losses.append(1)", [10]),
        ("for batch in batches:\n        losses.append(batch)", [11]),
        ("for batch in batches:\n        if batch.ok:\n            losses.append(batch)", [12]),
        ("print(batches)", []),
    ],
)
def test_what_comes_behind_an_empty_list_that_is_filled_is_reached(fills: str, expected: list[int]) -> None:
    assert lines(LOCAL.format(fills=fills)) == expected


def test_a_later_round_finds_what_an_earlier_one_put_in() -> None:
    assert lines(ROUND) == [9]


@pytest.mark.parametrize("where", ["self.kept", "waiting"])
def test_others_may_fill_a_list_of_an_object_or_of_a_module(where: str) -> None:
    assert lines(KEPT.format(where=where)) == [12]


ELSEWHERE = {
    "a function that is given it": "    filled = []\n    fill(filled, batches)\n    if filled:\n        {saves}\n",
    "all of it at once": "    filled = []\n    filled[:] = batches\n    if filled:\n        {saves}\n",
    "a function in this one": (
        "    filled = []\n    def keep(path):\n        torch.load(path)\n        filled.append(path)\n"
        "    batches.each(keep)\n    if filled:\n        {saves}\n"
    ),
    "a text of an earlier round": (
        "    name = ''\n    for batch in batches:\n        if name:\n            {saves}\n        name = batch.name\n"
    ),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_others_fill_or_set_is_not_what_it_was(what: str) -> None:
    body = ELSEWHERE[what].format(saves='torch.save(batches, "seen.pt")')
    text = f'def main(batches):\n    dist.init_process_group("nccl")\n{body}\nmain(load())\n'
    assert len(lines(text)) == 1


@pytest.mark.parametrize("holds", ["waiting = []", "best = -1.0"])
def test_what_the_body_of_a_class_holds_is_where_its_objects_begin(holds: str) -> None:
    name = holds.partition(" ")[0]
    body = (
        f'class Keeper:\n    {holds}\n    def save(self):\n        if self.{name}:\n            torch.save(1, "k.pt")\n'
    )
    assert len(lines(f'{body}\ndist.init_process_group("nccl")\nKeeper().save()\n')) == 1


@pytest.mark.parametrize("begins", ["0.0", "''", "None", "[]"])
def test_a_method_that_does_nothing_else_may_have_set_it(begins: str) -> None:
    """It is not run, for nothing in it matters; what it stores does."""
    keeper = f"class Keeper:\n    def __init__(self):\n        self.best = {begins}\n    def see(self, best):\n"
    keeper += "        self.best = best\n    def save(self):\n        if self.best:\n            torch.save(1, 'k')\n"
    looks = "def look(keeper, best):\n    keeper.see(best)\n"
    main = 'dist.init_process_group("nccl")\nkeeper = Keeper()\nlook(keeper, load())\nkeeper.save()\n'
    assert len(lines(f"{keeper}\n{looks}\n{main}")) == 1
