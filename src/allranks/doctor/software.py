"""Make the report rows about installed versions, and whether they are equal on all hosts. This module does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allranks.doctor.hosts import name_hosts
from allranks.findings import Row, error, not_determined, ok, warning

# The first that are told; all of them are compared.
TOLD = ("python", "allranks", "jax", "jaxlib", "torch", "libtpu", "numpy")
_MOST = 4


@dataclass(frozen=True, slots=True)
class UnmetRequirement:
    """A requirement that is not met: ``package`` requires ``wants``, but ``installed`` is there ("" for nothing)."""

    package: str
    wants: str
    installed: str


def versions_row(versions: Mapping[str, str]) -> Row:
    first = [f"{name} {versions[name]}" for name in TOLD if name in versions]
    others = [f"{name} {version}" for name, version in sorted(versions.items()) if name not in TOLD]
    return ok("versions", ", ".join(first), *([", ".join(others)] if others else []))


def packages_row(requirement_counts: Mapping[str, int] | None, unmet_requirements: Sequence[UnmetRequirement]) -> Row:
    """Return a report row that says whether the installed packages meet the frameworks' requirements.

    ``requirement_counts`` is how many requirements each package has; None if requirements cannot be read.
    """
    if requirement_counts is None:
        why = "`packaging` is not installed, which reads what packages ask for"
        return not_determined("packages fit", why, remedy="pip install packaging.")
    if not unmet_requirements:
        each = ", ".join(f"{name} {number}" for name, number in requirement_counts.items())
        return ok("packages fit", f"all requirements in the metadata of packages are met: {each}")
    told = [
        f"{one.package} asks for {one.wants}; {one.installed or 'it'} is {'' if one.installed else 'not '}installed"
        for one in unmet_requirements
    ]
    more = [f"and {len(told) - _MOST} more (pip check)"] if len(told) > _MOST else []
    return warning("packages fit", *told[:_MOST], *more, remedy="Install them together: pip install -U jax, or torch.")


def same_on_all_hosts_row(
    by_host: Mapping[str, Mapping[str, str]], topic: str, *, remedy: str, is_error: bool
) -> Row | None:
    """Return a report row that says whether all hosts have equal values; None if there is only one host.

    ``by_host`` maps each host to its values by name. ``is_error``: a difference is an error, otherwise a warning.
    """
    if len(by_host) < 2:
        return None
    said: dict[str, dict[str, list[str]]] = {}
    for host, values in by_host.items():
        for name in {name: None for there in by_host.values() for name in there}:
            said.setdefault(name, {}).setdefault(values.get(name, "none"), []).append(host)
    odd = {name: groups for name, groups in said.items() if len(groups) > 1}
    if not odd:
        return ok(topic, f"{', '.join(said)}: equal on {len(by_host)} hosts")
    told = [
        f"{name}: " + "; ".join(f"{name_hosts(hosts)}: {value}" for value, hosts in groups.items())
        for name, groups in odd.items()
    ]
    more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
    evidence = (*told[:_MOST], *more)
    return error(topic, *evidence, remedy=remedy) if is_error else warning(topic, *evidence, remedy=remedy)
