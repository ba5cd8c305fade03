"""Programs with one fault each, and their twins without, rehearsed as a user would: the command, real ranks, the JSON.

A program marks the line of its fault with ``# BUG AR101``; ``--fixed`` makes it the twin. Without a rehearsal each of
them ends with exit code 0 on all ranks, but for those that say so in ``FAILS``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.name for path in PROGRAMS.glob("*_*.py"))
# What every `make test` runs; the soak runs all.
SAMPLE = ("torch_cuda_one_device.py",)
# Scenarios by what a program's name begins with.
SCENARIOS = {
    "torch_resume": "quiet,resume",
    "jax_resume": "quiet,resume",
    "torch_local": "quiet,hosts",
    "torch_folder_by": "quiet,perturbed",
    "torch_seed_by": "quiet,perturbed",
    "torch_order_of": "quiet,perturbed",
    "torch_worlds": "worlds",
    "torch_faults": "faults",
    "jax_faults": "faults",
}


def rehearse(folder: Path, program: str, *arguments: str, only: str = "") -> tuple[int, list[dict]]:
    """Return the exit code and the findings of a rehearsal on two ranks."""
    for name in (program, "wandb.py"):
        shutil.copy(PROGRAMS / name, folder)
    scenarios = only or next((those for start, those in SCENARIOS.items() if program.startswith(start)), "quiet")
    command = [sys.executable, "-m", "allranks", "rehearse", "-n", "2", "--only", scenarios]
    command += ["--budget", "240", "--output-format", "json", "--output-file", "out.json", program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads((folder / "out.json").read_text())["findings"]


def marked(program: str) -> dict[int, set[str]]:
    """Return the codes of a fault by its line: of several, which one is seen depends on who is faster."""
    lines = (PROGRAMS / program).read_text().splitlines()
    return {number: set(re.findall(r"AR\d+", line)) for number, line in enumerate(lines, 1) if "# BUG" in line}


def check(folder: Path, program: str) -> None:
    code, findings = rehearse(folder, program)
    assert code == int(any(one["severity"] != "info" for one in findings))
    for line, codes in marked(program).items():
        assert codes & {one["code"] for one in findings if one["line"] == line}, findings
    assert {one["path"] for one in findings} == {program}
    twin = folder / "twin"
    twin.mkdir()
    assert rehearse(twin, program, "--fixed") == (0, [])
    left = {path.name for path in twin.iterdir()}
    assert left - {"__pycache__"} == {program, "wandb.py", "out.json"}


@pytest.mark.parametrize("program", SAMPLE)
def test_a_fault_is_found_at_its_line_and_not_in_its_twin(program: str, tmp_path: Path) -> None:
    pytest.importorskip(program.partition("_")[0])
    check(tmp_path, program)


@pytest.mark.soak
@pytest.mark.parametrize("program", [name for name in NAMES if name not in SAMPLE])
def test_every_fault_is_found_at_its_line_and_not_in_its_twin(program: str, tmp_path: Path) -> None:
    pytest.importorskip(program.partition("_")[0])
    check(tmp_path, program)


@pytest.mark.soak
@pytest.mark.parametrize("program", NAMES)
def test_no_twin_has_a_finding_in_any_scenario(program: str, tmp_path: Path) -> None:
    pytest.importorskip(program.partition("_")[0])
    assert rehearse(tmp_path, program, "--fixed", only="quiet,perturbed,hosts,resume") == (0, [])


def test_every_program_marks_its_fault() -> None:
    assert [name for name in NAMES if not marked(name)] == []
