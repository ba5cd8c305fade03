"""``allranks submit --on slurm`` on a real Slurm: exit codes, output, and a job that goes on after a preemption."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import network_hosts
import pytest

ALLRANKS = [sys.executable, "-m", "allranks"]
PROGRAM = """
import os, signal, sys, time
def leave(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
print(f"start {os.environ.get('SLURM_RESTART_COUNT', 0)} {os.environ['TEXT']}", flush=True)
if os.environ.get("SLURM_RESTART_COUNT") is None and sys.argv[1] == "wait":
    time.sleep(600)
sys.exit(int(os.environ["RANK"]) * 3 if sys.argv[1] == "go" else 0)
"""
PROFILE = """
[tool.allranks.engines.big]
kind = "slurm"
partition = "main"
requeue = 1
output = "out put/%x-%j.log"
env = { TEXT = "it's $HOME" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "pyproject.toml").write_text(PROFILE)
    monkeypatch.chdir(folder)
    return folder


def on(hosts: network_hosts.Hosts, *words: str) -> subprocess.CompletedProcess[str]:
    return hosts.run("h0", [*ALLRANKS, *words])


def await_text(file: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while not file.exists() or text not in file.read_text():
        assert time.monotonic() < deadline, f"no {text!r} in {file}"
        time.sleep(0.05)


def test_a_job_has_the_output_and_the_exit_code_of_its_first_failure(hosts: network_hosts.Hosts, folder: Path) -> None:
    done = on(hosts, "submit", "--on", "big", "--attach", "--hosts", "2", "-n", "1", "train.py", "go")
    job_id = done.stdout.partition("\n")[0]
    assert done.returncode == 3, done.stdout
    assert len(re.findall(r"^\[h\d \d\] +start 0 it's \$HOME$", done.stdout, re.M)) == 2
    assert "first failure: rank 1" in done.stdout
    assert (folder / "out put" / f"train-{job_id[6:]}.log").is_file()
    assert f"{job_id}  train  FAILED  2" in on(hosts, "jobs", "ls").stdout


@pytest.mark.soak
def test_a_preempted_job_is_requeued_and_a_cancelled_one_is_not(hosts: network_hosts.Hosts, folder: Path) -> None:
    job_id = on(hosts, "submit", "--on", "big", "--hosts", "2", "-n", "1", "train.py", "wait").stdout.strip()
    number, log = job_id[6:], folder / "out put" / f"train-{job_id[6:]}.log"
    await_text(log, "start 0")
    hosts.run("h0", ["scancel", "--signal=TERM", number])
    await_text(log, "exit code 143")
    update = ["scontrol", "update", f"JobId={number}", "StartTime=now+3"]  # Slurm itself waits for two minutes
    deadline = time.monotonic() + 60
    while hosts.run("h0", update).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert on(hosts, "jobs", "wait", job_id).returncode == 0
    assert "start 1" in log.read_text()

    job_id = on(hosts, "submit", "--on", "big", "--hosts", "2", "-n", "1", "train.py", "wait").stdout.strip()
    log = folder / "out put" / f"train-{job_id[6:]}.log"
    await_text(log, "start 0")
    assert on(hosts, "jobs", "cancel", job_id).returncode == 0
    assert on(hosts, "jobs", "wait", job_id).returncode == 143
    assert "CANCELLED" in on(hosts, "jobs", "ls").stdout
    assert "saved" in log.read_text()


@pytest.mark.soak
def test_what_slurm_refuses_is_said_with_the_partitions_that_there_are(
    hosts: network_hosts.Hosts, folder: Path
) -> None:
    profile = folder / "pyproject.toml"
    profile.write_text(profile.read_text().replace('"main"', '"mian"'))
    done = on(hosts, "submit", "--on", "big", "-n", "1", "train.py", "go")
    assert done.returncode == 2
    assert "invalid partition specified: mian" in done.stdout
    assert "There are the partitions main; the profile has 'mian'." in done.stdout
