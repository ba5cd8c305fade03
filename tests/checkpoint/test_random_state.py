"""Each rank's random generators are saved, and restored onto any number of ranks, no two of them alike."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

import allranks
from allranks.checkpoint import RandomState
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import AllranksError
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld

Draws = dict[str, list[float]]


def generators(rank: int) -> RandomState:
    """One of each kind; rank -1 is a fresh program's, the same on all ranks."""
    return RandomState(
        pcg=np.random.default_rng([7, rank + 1]),
        philox=np.random.Generator(np.random.Philox(rank + 1)),
        legacy=np.random.RandomState(rank + 1),
        python=random.Random(rank),
        torch=torch.Generator().manual_seed(rank + 1),
        key=jax.random.fold_in(jax.random.key(3), rank + 1),
        raw=jax.random.fold_in(jax.random.PRNGKey(3), rank + 1),
    )


def draw(state: RandomState) -> Draws:
    """Draw from all, as a step of a training does."""
    found: Draws = {
        "pcg": state["pcg"].random(3).tolist(),
        "philox": state["philox"].random(3).tolist(),
        "legacy": [state["legacy"].standard_normal()],  # leaves a second normal number behind
        "python": [state["python"].gauss(0, 1)],
        "torch": torch.rand(3, generator=state["torch"]).tolist(),
    }
    for name in ("key", "raw"):
        state[name], key = jax.random.split(state[name])
        found[name] = jax.random.uniform(key, 3).tolist()
    return found


def job(folder: Path, ranks: int, *, restoring: bool, saves: int = 0) -> list[Draws]:
    """Return what each rank draws after it has restored, or begun."""

    def run(world: World) -> Draws:
        state = {"w": np.ones(3), "random": generators(-1 if restoring else world.rank)}
        with Checkpointer(folder, world, on_sigterm=False) as ckpt:
            if restoring:
                assert ckpt.restore(state) is not None
            draw(state["random"])  # type: ignore[arg-type]
            if saves:
                ckpt.save(saves, state, block=True)
        return draw(state["random"])  # type: ignore[arg-type]

    return list(SimulatedWorld(ranks).run(run).values())


def distinct(found: list[Draws]) -> bool:
    return all(len({str(one[name]) for one in found}) == len(found) for name in found[0])


def test_as_many_ranks_go_on_with_their_own(tmp_path: Path) -> None:
    """What is drawn after a restore is what the job that saved would have drawn next."""
    job(tmp_path, 3, restoring=False, saves=1)
    without = [draw_twice(rank) for rank in range(3)]
    found = job(tmp_path, 3, restoring=True)
    assert found == without
    assert distinct(found)


def draw_twice(rank: int) -> Draws:
    state = generators(rank)
    draw(state)
    draw(state)
    return draw(state)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 5), (1, 3)])
def test_another_number_of_ranks_is_dealt_distinct_ones(tmp_path: Path, before: int, after: int) -> None:
    """Ranks that were there go on with their own, others get new ones, the same at every restore of the step."""
    job(tmp_path, before, restoring=False, saves=1)
    found = job(tmp_path, after, restoring=True)
    same = min(before, after)
    assert found[:same] == [draw_twice(rank) for rank in range(same)]
    assert distinct(found)
    assert distinct([*found[same:], *(draw_twice(rank) for rank in range(before))])
    assert job(tmp_path, after, restoring=True, saves=2) == found
    again = job(tmp_path, before, restoring=True)
    assert distinct(again)


def test_copies_of_a_rank_would_be_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without us: new ranks take over what another rank has, or begin anew from the seed."""
    monkeypatch.setattr("allranks.arrays.random_state._derive_generator", lambda _name, generator, _rank: generator)
    job(tmp_path, 2, restoring=False, saves=1)
    assert not distinct(job(tmp_path, 3, restoring=True))


@pytest.mark.parametrize(
    ("module", "seed", "drawn"),
    [
        (random, random.seed, random.random),
        (np.random, np.random.seed, np.random.random_sample),
        (torch, torch.manual_seed, lambda: torch.rand(1).item()),
    ],
    ids=["random", "numpy", "torch"],
)
def test_a_module_stands_for_its_global_generator(
    tmp_path: Path, module: Any, seed: Callable[[int], Any], drawn: Callable[[], float]
) -> None:
    seed(5)
    with Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        state = {"random": RandomState(own=module)}
        ckpt.save(1, state, block=True)
        wanted = drawn()
        seed(6)
        assert ckpt.restore(state) is not None
    assert drawn() == wanted


def test_what_is_no_generator_is_refused() -> None:
    for wrong in (sys, 7, np.zeros(3), random.SystemRandom()):
        with pytest.raises(AllranksError, match=r"RandomState: own=.*: expected a random generator"):
            RandomState(own=wrong)
    with pytest.raises(AllranksError, match="'ranks'"):
        RandomState(ranks=random)


@pytest.mark.world(n=2, backend="jax")
def test_keys_of_jax_processes(world: allranks.World, shared_tmp_path: Path) -> None:
    """In real processes a key is on a device of its own rank."""
    state = {"random": RandomState(key=jax.random.fold_in(jax.random.key(0), world.rank), python=random)}
    with allranks.Checkpointer(shared_tmp_path / "keys", world) as ckpt:
        ckpt.save(1, state, block=True)
        wanted = jax.random.key_data(state["random"]["key"]).tolist()
        state["random"]["key"] = jax.random.key(9)
        assert ckpt.restore(state) is not None
    allranks.verify({"w": np.ones(2), **state})
    assert jax.random.key_data(state["random"]["key"]).tolist() == wanted
    found = world.all_gather(wanted)
    assert found[0] != found[1]
