"""Real ranks are killed, and go on in another number: every sample of every epoch is taken once."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import harness
import pytest

PROGRAM = Path(__file__).parent / "programs" / "torture.py"
FORKS = Path(__file__).parents[1] / "checkpoint" / "programs"

FILES = ("tokens", "mds", "litdata", "tfrecord", "array_record")


def tell(folder: Path, *words: object, patience: float = 180.0) -> str:
    path = os.pathsep.join([str(FORKS), str(PROGRAM.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {"PYTHONPATH": path}
    done = harness.run(1, [str(PROGRAM), str(folder), *map(str, words)], environ=lambda *_: environ, patience=patience)
    print(done)
    assert done.codes == [0]
    return done.ranks[0].out


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("kind", "epochs"),
    [
        pytest.param("plain", 3, marks=pytest.mark.soak),
        *(pytest.param(kind, 6, marks=pytest.mark.soak) for kind in FILES),
        ("packed", 6),
        pytest.param("best-fit", 6, marks=pytest.mark.soak),
    ],
)
def test_four_ranks_then_three_then_one_then_four(kind: str, epochs: int, tmp_path: Path) -> None:
    """SIGKILL of all ranks at any moment, restored by another number of them: nothing twice, nothing lost."""
    assert "3 kills" in tell(tmp_path, kind, epochs, 1, "4,3,1,4")


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["plain", "packed", "best-fit", *FILES])
def test_twenty_epochs_through_a_hundred_kills(kind: str, tmp_path: Path) -> None:
    print(tell(tmp_path, kind, 20, 2, "random:100", patience=3600))


def test_the_judge_finds_what_is_twice_or_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail."""
    monkeypatch.syspath_prepend(str(FORKS))
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    torture = importlib.import_module("torture")
    whole = {1: {0: (0, list(range(500))), 1: (0, list(range(500, torture.DOCUMENTS)))}}
    torture.judge(whole, 1)
    for ids, says in (([0, *range(500)], "twice"), (range(499), "lost")):
        with pytest.raises(AssertionError, match=says):
            torture.judge({1: {**whole[1], 0: (0, list(ids))}}, 1)
    with pytest.raises(AssertionError, match="different epochs"):
        torture.judge({1: {**whole[1], 0: (1, [])}}, 1)
