"""Check a manifest before it is applied, by what the API server would refuse, and by what it would not.

A topology that does not fit the hosts, or a GPU that two ranks share, is accepted by the server, and leads to a job
that waits for ever. The rules know what we render; the server, called with strict validation, knows the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from allranks.engines.base import Submission, is_label

_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?(/[\w.-]+)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?")
_TOPOLOGY = re.compile(r"\d+x\d+(x\d+)?")
# `NAME-hosts-0-INDEX`, the name of the last host, is a label: at most 63 characters.
_AROUND_NAME = len("-hosts-0-")
_ACTIONS = ("FailJob", "FailIndex", "Count", "Ignore")
# The fields of a pod that an option pod-spec may have.
_POD = frozenset(
    [
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy"),
        *("enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "imagePullSecrets"),
        *("initContainers", "nodeName", "nodeSelector", "os", "overhead", "preemptionPolicy", "priority"),
        *("priorityClassName", "resourceClaims", "restartPolicy", "runtimeClassName", "schedulerName"),
        *("schedulingGates", "securityContext", "serviceAccountName", "shareProcessNamespace", "subdomain"),
        *("terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes"),
    ]
)


def faults(manifest: Mapping[str, Any], job: Submission) -> list[str]:
    """Return what is wrong with the manifest of a job: each with the place, what is expected and what is found."""
    found = [*_names(manifest, job)]
    if manifest["kind"] == "TrainJob":
        trainer = manifest["spec"]["trainer"]
        return [*found, *_container(trainer, trainer.get("resourcesPerNode", {}), job)]
    for one in manifest["spec"]["replicatedJobs"]:
        spec = one["template"]["spec"]
        pod = spec["template"]["spec"]
        found += [*_hosts(spec, job), *_policy(spec, pod), *_pod(pod)]
        for container in pod["containers"]:
            found += [*_container(container, container.get("resources", {}), job), *_mounts(container, pod)]
        found += _topology(pod, spec, job)
    return found


def _names(manifest: Mapping[str, Any], job: Submission) -> Iterator[str]:
    metadata = manifest["metadata"]
    name, longest = metadata["name"], 63 - _AROUND_NAME - len(str(job.hosts - 1))
    if not is_label(name):
        yield f"the name of the job: expected lower-case letters, digits and '-' (RFC 1123), found {name!r}"
    elif len(name) > longest:
        yield f"the name of the job: expected at most {longest} characters (names of hosts get more), found {len(name)}"
    if not is_label(metadata["namespace"]):
        yield f"namespace: expected an RFC 1123 label, found {metadata['namespace']!r}"
    for key, value in metadata["labels"].items():
        if not _LABEL_KEY.fullmatch(key):
            yield f"labels: {key!r} is no name of a label"
        if not _LABEL_VALUE.fullmatch(value):
            yield f"labels: {key}: expected at most 63 letters, digits, '-', '_' and '.', found {value!r}"


def _hosts(spec: Mapping[str, Any], job: Submission) -> Iterator[str]:
    if spec.get("completionMode") != "Indexed":
        yield f"completionMode: expected Indexed (the index is the host rank), found {spec.get('completionMode')!r}"
    for field in ("parallelism", "completions"):
        if type(spec.get(field)) is not int or spec[field] != job.hosts:
            yield f"{field}: expected {job.hosts}, the number of hosts, found {spec.get(field)!r}"
    if spec.get("backoffLimit") != 0:
        yield f"backoffLimit: expected 0 (one host alone cannot join again), found {spec.get('backoffLimit')!r}"


def _policy(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    if pod.get("restartPolicy") != "Never":
        yield f"restartPolicy: expected Never (podFailurePolicy needs it), found {pod.get('restartPolicy')!r}"
    names = [container["name"] for container in pod["containers"]]
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        if rule.get("action") not in _ACTIONS:
            yield f"podFailurePolicy: action: expected one of {', '.join(_ACTIONS)}, found {rule.get('action')!r}"
        codes = rule.get("onExitCodes", {})
        if codes and codes.get("containerName") not in names:
            yield f"podFailurePolicy: containerName: expected {names[0]}, found {codes.get('containerName')!r}"
        if 0 in codes.get("values", ()):
            yield "podFailurePolicy: values: 0 is no exit code of a failure"


def _pod(pod: Mapping[str, Any]) -> Iterator[str]:
    for field in pod:
        if field not in _POD:
            near = get_close_matches(field, _POD, n=1)
            yield f"pod-spec: a pod has no field {field!r}" + (f"; is {near[0]!r} meant?" if near else "")
    grace = pod.get("terminationGracePeriodSeconds")
    if type(grace) is not int or grace <= 0:
        yield f"terminationGracePeriodSeconds: expected a whole number above 0, found {grace!r}"
    for key, value in pod.get("nodeSelector", {}).items():
        if not isinstance(value, str):
            yield f"nodeSelector: {key}: expected a text, found {value!r}"


def _container(container: Mapping[str, Any], resources: Mapping[str, Any], job: Submission) -> Iterator[str]:
    image = container.get("image", "")
    if not _IMAGE.fullmatch(image):
        yield f"image: expected REGISTRY/NAME:TAG, found {image!r}"
    for variable in container.get("env", ()):
        if not _VARIABLE.fullmatch(variable["name"]):
            yield f"env: {variable['name']!r} is no name of a variable"
        secret = variable.get("valueFrom", {}).get("secretKeyRef", {"name": "a", "key": "b"})
        if not _SUBDOMAIN.fullmatch(secret["name"]) or not secret["key"]:
            yield f"secrets: {variable['name']}: expected NAME/KEY, found {secret['name']}/{secret['key']}"
    for kind in ("requests", "limits"):
        for name, quantity in resources.get(kind, {}).items():
            if not _QUANTITY.fullmatch(quantity):
                yield f"{name}: expected a quantity (8, 500m, 64Gi), found {quantity!r}"
    for name, quantity in resources.get("limits", {}).items():
        if name.endswith("/gpu") and quantity.isdecimal() and (job.ranks or 0) > int(quantity):
            yield f"{name}: expected a GPU for each rank (-n {job.ranks}), found {quantity}"


def _mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    for name, volume in volumes.items():
        if not is_label(name):
            yield f"volumes: expected an RFC 1123 label, found {name!r}"
        size = volume.get("emptyDir", {}).get("sizeLimit", "1")
        if not _QUANTITY.fullmatch(size):
            yield f"{name}: expected a quantity (16Gi), found {size!r}"
    paths = set()
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"volumeMounts: no volume is called {mount['name']!r}"
        if not mount["mountPath"].startswith("/") or ":" in mount["mountPath"]:
            yield f"volumes: {mount['name']}: expected an absolute path, found {mount['mountPath']!r}"
        if mount["mountPath"] in paths:
            yield f"volumes: two are at {mount['mountPath']!r}"
        paths.add(mount["mountPath"])


def _topology(pod: Mapping[str, Any], spec: Mapping[str, Any], job: Submission) -> Iterator[str]:
    """Yield what is wrong with a slice of TPUs: its topology has as many chips as all hosts together."""
    selector = pod.get("nodeSelector", {})
    topology = selector.get("cloud.google.com/gke-tpu-topology")
    accelerator = selector.get("cloud.google.com/gke-tpu-accelerator")
    if (topology is None) != (accelerator is None):
        missing = "tpu-accelerator" if topology else "tpu-topology"
        yield f"{missing} is missing: a slice of TPUs has both"
    if topology is None or accelerator is None:
        return
    if not _TOPOLOGY.fullmatch(topology):
        yield f"tpu-topology: expected 2x4 or 2x2x4, found {topology!r}"
        return
    chips = math.prod(map(int, topology.split("x")))
    each = pod["containers"][0].get("resources", {}).get("limits", {}).get("google.com/tpu", "0")
    if each.isdecimal() and chips != int(each) * spec.get("parallelism", 0):
        yield (
            f"tpu-topology: {topology} has {chips} chips: expected {int(each) * job.hosts}, "
            f"{each} chips (tpu-chips-per-host) on each of {job.hosts} hosts"
        )
