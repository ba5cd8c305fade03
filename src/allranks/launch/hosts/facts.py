"""Collect what must be equal on all hosts of a job: the versions of the packages, and the program."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from allranks.failure import one_line
from allranks.launch.job import Job, Script
from allranks.secret_values import mask_arguments

PACKAGES = ("allranks", "jax", "jaxlib", "torch")


def facts_of(job: Job) -> dict[str, str]:
    """Return the versions of Python and the frameworks, the options that must agree, and the digest of the script."""
    facts = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    facts |= {f"the version of {package}": version for package, version in _versions().items()}
    facts["the guard of collectives (--guard)"] = "any line" if job.guard_any_line else "on" if job.guard else "off"
    if isinstance(job.target, Script):
        content = hashlib.sha256(Path(job.target.path).read_bytes()).hexdigest()
        facts["the script"] = f"{Path(job.target.path).name} (SHA-256 {content[:16]})"
    return facts


def _versions() -> dict[str, str]:
    """Return the versions of the packages that are installed, from the names of the folders that pip makes.

    The module importlib.metadata would take a fifth of the launcher's start.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        entries: list[str] = []
        with suppress(OSError):  # a folder that is not there, or an archive
            entries = os.listdir(folder or ".")
        for entry in entries:
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            if name in PACKAGES and entry.endswith(".dist-info"):
                found.setdefault(name, version)
    return found


def command_of(job: Job) -> str:
    """Return the command that the ranks run, for people."""
    return one_line(shlex.join(mask_arguments(job.target.argv("python"))))
