"""The client for Kubernetes, against a server here that answers as the API does: nothing of a cluster is needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.main import main

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
PODS = "/api/v1/namespaces/team/pods"


class Cluster:
    """What the server holds. ``requests`` are (method, path, query)."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self.pods: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str]] = []

    def end(self, name: str, condition: str, codes: list[int]) -> None:
        self.jobs[name]["status"] = {"conditions": [{"type": condition, "status": "True"}]}
        for index, code in enumerate(codes):
            labels = {"batch.kubernetes.io/job-completion-index": str(index)}
            state = {
                "terminated": {"exitCode": code, "finishedAt": f"2026-01-01T00:00:0{9 - index}Z", "reason": "Error"}
            }
            status = {
                "name": "allranks",
                "image": "a",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": state,
            }
            metadata = {"name": f"{name}-{index}", "uid": f"{name}-{index}", "labels": labels}
            self.pods.append(
                {
                    "metadata": metadata,
                    "status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]},
                }
            )

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        base, _, name = path.rpartition("/")
        if path == JOBSETS and method == "POST":
            if body["metadata"]["name"] in self.jobs:
                return 409, {
                    "message": f'jobsets "{body["metadata"]["name"]}" already exists',
                    "reason": "AlreadyExists",
                }
            self.jobs[body["metadata"]["name"]] = body
            return 201, body
        if path == JOBSETS:
            return 200, {"items": list(self.jobs.values())}
        if base == JOBSETS and name in self.jobs:
            return 200, self.jobs.pop(name) if method == "DELETE" else self.jobs[name]
        if path == PODS:
            return 200, {"items": self.pods}
        if path.startswith(PODS) and name == "log":
            return 200, f"[{path[-5]}] of {path.split('/')[-2]}\nlast"
        return 404, {"message": f"{path} not found", "reason": "NotFound"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster, which is the current one of the kubeconfig, and a profile ``team``."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            path, _, query = self.path.partition("?")
            cluster.requests.append((self.command, path, query))
            length = int(self.headers.get("Content-Length") or 0)
            code, answer = cluster.answer(self.command, path, json.loads(self.rfile.read(length) or "null"))
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    profile = 'kind = "kubernetes"\nimage = "train:1"\nnamespace = "team"\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.allranks.engines.team]\n{profile}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("allranks.engines.clients.kubernetes._POLL", 0.01)
    yield cluster
    server.shutdown()
    thread.join()
    server.server_close()


def submit(*words: str) -> int:
    return main(["submit", "--on", "team", "--name", "train", "--hosts", "2", "-n", "2", *words, "train.py"])


def test_a_job_is_applied_listed_followed_and_cancelled(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit() == 0
    job = "kubernetes:team/jobset/train"
    assert capsys.readouterr().out == f"{job}\n"
    assert ("POST", JOBSETS, "fieldValidation=Strict") in cluster.requests
    assert main(["jobs", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [job, "train", "Active", "2"]
    cluster.end("train", "Failed", [1, 3])
    assert main(["jobs", "attach", job]) == 3
    out, err = capsys.readouterr()
    assert sorted((out + err).splitlines()) == [
        "host-0: [0] of train-0",
        "host-0: last",
        "host-1: [1] of train-1",
        "host-1: last",
    ]
    assert main(["jobs", "ls", "--on", "team"]) == 0
    assert "Failed" in capsys.readouterr().out
    assert main(["jobs", "cancel", job]) == 0
    assert cluster.jobs == {}
    assert main(["jobs", "wait", job]) == 2
    assert f"kubernetes: job team/jobset/train: {JOBSETS}/train not found (404)." in capsys.readouterr().err


def test_a_job_that_has_completed_has_the_exit_code_0(cluster: Cluster) -> None:
    assert submit() == 0
    cluster.end("train", "Completed", [0, 0])
    assert main(["jobs", "wait", "kubernetes:team/jobset/train"]) == 0


@pytest.mark.usefixtures("cluster")
def test_the_words_of_the_server_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit() == 0
    assert submit() == 2
    assert "kubernetes: job 'train': jobsets \"train\" already exists (409)." in capsys.readouterr().err


def test_a_mistake_is_found_before_anything_is_sent(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    profile = Path("pyproject.toml")
    profile.write_text(profile.read_text() + 'memory = "16 GB"\ntpu-topology = "2x2"\n')
    assert submit() == 2
    err = capsys.readouterr().err
    assert "memory: expected a quantity" in err
    assert "tpu-accelerator is missing" in err
    assert cluster.requests == []


def test_a_cluster_that_is_not_there_is_an_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    assert submit() == 2
    assert "Is there a kubeconfig (KUBECONFIG, ~/.kube/config)" in capsys.readouterr().err
    assert submit("--dry-run") == 0
    assert capsys.readouterr().out.startswith("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n")
    assert cluster.requests == []


def test_a_script_can_be_submitted_twice(cluster: Cluster) -> None:
    """A JobSet keeps its name when it has ended."""
    for _ in range(2):
        assert main(["submit", "--on", "team", "--hosts", "2", "-n", "2", "train.py"]) == 0
    assert [name.rpartition("-")[0] for name in cluster.jobs] == ["train", "train"]
