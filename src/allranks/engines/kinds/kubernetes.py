"""Render the manifest of a job for Kubernetes: a JobSet, or a TrainJob of Kubeflow Trainer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from allranks.engines.base import EngineFailed, JobRow, Submission, is_label
from allranks.engines.profile import option

HOSTS = "hosts"
CONTAINER = "allranks"
MANAGED = {"app.kubernetes.io/managed-by": "allranks"}
POD_LABEL = "jobset.sigs.k8s.io/jobset-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_PORT = 29400
_MORE_THAN_GRACE = 30
# What the other hosts end with when a host is lost. A rank that was killed, out of memory for example, has it, too.
_LOST = (137,)


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of object: its API group, version, plural, and its ``kind``."""

    group: str
    version: str
    plural: str
    kind: str

    def head(self, name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the beginning of a manifest."""
        metadata = {"name": name, "namespace": namespace, "labels": {**MANAGED, **labels}}
        return {"apiVersion": f"{self.group}/{self.version}", "kind": self.kind, "metadata": metadata}


FORMS = {
    "jobset": Form("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    "trainjob": Form("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
}
# Options that a TrainJob leaves to its runtime.
_JOBSET_ONLY = ("volumes", "shm", "tpu_accelerator", "tpu_topology", "pod_spec", "restarts", "folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of a Kubernetes cluster."""

    image: str = option("the container image, with allranks in it")
    namespace: str = option("the namespace", "default")
    context: str = option("the context of the kubeconfig; without it, the current one", "")
    form: str = option("jobset, or trainjob (Kubeflow Trainer)", "jobset", choices=tuple(FORMS))
    runtime: str = option("the ClusterTrainingRuntime of a trainjob", "torch-distributed")
    cpu: str = option("CPUs of each host (8)", "")
    memory: str = option("memory of each host (64Gi)", "")
    gpus_per_host: int = option("GPUs of each host", 0)
    gpu_resource: str = option("the name of this resource", "nvidia.com/gpu")
    tpu_accelerator: str = option("the type of TPU (tpu-v5p-slice), on GKE", "")
    tpu_topology: str = option("the topology of the TPU slice (2x2x4)", "")
    tpu_chips_per_host: int = option("TPU chips of each host", 4)
    shm: str = option("the size of /dev/shm (16Gi), which data loaders of torch need", "")
    volumes: Mapping[str, str] = option("name of a PersistentVolumeClaim to path in the container", {})
    secrets: Mapping[str, str] = option("variable to secret: TOKEN to name/key", {})
    restarts: int = option("how often the job is started again after a preemption", 10)
    queue: str = option("the LocalQueue of Kueue", "")
    labels: Mapping[str, str] = option("labels of the job and its pods", {})
    pod_spec: Mapping[str, Any] = option("a table that is added to the specification of the pods (nodeSelector)", {})
    folder: str = option("the working folder in the container; without it, that of the image", "")
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` in the image", "allranks")


def manifest(job: Submission, profile: Profile) -> dict[str, Any]:
    """Return the manifest of a job. Raises EngineFailed for options that its form does not have."""
    if job.least != job.hosts:
        raise EngineFailed(f"kubernetes: --hosts {job.least}:{job.hosts}: expected a fixed number of hosts.")
    return _train_job(job, profile) if profile.form == "trainjob" else _job_set(job, profile)


def _labels(profile: Profile) -> dict[str, str]:
    queue = {"kueue.x-k8s.io/queue-name": profile.queue} if profile.queue else {}
    return {**queue, **profile.labels}


def _job_set(job: Submission, profile: Profile) -> dict[str, Any]:
    spec = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": job.name},
        "failurePolicy": {
            "maxRestarts": profile.restarts,
            "rules": [{"name": "failed", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
        "replicatedJobs": [{"name": HOSTS, "replicas": 1, "template": {"spec": _job(job, profile)}}],
    }
    return {**FORMS["jobset"].head(job.name, profile.namespace, _labels(profile)), "spec": spec}


def _job(job: Submission, profile: Profile) -> dict[str, Any]:
    """Return the Job of all hosts: it counts as failed, unless a node was taken away, or the job was preempted."""
    disrupted = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = {"containerName": CONTAINER, "operator": "NotIn", "values": sorted({job.preempt_code, *_LOST})}
    return {
        "completionMode": "Indexed",
        "parallelism": job.hosts,
        "completions": job.hosts,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [disrupted, {"action": "FailJob", "onExitCodes": codes}]},
        "template": {"metadata": {"labels": {**MANAGED, **profile.labels}}, "spec": _pod(job, profile)},
    }


def _pod(job: Submission, profile: Profile) -> dict[str, Any]:
    first = f"{job.name}-{HOSTS}-0-0.{job.name}"
    place = ("--hosts", str(job.hosts), "--host-rank", "$(JOB_COMPLETION_INDEX)", "--coordinator", f"{first}:{_PORT}")
    volumes = [
        *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in profile.volumes),
        *([{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": profile.shm}}] if profile.shm else []),
    ]
    paths = {**profile.volumes, **({"shm": "/dev/shm"} if profile.shm else {})}  # noqa: S108 - it is that of the container
    container = {
        "name": CONTAINER,
        "image": profile.image,
        "command": [*_literal(job).run(tuple(shlex.split(profile.launcher)), *place)],
        "workingDir": profile.folder,
        "env": _env(job, profile),
        "resources": _resources(profile),
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
    }
    tpu = {
        "cloud.google.com/gke-tpu-accelerator": profile.tpu_accelerator,
        "cloud.google.com/gke-tpu-topology": profile.tpu_topology,
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(job.grace) + _MORE_THAN_GRACE,
        "nodeSelector": {name: value for name, value in tpu.items() if value},
        "containers": [{name: value for name, value in container.items() if value}],
        "volumes": volumes,
    }
    return _merged({name: value for name, value in spec.items() if value}, profile.pod_spec)


def _train_job(job: Submission, profile: Profile) -> dict[str, Any]:
    """Return the TrainJob: its runtime places the hosts, and says by PET_* variables which host is which."""
    default = Profile(image="")
    if given := [name for name in _JOBSET_ONLY if getattr(profile, name) != getattr(default, name)]:
        raise EngineFailed(
            f'kubernetes: form = "trainjob": {given[0].replace("_", "-")} is an option of form = "jobset".',
            remedy=f"Set it in the runtime {profile.runtime!r}.",
        )
    launcher, *words = _literal(job).run(tuple(shlex.split(profile.launcher)))
    trainer = {
        "image": profile.image,
        "command": [launcher],
        "args": words,
        "env": _env(job, profile),
        "numNodes": job.hosts,
        "resourcesPerNode": _resources(profile),
    }
    form = FORMS["trainjob"]
    runtime = {"apiGroup": form.group, "kind": "ClusterTrainingRuntime", "name": profile.runtime}
    spec = {"runtimeRef": runtime, "trainer": {name: value for name, value in trainer.items() if value}}
    return {**form.head(job.name, profile.namespace, _labels(profile)), "spec": spec}


def _resources(profile: Profile) -> dict[str, Any]:
    chips = str(profile.tpu_chips_per_host) if profile.tpu_accelerator else ""
    devices = {profile.gpu_resource: str(profile.gpus_per_host or ""), "google.com/tpu": chips}
    limits = {name: value for name, value in {"memory": profile.memory, **devices}.items() if value}
    requests = {name: value for name, value in {"cpu": profile.cpu, **limits}.items() if value}
    return {name: value for name, value in {"requests": requests, "limits": limits}.items() if value}


def _env(job: Submission, profile: Profile) -> list[dict[str, Any]]:
    plain = {**profile.env, **job.environment}
    found: list[dict[str, Any]] = [{"name": name, "value": _escaped(value)} for name, value in plain.items()]
    for name, place in profile.secrets.items():
        secret, _, key = place.partition("/")
        found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return found


def _escaped(text: str) -> str:
    """Return a text that Kubernetes leaves as it is: it expands ``$(NAME)``, and takes ``$$`` for ``$``."""
    return text.replace("$", "$$")


def _literal(job: Submission) -> Submission:
    return replace(job, options=tuple(map(_escaped, job.options)), command=tuple(map(_escaped, job.command)))


def _merged(spec: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with what a second one adds: tables are merged, lists appended, other values replaced."""
    found = dict(spec)
    for name, value in more.items():
        old = found.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            found[name] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            found[name] = old + value
        else:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a job is: ``NAMESPACE/FORM/NAME``, and ``@CONTEXT`` if it is not the current one."""

    namespace: str
    form: str
    name: str
    context: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.form}/{self.name}" + (f"@{self.context}" if self.context else "")


def parse(reference: str) -> Reference:
    """Return the parts of a reference. Raises EngineFailed for anything else."""
    place, _, context = reference.partition("@")
    namespace, _, rest = place.partition("/")
    form, _, name = rest.partition("/")
    if form not in FORMS or not is_label(namespace) or not is_label(name):
        raise EngineFailed(
            f"kubernetes: {reference!r} is no job: expected kubernetes:NAMESPACE/FORM/NAME, with a form of "
            f"{', '.join(FORMS)}."
        )
    return Reference(namespace, form, name, context)


def condition(item: Mapping[str, Any], *types: str) -> str:
    """Return which of these conditions an object has; "" for none."""
    conditions = item.get("status", {}).get("conditions", ())
    true = [one["type"] for one in conditions if one.get("status") == "True"]
    return next((name for name in types if name in true), "")


def ended(item: Mapping[str, Any]) -> str:
    """Return how a job has ended; "" if it has not."""
    return condition(item, "Completed", "Complete", "Failed")


def row(item: Mapping[str, Any], place: Reference) -> JobRow:
    """Return the row of a JobSet or TrainJob."""
    spec = item["spec"]
    if place.form == "trainjob":
        hosts = spec.get("trainer", {}).get("numNodes", 1)
    else:
        hosts = sum(one["template"]["spec"].get("completions", 1) for one in spec["replicatedJobs"])
    state = ended(item) or condition(item, "Suspended") or "Active"
    return JobRow(f"kubernetes:{place}", place.name, state, str(hosts))


def exit_code(pods: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the exit code of the container that failed first; None if none has failed."""
    failed = []
    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses") or ():
            terminated = (status.get("state") or {}).get("terminated") or {}
            if terminated.get("exitCode"):
                failed.append((terminated.get("finishedAt") or "", terminated["exitCode"]))
    return min(failed)[1] if failed else None
