"""One error is shown once: for all ranks that have it, without frames of ours, and not again at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import allranks, write

from allranks import SimulatedWorld
from allranks.failure import traceback_of
from allranks.launch.filters import without_rank

AGREE = """
    import allranks
    {before}
    world = allranks.init({backend!r})
    world.agree({{"a": world.rank}})
"""
MAIN = """
    import allranks
    world = allranks.init()

    @allranks.main_rank
    def load():
        raise ValueError("bad batch")

    load()
"""


@pytest.mark.parametrize(
    ("backend", "before"),
    [
        pytest.param("torch", "import torch", marks=pytest.mark.needs("torch")),
        pytest.param("jax", "import jax", marks=[pytest.mark.soak, pytest.mark.needs("jax")]),
    ],
)
def test_the_same_error_of_all_ranks_is_shown_once(tmp_path: Path, backend: str, before: str) -> None:
    """Without us torch puts ``[rank0]:`` before each line, and nothing merges."""
    script = write(tmp_path, AGREE.format(backend=backend, before=before))
    done = allranks("-n", "3", "-q", script, cwd=tmp_path)
    said = "Mismatch: agree 'agree' (train.py:5): the ranks hold different values"
    lines = done.out.splitlines()
    assert lines[0] == "(0-2) Traceback (most recent call last):"
    assert done.out.count(said) == 2, done.out  # where it was raised, and in the headline
    assert lines[-3].startswith("first failure: rank ")
    assert lines[-2:] == ["  (its traceback is above)", lines[-1]]
    assert lines[-1].endswith(": the same")
    assert "src/allranks" not in done.out


@pytest.mark.needs("jax|torch")
@pytest.mark.parametrize("start", [pytest.param("--no-zygote", marks=pytest.mark.soak), "--timeout=60"])
def test_the_traceback_of_another_rank_is_left_to_that_one(tmp_path: Path, start: str) -> None:
    done = allranks("-n", "3", start, write(tmp_path, MAIN), cwd=tmp_path)
    assert done.out.count('raise ValueError("bad batch")') == 1, done.out
    assert "(0)     File" in done.out
    assert ") allranks.errors.RemoteError: on_main 'load' (train.py:9): rank 0 raised" in done.out
    assert "consequences: ranks 1-2: allranks.errors.RemoteError (at train.py:9)" in done.out
    assert "src/allranks" not in done.out


def test_frames_of_ours_stay_where_they_may_be_at_fault() -> None:
    """An error of another type that our own code raises; not one that comes out of the user's function."""
    with pytest.raises(TypeError) as ours:
        SimulatedWorld("3")  # type: ignore[arg-type]
    assert "src/allranks" in traceback_of(ours.value)
    with pytest.raises(ZeroDivisionError) as users:
        SimulatedWorld(1).run(lambda world: world.run_on_main(lambda: 1 / 0, (), {}, timeout=9)).values()
    assert "1 / 0" in traceback_of(users.value)
    assert "src/allranks" not in traceback_of(users.value)
    assert any("src/allranks" in str(step.path) for step in users.traceback), "the exception itself is left as it is"


def test_a_rank_does_not_say_its_own_number() -> None:
    lines = [b"[rank1]: Traceback", b"[rank2]: Traceback", b"[rank1]: allranks.errors.Mismatch: rank 1 (host a): agree"]
    assert without_rank(1, lines) == [b"Traceback", b"[rank2]: Traceback", b"allranks.errors.Mismatch: agree"]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "asks",
    [
        "world_size=3, rank=int(os.environ['RANK'])",
        pytest.param("init_method='env://', world_size=3, rank=0", marks=pytest.mark.soak),
    ],
)
def test_ranks_that_nobody_starts_are_refused(tmp_path: Path, asks: str) -> None:
    """As Lightning's devices=2 under -n 1: without us it waits for half an hour."""
    write(tmp_path, f"import os, torch.distributed as dist\ndist.init_process_group('gloo', {asks})\n")
    done = allranks("-n", "2", "train.py", cwd=tmp_path)
    assert done.code == 1
    assert "allranks.MissingRanks: init_process_group: expected a world of at most 2" in done.out
    assert "found 3: nobody starts the others. Start as many (allranks run -n 3)" in done.out
