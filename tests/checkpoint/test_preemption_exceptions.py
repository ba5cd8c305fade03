"""An exception comes before its step has changed anything if a loader, a backward pass or JAX raised it."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.checkpoint import preemption
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.preemption import precedes_state_change
from allranks.world import sigterm
from allranks.world.detect import single_world


def reads_from_a_worker() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    ours.recv()


def takes_a_batch() -> None:
    from torch.utils.data import DataLoader

    next(iter(DataLoader([1, "a"], batch_size=2)))


def computes_gradients() -> None:
    import torch

    torch.ones(2, requires_grad=True).backward()


def calls_jax() -> None:
    import jax.numpy as jnp

    jnp.ones(2) @ jnp.ones(3)


def writes_to_a_helper() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as helper:
        helper.wait()
        assert helper.stdin is not None
        helper.stdin.write(b"x" * 2**20)
        helper.stdin.flush()


def writes_to_a_worker() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    ours.send(1)


def steps() -> None:
    import torch

    torch.optim.SGD([torch.ones(2)]).step(lambda: 1 / 0)


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize(
    ("raises", "before"),
    [
        *((fn, True) for fn in (reads_from_a_worker, takes_a_batch, computes_gradients, calls_jax)),
        *((fn, False) for fn in (writes_to_a_helper, writes_to_a_worker, steps)),
    ],
)
def test_where_it_was_raised_tells(raises: Callable[[], None], before: bool) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of every kind
        raises()
    assert precedes_state_change(caught.value) is before


@pytest.mark.needs("torch")
@pytest.mark.parametrize("stepped", [False, True])
def test_a_state_of_which_one_optimizer_has_stepped_is_not_saved(
    stepped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two, before the backward pass for the other fails: it would be a step that no program has seen."""
    import torch

    monkeypatch.setattr(sigterm, "has_come", lambda: True)
    monkeypatch.setattr(sigterm, "expect_end", lambda *_, **__: None)
    world, weight = single_world(), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    with Checkpointer(tmp_path / "run", world) as saver:
        saver.maybe_save(7, {"weight": weight})
        if stepped:
            optimizer.step()
        with pytest.raises(RuntimeError) as caught:
            computes_gradients()
        assert preemption.preemption_saves_of(world).save_after_error(caught.value) is not stepped
        assert saver.steps() == (() if stepped else (7,))
