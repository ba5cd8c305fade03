"""Describe a job for a Ray cluster: a driver that starts one launcher on each of several nodes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allranks.engines.base import EngineFailed, Submission
from allranks.engines.profile import option
from allranks.program import PREEMPTED

DRIVER = "allranks.engines.drivers.ray"
METADATA = {"submitted_by": "allranks"}
ENDED = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": PREEMPTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of a Ray cluster."""

    address: str = option("the address of the dashboard", "http://127.0.0.1:8265")
    cpus_per_host: float = option("CPUs of each host", 1.0)
    gpus_per_host: float = option("GPUs of each host", 0.0)
    resources: Mapping[str, Any] = option("other resources of each host: name to number", {})
    upload: bool = option("whether the working folder goes along", True)
    runtime_env: Mapping[str, Any] = option("more of Ray's runtime_env (pip = [...])", {})
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` on the hosts", "python -m allranks")


@dataclass(frozen=True, slots=True)
class Request:
    """What is given to Ray's Jobs API: the command of the driver, its environment, and the name of the job."""

    entrypoint: str
    runtime_env: Mapping[str, Any]
    metadata: Mapping[str, str]


def request(job: Submission, profile: Profile) -> Request:
    """Return the request for a job."""
    if job.least != job.hosts:
        raise EngineFailed(f"ray: --hosts {job.least}:{job.hosts}: expected a fixed number of hosts.")
    host = {"CPU": profile.cpus_per_host, "GPU": profile.gpus_per_host, **profile.resources}
    plan = {
        "hosts": job.hosts,
        "bundle": {name: number for name, number in host.items() if number},
        "launcher": shlex.split(profile.launcher),
        "arguments": [*job.options, *job.command],
    }
    environment: dict[str, Any] = dict(profile.runtime_env)
    if profile.upload:
        environment.setdefault("working_dir", job.folder)
    environment["env_vars"] = {**environment.get("env_vars", {}), **profile.env, **job.environment}
    entrypoint = f"python -m {DRIVER} {shlex.quote(json.dumps(plan))}"
    return Request(entrypoint, environment, {**METADATA, "job_name": job.name})


def parse(reference: str) -> tuple[str, str]:
    """Return the submission id and the address of ``ID@ADDRESS``. Raises EngineFailed for anything else."""
    number, _, address = reference.partition("@")
    if not number or not address:
        raise EngineFailed(f"ray: {reference!r} is no job: expected ray:ID@ADDRESS.")
    return number, address


def exit_code(status: str, driver: int | None) -> int | None:
    """Return the exit code of a job with this status and exit code of its driver; None if it has not ended."""
    if status == "FAILED" and driver:
        return driver
    return ENDED.get(status)
