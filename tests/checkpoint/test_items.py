"""Items of a state have lifetimes of their own: of a step that goes, one can stay, whole."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allranks
from allranks.checkpoint import holds, inventory, keep_best, keep_every, keep_last, paths, read, rehash, removal
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.items import items_in, reduce_manifest
from allranks.checkpoint.manifest_decode import decode_manifest
from allranks.checkpoint.manifest_encode import encode_manifest
from allranks.checkpoint.retention_policy import RetentionPolicy, Saved, combine_policies, decide_retention
from allranks.cli.main import main
from allranks.errors import AllranksError, Damaged, DoesNotFit, NewerFormat, StepRemoved
from allranks.storage import LocalStorage, MemoryStorage
from allranks.storage.base import Storage
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld

ITEMS = {"params": keep_every(100), "data": keep_last(3)}


def state(step: int) -> dict[str, Any]:
    shared = np.full(5, float(step))
    return {
        "params": {"w": np.full((40, 300), step, np.float32), "tied": shared, "empty": np.zeros(0), "name": f"n{step}"},
        "state": {"mu": np.full((40, 300), -step, np.float32), "same": shared, "lr": 0.1},
        "data": {"row": step},
        "rest": np.full(3, step),
    }


def train(where: Storage | Path, steps: range, ranks: int = 1, **options: Any) -> None:
    options = {"keep_last": 2, "items": ITEMS, **options}

    def job(world: World) -> None:
        with Checkpointer(where, world, on_sigterm=False, **options) as ckpt:
            for step in steps:
                ckpt.save(step, state(step), block=True)

    SimulatedWorld(ranks).run(job).values()


def held(storage: Storage) -> dict[int, set[str]]:
    """Return what each step holds, every byte verified, and no file beside what the manifest names."""
    found = {}
    for step in inventory.complete_steps(storage):
        manifest = inventory.load_manifest(storage, step)
        assert list(rehash.verify_checkpoint(storage, manifest)) == []
        there = {entry.name for entry in storage.list(paths.step_folder(step))}
        assert there == {paths.MANIFEST, *(file.name for file in manifest.files)}
        found[step] = set(items_in(manifest))
    return found


ALL = {"params", "state", "data", "rest"}


@pytest.mark.parametrize("ranks", [1, 3])
def test_items_outlive_the_rest_of_their_steps(tmp_path: Path, ranks: int) -> None:
    """params each 100 steps for ever, data of the last three, all of the last two; in one job, and over two."""
    storage = LocalStorage(tmp_path)
    train(storage, range(50, 350, 50), ranks)
    assert held(storage) == {100: {"params"}, 200: {"params", "data"}, 250: ALL, 300: ALL}
    train(storage, range(350, 450, 50), ranks)
    assert held(storage) == {100: {"params"}, 200: {"params"}, 300: {"params", "data"}, 350: ALL, 400: ALL}
    found, step = read(storage, 200)
    assert step == 200
    assert (found["params"]["w"] == 200).all()
    assert found["params"]["name"] == "n200"
    template = {"params": state(0)["params"]}
    reader = Checkpointer(storage, single_world(), read_only=True)
    restored = reader.restore(template, step=100)
    assert restored is not None
    assert restored[0]["params"]["tied"].tolist() == [100.0] * 5
    remedy = r"Step 100 has no 'data', 'rest', 'state'\. .* is 400: restore\(like, step=400\)"
    with pytest.raises(DoesNotFit, match=remedy):
        reader.restore(state(0), step=100)
    last = reader.restore(state(0))
    assert last is not None
    assert last[1] == 400
    assert (last[0]["state"]["mu"] == -400).all()


def test_without_items_nothing_is_in_files_of_its_own(tmp_path: Path) -> None:
    """So such a step cannot be reduced: it stays whole, and the reason is reported."""
    storage = LocalStorage(tmp_path)
    train(storage, range(100, 300, 100), items=None)
    assert {paths.parse_shard_file(file.name).item for file in inventory.load_manifest(storage, 100).files} == {""}  # type: ignore[union-attr]
    with pytest.raises(AllranksError, match="cannot be kept without the rest"):
        reduce_manifest(inventory.load_manifest(storage, 100), ["params"])


def test_steps_of_a_job_without_items_stay_whole_and_others_are_reduced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once that they cannot be reduced."""
    train(tmp_path, range(100, 300, 100), items=None, keep_last=None)
    train(tmp_path, range(300, 700, 100), keep_last=1, items={"params": keep_every(100)})
    found = held(LocalStorage(tmp_path))
    assert {step: len(items) for step, items in found.items()} == {100: 4, 200: 4, 300: 1, 400: 1, 500: 1, 600: 4}
    assert caplog.text.count("step 100: params cannot be kept without the rest") == 1


def test_a_step_whose_manifest_cannot_be_read_stays() -> None:
    """A storage that fails for a moment is no reason to remove what may be kept for ever."""
    disk = MemoryStorage()
    train(disk, range(100, 400, 100), keep_last=1, items={"params": keep_every(100)})
    process = disk.new_process()
    with Checkpointer(
        process, single_world(), keep_last=1, items={"params": keep_every(100)}, on_sigterm=False
    ) as ckpt:
        process.fail_operation("get", "checkpoint-100/*")
        ckpt.save(400, state(400), block=True)
    assert held(disk) == {100: {"params"}, 200: {"params"}, 300: {"params"}, 400: ALL}


def test_the_last_save_holds_parameters_only(tmp_path: Path) -> None:
    """Whether it is made at the end, or is there already; the older ones are as the policies want them."""
    for number, every in enumerate((1, 1000)):
        where = tmp_path / str(number)
        with Checkpointer(where, single_world(), every=every, items={"params": keep_last(1)}, on_sigterm=False) as ckpt:
            ckpt.maybe_save(7, state(7))
            with pytest.raises(AllranksError, match=r"'model' is not an item.*expected one of params"):
                ckpt.close(items="model")
            ckpt.close(items=["params"])
        assert held(LocalStorage(where)) == {7: {"params"}}


def test_an_item_that_the_state_lacks_removes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be misspelt: what the program meant to keep would go, in silence."""
    train(tmp_path, range(1, 5), items={"parms": keep_every(1)})
    assert list(held(LocalStorage(tmp_path))) == [1, 2, 3, 4]
    assert "no step has the item 'parms', so no step is removed. Step 4 has the items 'data', 'params'" in caplog.text
    with Checkpointer(tmp_path / "b", single_world(), items={"params": keep_last(1)}, on_sigterm=False) as ckpt:
        ckpt.save(1, {"other": np.ones(2)}, block=True)
        with pytest.raises(AllranksError, match="has no item 'params': nothing of this step is removed"):
            ckpt.close(items="params")
    assert held(LocalStorage(tmp_path / "b")) == {1: {"other"}}


def test_a_policy_is_a_function(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of steps, metrics and items; what it raises removes nothing and is reported."""

    def odd(saved: Any) -> list[int]:
        return [one.step for one in saved if one.step % 2 and one.metrics["loss"] > 0]

    def save(where: Path, keep: Any) -> list[int]:
        with Checkpointer(where, single_world(), keep=keep, on_sigterm=False) as ckpt:
            for step in range(1, 7):
                ckpt.save(step, {"w": np.ones(1)}, metrics={"loss": step}, block=True)
        return list(ckpt.steps())

    assert save(tmp_path / "a", odd) == [1, 3, 5, 6]
    assert save(tmp_path / "b", [keep_last(1), keep_every(3)]) == [3, 6]
    assert save(tmp_path / "c", lambda _: 1 / 0) == [1, 2, 3, 4, 5, 6]
    assert "a retention policy of the program failed: ZeroDivisionError" in caplog.text
    assert save(tmp_path / "d", keep_best("loss", "min")) == [1, 6]
    assert save(tmp_path / "e", keep_best("less", "min")) == [1, 2, 3, 4, 5, 6]
    assert "keep_best: no step has the metric 'less'" in caplog.text
    with pytest.raises(ValueError, match="keep= cannot be combined"):
        Checkpointer(tmp_path / "f", single_world(), keep=odd, keep_last=2)
    for wrong in ("a/b", "", "a.b", 3):
        with pytest.raises(AllranksError, match="cannot be the name of an item"):
            Checkpointer(tmp_path / "f", single_world(), items={wrong: odd})  # type: ignore[dict-item]


def test_a_reader_that_holds_a_step_keeps_it_whole() -> None:
    disk = MemoryStorage()
    train(disk, range(100, 300, 100))
    with holds.hold_step(disk, 100, minutes=1):
        train(disk, range(300, 500, 100))
        assert held(disk)[100] == ALL
    train(disk, range(500, 600, 100))
    assert held(disk)[100] == {"params"}


def test_a_reader_of_what_goes_meanwhile_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is reduced while somebody reads it is no damage; what stays is read as it is."""
    disk = MemoryStorage()
    train(disk, range(100, 300, 100))
    load = inventory.load_manifest
    manifest = load(disk, 100)
    train(disk, range(300, 500, 100))
    monkeypatch.setattr(
        inventory, "load_manifest", lambda storage, step: load(storage, step) if step > 100 else late(storage, step)
    )
    calls: list[int] = []

    def late(storage: Storage, step: int) -> Any:
        calls.append(step)
        return manifest if len(calls) == 1 else load(storage, step)

    with pytest.raises(StepRemoved):
        read(disk, 100)
    calls.clear()
    assert (read(disk, 100, only="params/*")[0]["params"]["w"] == 100).all()
    calls.clear()
    with pytest.raises(StepRemoved):
        Checkpointer(disk, single_world(), read_only=True).restore(state(0), step=100)


STEPS = st.dictionaries(
    st.integers(0, 12), st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3), max_size=8
)
KEEPS = st.sampled_from([keep_last(1), keep_last(3), keep_every(2), keep_every(5), keep_best("m", "max", 2)])


@settings(deadline=None)
@given(STEPS, KEEPS, st.dictionaries(st.sampled_from(["a", "b"]), KEEPS), st.randoms())
def test_what_no_policy_keeps_goes(
    there: dict[int, frozenset[str]], whole: Any, items: dict[str, Any], random: Any
) -> None:
    """Asked of every step by itself; the newest stays as it is."""
    saved = [Saved(step, {"m": math.sin(step)}, names) for step, names in there.items()]
    random.shuffle(saved)
    found = decide_retention(saved, combine_policies(whole), items)
    newest = max(there, default=None)
    for step, names in there.items():
        of_item = {name: keep([one for one in saved if name in one.items]) for name, keep in items.items()}
        left = {name for name, steps in of_item.items() if name in names and step in steps}
        if step == newest or step in whole(saved):
            assert step not in found.remove
            assert step not in found.reduce
        else:
            assert (step in found.remove) == (not left)
            assert set(found.reduce.get(step, ())) == left


def test_a_policy_of_steps_decides_as_before() -> None:
    saved = [Saved(step, {}) for step in (1, 2, 3)]
    assert decide_retention(saved, RetentionPolicy(keep_last=1), {}).remove == (1, 2)
    assert decide_retention(saved, RetentionPolicy(), {}).remove == ()
    assert decide_retention([], RetentionPolicy(keep_last=1), {}).remove == ()


def big(rank: int) -> dict[str, Any]:
    """Arrays that every rank writes a part of, ties, an empty one, and a value of each rank."""
    w = np.ones((700, 700), np.float32)
    return {"params": {"w": w, "tied": w, "no": np.zeros(0)}, "state": {"mu": w + 1, "own": rank}, "rest": w + 2}


def saved_by(ranks: int) -> MemoryStorage:
    disk = MemoryStorage()

    def job(world: World) -> None:
        items = {"params": keep_last(1), "state": keep_last(1)}
        with Checkpointer(disk, world, items=items, per_rank="state/own", on_sigterm=False) as ckpt:
            ckpt.save(1, big(world.rank), block=True)

    SimulatedWorld(ranks).run(job).values()
    return disk


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_reduction_of_a_manifest_is_sound(ranks: int) -> None:
    """Whatever items stay; arrays over several ranks' files, ties, empty arrays and values of each rank among them."""
    manifest = inventory.load_manifest(saved_by(ranks), 1)
    assert len(manifest.files) == 3 * ranks
    assert manifest.ties == {"params/w": "params/tied"} or manifest.ties == {"params/tied": "params/w"}
    for names in (["params"], ["state"], ["params", "state"]):
        left = reduce_manifest(manifest, names)
        assert items_in(left) == set(names)
        assert len(left.files) == len(names) * ranks
        assert decode_manifest(encode_manifest(left), path="") == left


@pytest.mark.soak
def test_every_bit_of_a_reduced_manifest_is_guarded() -> None:
    disk = saved_by(2)
    removal.reduce_step(disk, 1, ["params"])
    data = disk.get(paths.manifest_path(1))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Damaged, NewerFormat)):
            decode_manifest(bytes(flipped), path="")
    print(f"{8 * len(data)} flipped bits")


def test_load_and_the_commands_take_a_step_of_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, range(100, 500, 100))
    assert main(["ckpt", "ls", str(tmp_path)]) == 0
    states = [line[60:].strip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert states == ["params only", "data, params only", "", "newest"]
    assert main(["ckpt", "ls", "--json", str(tmp_path)]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [one["state"] for one in steps] == ["reduced", "reduced", "whole", "whole"]
    report = allranks.load(tmp_path / "checkpoint-100", into={"params": state(0)["params"]}, world=single_world())
    assert (report.state["params"]["w"] == 100).all()
