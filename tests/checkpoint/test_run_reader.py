"""Reading a checkpoint without a template, or a part of it: any rank alone, whatever saved it; nothing is resumed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allranks
from allranks.checkpoint import follow, read
from allranks.checkpoint.run_reader import ArrayShape, nested_dicts
from allranks.errors import AllranksError, BarrierTimeout, Damaged, DoesNotFit, NotThere
from allranks.storage import MemoryStorage
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world

WORLD = single_world()


def state(step: int) -> dict[str, Any]:
    return {
        "params": {"w": np.arange(24, dtype=np.float32).reshape(4, 6) + step, "half": np.ones(3, ml_dtypes.bfloat16)},
        "opt": [{"mu": np.full((4, 6), step, np.float64)}, np.int64(step)],
        "name": f"at {step}",
        "lr": 0.1,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the steps 1, 2 and 3, of which 2 is the best."""
    with allranks.Checkpointer(tmp_path / "run", WORLD) as ckpt:
        for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
            ckpt.save(step, state(step), extra={"row": step}, metrics={"loss": loss}, block=True)
    return tmp_path / "run"


def test_all_of_a_step_as_nested_dicts(run: Path) -> None:
    found = read(run)
    got, step = found
    assert (step, found.extra, found.metrics) == (3, {"row": 3}, {"loss": 2.0})
    assert got.keys() == {"params", "opt", "name", "lr"}
    assert (got["params"]["w"] == state(3)["params"]["w"]).all()
    assert got["params"]["half"].dtype == ml_dtypes.bfloat16
    assert (got["opt"]["0"]["mu"] == 3).all()
    assert got["opt"]["1"] == 3
    assert (got["name"], got["lr"]) == ("at 3", 0.1)


def test_which_step(run: Path) -> None:
    (run / "checkpoint-3").rename(run / "final")
    assert read(run)[1] == 2
    assert read(run, 1)[1] == 1
    assert read(run / "final")[1] == 3
    assert read(run, "best", best=("loss", "min"))[1] == 2
    assert read(run, "best", best=("loss", "max"))[1] == 1
    with pytest.raises(NotThere, match="has no step 7: expected one of 1, 2"):
        read(run, 7)
    with pytest.raises(NotThere, match=r"no step has the metric 'los': expected one of \['loss'\]"):
        read(run, "best", best=("los", "min"))
    with pytest.raises(AllranksError, match="best=None: expected"):
        read(run, "best")
    with pytest.raises(NotThere, match="is step 3: expected step 1"):
        read(run / "final", 1)
    with pytest.raises(NotThere, match=r"nothing has no complete step"):
        read(run / "nothing")


def test_a_part_of_a_step(run: Path) -> None:
    assert read(run, only="params/*")[0].keys() == {"params"}
    assert read(run, only=("params/w", "lr"))[0].keys() == {"params", "lr"}
    with pytest.raises(NotThere, match=r"has no leaf that matches para\*"):
        read(run, only="para*x")
    like = {"params": {"w": np.zeros((4, 6), np.float32)}, "lr": 0.0}
    got, _ = read(run, 2, like=like)
    assert got["params"]["w"] is like["params"]["w"]
    assert (got["params"]["w"] == state(2)["params"]["w"]).all()
    assert got["lr"] == 0.1
    with pytest.raises(DoesNotFit, match="'params/v'"):
        read(run, like={"params": {"v": np.zeros(2)}})


def test_slices_read_no_more_than_they_need(run: Path) -> None:
    got, _ = read(run, only="params/w", slices={"params/w": (slice(1, 3), slice(-2, None))})
    assert (got["params"]["w"] == state(3)["params"]["w"][1:3, -2:]).all()
    disk = MemoryStorage()
    with allranks.Checkpointer(disk, WORLD, on_sigterm=False) as ckpt:
        ckpt.save(1, {"big": np.arange(4_000_000, dtype=np.float32)}, block=True)
    sizes: list[int] = []
    process = disk.new_process()
    whole = process.read
    process.read = lambda path, at, into: (sizes.append(sum(b.nbytes for b in into)), whole(path, at, into))[1]  # type: ignore[method-assign]
    got, _ = read(process, slices={"big": (slice(1000, 1010),)})
    assert (got["big"] == np.arange(1000, 1010)).all()
    assert sum(sizes) <= 8 << 20
    for wrong in ((slice(0, 4, 2),), (slice(None),) * 2):
        with pytest.raises(AllranksError, match="expected 1 slices of step 1"):
            read(process, slices={"big": wrong})
    with pytest.raises(NotThere, match="has no array 'small'"):
        read(process, slices={"small": (slice(1),)})


def test_shapes_without_bytes(run: Path) -> None:
    for file in (run / "checkpoint-3").glob("*.safetensors"):
        file.unlink()
    got, _ = read(run, to="shapes")
    assert got["params"] == {"w": ArrayShape((4, 6), "float32"), "half": ArrayShape((3,), "bfloat16")}
    assert got["name"] == "at 3"
    with pytest.raises(Damaged):
        read(run)


@pytest.mark.needs("torch")
def test_torch_tensors(run: Path) -> None:
    import torch

    got, _ = read(run, to="torch")
    assert torch.equal(got["params"]["w"], torch.from_numpy(state(3)["params"]["w"]))
    assert got["params"]["half"].dtype == torch.bfloat16
    assert got["params"]["half"].tolist() == [1, 1, 1]
    assert got["opt"]["0"]["mu"].dtype == torch.float64
    got["params"]["w"].add_(1)


@pytest.mark.needs("jax")
def test_jax_arrays_and_keys(tmp_path: Path) -> None:
    import jax

    keys = {impl: jax.random.key(7, impl=impl) for impl in ("threefry2x32", "rbg")}
    with allranks.Checkpointer(tmp_path / "keys", WORLD) as ckpt:
        ckpt.save(1, {**keys, "wide": np.arange(3), "half": np.ones(2, ml_dtypes.bfloat16)}, block=True)
    got, _ = read(tmp_path / "keys", to="jax")
    for impl, key in keys.items():
        assert got[impl].dtype == key.dtype
        assert (jax.random.key_data(got[impl]) == jax.random.key_data(key)).all()
    assert got["wide"].dtype == np.int64
    assert got["half"].dtype == ml_dtypes.bfloat16


def test_reading_changes_nothing(run: Path) -> None:
    """Neither a file of the run, nor the position of a job that reads an old step."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    read(run, 1)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    with allranks.Checkpointer(run, WORLD, every=1) as ckpt:
        ckpt.restore(state(0))
        read(run, 1, like=state(0))
        ckpt.maybe_save(4, state(4))
    assert LocalStorage(run).list("")[0].name == "checkpoint-1"
    assert read(run)[1] == 4


def test_a_step_that_is_removed_while_it_is_read_is_not_called_damaged() -> None:
    disk = MemoryStorage()
    left = [1]

    def save(step: int) -> None:
        with allranks.Checkpointer(disk.new_process(), WORLD, keep_last=1, on_sigterm=False) as ckpt:
            ckpt.save(step, state(step), block=True)

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".safetensors") and left[0]:
            left[0] -= 1
            save(2)

    save(1)
    assert read(disk.new_process(before=before))[1] == 2
    assert not [path for path in disk.file_contents() if path.startswith("hold/")]


PATHS = st.lists(st.text("ab/", max_size=5), unique=True, max_size=8)


@given(PATHS)
def test_no_leaf_is_lost_among_nested_dicts(names: list[str]) -> None:
    """Whatever paths there are: every leaf is found by going down by its name."""
    made = nested_dicts({path: number for number, path in enumerate(names)})
    found = dict(_leaves(made, "")) if isinstance(made, dict) else {"": made}
    assert found == {path: number for number, path in enumerate(names)}


def _leaves(tree: dict[str, Any], above: str) -> Any:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def test_an_evaluation_follows_a_run_to_its_end(tmp_path: Path) -> None:
    """Each step that it comes to is held; those that are removed before are left out; it ends with the run."""
    evaluated: list[int] = []
    may_go_on = threading.Semaphore(0)

    def train() -> None:
        with allranks.Checkpointer(tmp_path, WORLD, keep_last=1, on_sigterm=False) as ckpt:
            for step in range(1, 8):
                ckpt.save(step, state(step), block=True)
                if step in (1, 4):
                    may_go_on.acquire(timeout=60)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        for step in follow(tmp_path, every=0.05, timeout=60):
            may_go_on.release()
            assert (read(tmp_path, step)[0]["opt"]["1"]) == step
            evaluated.append(step)
    finally:
        trainer.join()
    assert evaluated[0] == 1
    assert evaluated[-1] == 7
    assert evaluated == sorted(set(evaluated))
    assert list(follow(tmp_path, after=6, hold=False)) == [7]
    assert not list((tmp_path / "hold").iterdir())


def test_a_run_that_does_not_go_on_is_told(tmp_path: Path) -> None:
    with pytest.raises(BarrierTimeout, match=r"has had no new step for 0.1 s"):
        list(follow(tmp_path, every=0.05, timeout=0.1))
