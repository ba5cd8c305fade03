"""A training that draws from a global generator which no checkpoint holds is named, and no other training is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from allranks.arrays.global_generators import count_draws, read_global_states
from allranks.checkpoint import RandomState
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld

GENERATORS = [
    pytest.param("random", random.seed, random.random, id="random"),
    pytest.param("numpy.random", np.random.seed, np.random.random_sample, id="numpy"),
    pytest.param("torch", torch.manual_seed, lambda: torch.rand(100), id="torch"),
]
Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    states = read_global_states()
    yield
    for state in states.values():
        state.put_back()


def train(folder: Path, step: Call, *, state: Any = None, extra: Any = None, steps: int = 6, world: Any = None) -> None:
    """Save every second step; ``step(n)`` is what the n-th step draws, ``extra()`` what is saved beside the state."""
    with Checkpointer(folder, world or single_world(), every=2, on_sigterm=False) as ckpt:
        for number in range(1, steps + 1):
            step(number)
            saved = {"w": np.ones(3)} if state is None else state()
            ckpt.maybe_save(number, saved, extra=None if extra is None else extra())


@pytest.mark.parametrize(("module", "seed", "draw"), GENERATORS)
def test_draws_after_a_save_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, module: str, seed: Call, draw: Call
) -> None:
    seed(5)
    train(tmp_path, lambda _: draw())
    said = caplog.text
    assert said.count("drew from the global generator") == 1
    assert f"between step 2 and step 3 the program drew from the global generator of {module}," in said
    assert f"allranks.RandomState({module.split('.')[0].replace('random', 'python')}={module})" in said


@pytest.mark.parametrize(("_module", "seed", "draw"), GENERATORS)
def test_a_loop_that_seeds_from_the_step_is_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, _module: str, seed: Call, draw: Call
) -> None:
    """Every step, or every epoch where epochs end with a save."""
    train(tmp_path / "step", lambda number: (seed(number), draw()))
    train(tmp_path / "epoch", lambda number: (seed(number) if number % 2 else None, draw()))
    assert "drew" not in caplog.text


def test_seeding_that_comes_too_late_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Epochs of three steps, of which only some end with a save."""
    train(tmp_path, lambda number: (random.seed(number) if number % 3 == 1 else None, random.random()))
    assert "between step 2 and step 3" in caplog.text


def test_a_shuffle_at_the_start_of_an_epoch_is_found_at_the_next_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order = list(range(1000))
    train(tmp_path, lambda number: random.shuffle(order) if number == 4 else None)
    assert "between step 2 and step 4 the program drew from the global generator of random," in caplog.text


def by_hand() -> dict[str, Any]:
    return {"numpy": np.random.get_state()[1], "torch": torch.get_rng_state(), "python": random.getstate()}


def as_json() -> list[Any]:
    return [random.getstate(), np.random.get_state()[1].tolist()]


def draw_all(_: int) -> None:
    random.random(), np.random.rand(), torch.rand(100)


@pytest.mark.parametrize(
    "held", [lambda: RandomState(python=random, numpy=np.random, torch=torch), by_hand], ids=["RandomState", "by hand"]
)
def test_generators_that_the_state_holds_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, held: Call
) -> None:
    train(tmp_path, draw_all, state=lambda: {"w": np.ones(3), "random": held()})
    assert "drew" not in caplog.text


def test_generators_that_extra_holds_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(tmp_path, draw_all, extra=as_json)
    assert "drew from the global generator of torch, and" in caplog.text


def test_states_of_each_rank_are_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Simulated ranks share one global generator, so that it is held if rank 0 holds it."""

    def run(world: World) -> None:
        state = {"w": np.ones(3), "random": RandomState(python=random)}
        with Checkpointer(tmp_path, world, on_sigterm=False) as ckpt:
            for step in (1, 2):
                random.random(), np.random.rand()
                ckpt.save(step, state, block=True)

    assert not SimulatedWorld(3).run(run).errors
    assert (
        caplog.text.count("between step 1 and step 2 the program drew from the global generator of numpy.random,") == 1
    )


def test_seeds_that_a_data_loader_draws_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader([1.0, 2.0])  # type: ignore[arg-type]
    train(tmp_path, lambda _: list(loader))
    assert "drew" not in caplog.text


@pytest.mark.parametrize(
    ("module", "seed", "draw", "words"),
    [(*one.values, words) for one, words in zip(GENERATORS, (2, 2, 100), strict=True)],
)
def test_draws_are_told_from_seeds(module: str, seed: Call, draw: Call, words: int) -> None:
    """Also over many blocks of a generator, and never backwards."""
    states = []
    for many in (0, 1, 2000):
        seed(7)
        for _ in range(many):
            draw()
        states.append(read_global_states()[module])
    found = [[count_draws(one, other) for other in states] for one in states]
    assert found == [[0, words, 2000 * words], [0, 0, 1999 * words], [0, 0, 0]]
    for many in (0, 1):
        seed(8)
        for _ in range(many):
            draw()
        assert not count_draws(states[2], read_global_states()[module])
    states[1].put_back()
    assert read_global_states()[module].image == states[1].image
