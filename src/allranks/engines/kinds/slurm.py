"""Render a batch script for Slurm, and read what ``scontrol`` and ``squeue`` print.

One task per node: ``allranks run`` reads the hosts from Slurm's variables. Three settings differ from a usual script:

- ``--signal=TERM@S`` without ``B:``: the signal goes to the job step, hence to the launchers, not to the batch shell.
- ``--kill-on-bad-exit=0 --wait=S``: the launchers end all hosts by themselves, with one exit code. Slurm's own SIGTERM
  would be faster than their report. ``--wait`` ends a launcher that remains.
- ``srun --cpus-per-task``: since Slurm 22.05, ``srun`` does not take it from ``sbatch``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from allranks.engines.base import JobRow, Submission, exports
from allranks.engines.profile import option

COMMENT = "allranks"
JOB_FORMAT = "%i|%k|%D|%T|%r|%j"
ENDED = frozenset(
    [
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
        *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
    ]
)
# As for `allranks run --timeout`.
_TIMEOUT = 124
_MORE_THAN_GRACE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The profile of a Slurm cluster."""

    partition: str = option("the partition", "")
    account: str = option("the account", "")
    qos: str = option("the quality of service", "")
    time: str = option("the time limit, as sbatch takes it (2-12:00:00)", "")
    gpus_per_node: int = option("GPUs of each host", 0)
    cpus_per_task: int = option("CPUs of each host; without it, one per rank", 0)
    mem: str = option("memory of each host (480G)", "")
    exclusive: bool = option("whether the job has its hosts for itself", False)
    signal_before: int = option("seconds before the time limit at which the ranks get SIGTERM; 0: never", 120)
    requeue: int = option("how often a job that was preempted and has saved goes into the queue again", 0)
    output: str = option("the file of the output", "allranks-%j.log")
    sbatch: tuple[str, ...] = option("more options for sbatch", ())
    srun: tuple[str, ...] = option("more options for srun", ())
    setup: tuple[str, ...] = option("shell lines before the job, on the first host (module load cuda)", ())
    env: Mapping[str, str] = option("variables to set on every host", {})
    launcher: str = option("the command `allranks` on the hosts; without it, the Python that submits", "")


def script(job: Submission, profile: Profile, *, launcher: tuple[str, ...]) -> str:
    """Return the batch script of a job. ``launcher`` starts allranks on the hosts."""
    step = [
        "srun",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=0",
        f"--wait={int(job.grace) + _MORE_THAN_GRACE}",
        *_cpus(job, profile),
        *profile.srun,
        *job.run(launcher, *job.range()),
    ]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {_quoted(one)}" for one in _options(job, profile)),
        *exports({**profile.env, **job.environment}),
        *profile.setup,
        "trap 'cancelled=1' TERM  # of scancel: wait for the step, and do not requeue",
        shlex.join(step),
        "code=$?",
        *(_requeue(job, profile) if profile.requeue else ()),
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _options(job: Submission, profile: Profile) -> list[str]:
    nodes = str(job.hosts) if job.least == job.hosts else f"{job.least}-{job.hosts}"
    given = {
        "job-name": job.name,
        "comment": COMMENT,
        "nodes": nodes,
        "ntasks-per-node": "1",
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "time": profile.time,
        "gpus-per-node": str(profile.gpus_per_node or ""),
        "mem": profile.mem,
        "chdir": job.folder,
        "output": profile.output,
        "open-mode": "append",
        "signal": f"TERM@{profile.signal_before}" if profile.signal_before else "",
    }
    flags = [*_cpus(job, profile), *(["--exclusive"] if profile.exclusive else [])]
    requeue = "--requeue" if profile.requeue else "--no-requeue"
    return [*(f"--{name}={value}" for name, value in given.items() if value), *flags, requeue, *profile.sbatch]


def _cpus(job: Submission, profile: Profile) -> list[str]:
    """Return the option for CPUs: without it, all ranks of a host would share one."""
    number = profile.cpus_per_task or (0 if profile.exclusive else job.ranks or profile.gpus_per_node or 0)
    return [f"--cpus-per-task={number}"] if number else []


def _quoted(text: str) -> str:
    """Quote an option for a line ``#SBATCH``, which knows double quotes and backslashes."""
    if re.fullmatch(r"[\w@%+=:,./-]*", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _requeue(job: Submission, profile: Profile) -> list[str]:
    within = f'"${{SLURM_RESTART_COUNT:-0}}" -lt {profile.requeue}'
    return [
        f'if [ $code -eq {job.preempt_code} ] && [ -z "$cancelled" ] && [ {within} ]; then',
        '  scontrol requeue "$SLURM_JOB_ID"',
        "fi",
    ]


def fields(text: str) -> dict[str, str]:
    """Return the fields of a job, as ``scontrol show job`` prints them."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if name in ("StdOut", "WorkDir", "Command"):  # a path may have spaces, and has a line for itself
            found[name] = value
        elif separator:
            found |= dict(re.findall(r"(\w+)=(\S*)", line))
    return found


def exit_code(job: Mapping[str, str]) -> int | None:
    """Return the exit code of a job from its fields; None if it has not ended."""
    state = job["JobState"].partition("+")[0]
    if state not in ENDED:
        return None
    code, _, signal = job.get("ExitCode", "0:0").partition(":")
    if int(code):
        return int(code)
    if state == "TIMEOUT":
        return _TIMEOUT
    if int(signal or 0):
        return 128 + int(signal)
    return 0 if state == "COMPLETED" else 1


def rows(text: str) -> list[JobRow]:
    """Return the jobs that ``squeue`` has listed in ``JOB_FORMAT``, those of ``allranks submit``."""
    found = []
    for line in text.splitlines():
        number, comment, nodes, state, reason, name = line.split("|", 5)
        shown = f"{state} ({reason})" if state == "PENDING" and reason != "None" else state
        if comment == COMMENT:
            found.append(JobRow(f"slurm:{number}", name, shown, nodes))
    return found
