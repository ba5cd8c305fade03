"""Collect what must be equal on all hosts of a job: the versions of the packages, and the program."""

from __future__ import annotations

import hashlib
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from allranks.launch.job import Job, Script

PACKAGES = ("allranks", "jax", "jaxlib", "torch")


def facts_of(job: Job) -> dict[str, str]:
    """Return the versions of Python and the frameworks, and the digest of the script."""
    facts = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in PACKAGES:
        try:
            facts[f"the version of {package}"] = version(package)
        except PackageNotFoundError:
            continue
    if isinstance(job.target, Script):
        content = hashlib.sha256(Path(job.target.path).read_bytes()).hexdigest()
        facts["the script"] = f"{Path(job.target.path).name} (SHA-256 {content[:16]})"
    return facts


def command_of(job: Job) -> str:
    """Return the command that the ranks run, for people."""
    return shlex.join(job.target.argv("python"))
