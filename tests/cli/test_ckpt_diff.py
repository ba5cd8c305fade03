"""``allranks ckpt diff``: which leaves changed, and by how much, however they are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Said, Tree, four_ranks, save

from allranks.checkpoint import inventory
from allranks.checkpoint.compare import ComparedCheckpoint, compare_checkpoints, leaves_to_read
from allranks.storage.local import LocalStorage
from allranks.storage.memory import MemoryStorage


def test_what_changed_is_named_and_measured(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray]
) -> None:
    said = ckpt("diff", run, "--steps", 100, 200)
    assert said.code == 1
    assert said.out.splitlines()[-1] == "leaves: 2 changed, 3 unchanged; 2 values changed."
    document = ckpt("diff", f"{run}@100", f"{run}/checkpoint-200", "--json").document
    wte, count = document["leaves"]
    assert (wte["path"], wte["kind"], wte["changed"], wte["elements"]) == ("model/wte", "changed", 480, 512 * 96)
    assert wte["max_abs"] == pytest.approx(0.5, abs=1e-6)
    assert wte["relative_l2"] == pytest.approx(
        math.sqrt(480 * 0.25) / np.linalg.norm(arrays["model/wte"].astype(float)), rel=1e-5
    )
    assert (count["path"], count["max_abs"]) == ("opt/count", 100.0)
    assert document["values"] == [
        {"path": "lr", "before": 0.1, "after": 0.05},
        {"path": "metrics/loss", "before": 2.5, "after": 2.25},
    ]
    assert document["unchanged"] == 3


def test_a_checkpoint_is_equal_to_itself_and_nothing_is_read(ckpt: Callable[..., Said], run: Path) -> None:
    said = ckpt("diff", f"{run}@200", run)
    assert said.code == 0
    assert "equal to the bit: 5 leaves and all values." in said.out
    manifest = inventory.load_manifest(LocalStorage(run), 200)
    assert leaves_to_read(manifest, manifest) == ()


def test_only_leaves_that_may_differ_are_read(run: Path) -> None:
    """The digests of equal bytes are equal, wherever in the file they are. Small leaves may share a chunk."""
    storage = LocalStorage(run)
    read = leaves_to_read(inventory.load_manifest(storage, 100), inventory.load_manifest(storage, 200))
    assert {"model/wte", "opt/count"} <= set(read)
    assert "opt/mu/wte" not in read


def test_the_same_state_saved_by_other_ranks_is_equal(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """Four ranks' rows and columns against three ranks' rows."""
    extra = {"config": {"model_type": "gpt2"}, "data": {"epoch": 1}}
    tree = Tree(arrays, ranks=3, cuts={"model/bias": (1,)}, values={"lr": 0.1})
    save(LocalStorage(tmp_path / "three"), 7, tree, extra=extra, metrics={"loss": 2.5})
    said = ckpt("diff", f"{run}@100", tmp_path / "three")
    assert said.code == 0, said.out


def test_added_removed_reshaped_and_recast_leaves(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    other = {
        "model/wte": arrays["model/wte"][:500],
        "model/wq": arrays["model/wq"].astype(np.float32),
        "model/new": arrays["model/bias"],
        "opt/mu/wte": arrays["opt/mu/wte"].astype(np.float16),
        "opt/count": arrays["opt/count"],
    }
    save(LocalStorage(tmp_path / "other"), 1, Tree(other, values={"lr": 0.1}))
    document = ckpt("diff", f"{run}@100", tmp_path / "other", "--json").document
    kinds = {one["path"]: one for one in document["leaves"]}
    assert {path: one["kind"] for path, one in kinds.items()} == {
        "model/wte": "reshaped",
        "model/wq": "recast",
        "model/bias": "removed",
        "opt/mu/wte": "recast",
        "model/new": "added",
    }
    assert (kinds["model/wte"]["before"], kinds["model/wte"]["after"]) == ("float32[512, 96]", "float32[500, 96]")
    assert kinds["model/wq"]["max_abs"] == 0.0
    assert 0 < kinds["opt/mu/wte"]["max_abs"] < 0.01
    text = ckpt("diff", f"{run}@100", tmp_path / "other").out
    assert "recast bfloat16[96, 96] -> float32[96, 96]" in text
    assert "extra/config/model_type" in text
    assert "(missing)" in text


def test_what_is_not_finite_is_counted_and_not_measured() -> None:
    """The same NaN on both sides is no change; 0.0 and -0.0 are, by their bits."""
    before = np.array([1, np.nan, np.inf, 0.0, 2], np.float32)
    after = np.array([1, np.nan, 5.0, -0.0, np.nan], np.float32)
    [change] = _compared({"x": before}, {"x": after}).leaves
    by = change.distance
    assert by is not None
    assert (by.changed, by.unmeasured, by.largest, by.relative) == (3, 2, 0.0, 0.0)


DTYPES = [
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    np.int64,
    np.uint8,
    np.bool_,
    np.complex64,
]


@given(
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    dtype=st.sampled_from(DTYPES),
    ranks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_distances_are_those_of_the_whole_arrays(
    shape: tuple[int, ...], dtype: type, ranks: tuple[int, int], seed: int
) -> None:
    """Whatever the dtype, and however both are cut."""
    draw = np.random.default_rng(seed)
    before = (draw.standard_normal(shape) * 3).astype(dtype)
    after = np.where(draw.random(shape) < 0.5, before, (draw.standard_normal(shape) * 3).astype(dtype)).astype(dtype)
    found = _compared({"x": before}, {"x": after}, ranks)
    wide = np.complex128 if dtype is np.complex64 else np.float64
    one, other = before.astype(wide), after.astype(wide)
    changed = int(np.count_nonzero(before.view(np.uint8) != after.view(np.uint8))) if shape and before.size else 0
    if np.array_equal(before.reshape(-1).view(np.uint8), after.reshape(-1).view(np.uint8)):
        assert found.is_equal
        return
    [change] = found.leaves
    by = change.distance
    assert by is not None
    assert 0 < by.changed <= max(changed, 1)
    assert by.largest == np.abs(other - one).max()
    norm = np.linalg.norm(one)
    expected = np.linalg.norm(other - one) / norm if norm else (math.inf if by.largest else 0.0)
    assert by.relative == pytest.approx(expected, rel=1e-9)


def _compared(a: dict[str, np.ndarray], b: dict[str, np.ndarray], ranks: tuple[int, int] = (1, 1)) -> object:
    sides = []
    for arrays, many in zip((a, b), ranks, strict=True):
        storage = MemoryStorage()
        save(storage, 1, Tree(arrays, ranks=many))
        sides.append(ComparedCheckpoint(storage, inventory.load_manifest(storage, 1)))
    return compare_checkpoints(*sides)


def test_damage_ends_a_comparison_with_exit_code_1(
    ckpt: Callable[..., Said], run: Path, shard_files: list[Path]
) -> None:
    """What is not verified is not compared."""
    data = bytearray(shard_files[0].read_bytes())
    data[5000:] = bytes(len(data) - 5000)
    shard_files[0].write_bytes(data)
    said = ckpt("diff", run, "--steps", 100, 200)
    assert (said.code, said.out) == (1, "")
    assert "are not what was saved" in said.err


def test_comparing_takes_a_bounded_memory(tmp_path: Path) -> None:
    """Blocks of megabytes, never whole leaves: the arrays that are made hold no more than the pieces of two threads."""
    import tracemalloc

    storage = LocalStorage(tmp_path)
    for step in (1, 2):
        save(storage, step, four_ranks({"w": np.full((6144, 2048), step, np.float32)}))
    sides = [ComparedCheckpoint(storage, inventory.load_manifest(storage, step)) for step in (1, 2)]
    tracemalloc.start()
    try:
        compare_checkpoints(*sides)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20
