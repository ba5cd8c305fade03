"""Files that do not divide over ranks, and a job that goes on with other ranks: without us, and with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from allranks import Dataset, SimulatedWorld, World

pytestmark = pytest.mark.needs("orjson")
FILES = {"a": 400, "b": 13, "c": 250, "d": 340}
SAMPLES = sum(FILES.values())
BATCH = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    numbers = iter(range(SAMPLES))
    for name, many in FILES.items():
        lines = [json.dumps({"id": next(numbers)}) for _ in range(many)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def dealt(folder: Path, rank: int, size: int) -> list[int]:
    """What everyone writes first: files are dealt to the ranks, and each reads its own from the first to the last."""
    mine = sorted(folder.glob("*.jsonl"))[rank::size]
    return [json.loads(line)["id"] for path in mine for line in path.read_text().splitlines()]


def counts(parts: Iterable[Iterable[int]]) -> tuple[int, int]:
    """Return how often a sample was read that had been read before, and how many samples never were."""
    times = Counter(number for part in parts for number in part)
    return times.total() - len(times), SAMPLES - len(times)


def read(folder: Path, ranks: int, steps: int | None, state: Any = None) -> tuple[list[list[int]], Any]:
    """Return what each rank reads in so many steps, and the state behind them."""

    def rank(world: World) -> tuple[list[int], Any]:
        loader = Dataset.jsonl(folder, seed=1).batch(BATCH).loader(world, state=state)
        taken = [number for batch in islice(loader, steps) for number in batch["id"][batch.mask].tolist()]
        return taken, loader.state().gathered()

    found = list(SimulatedWorld(ranks).run(rank).values())
    return [taken for taken, _ in found], found[0][1]


def test_files_dealt_to_ranks_make_unequal_steps_and_a_plan_makes_equal_ones(folder: Path) -> None:
    """The rank with most takes twenty times the steps of the one with least: all others have left its collectives."""
    without = [-(-len(dealt(folder, rank, 4)) // (BATCH // 4)) for rank in range(4)]
    assert without == [67, 3, 42, 57]
    steps = SimulatedWorld(4).run(lambda world: len(list(Dataset.jsonl(folder).batch(BATCH).loader(world))))
    assert set(steps.values()) == {42}


def test_a_restart_on_other_ranks_repeats_and_loses_samples_and_a_state_does_not(folder: Path) -> None:
    """Four ranks for twenty steps, then three that skip what a rank has taken until then."""
    half = 20 * BATCH
    before = [dealt(folder, rank, 4)[: half // 4] for rank in range(4)]
    twice, lost = counts([*before, *(dealt(folder, rank, 3)[half // 3 :] for rank in range(3))])
    assert (twice, lost) == (120, 80)
    first, state = read(folder, 4, 20)
    second, _ = read(folder, 3, None, state)
    assert counts([*first, *second]) == (0, 0)
