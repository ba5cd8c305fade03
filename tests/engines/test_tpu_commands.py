"""Jobs on TPU VMs: what ``gcloud`` is called with, and what becomes of it when a stand-in runs it on this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from allranks.cli.main import main
from allranks.engines.base import EngineFailed, Submission
from allranks.engines.kinds import tpu

# It records its arguments, runs a command as two workers one after the other, and describes what was created.
GCLOUD = """
import json, os, subprocess, sys
from pathlib import Path
folder = Path(__file__).parent
words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
command = next((word.partition("=")[2] for word in words if word.startswith("--command=")), None)
if command is not None:
    for worker in ("w-0", "w-1"):
        names = 'hostname() { echo ' + worker + '; }\\n'
        script = command.replace("sh -c '", "sh -c '" + names, 1)
        subprocess.run(["sh", "-c", script], env={**os.environ, "WORKER": worker}, check=True)
elif "create" in words:
    file = next(word.partition("startup-script=")[2] for word in words if "startup-script=" in word)
    (folder / "startup.sh").write_text(Path(file).read_text())
elif "describe" in words:
    print((folder / "state").read_text())
elif "list" in words:
    node = {"node": {"labels": {"managed-by": "allranks"}}}
    mine = {"name": "projects/p/locations/z/queuedResources/train-1", "state": {"state": "ACTIVE"}}
    print(json.dumps([{**mine, "tpu": {"nodeSpec": [node]}}, {"name": "other", "tpu": {"nodeSpec": [{}]}}]))
"""
LAUNCHER = """#!/bin/sh
echo "[0] $WORKER $TEXT $(pwd)"
exit 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a stand-in for gcloud in PATH, and the profiles ``pod`` and ``queue``."""
    for name, text in (("gcloud", f"#!{sys.executable}{GCLOUD}"), ("launcher", LAUNCHER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    common = f'kind = "tpu"\nproject = "p"\nzone = "z"\nfolder = "{tmp_path}"\nlauncher = "{tmp_path / "launcher"}"\n'
    queue = 'accelerator-type = "v5litepod-16"\nruntime-version = "v2"\nspot = true\n'
    profiles = f'[tool.allranks.engines.pod]\n{common}tpu = "mine"\n[tool.allranks.engines.queue]\n{common}{queue}'
    (tmp_path / "pyproject.toml").write_text(profiles)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tpu, "HOST_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setattr("allranks.engines.clients.tpu.HOST_JOBS", str(tmp_path / "jobs"))
    return tmp_path


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def submit(on: str, *words: str) -> int:
    return main(["submit", "--on", on, "-n", "1", "--env", "TEXT=it's $x", *words, "train.py"])


def test_a_job_runs_on_all_workers_of_a_tpu_vm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("pod") == 0
    job = capsys.readouterr().out.strip()
    assert job.startswith("tpu:train-")
    assert job.endswith("@p/z/mine")
    assert calls(folder)[0][:5] == ["compute", "tpus", "tpu-vm", "ssh", "mine"]
    assert {"--zone=z", "--project=p", "--worker=all"} <= set(calls(folder)[0])
    assert main(["jobs", "wait", job]) == 3
    assert main(["jobs", "logs", job]) == 0
    out = capsys.readouterr().out
    assert sorted(out.splitlines()) == [f"w-{worker}: [0] w-{worker} it's $x {folder}" for worker in (0, 1)]
    assert main(["jobs", "ls", "--on", "pod"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == [job, job[4:].partition("@")[0], "exit", "3"]
    assert main(["jobs", "cancel", job]) == 0


def test_a_job_waits_for_a_queued_resource(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("queue") == 0
    job = capsys.readouterr().out.strip()
    name = job[4:].partition("@")[0]
    assert job == f"tpu:{name}@p/z/queued"
    (create,) = calls(folder)
    assert create[:5] == ["compute", "tpus", "queued-resources", "create", name]
    assert {"--accelerator-type=v5litepod-16", "--runtime-version=v2", f"--node-id={name}", "--spot"} <= set(create)
    script = (folder / "startup.sh").read_text()
    assert script.startswith("#!/bin/sh\n")
    assert "export TEXT='it'\"'\"'s $x'" in script
    (folder / "state").write_text("WAITING_FOR_RESOURCES")
    assert main(["jobs", "logs", job]) == 2
    assert "has no hosts: its queued resource is WAITING_FOR_RESOURCES." in capsys.readouterr().err
    (folder / "state").write_text("FAILED")
    assert main(["jobs", "wait", job]) == 2
    assert main(["jobs", "cancel", job]) == 0
    assert calls(folder)[-1][3:5] == ["delete", name]
    assert main(["jobs", "ls", "--on", "queue"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["tpu:train-1@p/z/queued", "train-1", "ACTIVE", "?"]


def test_a_dry_run_calls_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("queue", "--dry-run") == 0
    assert "metadata-from-file=startup-script=startup.sh" in capsys.readouterr().out
    assert submit("pod", "--dry-run") == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "mine"]
    assert not (folder / "calls").exists()


def test_a_queued_resource_needs_its_type() -> None:
    job = Submission("train", 1, 1, 1, ("-n", "1"), ("train.py",), "/")
    profile = tpu.Profile(zone="z", folder="/", runtime_version="v2")
    place = tpu.parse(tpu.host_job(profile, job.name, queued=True).reference)
    with pytest.raises(EngineFailed, match="accelerator-type is missing: a queued resource needs it"):
        tpu.create(place, profile, "file")


@pytest.mark.parametrize("reference", ["train", "train@z/mine", "a b@p/z/t", "$(x)@p/z/t"])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(EngineFailed, match=r"is no job: expected tpu:NAME@PROJECT/ZONE/TPU\."):
        tpu.parse(reference)
