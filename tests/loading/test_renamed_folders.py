"""A manifest in a folder wins, whatever the folder is called: renamed, copied, linked, a downloaded artifact."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import allranks
from allranks.checkpoint import paths
from allranks.cli.main import main
from allranks.errors import Damaged, NotThere, UnknownFormat
from allranks.world.detect import single_world

WORLD = single_world()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the steps 1 and 2."""
    with allranks.Checkpointer(tmp_path / "run", WORLD) as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"w": np.full(1000, step, np.float32)}, block=True)
    return tmp_path / "run"


def renamed(run: Path) -> Path:
    return (run / "checkpoint-2").rename(run / "best")


def copied(run: Path) -> Path:
    return Path(shutil.copytree(run / "checkpoint-2", run.parent / "model:v3"))


def copied_as_another_step(run: Path) -> Path:
    return Path(shutil.copytree(run / "checkpoint-2", run / "checkpoint-7"))


def linked(run: Path) -> Path:
    (run / "latest").symlink_to("checkpoint-2")
    return run / "latest"


def of_linked_files(run: Path) -> Path:
    """As the cache of a hub has it."""
    snapshot = run.parent / "snapshot"
    snapshot.mkdir()
    for file in (run / "checkpoint-2").iterdir():
        (snapshot / file.name).symlink_to(file)
    return snapshot


def beside_other_models(run: Path) -> Path:
    folder = copied(run)
    (folder / "model.safetensors").write_bytes(b"not this one")
    return folder


KINDS = [renamed, copied, copied_as_another_step, linked, of_linked_files, beside_other_models]


@pytest.mark.parametrize("kind", KINDS)
def test_every_chunk_is_verified(run: Path, kind: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = kind(run)
    into = {"w": np.zeros(1000, np.float32)}
    for address in (folder, folder / "manifest.json"):
        into["w"][:] = 0
        report = allranks.load(address, into, world=WORLD)
        assert report.format == "allranks checkpoint, step 2"
        assert (into["w"] == 2).all()
    for command in ("show", "verify"):
        assert main(["ckpt", command, str(folder)]) == 0
    assert main(["ckpt", "diff", str(folder), f"{run}@1"]) == 1
    assert main(["ckpt", "export", str(folder), str(run / "out")]) == 0
    capsys.readouterr()
    (shard,) = [file for file in folder.iterdir() if paths.parse_shard_file(file.name)]
    data = bytearray(shard.read_bytes())
    data[4497] ^= 0x40
    shard.write_bytes(data)
    with pytest.raises(Damaged, match=rf"bytes 4096-\d+ of .*{folder.name}.*leaf 'w'"):
        allranks.load(folder, into, world=WORLD)
    assert main(["ckpt", "verify", str(folder)]) == 1
    assert f"{folder}: DAMAGED" in capsys.readouterr().out


def test_a_damaged_manifest_is_not_passed_over(run: Path) -> None:
    """Neither where its first bytes are hit, nor where all of it is gone but its name."""
    folder = renamed(run)
    for data in (b"", b"x" + (folder / "manifest.json").read_bytes()[1:]):
        (folder / "manifest.json").write_bytes(data)
        with pytest.raises(Damaged, match=r"best/manifest.json is not a valid manifest"):
            allranks.load(folder, {"w": np.zeros(1000, np.float32)}, world=WORLD)


def test_a_manifest_of_another_program_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(UnknownFormat, match="is not a checkpoint of a known format"):
        allranks.load(tmp_path, {"w": np.zeros(3)}, world=WORLD)


def test_a_copy_under_another_step_of_the_run_is_named(run: Path) -> None:
    """The run's newest step is not silently an older one."""
    copied_as_another_step(run)
    ckpt = allranks.Checkpointer(run, WORLD, read_only=True)
    with pytest.raises(Damaged, match=r"checkpoint-7 holds step 2: expected step 7"):
        ckpt.restore({"w": np.zeros(1000, np.float32)})


def test_a_step_is_no_run(run: Path) -> None:
    """Who names the folder of a step for the run does not begin anew in silence."""
    ckpt = allranks.Checkpointer(run / "checkpoint-2", WORLD, read_only=True)
    with pytest.raises(NotThere, match=r"is the folder of one checkpoint: expected a run\. Pass the folder above"):
        ckpt.restore({"w": np.zeros(1000, np.float32)})
