"""Ranks that do not save the same are refused, all of them, before a byte is written; without us nobody notices."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allranks
from allranks.errors import AllranksError, CannotStore, DoesNotFit, Mismatch, StepExists, StorageError

ODD = 2  # the rank that differs


def good() -> dict[str, Any]:
    return {
        "model": {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float32)},
        "config": {"lr": 0.1, "layers": 2},
    }


@dataclass(frozen=True)
class Case:
    """What the odd rank does to a good state or to the call, and what all ranks must say."""

    error: type[AllranksError]
    words: str
    leaf: str | None = None
    spoil: Callable[[dict[str, Any]], object] = id
    call: dict[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (ODD,)


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def spoil(state: dict[str, Any]) -> None:
        *way, last = path.split("/")
        for name in way:
            state = state[name]
        state[last] = value

    return spoil


def flip(state: dict[str, Any]) -> None:
    state["model"]["w"].view(np.uint32)[1, 2] ^= 1


CASES = {
    "another step": Case(
        Mismatch, "ranks 0-1, 3: checkpoint 'save of step 6'.*; rank 2: .*'save of step 7'", call={"step": 7}
    ),
    "an extra key": Case(
        Mismatch,
        r"leaf 'model/scale' is missing on ranks 0-1, 3, float32\[\] on rank 2",
        leaf="model/scale",
        spoil=put("model/scale", np.float32(1)),
    ),
    "another shape": Case(
        Mismatch,
        r"leaf 'model/b' is float32\[4\] on ranks 0-1, 3, float32\[5\] on rank 2",
        leaf="model/b",
        spoil=put("model/b", np.ones(5, np.float32)),
    ),
    "another dtype": Case(
        Mismatch,
        r"leaf 'model/b' is float32\[4\] on ranks 0-1, 3, int32\[4\] on rank 2",
        leaf="model/b",
        spoil=put("model/b", np.ones(4, np.int32)),
    ),
    "another JSON value": Case(
        Mismatch, r"leaf 'config/lr' is 0\.1 on ranks 0-1, 3, 0\.2 on rank 2", "config/lr", put("config/lr", 0.2)
    ),
    "an int for a float": Case(
        Mismatch,
        r"leaf 'config/layers' is 2 on ranks 0-1, 3, 2\.0 on rank 2",
        "config/layers",
        put("config/layers", 2.0),
    ),
    "a value for an array": Case(Mismatch, "leaf 'model/b' is .* on rank 2", "model/b", put("model/b", 1.0)),
    "one bit of what all hold": Case(
        Mismatch, r"leaf 'model/w', float32\[3, 4\], on rank 2 against ranks 0-1, 3\.", "model/w", flip
    ),
    "a leaf that cannot be stored": Case(
        CannotStore,
        r"rank 2: a leaf of the state cannot be stored: 'model/f' is object",
        None,
        put("model/f", object()),
    ),
    "a value that cannot be stored": Case(
        CannotStore,
        "rank 2: a value of the state cannot be stored: config/big is",
        None,
        put("config/big", 1 << 20_000),
    ),
    "another extra": Case(Mismatch, r"leaf '\(extra\)' is .*3.* on rank 2", "(extra)", call={"extra": {"at": 3}}),
    "an extra that cannot be stored": Case(CannotStore, r"\(extra\)", None, call={"extra": {"at": {1, 2}}}),
    "a metric that is none": Case(CannotStore, "metric 'loss' is ", None, call={"metrics": {"loss": "low"}}),
}


def files_in(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "fence" not in path.parts
    }


@pytest.mark.world(n=4, backend="torch")
@pytest.mark.needs("torch")
def test_a_rank_that_saves_something_else_is_named_by_all(world: allranks.World, shared_tmp_path: Path) -> None:
    """The same kind of error everywhere, the rank and the leaf in it; nothing is written; the next good save works."""
    ckpt = allranks.Checkpointer(shared_tmp_path, world)
    ckpt.save(1, good(), block=True)
    for number, (name, case) in enumerate(CASES.items()):
        before = files_in(shared_tmp_path)
        state, call = good(), {"step": 6 + 10 * number, "extra": {"at": 2}, "metrics": {"loss": 1}}
        if world.rank == ODD:
            case.spoil(state)
            call |= {key: value + 10 * number if key == "step" else value for key, value in case.call.items()}
        world.barrier()
        with pytest.raises(case.error) as error:
            ckpt.save(call.pop("step"), state, **call)
        said = str(error.value)
        words = case.words.replace("step 6", f"step {6 + 10 * number}").replace("step 7", f"step {7 + 10 * number}")
        assert re.search(words, said), (name, said)
        if world.rank != ODD or case.error is Mismatch:
            assert error.value.ranks == case.ranks, (name, said)
            assert "rank 2" in said or "ranks 0-1, 3" in said, (name, said)
        if case.leaf:
            assert error.value.leaf == case.leaf, name
        world.barrier()
        assert files_in(shared_tmp_path) == before, name
        ckpt.save(8 + 10 * number, good(), extra={"at": 2}, block=True)
    assert ckpt.steps() == (1, *(8 + 10 * number for number in range(len(CASES))))
    with pytest.raises(StepExists):
        ckpt.save(8, good(), block=True)
    restored = ckpt.restore(good())
    assert restored is not None
    assert restored[1] == 8 + 10 * (len(CASES) - 1)
    ckpt.close()


@pytest.mark.world(n=4, backend="torch")
@pytest.mark.needs("torch")
def test_directories_and_settings_that_differ_are_refused_at_once(world: allranks.World, shared_tmp_path: Path) -> None:
    """When the Checkpointer is made, naming ranks and hosts; also where the other host has a copy of an older run."""
    host = socket.gethostname()
    mine = shared_tmp_path / ("shared" if world.rank != ODD else "local")
    for found in ("nothing", "a fence of another run", "no fence at all"):
        with pytest.raises(
            StorageError, match=rf"rank 2 \(host {host}\) cannot see the file that rank 0 \(host {host}\)"
        ) as error:
            allranks.Checkpointer(mine, world)
        assert error.value.ranks == (ODD,)
        assert "all hosts share" in str(error.value)
        if world.rank == ODD:  # what it sees the next time, under any number that rank 0's fence may have
            text = '{"format": "allranks.fence", "nonce": "00"}' if found == "nothing" else "[]"
            for number in range(1, 6):
                file = mine / "fence" / f"{number:08}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        world.barrier()
    assert not files_in(shared_tmp_path)

    # Settings by which they would save at other steps, or digest by another rule.
    for settings in ({"every": 5}, {"integrity": "blake3"}):
        theirs: dict[str, Any] = settings if world.rank == ODD else {}
        with pytest.raises(Mismatch, match=f"{next(iter(settings))}.* rank 2") as error:
            allranks.Checkpointer(shared_tmp_path, world, **theirs)
        assert error.value.ranks == (ODD,)


@pytest.mark.world(n=4, backend="torch")
@pytest.mark.needs("torch")
def test_a_template_that_does_not_fit_on_one_rank_is_refused_by_all(
    world: allranks.World, shared_tmp_path: Path
) -> None:
    """With rank 2's differences on every rank; no rank's template is touched, and the next restore works."""
    ckpt = allranks.Checkpointer(shared_tmp_path, world)
    ckpt.save(1, good(), block=True)
    blank = {
        "model": {"w": np.zeros((3, 4), np.float32), "b": np.zeros(4, np.float32)},
        "config": {"lr": 0.0, "layers": 0},
    }
    wrong = {**blank, "model": {"w": np.zeros((4, 3), np.float32), "bias": np.zeros(4, np.float32)}}
    template = wrong if world.rank == ODD else blank
    with pytest.raises(DoesNotFit, match=r"(?s)rank 2.*1 missing, 1 unexpected, 1 reshaped.*'model/b'.*\[4, 3\] here"):
        ckpt.restore(template)
    assert not any(array.any() for array in template["model"].values())
    with pytest.raises(CannotStore, match="rank 2"):
        ckpt.restore({**blank, "more": {1, 2}} if world.rank == ODD else blank)
    restored = ckpt.restore(blank)
    assert restored is not None
    assert (restored[0]["model"]["w"] == good()["model"]["w"]).all()
    assert restored[0]["config"] == good()["config"]
    ckpt.close()


@pytest.mark.world(n=2, devices=2, backend="jax")
@pytest.mark.needs("jax")
def test_replicas_of_a_jax_array_that_differ_are_refused(world: allranks.World, shared_tmp_path: Path) -> None:
    """JAX's own assertion passes; we name the leaf, for arrays that all hold and for those that some hold together."""
    import jax
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("host", "device"))

    def array(spec: Any, value: float) -> Any:
        content = np.full((4, 6), value, np.float32)
        return jax.make_array_from_callback(content.shape, NamedSharding(mesh, spec), lambda index: content[index])

    ckpt = allranks.Checkpointer(shared_tmp_path, world)
    for name, spec in (("whole", P()), ("halves", P("device"))):
        odd = array(spec, 1 + world.rank)
        if name == "whole":
            multihost_utils.assert_equal(odd, "without us: no complaint")
        with pytest.raises(Mismatch, match=f"leaf '{name}") as error:
            ckpt.save(1, {name: odd, "good": array(P("host"), 1)})
        assert set(error.value.ranks) <= {0, 1}
    assert not files_in(shared_tmp_path)
    ckpt.save(1, {"whole": array(P(), 1)}, block=True)
    ckpt.close()


@pytest.mark.world(n=2, backend="torch")
@pytest.mark.needs("torch")
def test_without_us_nobody_notices(world: allranks.World, shared_tmp_path: Path) -> None:
    """torch DCP saves and loads what two ranks do not agree about: shapes, values, steps, directories."""
    import torch
    import torch.distributed.checkpoint as dcp

    mine = torch.full((2,), float(world.rank))
    dcp.save({"w": mine}, checkpoint_id=shared_tmp_path / "values")
    loaded = {"w": torch.full((2,), 9.0)}
    dcp.load(loaded, checkpoint_id=shared_tmp_path / "values")
    assert loaded["w"].tolist() == [0.0, 0.0], "rank 1's are gone, without a word"

    dcp.save({"w": torch.zeros(2 + world.rank)}, checkpoint_id=shared_tmp_path / "shapes")
    dcp.save({"w": torch.zeros(2)}, checkpoint_id=shared_tmp_path / f"step-{world.rank}")
    whole = [(shared_tmp_path / f"step-{rank}" / ".metadata").exists() for rank in range(2)]
    assert whole == [True, False], "one save in two directories, and no error"
