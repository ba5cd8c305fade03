"""Read the installed versions from the metadata of packages, without importing any package."""

from __future__ import annotations

import platform
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from allranks.doctor.software import UnmetRequirement

# What carries a job, or decides whether it runs; of NVIDIA's packages only NCCL's.
_NAMES = ("allranks", "jax", "jaxlib", "torch", "torch-xla", "libtpu", "numpy", "flax", "lightning", "transformers")
_BEGINNINGS = ("jax-cuda", "jax-rocm", "nvidia-nccl")
# Whose requirements are looked at.
_ASKING = ("allranks", "jax", "jaxlib", "torch", "torch-xla", "jax-cuda", "jax-rocm")


def has_framework(framework: str) -> bool:
    return find_spec(framework) is not None


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of the frameworks and of their libraries, by package name."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = str(one.metadata["Name"] or "").lower().replace("_", "-")
        if name in _NAMES or name.startswith(_BEGINNINGS):
            found.setdefault(name, one.version)
    first = [name for name in _NAMES if name in found]
    return {"python": platform.python_version()} | {name: found[name] for name in [*first, *sorted(found)]}


def read_requirements(versions_by_package: dict[str, str]) -> tuple[dict[str, int] | None, list[UnmetRequirement]]:
    """Return (number of requirements by package, list of unmet requirements), from the packages' metadata.

    The first is None if `packaging`, which reads requirements, is not installed.
    """
    if find_spec("packaging") is None:
        return None, []
    from packaging.requirements import Requirement

    counts: dict[str, int] = {}
    unmet: list[UnmetRequirement] = []
    for package in (name for name in versions_by_package if name.startswith(_ASKING)):
        wanted = [Requirement(text) for text in metadata.requires(package) or ()]
        here = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        counts[package] = len(here)
        unmet += [
            UnmetRequirement(package, f"{one.name}{one.specifier}", there)
            for one in here
            if not _is_satisfied(one, there := _installed_version(one.name))
        ]
    return counts, unmet


def _installed_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _is_satisfied(wanted: Any, there: str) -> bool:
    return bool(there) and wanted.specifier.contains(there, prereleases=True)
