"""Manifests for Kubernetes: what a job becomes, and mistakes that are found before anything is applied.

The models of Kubeflow Trainer and the schemas of Kubernetes accept the manifests. Our rules refuse each planted mistake
by themselves, because users do not have the models installed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from allranks.engines.base import EngineFailed, Submission
from allranks.engines.kinds import kubernetes as kind
from allranks.engines.manifest_rules import faults
from allranks.engines.yaml_text import to_yaml

JOB = Submission("train", 8, 4, 4, ("-n", "8"), ("train.py", "--name", "$(HOME) $x"), "/here", {"A": "$(B)"}, grace=60)
GPU = kind.Profile(
    image="ghcr.io/me/train:1",
    cpu="16",
    memory="512Gi",
    gpus_per_host=8,
    shm="64Gi",
    volumes={"data": "/data"},
    secrets={"TOKEN": "hub/token"},
    queue="research",
    labels={"team": "a"},
    env={"NCCL_DEBUG": "WARN"},
    pod_spec={"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"zone": "b"}},
)
TPU = kind.Profile(image="train", tpu_accelerator="tpu-v5p-slice", tpu_topology="2x2x4")
TRAIN_JOB = kind.Profile(image="train:1", form="trainjob", gpus_per_host=8, memory="64Gi", env={"A": "1"})
PROFILES = {
    "gpu": GPU,
    "tpu": TPU,
    "trainjob": TRAIN_JOB,
    "small": kind.Profile(image="me.org:5000/a/b@sha256:" + "0" * 64),
}


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def job_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    return pod(manifest)["containers"][0]


def test_each_pod_is_a_host_that_knows_its_rank_and_the_first_host() -> None:
    manifest = kind.manifest(JOB, GPU)
    assert container(manifest)["command"] == [
        *("allranks", "run", "--hosts", "4", "--host-rank", "$(JOB_COMPLETION_INDEX)"),
        *("--coordinator", "train-hosts-0-0.train:29400"),
        *("-n", "8", "train.py", "--name", "$$(HOME) $$x"),
    ]
    assert {"name": "A", "value": "$$(B)"} in container(manifest)["env"]
    spec = job_spec(manifest)
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (4, 4, "Indexed")
    assert pod(manifest)["terminationGracePeriodSeconds"] == 90
    assert pod(manifest)["nodeSelector"] == {"zone": "b"}
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"


def test_a_job_that_was_preempted_and_saved_is_started_again_and_one_that_failed_is_not() -> None:
    manifest = kind.manifest(replace(JOB, preempt_code=85), replace(GPU, restarts=3))
    rules = job_spec(manifest)["podFailurePolicy"]["rules"]
    assert rules[1]["action"] == "FailJob"
    assert rules[1]["onExitCodes"] == {"containerName": "allranks", "operator": "NotIn", "values": [85, 137]}
    policy = manifest["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 3
    assert policy["rules"][0]["action"] == "FailJobSet"


def test_a_train_job_leaves_the_place_of_hosts_to_its_runtime() -> None:
    trainer = kind.manifest(JOB, TRAIN_JOB)["spec"]["trainer"]
    assert trainer["command"] == ["allranks"]
    assert trainer["args"][:4] == ["run", "-n", "8", "train.py"]
    assert trainer["numNodes"] == 4
    with pytest.raises(EngineFailed, match=r"shm is an option of form = \"jobset\"\. Set it in the runtime"):
        kind.manifest(JOB, replace(TRAIN_JOB, shm="1Gi"))
    with pytest.raises(EngineFailed, match="--hosts 2:4: expected a fixed number of hosts"):
        kind.manifest(replace(JOB, least=2), GPU)


@pytest.mark.needs("kubeflow_trainer_api")
@pytest.mark.parametrize("name", PROFILES)
def test_the_models_of_kubeflow_keep_every_field(name: str) -> None:
    """A field that a model does not know would be lost on the way through it."""
    import kubeflow_trainer_api.models as models

    manifest = kind.manifest(JOB, PROFILES[name])
    assert faults(manifest, JOB) == []
    model = models.TrainerV1alpha1TrainJob if name == "trainjob" else models.JobsetV1alpha2JobSet
    parsed = model.from_dict(copy.deepcopy(manifest))
    assert parsed is not None
    assert json.loads(parsed.to_json()) == manifest


@pytest.mark.needs("kubernetes_validate")
@pytest.mark.parametrize("name", ["gpu", "tpu", "small"])
def test_the_schemas_of_kubernetes_accept_the_job(name: str) -> None:
    import kubernetes_validate

    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}
    job["spec"] = job_spec(kind.manifest(JOB, PROFILES[name]))
    kubernetes_validate.validate(job, "1.32", strict=True)
    job["spec"]["paralelism"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.32", strict=True)


@pytest.mark.parametrize("name", PROFILES)
def test_the_text_is_read_back_as_the_manifest(name: str) -> None:
    manifest = kind.manifest(JOB, PROFILES[name])
    assert yaml.safe_load(to_yaml(manifest)) == manifest


@pytest.mark.parametrize(
    "value", ["", "yes", "Off", "1", "0x1", "a: b", "- a", "#", "é\u0001", "a\nb", "a\n\n", " a\nb ", "~", "1_0"]
)
def test_any_text_is_read_back(value: str) -> None:
    tree = {"key": value, "list": [value, [value], {value: ()}], "none": None, "number": 1.5, "empty": {}}
    assert yaml.safe_load(to_yaml(tree)) == json.loads(json.dumps(tree))


Change = Callable[[dict[str, Any]], object]
MISTAKES: dict[str, tuple[Change, str]] = {
    "name": (lambda m: m["metadata"].update(name="Train_1"), "the name of the job: expected lower-case letters"),
    "long": (lambda m: m["metadata"].update(name="a" * 54), "expected at most 53 characters"),
    "label": (lambda m: m["metadata"]["labels"].update(team="a b"), "labels: team: expected at most 63 letters"),
    "parallelism": (
        lambda m: job_spec(m).update(parallelism=3),
        "parallelism: expected 4, the number of hosts, found 3",
    ),
    "text": (lambda m: job_spec(m).update(completions="4"), "completions: expected 4, the number of hosts, found '4'"),
    "enum": (lambda m: job_spec(m).update(completionMode="indexed"), "completionMode: expected Indexed"),
    "backoff": (lambda m: job_spec(m).update(backoffLimit=6), "backoffLimit: expected 0"),
    "restart": (lambda m: pod(m).update(restartPolicy="OnFailure"), "restartPolicy: expected Never"),
    "action": (
        lambda m: job_spec(m)["podFailurePolicy"]["rules"][1].update(action="Fail"),
        "action: expected one of FailJob, FailIndex, Count, Ignore, found 'Fail'",
    ),
    "container": (
        lambda m: job_spec(m)["podFailurePolicy"]["rules"][1]["onExitCodes"].update(containerName="main"),
        "containerName: expected allranks, found 'main'",
    ),
    "zero": (
        lambda m: job_spec(m)["podFailurePolicy"]["rules"][1]["onExitCodes"].update(values=[0]),
        "0 is no exit code of a failure",
    ),
    "field": (lambda m: pod(m).update(toleration=[]), "a pod has no field 'toleration'; is 'tolerations' meant?"),
    "quantity": (
        lambda m: container(m)["resources"]["requests"].update(memory="16 GB"),
        "memory: expected a quantity (8, 500m, 64Gi), found '16 GB'",
    ),
    "image": (lambda m: container(m).update(image="Train:1 "), "image: expected REGISTRY/NAME:TAG, found 'Train:1 '"),
    "no image": (lambda m: container(m).pop("image"), "image: expected REGISTRY/NAME:TAG, found ''"),
    "variable": (lambda m: container(m)["env"][0].update(name="1 A"), "env: '1 A' is no name of a variable"),
    "secret": (
        lambda m: container(m)["env"][-1]["valueFrom"]["secretKeyRef"].update(key=""),
        "secrets: TOKEN: expected NAME/KEY, found hub/",
    ),
    "path": (
        lambda m: container(m)["volumeMounts"][0].update(mountPath="data"),
        "expected an absolute path, found 'data'",
    ),
    "mount": (lambda m: container(m)["volumeMounts"][0].update(name="dat"), "no volume is called 'dat'"),
    "claim": (
        lambda m: pod(m)["volumes"][0].update(name="My_Data"),
        "volumes: expected an RFC 1123 label, found 'My_Data'",
    ),
    "gpus": (
        lambda m: container(m)["resources"]["limits"].update({"nvidia.com/gpu": "4"}),
        "nvidia.com/gpu: expected a GPU for each rank (-n 8), found 4",
    ),
    "grace": (
        lambda m: pod(m).update(terminationGracePeriodSeconds=0),
        "terminationGracePeriodSeconds: expected a whole number above 0, found 0",
    ),
    "selector": (lambda m: pod(m)["nodeSelector"].update(zone=1), "nodeSelector: zone: expected a text, found 1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    change, says = MISTAKES[name]
    manifest = copy.deepcopy(kind.manifest(JOB, GPU))
    change(manifest)
    assert any(says in fault for fault in faults(manifest, JOB)), faults(manifest, JOB)


@pytest.mark.parametrize(
    ("hosts", "changes", "says"),
    [
        (2, {}, "tpu-topology: 2x2x4 has 16 chips: expected 8, 4 chips (tpu-chips-per-host) on each of 2 hosts"),
        (4, {"tpu_chips_per_host": 8}, "2x2x4 has 16 chips: expected 32, 8 chips"),
        (4, {"tpu_topology": "16"}, "tpu-topology: expected 2x4 or 2x2x4, found '16'"),
        (4, {"tpu_topology": ""}, "tpu-topology is missing: a slice of TPUs has both"),
    ],
)
def test_a_topology_that_does_not_fit_the_hosts_is_found(hosts: int, changes: dict[str, Any], says: str) -> None:
    """Kubernetes accepts it, and waits for ever for a node."""
    job = replace(JOB, hosts=hosts, least=hosts)
    assert [fault for fault in faults(kind.manifest(job, replace(TPU, **changes)), job) if says in fault]


def test_the_exit_code_is_that_of_the_container_that_failed_first() -> None:
    def ended(code: int, at: str) -> dict[str, Any]:
        return {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "finishedAt": at}}}]}}

    running = {"status": {"containerStatuses": [{"state": {"running": {}}}]}}
    pods = [
        ended(143, "2026-01-01T00:00:05Z"),
        ended(3, "2026-01-01T00:00:01Z"),
        ended(0, "2026-01-01T00:00:00Z"),
        running,
    ]
    assert kind.exit_code(pods) == 3
    assert kind.exit_code([running, {}]) is None
