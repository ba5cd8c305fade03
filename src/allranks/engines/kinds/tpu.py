"""Describe jobs on TPU VMs, and queued resources that start a job when they are granted: commands of gcloud."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from allranks.engines.base import EngineFailed, JobRow, Submission, exports
from allranks.engines.host_script import HOST_JOBS, HostJob
from allranks.engines.profile import option


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of TPU VMs."""

    zone: str = option("the zone (us-central2-b)")
    project: str = option("the project; without it, the current one of gcloud", "")
    tpu: str = option("the name of a TPU VM that exists; without it, each job gets one by a queued resource", "")
    accelerator_type: str = option("the type of a queued resource (v5litepod-16)", "")
    runtime_version: str = option("the runtime of a queued resource (v2-alpha-tpuv5-lite)", "")
    spot: bool = option("whether a queued resource may be taken away", False)
    gcloud: tuple[str, ...] = option("more options for gcloud", ())
    folder: str = option("the working folder on the TPU VM")
    setup: tuple[str, ...] = option("shell lines before the job, on each host", ())
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` on the hosts", "allranks")


def host_job(profile: Profile, name: str, *, queued: bool) -> HostJob:
    """Return a job; ``queued``: its TPU VM has its name, and ends with it."""
    place = f"{profile.project or '-'}/{profile.zone}/{'queued' if queued else profile.tpu}"
    return HostJob(name, f"{name}@{place}", HOST_JOBS)


@dataclass(frozen=True, slots=True)
class Reference:
    """A job, its project ("": the current one), its TPU VM, and whether it is a queued resource."""

    job: HostJob
    project: str
    zone: str
    tpu: str
    queued: bool


def parse(reference: str) -> Reference:
    """Return the parts of ``NAME@PROJECT/ZONE/TPU``. Raises EngineFailed for anything else."""
    name, _, place = reference.partition("@")
    parts = place.split("/")
    if len(parts) != 3 or not all(parts) or shlex.quote(name) != name:
        raise EngineFailed(f"tpu: {reference!r} is no job: expected tpu:NAME@PROJECT/ZONE/TPU.")
    project, zone, tpu = parts
    queued = tpu == "queued"
    job = HostJob(name, reference, HOST_JOBS)
    return Reference(job, "" if project == "-" else project, zone, name if queued else tpu, queued)


def script(job: Submission, profile: Profile, started: HostJob, *, launcher: tuple[str, ...]) -> str:
    """Return the script that each host runs: the launcher reads the hosts from the metadata of the TPU VM."""
    lines = [*exports({**profile.env, **job.environment}), *profile.setup]
    return started.start(job.run(launcher, *job.range()), folder=profile.folder, lines=lines, attached=False)


def on_workers(place: Reference, profile: Profile, text: str) -> list[str]:
    """Return the command that runs a script on all hosts of a TPU VM, at the same time."""
    where = [f"--zone={place.zone}", *([f"--project={place.project}"] if place.project else [])]
    command = ["gcloud", "compute", "tpus", "tpu-vm", "ssh", place.tpu, *where, "--worker=all", "--quiet"]
    return [*command, *profile.gcloud, f"--command=sh -c {shlex.quote(text)}"]


def create(place: Reference, profile: Profile, file: str) -> list[str]:
    """Return the command that requests a queued resource, whose hosts run the script ``file`` when they start."""
    for name in ("accelerator_type", "runtime_version"):
        if not getattr(profile, name):
            raise EngineFailed(
                f"tpu: {name.replace('_', '-')} is missing: a queued resource needs it.",
                remedy='Write it, or tpu = "NAME" for a TPU VM that exists, in the profile.',
            )
    options = {
        "node-id": place.tpu,
        "accelerator-type": profile.accelerator_type,
        "runtime-version": profile.runtime_version,
        "labels": "managed-by=allranks",
        "metadata-from-file": f"startup-script={file}",
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    return [*_queued("create", place), *given, *(["--spot"] if profile.spot else []), *profile.gcloud]


def delete(place: Reference) -> list[str]:
    """Return the command that gives a queued resource back; its hosts are shut down, which sends SIGTERM."""
    return [*_queued("delete", place), "--force", "--async"]


def describe(place: Reference) -> list[str]:
    """Return the command that prints the state of a queued resource."""
    return [*_queued("describe", place), "--format=value(state.state)"]


def listing(profile: Profile) -> list[str]:
    """Return the command that lists queued resources."""
    where = [f"--zone={profile.zone}", *([f"--project={profile.project}"] if profile.project else [])]
    return ["gcloud", "compute", "tpus", "queued-resources", "list", *where, "--format=json"]


def _queued(verb: str, place: Reference) -> list[str]:
    where = [f"--zone={place.zone}", *([f"--project={place.project}"] if place.project else [])]
    return ["gcloud", "compute", "tpus", "queued-resources", verb, place.tpu, *where, "--quiet"]


def rows(text: str, profile: Profile) -> list[JobRow]:
    """Return the queued resources of ours in what ``listing`` has printed."""
    found = []
    for item in json.loads(text or "[]"):
        nodes = item.get("tpu", {}).get("nodeSpec") or [{}]
        if nodes[0].get("node", {}).get("labels", {}).get("managed-by") == "allranks":
            name = item["name"].rpartition("/")[2]
            started = host_job(profile, name, queued=True)
            found.append(JobRow(f"tpu:{started.reference}", name, item.get("state", {}).get("state", "?"), "?"))
    return found
