"""Jobs for Ray: the request, the client with an imitation of the Jobs API, and a real local cluster (soak)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import types
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.main import main
from allranks.engines.base import EngineFailed, Submission
from allranks.engines.kinds import ray

LAUNCHER = Path(__file__).parents[1] / "clusters" / "programs" / "one_host.py"
JOB = Submission("train", 8, 2, 2, ("-n", "8"), ("train.py", "it's $x"), "/code", {"A": "1"})


def test_a_request_starts_a_driver_with_the_plan() -> None:
    profile = ray.Profile(gpus_per_host=8, resources={"TPU": 4}, runtime_env={"pip": ["a"], "env_vars": {"B": "2"}})
    request = ray.request(JOB, profile)
    *command, plan = shlex.split(request.entrypoint)
    assert command == ["python", "-m", "allranks.engines.drivers.ray"]
    assert json.loads(plan) == {
        "hosts": 2,
        "bundle": {"CPU": 1.0, "GPU": 8, "TPU": 4},
        "launcher": ["python", "-m", "allranks"],
        "arguments": ["-n", "8", "train.py", "it's $x"],
    }
    assert request.runtime_env == {"pip": ["a"], "working_dir": "/code", "env_vars": {"B": "2", "A": "1"}}
    assert request.metadata["job_name"] == "train"


@pytest.mark.parametrize(
    ("status", "driver", "code"),
    [("RUNNING", None, None), ("SUCCEEDED", 0, 0), ("FAILED", 3, 3), ("FAILED", None, 1), ("STOPPED", 1, 143)],
)
def test_the_exit_code_is_that_of_the_driver(status: str, driver: int | None, code: int | None) -> None:
    assert ray.exit_code(status, driver) == code


class Jobs:
    """An imitation of Ray's JobSubmissionClient, with one job."""

    def __init__(self, address: str) -> None:
        if address != "http://here":
            raise ConnectionError(f"Failed to connect to Ray at address: {address}.")

    def submit_job(self, **_: Any) -> str:
        return "raysubmit_1"

    def get_job_info(self, number: str) -> Any:
        if number != "raysubmit_1":
            raise RuntimeError(f"Request failed with status code 404: Job {number} does not exist.")
        status, metadata = types.SimpleNamespace(value="FAILED"), {"submitted_by": "allranks", "job_name": "train"}
        return types.SimpleNamespace(submission_id=number, status=status, metadata=metadata, driver_exit_code=3)

    def list_jobs(self) -> list[Any]:
        other = types.SimpleNamespace(submission_id=None, status=None, metadata=None)
        return [other, self.get_job_info("raysubmit_1")]

    async def tail_job_logs(self, _: str) -> AsyncIterator[str]:
        for block in ("host-0: [0] a\nho", "st-1: (1) b\n", "end"):
            yield block

    def stop_job(self, number: str) -> None:
        self.get_job_info(number)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module: Any = types.ModuleType("ray.job_submission")
    module.JobSubmissionClient = Jobs
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    (tmp_path / "pyproject.toml").write_text('[tool.allranks.engines.r]\nkind = "ray"\naddress = "http://here"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("allranks.engines.clients.ray", None)


@pytest.mark.usefixtures("jobs")
def test_a_job_is_submitted_followed_and_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--on", "r", "-n", "2", "--attach", "train.py"]) == 3
    out, err = capsys.readouterr()
    job = "ray:raysubmit_1@http://here"
    assert out == f"{job}\nhost-0: [0] a\n"
    assert err == "host-1: (1) b\nend\n"
    assert main(["jobs", "ls", "--on", "r"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [job, "train", "FAILED", "?"]
    assert main(["jobs", "cancel", job]) == 0
    assert main(["jobs", "wait", "ray:nothing@http://here"]) == 2
    assert (
        "ray: http://here: Request failed with status code 404: Job nothing does not exist." in capsys.readouterr().err
    )
    assert main(["jobs", "wait", "ray:1@http://there"]) == 2
    assert "Failed to connect to Ray at address: http://there." in capsys.readouterr().err


@pytest.mark.usefixtures("jobs")
def test_a_dry_run_shows_the_command_of_ray(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--on", "r", "-n", "2", "--dry-run", "train.py"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:5] == ["ray", "job", "submit", "--address", "http://here"]
    assert json.loads(words[6])["working_dir"] == os.getcwd()


def test_what_is_no_reference_is_refused() -> None:
    with pytest.raises(EngineFailed, match="is no job: expected ray:ID@ADDRESS"):
        ray.parse("raysubmit_1")


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
head = {"num_cpus": 2, "include_dashboard": True, "dashboard_port": 18265}
cluster = Cluster(head_node_args=head, initialize_head=True)
cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()
print("ready", flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray cluster of two nodes on this machine, and the profile ``r`` for it."""
    (tmp_path / "one_host.py").write_text(LAUNCHER.read_text())
    profile = 'kind = "ray"\naddress = "http://127.0.0.1:18265"\nlauncher = "python one_host.py"'
    (tmp_path / "pyproject.toml").write_text(f"[tool.allranks.engines.r]\n{profile}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("ready" in line for line in process.stdout)
        yield
        process.communicate()


def allranks(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "allranks", *words], capture_output=True, text=True, timeout=300)


@pytest.mark.soak
@pytest.mark.needs("ray")
@pytest.mark.usefixtures("cluster")
def test_a_job_on_a_real_local_cluster() -> None:
    """One launcher on each node, with its output and exit code; none is left after a job was cancelled."""
    submit = ["submit", "--on", "r", "--hosts", "2", "-n", "2", "--env", "TEXT=it's $x"]
    done = allranks(*submit, "--attach", "train.py", "0", "3")
    assert done.returncode == 3, done.stderr
    assert "host-0: [0-1] it's $x" in done.stdout
    assert "host-1: [2-3] it's $x" in done.stdout
    job = allranks(*submit, "train.py", "600", "0").stdout.split()[-1]
    deadline = time.monotonic() + 120
    while "host-1: [2-3]" not in allranks("jobs", "logs", job).stdout:
        assert time.monotonic() < deadline
    assert allranks("jobs", "cancel", job).returncode == 0
    assert allranks("jobs", "wait", job).returncode == 143
    left = ["pgrep", "-f", "one_host.py run --hosts 2"]
    while subprocess.run(left, stdout=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < deadline
