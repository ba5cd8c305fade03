"""Jobs for SkyPilot: the task, which the real package reads where it is installed, and the client with an imitation."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.main import main
from allranks.engines.base import EngineFailed, Submission
from allranks.engines.kinds import skypilot

JOB = Submission("train", 8, 4, 4, ("-n", "8"), ("train.py", "--name", "it's $x"), "/code", {"A": "$(b) c"})
PROFILE = skypilot.Profile(infra="gcp/us-central1", accelerators="H100:8", spot=True, env={"B": "1"})


def test_a_task_runs_a_launcher_on_each_node() -> None:
    task = skypilot.task(JOB, PROFILE)
    assert task["num_nodes"] == 4
    assert task["run"] == "allranks run -n 8 train.py --name 'it'\"'\"'s $x'"
    assert task["envs"] == {"B": "1", "A": "$(b) c"}
    assert task["resources"] == {"infra": "gcp/us-central1", "accelerators": "H100:8", "use_spot": True}
    assert task["workdir"] == "/code"


@pytest.mark.soak
@pytest.mark.needs("sky")
def test_the_real_package_reads_the_task(tmp_path: Path) -> None:
    import sky

    task = sky.Task.from_yaml_config({**skypilot.task(JOB, PROFILE), "workdir": str(tmp_path)})
    assert (task.num_nodes, task.envs) == (4, {"B": "1", "A": "$(b) c"})


class Record:
    """A record of a job, as SkyPilot has them since 0.10."""

    def __init__(self, number: int, status: str) -> None:
        self.job_id, self.job_name, self.status = number, "train", types.SimpleNamespace(value=status)


class Sky:
    """An imitation of the SDK: a request is its result. ``calls`` are (function, arguments)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.statuses = iter(["PENDING", "RUNNING", "FAILED"])

    def launch(self, task: Any, **options: Any) -> tuple[int, None]:
        self.calls.append(("launch", options))
        if task.get("num_nodes") == 3:
            raise self.exceptions.ResourcesUnavailableError("no H100 in gcp.")
        return 7, None

    def jobs_launch(self, _: Any, name: str) -> tuple[list[int], None]:
        self.calls.append(("jobs.launch", name))
        return [8], None

    def tail_logs(self, *_: Any, **__: Any) -> Iterator[str | None]:
        return iter(["(head, rank=0, pid=1) [0-7] step 1\n", "(worker1, rank=1, pid=2) (8) warning\n", None])

    def module(self) -> types.ModuleType:
        module: Any = types.ModuleType("sky")
        module.Task = types.SimpleNamespace(from_yaml_config=lambda config: config)
        module.stream_and_get = module.get = lambda request: request
        module.launch, module.tail_logs = self.launch, self.tail_logs
        module.job_status = lambda _, numbers: {numbers[0]: types.SimpleNamespace(value=next(self.statuses))}
        module.cancel = lambda cluster, job_ids: self.calls.append(("cancel", (cluster, job_ids)))
        module.jobs = types.SimpleNamespace(
            launch=self.jobs_launch,
            queue=lambda **_: [{"job_id": 8, "job_name": "train", "status": "CANCELLED"}],
            cancel=lambda job_ids: self.calls.append(("jobs.cancel", job_ids)),
        )
        module.queue = lambda _: [Record(7, "RUNNING")]
        module.exceptions = self.exceptions = types.ModuleType("sky.exceptions")
        module.exceptions.ResourcesUnavailableError = type("ResourcesUnavailableError", (Exception,), {})
        return module


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sky]:
    sky = Sky()
    module = sky.module()
    monkeypatch.setitem(sys.modules, "sky", module)
    monkeypatch.setitem(sys.modules, "sky.exceptions", sky.exceptions)
    requests: Any = types.ModuleType("requests")
    requests.RequestException = type("RequestException", (OSError,), {})
    monkeypatch.setitem(sys.modules, "requests", requests)
    profiles = (
        'cloud]\nkind = "skypilot"\ncluster = "big"\n[tool.allranks.engines.jobs]\nkind = "skypilot"\nmanaged = true'
    )
    (tmp_path / "pyproject.toml").write_text(f"[tool.allranks.engines.{profiles}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield sky
    sys.modules.pop("allranks.engines.clients.skypilot", None)


def submit(on: str, *words: str) -> int:
    return main(["submit", "--on", on, "-n", "8", "--name", "train", *words, "train.py"])


def test_a_job_on_a_cluster(sky: Sky, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert submit("cloud") == 0
    job = "skypilot:big/7"
    assert capsys.readouterr().out == f"{job}\n"
    assert sky.calls == [("launch", {"cluster_name": "big", "idle_minutes_to_autostop": 10, "down": True})]
    monkeypatch.setattr("allranks.engines.clients.skypilot._POLL", 0)
    assert main(["jobs", "attach", job]) == 1
    out, err = capsys.readouterr()
    assert out == "(head, rank=0, pid=1) [0-7] step 1\n"
    assert err == "(worker1, rank=1, pid=2) (8) warning\n"
    assert main(["jobs", "ls", "--on", "cloud"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [job, "train", "RUNNING", "?"]
    assert main(["jobs", "cancel", job]) == 0
    assert sky.calls[-1] == ("cancel", ("big", [7]))


def test_a_managed_job(sky: Sky, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("jobs") == 0
    assert capsys.readouterr().out == "skypilot:managed/8\n"
    assert main(["jobs", "wait", "skypilot:managed/8"]) == 143
    assert main(["jobs", "cancel", "skypilot:managed/8"]) == 0
    assert sky.calls == [("jobs.launch", "train"), ("jobs.cancel", [8])]


@pytest.mark.usefixtures("sky")
def test_what_skypilot_refuses_is_said_in_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit("cloud", "--hosts", "3") == 2
    assert "skypilot: ResourcesUnavailableError: no H100 in gcp." in capsys.readouterr().err
    assert submit("cloud", "--hosts", "2:4") == 2
    assert "skypilot: --hosts 2:4: expected a fixed number of hosts." in capsys.readouterr().err


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sky", None)
    assert submit("skypilot") == 2
    assert "skypilot: the package sky is not installed. Install it: pip install 'allranks[skypilot]'." in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("reference", ["7", "big", "big/x", "/7"])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(EngineFailed, match="is no job: expected skypilot:CLUSTER/NUMBER or managed/NUMBER"):
        skypilot.parse(reference)
