"""The third seed: torch's DDP, whose checkpoints are whole, the same on all ranks, and read by others."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training
from harness import clean_environ

from allranks.checkpoint.commit_events import PartWritten, SaveId
from allranks.checkpoint.commit_states import CommitSide, CommitState

pytestmark = pytest.mark.needs("torch", "safetensors")
EXAMPLE = training.HERE.parents[1] / "examples" / "ddp_coordinator"
TINY = "--size 32 --layers 1 --heads 2 --seq-len 32 --batch-size 16 --save-interval 4 --max-steps 6"
FOUR = ("-m", "allranks", "run", "-n", "4")
RUNS = {
    "right": "train --phases",
    "again": "train --max-steps 7",
    "by hand": "by_hand",
    "drift": "train --break drift",
    "drift by hand": "by_hand --break drift",
    "weights": "train --weights {right}",
    "weights, wrapped": "train --weights {right} --break partial-load",
    "weights, wrapped, by hand": "by_hand --weights {right} --break partial-load",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ddp")


@pytest.fixture(scope="module")
def runs(folder: Path) -> Mapping[str, list[tuple[str, Any]]]:
    """The job in all of these ways, in the same four processes, and its output; weights are those of step 6 by hand.

    The bug "gate" ends it.
    """
    flags = []
    for name, run in RUNS.items():
        program, *rest = run.format(right=folder / "by-hand" / "checkpoint-6").split()
        out = folder / ("right" if name == "again" else name.replace(",", "").replace(" ", "-"))
        flags.append(" ".join([program, TINY, "--out", str(out), *rest]))
    gate = f"train {TINY} --out {folder / 'gate'} --break gate"
    ends, said = training.ends_of("ddp_coordinator", *flags, out=folder / "ends.json", fails=gate)
    return {**dict(zip(RUNS, ends, strict=True)), "said": [("", said)]}


def losses(ended: list[tuple[str, Any]]) -> list[float]:
    """Return the losses, which are the same on all ranks."""
    assert all(one == ended[0] and one[0] == "returned" for one in ended), ended
    found: list[float] = ended[0][1]
    return found


def test_each_save_goes_through_its_phases(runs: Mapping[str, list[tuple[str, Any]]], folder: Path) -> None:
    """On rank 0 in order; the last step is saved once; the next start goes on from it."""
    assert len(losses(runs["right"])) == 6
    assert len(losses(runs["again"])) == 1
    said, _, _ = runs["said"][0][1].partition("save of step 7 on rank 0")
    phases = re.findall(r"save of step 4 on rank 0: (?:\w+ -> )?(\w+)", said)
    assert phases[:6] == ["agreed", "copied", "proposing", "putting", "closing", "committed"]
    assert len(re.findall(r"save of step 6 on rank 0: closing -> committed", said)) == 1
    assert sorted(one.name for one in (folder / "right").glob("checkpoint-*")) == [
        *("checkpoint-4", "checkpoint-6", "checkpoint-7")
    ]


@pytest.mark.soak  # tests/cli/test_ckpt_export.py compares logits, too: of a model that transformers has made
def test_others_read_the_export(runs: Mapping[str, list[tuple[str, Any]]], folder: Path) -> None:
    """model.safetensors and config.json below checkpoint-6: transformers loads them, and computes the same."""
    assert runs["right"]
    out = folder / "export" / "checkpoint-6"
    run = f"{folder / 'right'}@6"
    done = training.run(["-m", "allranks", "ckpt", "export", run, str(out), "--prefix", "model", "--strip-prefix"])
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    done = training.run([str(training.HERE / "gpt2_by_others.py"), str(out)])
    assert done.returncode == 0, done.stdout
    assert "GPT2LMHeadModel: same logits" in done.stdout


def test_a_rank_that_drifts_is_told_before_anything_is_written(
    runs: Mapping[str, list[tuple[str, Any]]], folder: Path
) -> None:
    """By hand rank 0 writes what it has, and nobody knows that another rank has something else."""
    assert losses(runs["drift by hand"])
    assert (folder / "drift-by-hand" / "checkpoint-6" / "model.safetensors").exists()
    assert [how for how, _ in runs["drift"]] == ["Mismatch"] * 4
    assert "leaf 'model/transformer.ln_f.bias', float32[32], on rank 2 against ranks 0-1, 3" in runs["drift"][3][1]
    assert not list((folder / "drift").glob("checkpoint-*"))


def test_weights_for_another_wrapping_are_refused(runs: Mapping[str, list[tuple[str, Any]]]) -> None:
    """Into the model that DDP has wrapped: by hand the training begins anew; with us it does not, and says a rename."""
    anew = losses(runs["by hand"])
    np.testing.assert_allclose(losses(runs["weights, wrapped, by hand"]), anew)
    assert losses(runs["weights"])[0] < anew[0] - 0.3
    assert [how for how, _ in runs["weights, wrapped"]] == ["DoesNotFit"] * 4
    assert 'did you mean: rename={"*": "module.*"}' in runs["weights, wrapped"][2][1]


def test_a_collective_on_one_rank_is_told_with_its_line(runs: Mapping[str, list[tuple[str, Any]]]) -> None:
    """Rank 0 reduces for its log, while the others save: every rank learns what rank 0 is about to do, and where."""
    said = runs["said"][0][1]
    headline = next(line for line in said.splitlines() if line.startswith("first failure: "))
    assert "Mismatch" in headline
    assert re.search(r"ranks 1-3: data 'state' \(.*; rank 0: lockstep 'all_reduce sum float32\[\]' \(", headline), (
        headline
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("bug", "says"),
    [
        pytest.param("absent-rank", "rank 3 did not come within 20 s. rank 3 (host", id="absent"),
        pytest.param("double-ack", "rank 3 did not come within 20 s. rank 3 (host", id="twice"),
        pytest.param("raise", "ValueError: a row of text that is no text", id="raises"),
    ],
)
def test_a_rank_that_does_not_come_is_named(tmp_path: Path, bug: str, says: str) -> None:
    """Whether it stands still or raises: the job ends, with the reason as its headline, and nothing is half saved."""
    flags = [*TINY.split(), "--out", str(tmp_path), "--break", bug, "--timeout", "20"]
    done = training.run([*FOUR, str(EXAMPLE / "train.py"), *flags])
    assert done.returncode == 1, done.stdout
    headline = next(line for line in done.stdout.splitlines() if line.startswith("first failure: "))
    assert says in headline
    assert not list(tmp_path.glob("checkpoint-*"))


@pytest.mark.soak
@pytest.mark.parametrize(("bug", "written"), [("absent-rank", False), ("double-ack", True)])
def test_by_hand_acks_are_waited_for_for_ever_or_not_at_all(tmp_path: Path, bug: str, written: bool) -> None:
    """A rank that never comes blocks the save; one that says "ready" three times completes it in its place."""
    flags = [*TINY.split(), "--out", str(tmp_path / "run"), "--break", bug]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, *torchrun, str(EXAMPLE / "by_hand.py"), *flags]
        job = subprocess.Popen(command, env=clean_environ(), stdout=log, stderr=subprocess.STDOUT)
    saved, deadline = tmp_path / "run" / "checkpoint-4" / "config.json", time.monotonic() + 60
    try:
        while job.poll() is None and not saved.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert job.poll() is None, (tmp_path / "log").read_text()
        assert saved.exists() is written
    finally:
        job.terminate()  # torchrun ends its ranks
        job.wait(60)


def test_the_seeds_coordinator_takes_one_rank_for_three() -> None:
    """Its acks bear no name. In ours they are a set: three of one rank are one, and the others are missing."""
    theirs = runpy.run_path(str(EXAMPLE / "coordinator.py"))["Coordinator"](world_size=3)
    theirs.request_save(100)
    assert [theirs.worker_ready() for _ in range(3)] == [False, False, True]
    assert theirs.phase == "WeightsSynced"

    save, stale = SaveId(2, 200, "b", "digest"), SaveId(1, 100, "a", "digest")
    ours = CommitSide(save, rank=0, size=3)
    for event in (*[PartWritten(save, 1, None)] * 3, PartWritten(stale, 2, None)):
        ours.apply_event(event)
    assert (ours.state, ours.ranks_without_ack) == (CommitState.COLLECTING, (0, 2))
