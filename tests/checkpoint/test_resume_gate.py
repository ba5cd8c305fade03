"""The first values after a resume are those that were recorded, or the job stops at once and says why."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allranks
from allranks.checkpoint.resume_gate import compare_metrics, possible_reasons
from allranks.errors import AllranksError, CannotStore, NotResumed
from allranks.world.detect import single_world


def test_a_loss_that_begins_elsewhere_stops_the_job(tmp_path: Path) -> None:
    """1.75 for 0.3557, with the likely reasons in order; the first call after a restore compares, no other."""
    state = {"w": np.ones(3, np.float32)}
    with allranks.Checkpointer(tmp_path, single_world()) as ckpt:
        ckpt.resume_gate({"loss": 99.0})  # a run that begins anew
        ckpt.save(25, state, metrics={"loss": 0.3557, "accuracy": 0.9}, block=True)
        ckpt.restore(state)
        ckpt.resume_gate({"loss": 0.36, "other": 5})
        ckpt.resume_gate({"loss": 99.0})
        ckpt.restore(state)
        with pytest.raises(NotResumed) as error:
            ckpt.resume_gate({"loss": np.float32(1.75)})
        ckpt.restore(state)
        with pytest.raises(
            AllranksError, match=r"no metric to compare: expected one of 'loss', 'accuracy', found 'los'"
        ):
            ckpt.resume_gate({"los": 0.36})
        ckpt.restore(state)
        with pytest.raises(CannotStore, match="metric 'loss' is 'low': expected a number"):
            ckpt.resume_gate({"loss": "low"})
    text = str(error.value)
    assert "loss: expected 0.3557, found 1.75, 4.92 times as much. The difference is more than within=0.1" in text
    places = [text.index(word) for word in ("coverage", "normalisation", "renamed", "data position", "learning-rate")]
    assert places == sorted(places)


def test_the_report_of_the_load_is_evidence(tmp_path: Path) -> None:
    """What was not loaded is named first: also a normalisation's statistics, and the rename that was offered."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = {name: tensor for name, tensor in model.state_dict().items() if "running" not in name}
    state["model.1.running_mean"] = torch.zeros(2)
    torch.save(state, tmp_path / "a.pt")
    report = allranks.load(tmp_path / "a.pt", model, strict=False, world=single_world())
    with allranks.Checkpointer(tmp_path / "run", single_world()) as ckpt:
        with pytest.raises(NotResumed) as error:
            ckpt.resume_gate({"loss": 1.75}, recorded={"loss": 0.3557}, report=report)
        ckpt.resume_gate({"loss": 1.75}, recorded={"loss": 0.3557}, report=report)
    text = str(error.value)
    assert "1. coverage: 0.714286 of the template was loaded; 2 leaves keep their initial values" in text
    assert "2. normalisation: its statistics were not loaded: 1.running_mean, 1.running_var" in text
    assert "3. renamed layers: more would fit with rename={'model.*': '*'}" in text


def test_ranks_that_differ_are_the_first_reason(tmp_path: Path) -> None:
    """The third seed's belief, weights on rank 0 only, would look so: one rank as recorded, the others far off."""
    state = {"w": np.ones(3, np.float32)}

    def run(world: allranks.World) -> str:
        with allranks.Checkpointer(tmp_path, world) as ckpt:
            ckpt.save(1, state, metrics={"loss": 0.3557}, block=True)
            ckpt.restore(state)
            with pytest.raises(NotResumed) as error:
                ckpt.resume_gate({"loss": 0.36 if world.is_main else 3.84})
            return str(error.value)

    ended = allranks.SimulatedWorld(4).run(run)
    assert ended.errors == {}
    for rank, text in ended.results.items():
        assert text.startswith(f"rank {rank}: resume gate: loss: expected 0.3557, found 2.97")
        assert "1. the ranks differ: loss is 0.36 on rank 0, 3.84 on ranks 1-3" in text


def test_only_statistics_are_called_so() -> None:
    """A scale that is new in the model is none, whatever its name ends with."""
    loaded = SimpleNamespace(missing=("attn.H_scale", "norm/mean/value"), coverage=0.9, rename={})
    found = possible_reasons(compare_metrics([{"loss": 2.0}], {"loss": 1.0}, tolerance=0.1), loaded, step=None)  # type: ignore[arg-type]
    assert found[1].startswith("normalisation: its statistics were not loaded: norm/mean/value; and ")


@given(st.floats(0.001, 1e6), st.floats(0.0, 3.0), st.integers(1, 5))
def test_a_value_fits_if_and_only_if_it_is_within(recorded: float, factor: float, ranks: int) -> None:
    """On both sides; and what is no number fits nothing."""
    (found,) = compare_metrics([{"loss": recorded * factor}] * ranks, {"loss": recorded}, tolerance=0.25)
    if abs(abs(factor - 1) - 0.25) > 1e-6:
        assert found.fits is (abs(factor - 1) < 0.25)
    (found,) = compare_metrics([{"loss": math.nan}] * ranks, {"loss": recorded}, tolerance=math.inf)
    assert not found.fits
    assert possible_reasons([found], None, step=3)[0].startswith("coverage")
