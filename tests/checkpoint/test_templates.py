"""A template that does not fit: all differences at once, nothing touched; nothing is cast, padded or skipped."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import DoesNotFit
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world


def model(prefix: str = "", fill: float = 0.0) -> dict[str, Any]:
    names = ("embed.weight", "blocks.0.up.weight", "blocks.0.up.bias", "head.weight")
    return {f"{prefix}{name}": np.full((3, number + 2), fill, np.float32) for number, name in enumerate(names)}


@pytest.fixture
def ckpt() -> Checkpointer:
    one = Checkpointer(MemoryStorage(), single_world())
    one.save(5, {"model": model(fill=7.0), "step": 5, "lr": 0.1}, block=True)
    return one


def template(change: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    made = {"model": model(), "step": 0, "lr": 0.0}
    change(made["model"])
    return made


def refused(ckpt: Checkpointer, wanted: dict[str, Any]) -> DoesNotFit:
    """The error, after a look at whether the template is as it was."""
    arrays = [array for array in wanted["model"].values() if isinstance(array, np.ndarray)]
    before = [array.copy() for array in arrays]
    with pytest.raises(DoesNotFit) as error:
        ckpt.restore(wanted)
    assert all((a == b).all() for a, b in zip(arrays, before, strict=True)), "the template is touched"
    return error.value


def kinds(error: DoesNotFit) -> set[tuple[str, str]]:
    return {(one.kind, one.path) for one in error.differences}


def test_what_fits_fits(ckpt: Checkpointer) -> None:
    """The template of these tests, unchanged."""
    restored = ckpt.restore(template())
    assert restored is not None
    assert all((array == 7).all() for array in restored[0]["model"].values())
    assert (restored[0]["step"], restored[0]["lr"]) == (5, 0.1)


def test_all_differences_are_in_one_error(ckpt: Checkpointer) -> None:
    """Missing, unexpected, reshaped, recast, a value where an array was: together, with how much fits."""

    def change(tree: dict[str, Any]) -> None:
        tree["adapter.weight"] = np.zeros(4, np.float32)
        del tree["head.weight"]
        tree["embed.weight"] = np.zeros((2, 3), np.float32)
        tree["blocks.0.up.weight"] = np.zeros((3, 3), np.float16)
        tree["blocks.0.up.bias"] = 0.0

    error = refused(ckpt, template(change))
    assert kinds(error) == {
        ("missing", "model/adapter.weight"),
        ("unexpected", "model/head.weight"),
        ("reshaped", "model/embed.weight"),
        ("recast", "model/blocks.0.up.weight"),
        ("array or value", "model/blocks.0.up.bias"),
    }
    said = str(error)
    for words in (
        *("1 missing", "1 unexpected", "1 reshaped", "1 recast", "1 array or value"),
        "[3, 2] in the checkpoint, [2, 3] here",
        "float32 in the checkpoint, float16 here",
        "memory/checkpoint-5",
    ):
        assert words in said, (words, said)
    assert "0 of the template's 3 arrays" in said


@pytest.mark.parametrize(("here", "there"), [("model.", ""), ("", "module."), ("_orig_mod.", "model.")])
def test_a_renamed_prefix_is_recognised(here: str, there: str) -> None:
    """Every leaf is missing under its new name, and the error says which change of names would explain all."""
    ckpt = Checkpointer(MemoryStorage(), single_world())
    ckpt.save(1, {"model": model(there, 7.0)}, block=True)
    error = refused(ckpt, {"model": model(here)})
    assert len(error.differences) == 8
    assert "all 4 missing leaves differ by the prefix" in str(error)
    said = re.search(r"To restore them: restore\(..., rename=(.*)\)\n", str(error))
    assert said is not None
    restored = ckpt.restore({"model": model(here)}, rename=ast.literal_eval(said[1]))
    assert restored is not None
    assert (restored.step, restored.notes) == (1, ())
    assert all((array == 7.0).all() for array in restored.state["model"].values())
    assert "0 of the template's 4 arrays (0 of 42 elements" in str(error)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((3, 2), np.float64), np.zeros((3, 2), np.int32), np.zeros((3, 3), np.float32), np.zeros(6, np.float32)],
    ids=["wider", "int", "longer", "flat"],
)
def test_nothing_is_cast_padded_or_flattened(ckpt: Checkpointer, wrong: np.ndarray[Any, Any]) -> None:
    """However harmless it may look."""
    error = refused(ckpt, template(lambda tree: tree.update({"embed.weight": wrong})))
    assert {path for _, path in kinds(error)} == {"model/embed.weight"}


def test_a_shorter_list_and_a_longer_one_do_not_fit() -> None:
    """Of what a container holds, nothing is left out."""
    ckpt = Checkpointer(MemoryStorage(), single_world())
    ckpt.save(1, {"model": {"layers": [np.zeros(2), np.ones(2)]}}, block=True)
    for length, kind in ((1, "unexpected"), (3, "missing")):
        error = refused(ckpt, {"model": {"layers": [np.zeros(2) for _ in range(length)]}})
        assert {found for found, _ in kinds(error)} == {kind}


def test_a_value_of_another_type_does_not_fit(ckpt: Checkpointer) -> None:
    """A step that was an int is not read as a text, nor as a flag."""
    for wrong in ("five", True, 5.0):
        error = refused(ckpt, {**template(), "step": wrong})
        assert kinds(error) == {("recast", "step")}


def test_what_may_be_missing_stays_and_is_told(ckpt: Checkpointer) -> None:
    """Leaves that globs name, of arrays and values; others are refused still."""
    new = np.full(4, 3.0, np.float32)
    wanted = template(lambda tree: tree.update({"adapter.weight": new})) | {"beta": 0.5}
    restored = ckpt.restore(wanted, allow_missing=["*.adapter.*", "beta"])
    assert restored is not None
    assert restored[0]["model"]["adapter.weight"] is new
    assert (new.tolist(), restored[0]["beta"], restored[0]["lr"]) == ([3.0] * 4, 0.5, 0.1)
    assert restored.notes == (
        "2 are not in the checkpoint and keep the program's values: 'model/adapter.weight', 'beta'",
    )
    with pytest.raises(DoesNotFit, match="1 missing"):
        ckpt.restore(wanted, allow_missing="beta")


def test_a_part_of_a_step_is_restored(ckpt: Checkpointer) -> None:
    """Only where it is said, by globs of what is left."""
    restored = ckpt.restore({"model": model()}, allow_unexpected=["step", "lr"])
    assert restored is not None
    assert all((array == 7).all() for array in restored[0]["model"].values())
    assert restored.notes == ("2 are in the checkpoint only, and not restored: 'lr', 'step'",)
    assert refused(ckpt, {"model": model()}).differences


def test_paths_of_the_checkpoint_are_renamed(ckpt: Checkpointer) -> None:
    """By a mapping with patterns, as in allranks.load; also below an optimizer, whose structure is that of the step."""
    wanted = {"net": {"layers": model()}, "step": 0, "rate": 0.0}
    restored = ckpt.restore(wanted, rename={"model.*": "net.layers.*", "lr": "rate"})
    assert restored is not None
    assert all((array == 7).all() for array in restored[0]["net"]["layers"].values())
    assert (restored[0]["rate"], restored[0]["step"]) == (0.1, 5)
    parameter = torch.nn.Parameter(torch.ones(2))
    old, new = (torch.optim.SGD([parameter], lr=0.1 * n, momentum=0.9) for n in (1, 2))
    parameter.grad = torch.ones(2)
    old.step()
    ckpt.save(6, {"optim": old}, block=True)
    ckpt.restore({"optimizer": new}, rename={"optim.*": "optimizer.*"})
    assert new.param_groups[0]["lr"] == 0.1
    assert torch.equal(new.state[parameter]["momentum_buffer"], torch.ones(2))


def test_floats_are_cast_where_that_is_said(ckpt: Checkpointer) -> None:
    """And only floats, never in silence."""
    half = {name: array.astype(np.float16) for name, array in model().items()}
    restored = ckpt.restore({"model": half, "step": 0, "lr": 0.0}, cast=True)
    assert restored is not None
    assert all((array == 7).all() and array.dtype == np.float16 for array in restored[0]["model"].values())
    assert restored.notes[0].startswith("4 are cast: 'model/")
    whole = {name: array.astype(np.int32) for name, array in model().items()}
    with pytest.raises(DoesNotFit, match="4 recast"):
        ckpt.restore({"model": whole, "step": 0, "lr": 0.0}, cast=True)
