"""Worker processes: real ones, and what becomes of the samples when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import Dataset
from allranks.data.base import BadSample
from allranks.data.transform import FilterOperation, MapOperation, TransformChain
from allranks.data.workers import WorkerPool, start_workers
from allranks.data.workers.pool import ProcessPool
from allranks.errors import DataError, WorkerDied

PATIENCE = 60.0


@contextmanager
def workers(*operations: MapOperation | FilterOperation, count: int = 2, seed: int = 0) -> Iterator[WorkerPool]:
    running = start_workers(TransformChain(operations, seed), count)
    try:
        yield running
    finally:
        running.close()


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Zombies are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def results(running: WorkerPool, step_chunks: int, width: int = 100) -> list[Any]:
    futures = [
        running.submit(range(at * width, (at + 1) * width), np.arange(at * width, (at + 1) * width), 0)
        for at in range(step_chunks)
    ]
    return [one for future in futures for one in future.result(PATIENCE)]


def test_any_number_of_workers_gives_the_same() -> None:
    """In order, with random numbers, ragged arrays, masks, and functions and classes of a script's own."""

    class Pair:
        def __init__(self, sample: int, rng: np.random.Generator) -> None:
            self.parts = {"tokens": np.arange(sample % 7), "image": rng.random((2, sample % 3))}

    def parts(pair: Pair) -> dict[str, Any]:
        return pair.parts if len(pair.parts["tokens"]) != 1 else {"other": pair}

    operations = (FilterOperation(lambda sample: sample % 5), MapOperation(Pair, random=True), MapOperation(parts))
    found = []
    for count in (0, 1, 2):
        with workers(*operations, count=count, seed=3) as running:
            found.append(results(running, 10))
    for inline, *others in zip(*found, strict=True):
        for other in others:
            assert type(other) is type(inline)
            if isinstance(inline, BadSample):
                assert other == inline
            elif "tokens" in inline:
                assert other["tokens"].dtype == inline["tokens"].dtype
                assert all(np.array_equal(other[key], inline[key]) for key in inline)
            else:
                assert type(other["other"]) is Pair
                assert np.array_equal(other["other"].parts["image"], inline["other"].parts["image"])


def test_an_error_in_a_worker_comes_back() -> None:
    """With its kind, its cause and the traceback of the other process; also a cause that cannot be sent."""

    class Stubborn(Exception):
        def __init__(self, _one: int, _two: int) -> None:
            super().__init__("stubborn")

    def fail(sample: int) -> int:
        if sample == 150:
            raise ValueError("worse than bad")
        if sample == 250:
            raise Stubborn(1, 2)
        return sample

    with workers(MapOperation(fail)) as running:
        assert len(results(running, 1)) == 100
        for sample, cause in ((150, ValueError), (250, type(None))):
            with pytest.raises(DataError, match=f"sample {sample}") as caught:
                running.submit([sample], np.array([sample]), 0).result(PATIENCE)
            assert caught.value.sample == sample
            assert type(caught.value.__cause__) is cause
            assert "in fail" in caught.value.__notes__[0]
        assert results(running, 1) == list(range(100))


def test_a_killed_worker_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it had is done again by a new one, in order, and somebody is told."""
    gate = tmp_path / "gate"

    def wait(sample: int) -> int:
        while sample == 250 and not gate.exists():
            time.sleep(0.01)
        return sample

    with workers(MapOperation(wait)) as running:
        assert isinstance(running, ProcessPool)
        until(lambda: len(running.pids) == 2)
        before = running.pids
        futures = [running.submit(range(at, at + 100), np.arange(at, at + 100), 0) for at in range(0, 1000, 100)]
        futures[0].result(PATIENCE)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        gate.touch()
        assert [one for future in futures for one in future.result(PATIENCE)] == list(range(1000))
        assert set(running.pids) != set(before)
    assert "a worker process was killed by SIGKILL; the 100 samples" in caplog.text


def test_samples_that_kill_every_worker_are_named() -> None:
    """The second death is the piece's own fault; all other pieces are done."""

    def die(sample: int) -> int:
        if sample == 250:
            os.kill(os.getpid(), signal.SIGKILL)
        if sample == 350:
            sys.exit(3)
        return sample

    with workers(MapOperation(die)) as running:
        futures = [running.submit(range(at, at + 100), np.arange(at, at + 100), 4) for at in range(0, 600, 100)]
        with pytest.raises(WorkerDied, match=r"killed by SIGKILL at 100 samples of epoch 4 .*from 200 to 299"):
            futures[2].result(PATIENCE)
        with pytest.raises(WorkerDied, match=r"exit code 3 at 100 samples"):
            futures[3].result(PATIENCE)
        for at in (0, 1, 4, 5):
            assert futures[at].result(PATIENCE) == list(range(at * 100, at * 100 + 100))


def test_closing_ends_the_workers_at_once() -> None:
    """Also one that is busy; who still waits is told, and who submits too."""
    with workers(MapOperation(lambda _: time.sleep(1000)), count=1) as running:
        assert isinstance(running, ProcessPool)
        until(lambda: running.pids)
        pids = running.pids
        futures = [running.submit([at], np.array([at]), 0) for at in range(5)]
        until(futures[0].running)
        running.close()
        assert not any(map(alive, pids))
        with pytest.raises(DataError, match="closed before"):
            futures[0].result(PATIENCE)
        assert futures[4].cancelled()
        with pytest.raises(DataError, match="closed"):
            running.submit([0], np.array([0]), 0)


@pytest.mark.parametrize("end", ["the end", "an error", "a break"])
def test_workers_of_an_ended_iteration_end(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause; the next epoch starts them again, and while one runs they stay."""
    monkeypatch.setattr("allranks.data.workers.pool._REST_S", 0.05)
    failing = end == "an error"

    def double(row: int) -> int:
        return 1 // (row - 7) if failing else 2 * row

    data = Dataset.sequence(list(range(40)), shuffle=False, compare=False).map(double, workers=2).batch(4, streams=1)
    loader = data.loader(rank=0, size=1)
    pool = loader._opened_data.submit.__self__
    until(lambda: len(pool.pids) == 2)
    first = pool.pids
    if failing:
        with pytest.raises(DataError, match="ZeroDivisionError for sample 7"):
            list(loader)
    else:
        iterator = iter(loader)
        next(iterator)
        if end == "the end":
            list(iterator)
        del iterator
    until(lambda: not pool.pids and not any(map(alive, first)))
    if not failing:
        assert sum(len(batch["value"]) for batch in loader) == (40 if end == "the end" else 36)
        assert not set(first) & set(pool.pids)
    loader.close()


def test_what_cannot_be_sent_is_said() -> None:
    """Functions at once, samples and results where they are asked for."""
    lock = __import__("threading").Lock()
    with pytest.raises(DataError, match="functions to apply cannot be sent"):
        start_workers(TransformChain((MapOperation(lambda _: lock),)), 1)
    with workers(MapOperation(lambda _: sys._getframe()), count=1) as running:
        with pytest.raises(DataError, match="samples cannot be sent"):
            running.submit([lock], np.array([0]), 0).result(PATIENCE)
        with pytest.raises(TypeError, match="frame"):
            running.submit([0], np.array([0]), 0).result(PATIENCE)


PARENT = """
import signal, sys, time
import numpy as np
from allranks.data.transform import MapOperation, TransformChain
from allranks.data.workers import start_workers

def busy(sample):
    open(sys.argv[1] + "/" + str(sample), "w").close()
    while True:  # lets no other thread run for long
        sum(range(10_000_000))

running = start_workers(TransformChain((MapOperation(busy),)), 2)
futures = [running.submit([at], np.array([at]), 0) for at in range(2)]
while len(running.pids) < 2:
    time.sleep(0.01)
print(*running.pids, "jax" in sys.modules, flush=True)
time.sleep(1000)
"""


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    """A SIGTERM to the group is not theirs to follow; but when the parent is killed, they are gone, busy or not.

    The script needs no ``if __name__ == "__main__"``, and is not run again.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with parent:
        try:
            assert parent.stdout is not None
            first, second, jax = parent.stdout.readline().split()
            until(lambda: len(list(tmp_path.iterdir())) == 2)
            for pid in (int(first), int(second)):
                os.kill(pid, signal.SIGINT)
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)
            assert alive(int(first))
            assert alive(int(second))
        finally:
            parent.kill()
    until(lambda: not alive(int(first)) and not alive(int(second)))
    assert jax == "False"


def test_a_worker_has_one_thread_and_no_framework() -> None:
    """Numeric libraries would each take all cores; JAX and torch are imported if a function needs them."""

    def seen(_: int) -> tuple[str, str, bool]:
        return os.environ["OMP_NUM_THREADS"], os.environ["JAX_PLATFORMS"], bool({"jax", "torch"} & set(sys.modules))

    with workers(MapOperation(seen), count=1) as running:
        assert running.submit([0], np.array([0]), 0).result(PATIENCE) == [("1", "cpu", False)]


def with_noise(sample: int) -> float:
    return sample + np.random.random_sample()


def with_seeded_noise(sample: int) -> float:
    np.random.seed(sample)
    return sample + np.random.random_sample()


def with_own_noise(sample: int, rng: np.random.Generator) -> float:
    return float(sample + rng.random())


def test_draws_from_a_global_generator_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not those of a function that seeds by sample, or that draws from the generator of the sample."""
    pieces = 5
    with workers(MapOperation(with_seeded_noise), MapOperation(with_own_noise, random=True), count=1) as running:
        results(running, pieces, width=5)
    assert "draws from" not in caplog.text
    with workers(MapOperation(with_noise), count=1) as running:
        results(running, pieces, width=5)
    assert caplog.text.count("draws from the global generator of numpy.random in a worker process") == 1
    assert ".map(fn, random=True)" in caplog.text
