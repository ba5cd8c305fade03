"""What a host says of itself: how many accelerators it has, and what must be equal on all hosts."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from allranks.launch.accelerators import count_accelerators
from allranks.launch.hosts.facts import PACKAGES, command_of, facts_of
from allranks.launch.job import Job, Module, Script


@pytest.mark.parametrize(
    ("files", "environ", "count"),
    [
        (["null"], {}, 0),
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], {}, 2),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": "GPU-1f,GPU-2e"}, 2),
        (["kfd"], {"HIP_VISIBLE_DEVICES": "0,1,2"}, 3),
        (["accel0", "accel1", "accel2", "accel3"], {}, 1),
        (["vfio"], {}, 1),
    ],
)
def test_a_rank_for_each_gpu_and_one_for_a_tpu_host(
    tmp_path: Path, files: list[str], environ: dict[str, str], count: int
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert count_accelerators(environ, devices=tmp_path) == count


def test_the_versions_are_those_that_python_knows() -> None:
    facts = facts_of(Job(Module("train"), 2))
    known = {package: version(package) for package in PACKAGES if find_spec(package)}
    assert {package: facts[f"the version of {package}"] for package in known} == known


def test_another_content_of_the_script_is_another_fact(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    job = Job(Script(str(script), ("--lr", "2")), 2)
    before = facts_of(job)
    assert before.keys() > {"Python", "the version of allranks", "the script"}
    script.write_text("print(2)")
    assert {name for name, value in facts_of(job).items() if before[name] != value} == {"the script"}
    assert command_of(job) == f"python {script} --lr 2"
    assert "the script" not in facts_of(Job(Module("train"), 2))
