"""Make the report rows about how the ranks were started: the launcher, the hosts and their ranks. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from allranks.doctor.hosts import name_hosts
from allranks.errors import AllranksError, name_ranks
from allranks.findings import Row, error, not_seen, ok, warning
from allranks.world.claims import by_claim

_MOST, _LONGEST = 6, 90
_ALONE = "all that follows is of this process' machine alone"
LAUNCHERS = ("srun", "torchrun", "mpirun")


def single_process_row(evidence: str, at_hand: Sequence[str]) -> Row:
    """Return the report row of a process that is a world of one; ``at_hand`` are the installed launchers."""
    if evidence:
        return ok("launcher", evidence)
    here = f"; here are {', '.join(at_hand)}" if at_hand else ""
    return not_seen("launcher", f"none started this process{here}")


def contradiction_row(raised_error: AllranksError) -> Row:
    """Return the report row of a process in whose environment launchers contradict each other."""
    return error(
        "launcher", _without_remedy(raised_error), _ALONE, remedy=raised_error.remedy or "Start it with one launcher."
    )


def unjoined_row(raised_error: AllranksError) -> Row:
    """Return the report row of a rank that could not join the other ranks."""
    return error(
        "launcher",
        _without_remedy(raised_error),
        _ALONE,
        remedy=raised_error.remedy or "Check the output of the other ranks.",
    )


def joined_row(evidence: str, backend: str, address: str | None) -> Row:
    """Return the report row of ranks that have joined each other."""
    where = f" at {address}" if address else ""
    return ok("launcher", f"{evidence}; all ranks have joined through {backend}{where}")


def _without_remedy(raised: AllranksError) -> str:
    return str(raised).removesuffix(raised.remedy).strip()


def hosts_rows(names: Sequence[str], boot_ids: Sequence[str], environ: Mapping[str, str]) -> Iterator[Row]:
    """Yield the report row about the hosts.

    ``names`` are the host names, and ``boot_ids`` the identities of the running kernels, both in rank order.
    """
    ranks = by_claim(enumerate(names))
    counts = Counter(map(len, ranks.values()))
    told = [f"{name}: {name_ranks(there)}" for name, there in list(ranks.items())[:_MOST]]
    told += [f"and {len(ranks) - _MOST} more"] if len(ranks) > _MOST else []
    evidence = f"{len(ranks)} host{'' if len(ranks) == 1 else 's'}, {len(names)} rank{'' if len(names) == 1 else 's'}: "
    evidence += "; ".join(told)
    kernels: dict[str, set[str]] = {}
    for name, boot in zip(names, boot_ids, strict=True):
        kernels.setdefault(name, set()).add(boot)
    if twice := [name for name, there in kernels.items() if len(there) > 1]:
        why = f"{len(kernels[twice[0]])} machines are called {twice[0]!r}: local ranks are counted over both"
        yield error(
            "hosts", evidence, why, remedy="Give each a name of its own: hostnamectl, or ALLRANKS_HOST on each."
        )
        return
    expected = {name: environ[name] for name in ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES") if name in environ}
    if workers := environ.get("TPU_WORKER_HOSTNAMES"):
        expected["TPU_WORKER_HOSTNAMES"] = str(len(workers.split(",")))
    for name, number in expected.items():
        if number.isdecimal() and int(number) > len(ranks):
            why = f"{name} speaks of {number}"
            yield warning("hosts", evidence, why, remedy="Start it on all hosts: srun -N, --ntasks-per-node.")
            return
    if len(counts) > 1:
        odd = [name for name, there in ranks.items() if len(there) != counts.most_common(1)[0][0]]
        why = f"not as many on each: {name_hosts(odd)} differ from most"
        yield warning("hosts", evidence, why, remedy="Start equally many ranks on every host: meshes need that.")
        return
    yield ok("hosts", evidence)


def jobs_row(jobs_by_name: Mapping[str, str]) -> Row:
    """Return the report row about this user's jobs that can be queried; ``jobs_by_name`` maps names to descriptions."""
    if not jobs_by_name:
        return not_seen("running jobs", "none of this user that called allranks.init()")
    told = [f"{name}: {_shorten_text(what)}" for name, what in list(jobs_by_name.items())[:_MOST]]
    more = [f"and {len(jobs_by_name) - _MOST} more"] if len(jobs_by_name) > _MOST else []
    return ok(
        "running jobs", *told, *more, f"to query one for who waits for whom: allranks doctor {next(iter(jobs_by_name))}"
    )


def _shorten_text(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
