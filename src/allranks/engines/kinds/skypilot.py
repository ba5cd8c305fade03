"""Describe a job as a task of SkyPilot, which knows some twenty clouds, Kubernetes and Slurm."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allranks.engines.base import EngineFailed, Submission
from allranks.engines.profile import option
from allranks.program import PREEMPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of what SkyPilot may use."""

    infra: str = option("where: aws, gcp/us-central1, kubernetes/CONTEXT, slurm/CLUSTER; without it, the cheapest", "")
    accelerators: str = option("accelerators of each host (H100:8)", "")
    cpus: str = option("CPUs of each host (16+)", "")
    memory: str = option("GB of memory of each host (64+)", "")
    instance_type: str = option("the type of the machines", "")
    image: str = option("the image of the machines, or docker:IMAGE", "")
    spot: bool = option("whether the machines may be taken away", False)
    managed: bool = option("whether SkyPilot recovers the job when its machines are taken away (a managed job)", False)
    cluster: str = option("the cluster to use, or to start; without it, one with the name of the job", "")
    keep: bool = option("whether the cluster stays when the job has ended", False)
    setup: tuple[str, ...] = option("shell lines when a machine is set up", ("pip install allranks",))
    file_mounts: Mapping[str, str] = option("path on the hosts to a folder here or a bucket (s3://...)", {})
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` on the hosts", "allranks")


def task(job: Submission, profile: Profile) -> dict[str, Any]:
    """Return the task as its YAML file would have it.

    The launchers read the hosts from SKYPILOT_NODE_RANK and SKYPILOT_NODE_IPS. The working folder goes along.
    """
    if job.least != job.hosts:
        raise EngineFailed(f"skypilot: --hosts {job.least}:{job.hosts}: expected a fixed number of hosts.")
    resources = {
        "infra": profile.infra,
        "accelerators": profile.accelerators,
        "cpus": profile.cpus,
        "memory": profile.memory,
        "instance_type": profile.instance_type,
        "image_id": profile.image,
        "use_spot": profile.spot,
    }
    whole = {
        "name": job.name,
        "num_nodes": job.hosts,
        "workdir": job.folder,
        "resources": {name: value for name, value in resources.items() if value},
        "file_mounts": dict(profile.file_mounts),
        "envs": {**profile.env, **job.environment},
        "setup": "\n".join(profile.setup),
        "run": shlex.join(job.run(tuple(shlex.split(profile.launcher)))),
    }
    return {name: value for name, value in whole.items() if value}


@dataclass(frozen=True, slots=True)
class Reference:
    """A job: the number of SkyPilot's, and its cluster ("": a managed job)."""

    number: int
    cluster: str

    def __str__(self) -> str:
        return f"{self.cluster or 'managed'}/{self.number}"


def parse(reference: str) -> Reference:
    """Return the parts of ``CLUSTER/NUMBER`` or ``managed/NUMBER``. Raises EngineFailed for anything else."""
    cluster, _, number = reference.rpartition("/")
    if not cluster or not number.isdecimal():
        raise EngineFailed(f"skypilot: {reference!r} is no job: expected skypilot:CLUSTER/NUMBER or managed/NUMBER.")
    return Reference(int(number), "" if cluster == "managed" else cluster)


# States of SkyPilot, in which a job has ended, and the exit code if SkyPilot does not say it.
ENDED = {
    "SUCCEEDED": 0,
    "FAILED": 1,
    "FAILED_SETUP": 1,
    "FAILED_DRIVER": 1,
    "FAILED_PRECHECKS": 1,
    "FAILED_NO_RESOURCE": 1,
    "FAILED_CONTROLLER": 1,
    "CANCELLED": PREEMPTED,
}


def ended(status: object) -> int | None:
    """Return the exit code of a job with this status (SkyPilot's, or its name); None if it has not ended."""
    return ENDED.get(str(getattr(status, "value", status)).rpartition(".")[2])
