"""Random damage to valid checkpoints: each input is loaded or is one AllranksError; none hangs or needs much memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import reader_fuzz

from allranks.loading.formats import unpickle

NEEDS = {"orbax": "tensorstore", "orbax_zarr": "tensorstore", "native_zstd": "zstandard"}
SOAK, PROCESSES, AT_ONCE, MEBIBYTES = 1_000_000, 2, 5_000, 512


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> dict[str, reader_fuzz.Files]:
    """The valid checkpoints that can be read here."""
    monkeypatch.setattr("allranks.loading.load.log", lambda *_, **__: None)
    found = reader_fuzz.corpus()
    return {kind: files for kind, files in found.items() if find_spec(NEEDS.get(kind, "numpy"))}


def check(found: dict[str, Any]) -> None:
    assert found["faults"] == []
    assert found["mebibytes"] < MEBIBYTES


def test_each_valid_checkpoint_is_loaded(seeds: dict[str, reader_fuzz.Files], tmp_path: Path) -> None:
    """The corpus is undamaged: only the folder of fences and holds is no checkpoint."""
    found = {kind: reader_fuzz.run_input(tmp_path / "in", kind, files) for kind, files in seeds.items()}
    assert {kind: outcome for kind, outcome in found.items() if outcome != "loaded"} == {"run": "UnknownFormat"}


def test_a_sample_of_damage(seeds: dict[str, reader_fuzz.Files]) -> None:
    """Less than a second of it; ``make soak`` runs a million inputs."""
    check(reader_fuzz.run_inputs(0, 240, seeds))


def test_a_reader_that_raises_or_hangs_is_found(
    seeds: dict[str, reader_fuzz.Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a KeyError in a reader, and one that does not end."""
    only = {"torch": seeds["torch"]}

    def broken(*_: object) -> Any:
        raise KeyError("w")

    def endless(*_: object) -> Any:
        while True:
            pass

    monkeypatch.setattr(reader_fuzz, "SECONDS", 0.1)
    monkeypatch.setattr(unpickle.PickleMachine, "load", broken)
    raised = reader_fuzz.run_inputs(0, 20, only)["faults"]
    assert Counter(fault["error"] for fault in raised).most_common(1)[0][0] == "KeyError: 'w'"
    monkeypatch.setattr(unpickle.PickleMachine, "load", endless)
    assert "TooSlow" in str(reader_fuzz.run_inputs(0, 5, only)["faults"])


@pytest.mark.soak
@pytest.mark.needs("orbax", "zstandard")
def test_a_million_damaged_files(capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own, each of which has a time limit: a reader that hangs in C is found, too."""

    def run(first: int) -> dict[str, Any]:
        command = [sys.executable, reader_fuzz.__file__, str(first), str(first + AT_ONCE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"inputs from {first} on: {done.stderr[-2000:]}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    outcomes: dict[str, Counter[str]] = {}
    with ThreadPoolExecutor(PROCESSES) as pool:
        for found in pool.map(run, range(0, SOAK, AT_ONCE)):
            check(found)
            for kind, counts in found["outcomes"].items():
                outcomes.setdefault(kind, Counter()).update(counts)
    with capsys.disabled():
        for kind, counts in outcomes.items():
            print(f"\n{kind}: {dict(counts)}", end="")
    assert sum(map(Counter.total, outcomes.values())) == SOAK
