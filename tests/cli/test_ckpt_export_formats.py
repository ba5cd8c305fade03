"""``allranks ckpt export --to``: what torch, DCP and Orbax read of it is what was saved."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from runs import Said

import allranks
from allranks.checkpoint import convert
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import AllranksError
from allranks.world.detect import single_world


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A run of a model and its optimizer after a step, with values and a list."""
    folder, net = tmp_path_factory.mktemp("trained"), model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.25)
    net(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    rest = {"name": "x", "none": None, "flag": True, "list": [np.arange(3), 1.5], "half": torch.ones(3).bfloat16()}
    with Checkpointer(folder, single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {"model": net, "optimizer": optimizer, **rest}, block=True)
    return folder, net, optimizer


def test_torch_loads_a_pt_file(ckpt: Callable[..., Said], trained: Any, tmp_path: Path) -> None:
    """By ``weights_only``; a fresh model and optimizer take it."""
    run, net, optimizer = trained
    said = ckpt("export", run, tmp_path / "a" / "all.pt", "--to", "pt")
    assert said.out.splitlines()[1:] == [f"  {tmp_path}/a/all.pt"]
    found = torch.load(tmp_path / "a" / "all.pt", weights_only=True)
    other = model()
    other.load_state_dict(found["model"])
    fresh = torch.optim.AdamW(other.parameters())
    fresh.load_state_dict(found["optimizer"])
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, fresh.state_dict()["state"][number][name]) for name, value in state.items())
    assert fresh.param_groups[0]["lr"] == 0.25
    assert (found["name"], found["none"], found["flag"], found["list"][1]) == ("x", None, True, 1.5)
    assert found["half"].dtype == torch.bfloat16
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["all.pt"]


def test_a_part_of_a_checkpoint_is_a_state_dict(ckpt: Callable[..., Said], trained: Any, tmp_path: Path) -> None:
    run, net, _ = trained
    document = ckpt(
        "export", run, tmp_path / "m.pt", "--to", "pt", "--prefix", "model", "--strip-prefix", "--json"
    ).document
    assert document["files"] == [str(tmp_path / "m.pt")]
    found = torch.load(tmp_path / "m.pt", weights_only=True)
    assert document["bytes"] == sum(one.nbytes for one in found.values())
    model().load_state_dict(found)
    assert torch.equal(found["1.bias"], net[1].bias)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_dcp_loads_a_folder(ckpt: Callable[..., Said], trained: Any, tmp_path: Path) -> None:
    run, net, _ = trained
    assert ckpt("export", run, tmp_path / "out", "--to", "dcp").code == 0
    state = {"model": {name: torch.zeros_like(one) for name, one in net.state_dict().items()}, "name": ""}
    dcp.load(state, checkpoint_id=str(tmp_path / "out"), no_dist=True)
    assert all(torch.equal(one, state["model"][name]) for name, one in net.state_dict().items())
    assert state["name"] == "x"


def test_orbax_restores_a_folder(ckpt: Callable[..., Said], trained: Any, tmp_path: Path) -> None:
    run, net, _ = trained
    assert ckpt("export", run, tmp_path / "out", "--to", "orbax").code == 0
    found = ocp.PyTreeCheckpointer().restore(tmp_path / "out")
    for name, one in net.state_dict().items():
        assert (found["model"][name] == one.numpy()).all()
    assert found["half"].dtype.name == "bfloat16"
    assert found["list"][0].tolist() == [0, 1, 2]
    assert (found["name"], found["none"], found["flag"]) == ("x", None, True)


@pytest.mark.parametrize("to", ["pt", "dcp", "orbax"])
def test_what_was_exported_comes_in_again(ckpt: Callable[..., Said], trained: Any, tmp_path: Path, to: str) -> None:
    run, net, _ = trained
    out = tmp_path / ("out.pt" if to == "pt" else "out")
    ckpt("export", run, out, "--to", to, "--prefix", "model")
    other = model()
    allranks.load(out, into={"model": other}, world=single_world())
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_tied_weights_stay_one(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    w = torch.randn(3, 3)
    with Checkpointer(tmp_path / "run", single_world(), on_sigterm=False) as saver:
        saver.save(1, {"a": w, "b": w}, block=True)
    ckpt("export", tmp_path / "run", tmp_path / "out.pt", "--to", "pt")
    found = torch.load(tmp_path / "out.pt")
    assert found["a"].data_ptr() == found["b"].data_ptr()
    assert torch.equal(found["a"], w)
    ckpt("export", tmp_path / "run", tmp_path / "b.pt", "--to", "pt", "--prefix", "b")
    assert torch.equal(torch.load(tmp_path / "b.pt")["b"], w)


def test_what_is_there_stays(ckpt: Callable[..., Said], trained: Any, tmp_path: Path) -> None:
    """Without ``--force``; and, whatever a library raises, so does what was there before, alone."""
    out = tmp_path / "out.pt"
    out.write_text("mine")
    said = ckpt("export", trained[0], out, "--to", "pt")
    assert said.code != 0
    assert "already exists. Choose another OUT, or pass --force" in said.err
    assert out.read_text() == "mine"
    ckpt("export", trained[0], out, "--to", "pt", "--force")
    assert torch.load(out)["name"] == "x"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("no such type")])
def test_a_library_that_fails_leaves_nothing(
    ckpt: Callable[..., Said], trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def write(_: Any, out: Path) -> None:
        out.mkdir()
        (out / "part").touch()
        raise error

    monkeypatch.setattr("allranks.checkpoint.foreign.torch.write_dcp", write)
    said = ckpt("export", trained[0], tmp_path / "out", "--to", "dcp")
    assert said.code != 0
    assert str(error.args[-1]) in said.err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_is_refused(
    ckpt: Callable[..., Said], trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object) -> str:
        said = ckpt("export", trained[0], tmp_path / "out", *words)
        assert said.code != 0
        return said.err

    assert "--dtype works with --to safetensors only" in refused("--to", "dcp", "--dtype", "bf16")
    assert "step 1 has no leaf below 'nothing'" in refused("--to", "dcp", "--prefix", "nothing")
    for leaves in ({"a": 1, "a/b": 2}, {"a/b": 1, "a": 2}):
        with pytest.raises(AllranksError, match="a nested dict cannot hold both"):
            convert.tree_of(leaves)
    with pytest.raises(AllranksError, match="has 4,999 levels: expected at most 200 in a nested dict"):
        convert.tree_of({"/".join(["a"] * 5000): 1})
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    monkeypatch.delitem(sys.modules, "allranks.checkpoint.foreign.jax", raising=False)
    assert "--to orbax needs orbax-checkpoint, which cannot be imported" in refused("--to", "orbax")


@pytest.mark.parametrize("to", ["pt", "dcp", "orbax"])
def test_force_replaces_an_export_of_the_format_and_nothing_else(
    ckpt: Callable[..., Said], trained: Any, tmp_path: Path, to: str
) -> None:
    """Not the run that is exported, nor a step of it, nor a folder of the user's."""
    run, mine, out = shutil.copytree(trained[0], tmp_path / "run"), tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    (mine / "note.txt").write_text("mine")
    for place in (run, run / "checkpoint-1", mine):
        before = sorted(place.rglob("*"))
        said = ckpt("export", run, place, "--to", to, "--force")
        assert said.code == 2, said
        assert "--force replaces only an export to" in said.err
        assert sorted(place.rglob("*")) == before
    for _ in range(2):
        assert ckpt("export", run, out, "--to", to, "--force").code == 0
    refuse_foreign_files_and_links(lambda: ckpt("export", run, out, "--to", to, "--force"), out, mine)


def refuse_foreign_files_and_links(export: Callable[[], Said], out: Path, mine: Path) -> None:
    """Files of the user in a folder of an export, however deep, are in the way; so is a link to an export."""
    if out.is_dir():
        deep = next((folder for folder in out.iterdir() if folder.is_dir()), out)
        links = {"linked": mine, "model.distcp": mine / "note.txt"}
        for name in ("thesis.tex", "_notes", *links):
            (deep / name).symlink_to(links[name]) if name in links else (deep / name).write_text("mine")
            assert "which is not part of an export" in export().err
            assert name in {one.name for one in deep.iterdir()}
            (deep / name).unlink()
    assert export().code == 0
    moved = out.rename(out.with_name("moved"))
    out.symlink_to(moved)
    assert "is a symbolic link to" in export().err
    assert out.is_symlink()
    assert moved.exists()


# By format: the arrays that it has no room for; the other formats take them.
NO_ROOM: dict[str, dict[str, Any]] = {
    "pt": {"i4": np.ones(4, ml_dtypes.int4), "f8": np.ones(2, ml_dtypes.float8_e3m4)},
    "dcp": {"i4": np.ones(4, ml_dtypes.int4), "u3": torch.zeros(3, dtype=torch.uint3)},
    "orbax": {"empty": np.zeros((0, 3), np.float32), "huge": np.zeros((1 << 40, 0)), "u4": np.ones(2, ml_dtypes.uint4)},
}


@pytest.mark.parametrize("to", NO_ROOM)
def test_arrays_that_a_format_has_no_room_for_are_named(ckpt: Callable[..., Said], tmp_path: Path, to: str) -> None:
    """Before anything is read or written; all of it goes to safetensors, the rest to the format."""
    run, odd = tmp_path / "run", NO_ROOM[to]
    with Checkpointer(run, single_world(), on_sigterm=False) as saver:
        saver.save(1, {"odd": odd, "good": {"w": np.ones(2)}}, block=True)
    said = ckpt("export", run, tmp_path / "out", "--to", to)
    assert said.code == 2
    assert f"export --to {to}: this format cannot hold {len(odd)} of {len(odd) + 1} arrays: 'odd/" in said.err
    assert "Export the other arrays with --prefix, or all of them to safetensors" in said.err
    assert [one.name for one in tmp_path.iterdir()] == ["run"]
    assert ckpt("export", run, tmp_path / "out", "--to", to, "--prefix", "good").code == 0
    assert ckpt("export", run, tmp_path / "st").code == 0


@pytest.mark.parametrize("to", ["pt", "dcp", "orbax"])
def test_arrays_of_every_rank_come_in_again(ckpt: Callable[..., Said], tmp_path: Path, to: str) -> None:
    """Without dimensions, empty (but in Orbax), of 32 dimensions; a state that is a list."""
    state = [
        np.float32(3),
        np.ones((1,) * 31 + (2,)),
        torch.ones(2).bfloat16(),
        np.zeros((2, 0) if to != "orbax" else 1),
    ]
    with Checkpointer(tmp_path / "run", single_world(), on_sigterm=False) as saver:
        saver.save(1, state, block=True)
    assert ckpt("export", tmp_path / "run", tmp_path / "out", "--to", to).code == 0
    into = [
        np.zeros_like(one) if isinstance(one, np.ndarray | np.generic) else torch.zeros(2).bfloat16() for one in state
    ]
    found = allranks.load(tmp_path / "out", into=into, world=single_world()).state
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(found[:2], state[:2], strict=True))
    assert torch.equal(found[2], state[2])


def test_a_state_without_names_or_arrays_is_refused(ckpt: Callable[..., Said], tmp_path: Path) -> None:
    for number, state in enumerate((np.ones(2), {"n": 3})):
        with Checkpointer(tmp_path / str(number), single_world(), on_sigterm=False) as saver:
            saver.save(1, state, block=True)
    assert (
        "the state is a single array: expected a dict"
        in ckpt("export", tmp_path / "0", tmp_path / "out", "--to", "dcp").err
    )
    assert ckpt("export", tmp_path / "0", tmp_path / "out.pt", "--to", "pt").code == 0
    for to in ("pt", "safetensors"):
        said = ckpt("export", tmp_path / "1", tmp_path / "out", "--to", to)
        assert "step 1 has 1 values and no arrays" in said.err


@pytest.mark.parametrize("to", ["pt", "dcp", "orbax", "safetensors"])
@pytest.mark.parametrize("force", [False, True])
def test_the_working_folder_is_no_place_for_an_export(
    ckpt: Callable[..., Said], trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, force: bool
) -> None:
    """Nor one above it: what is there would be replaced, whatever it is called here."""
    work = tmp_path / "above" / "work"
    work.mkdir(parents=True)
    (tmp_path / "link").symlink_to(work)
    monkeypatch.chdir(work)
    for out in (".", "..", "./", "../work", str(work), "/", str(tmp_path / "link"), str(tmp_path / "link" / "..")):
        said = ckpt("export", trained[0], out, "--to", to, *(["--force"] if force else []))
        assert said.code == 2, said
        assert "which contains the folder that this command runs in" in said.err, out
        assert "Choose a folder in it" in said.err
    assert list(work.iterdir()) == []
    assert ckpt("export", trained[0], "./new", "--to", to).code == 0


def test_an_error_of_dcp_is_told_in_words(
    ckpt: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no Exception."""
    monkeypatch.setattr(convert, "_NOT_IN", dict.fromkeys(convert.FORMATS, frozenset()))
    with Checkpointer(tmp_path / "run", single_world(), on_sigterm=False) as saver:
        saver.save(1, {"a": np.ones(4, ml_dtypes.int4)}, block=True)
    said = ckpt("export", tmp_path / "run", tmp_path / "out", "--to", "dcp")
    assert said.code == 2
    assert "export --to dcp failed: " in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "out").exists()
