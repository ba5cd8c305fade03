"""Read the variables that Slurm and Open MPI set, for the launcher of a host and for a rank."""

from __future__ import annotations

import re
from collections.abc import Mapping

from allranks.errors import ContradictingSigns

# Step numbers from here on are Slurm's own: the batch script, the interactive shell, extern.
_FIRST_SPECIAL_STEP = 0xFFFFFFF0
_INTERACTIVE_STEP = 0xFFFFFFFA
_PART = re.compile(r"((?:[^,\[]|\[[^\]]*\])+),?")
_BRACKET = re.compile(r"\[([^\]]*)\]")


def read_number(environ: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """Return the whole number in a variable; ``default`` if it is not set. Raises ContradictingSigns for other text."""
    text = environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ContradictingSigns(f"{name}={text!r} is not a number.", remedy=f"Correct or unset {name}.") from None


def in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Return whether srun has started this process, in a step that is not one of Slurm's own."""
    step = read_number(environ, "SLURM_STEP_ID")
    return "SLURM_PROCID" in environ and step is not None and 0 <= step < _FIRST_SPECIAL_STEP


def in_interactive_step(environ: Mapping[str, str]) -> bool:
    """Return whether this is the shell of an interactive job of Slurm."""
    return read_number(environ, "SLURM_STEP_ID") == _INTERACTIVE_STEP


def mpirun_host(environ: Mapping[str, str]) -> str | None:
    """Return the address of the host on which Open MPI's mpirun runs, an IPv6 address in brackets; None if unknown."""
    found = re.search(r"tcp6?://(\[[^,\]]+|[^,:]+)", environ.get("OMPI_MCA_orte_hnp_uri", ""))
    return None if found is None else found[1] + ("]" if found[1].startswith("[") else "")


def mpi_job(environ: Mapping[str, str]) -> str:
    """Return what identifies a job of Open MPI; "" if nothing does."""
    number = environ.get("OMPI_MCA_orte_hnp_uri", "").partition(".")[0]
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    return job or (number if number.isdecimal() else "")


def hosts_of_node_list(nodes: str) -> tuple[str, ...]:
    """Return the hosts of a Slurm node list, in order.

    >>> hosts_of_node_list("gpu[003-005,9],login1")
    ('gpu003', 'gpu004', 'gpu005', 'gpu9', 'login1')
    """
    return tuple(host for part in _PART.findall(nodes) for host in _expand(part))


def _expand(part: str) -> list[str]:
    found = _BRACKET.search(part)
    if found is None:
        return [part]
    head, tail = part[: found.start()], _expand(part[found.end() :])
    return [f"{head}{number}{rest}" for span in found[1].split(",") for number in _numbers(span) for rest in tail]


def _numbers(span: str) -> list[str]:
    first, dash, last = span.partition("-")
    if not dash:
        return [first]
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
