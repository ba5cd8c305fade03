"""Describe jobs on hosts that are reached by SSH: the commands for each host."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from allranks.engines.base import EngineFailed, Submission, exports
from allranks.engines.host_script import USER_JOBS, HostJob
from allranks.engines.profile import option

_FORWARDED = ("PYTHONPATH", "JAX_*", "XLA_*", "TORCH_*", "NCCL_*", "OMP_*", "HF_*", "WANDB_*")
# No question can be answered on many hosts at once; a host that does not answer is noticed after 30 s.
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10", "-T")
# Below the ports that Linux gives to clients.
_FIRST_PORT, _PORTS = 20000, 10000
_NOT_SENT = (".git", ".venv", "__pycache__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of a group of hosts."""

    hosts: tuple[str, ...] = option("the hosts (node1, me@node2), as ssh takes them; the first one coordinates", ())
    coordinator: str = option("the address of the first host for the others; without it, its name", "")
    port: int = option("the port of the coordinator; without it, one that depends on the job", 0)
    options: tuple[str, ...] = option("more options for ssh", ())
    folder: str = option("the working folder on the hosts; without it, the path of the working folder here", "")
    sync: bool = option("whether to copy the working folder to each host first, by rsync (without .gitignore's)", False)
    detach: bool = option("whether the job goes on when submit ends", False)
    jobs_folder: str = option("where each host keeps output and exit codes of jobs (~/.cache/allranks/jobs)", "")
    forward: tuple[str, ...] = option("variables to take along, with patterns", _FORWARDED)
    setup: tuple[str, ...] = option("shell lines before the job, on each host (module load cuda)", ())
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` on the hosts; without it, the Python that submits", "")


def host_job(job: Submission, profile: Profile, token: str) -> HostJob:
    """Return the job under a name of its own: ``token`` makes it differ from earlier ones."""
    name = f"{job.name}-{token}"
    return HostJob(name, f"{name}@{','.join(profile.hosts)}", jobs_folder(profile))


def jobs_folder(profile: Profile) -> str:
    """Return the folder of all jobs on a host, in the words of a shell."""
    return shlex.quote(profile.jobs_folder) if profile.jobs_folder else USER_JOBS


def parse(reference: str, profile: Profile) -> tuple[HostJob, tuple[str, ...]]:
    """Return the job and the hosts of a reference (``NAME@a,b``). Raises EngineFailed for anything else."""
    name, _, hosts = reference.partition("@")
    if not hosts or shlex.quote(name) != name:
        raise EngineFailed(f"ssh: {reference!r} is no job: expected ssh:NAME@HOST,HOST.")
    return HostJob(name, reference, jobs_folder(profile)), tuple(hosts.split(","))


def scripts(
    job: Submission, profile: Profile, *, launcher: tuple[str, ...], token: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the script of each host. ``environ`` are the variables here. Raises EngineFailed if one is named twice."""
    started = host_job(job, profile, token)
    port = profile.port or _FIRST_PORT + int(token, 16) % _PORTS
    names = [host.rpartition("@")[2] for host in profile.hosts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise EngineFailed(
            f"ssh: the profile names a host twice: {', '.join(twice)}; a host has one launcher, for all its ranks.",
            remedy="Name each host once, and give the number of its ranks with -n.",
        )
    coordinator = f"{profile.coordinator or profile.hosts[0].rpartition('@')[2]}:{port}"
    number = ":".join(dict.fromkeys((str(job.least), str(job.hosts))))
    variables = {**_forwarded(profile.forward, environ), **profile.env, **job.environment}
    found = {}
    for rank, host in enumerate(profile.hosts):
        options = ["--hosts", number, "--host-rank", str(rank), "--coordinator", coordinator]
        if not profile.detach:
            options.append("--end-on-stdin-close")
        found[host] = started.start(
            job.run(launcher, *options),
            folder=profile.folder or job.folder,
            lines=[*exports(variables), *profile.setup],
            attached=not profile.detach,
        )
    return found


def _forwarded(patterns: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in sorted(environ) if any(fnmatch.fnmatchcase(name, one) for one in patterns)}


def connect(profile: Profile, host: str, script: str) -> tuple[str, ...]:
    """Return the command that runs a script on a host. It reads the script from the beginning of its standard input.

    On the command line, other users of the host would see the values of variables. What follows the script on standard
    input is that of the script's commands.
    """
    length = len(script.encode())
    return ("ssh", *_OPTIONS, *profile.options, "--", host, f"sh -c 'eval \"$(dd bs=1 count={length} 2>/dev/null)\"'")


def copy(job: Submission, profile: Profile, host: str) -> tuple[str, ...]:
    """Return the command that copies the working folder to a host."""
    shell = shlex.join(["ssh", *_OPTIONS, *profile.options])
    excluded = [f"--exclude={name}" for name in _NOT_SENT]
    target = f"{host}:{profile.folder or job.folder}/"
    return ("rsync", "-a", "--mkpath", *excluded, "--filter=:- .gitignore", "-e", shell, f"{job.folder}/", target)
