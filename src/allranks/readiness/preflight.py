"""Implement ``allranks.preflight``: check all ranks before the first step, and return one table."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from allranks.arrays.batch import BatchPlan
from allranks.errors import NotReady
from allranks.findings import Row, error, ok, warning
from allranks.readiness import batch as batches
from allranks.readiness import code, generators, values, variables
from allranks.readiness.comparison import (
    NamedValue,
    difference_row,
    distinct_row,
    find_differences,
    first_rank_of_groups,
    merge_rows,
)
from allranks.readiness.detect import has_jaxlib, import_adapter
from allranks.readiness.flags import read_in_child
from allranks.readiness.name_search import contains_name
from allranks.report.readiness import Readiness
from allranks.world.base import World
from allranks.world.codec import Value

_DEFAULT_WAITS = "XLA on CPU: warning after 20 s, end 40 s later; Gloo 1800 s; XLA on GPU: 20 s and 40 s"
_WAITS = re.compile(r"--(xla_\w*(?:terminate|termination|collective)_timeout\w*)=(-?\d+)")


@dataclass(frozen=True, slots=True)
class _CheckRequest:
    """The arguments of ``preflight``, which add checks to those that always run."""

    batch: int | BatchPlan | None
    accumulation: int
    data: object
    same: Mapping[str, object]
    distinct: Mapping[str, object]
    files: Sequence[Path]


def preflight(
    world: World,
    *,
    batch: int | BatchPlan | None = None,
    accumulation: int = 1,
    data: object = None,
    same: Mapping[str, object] | None = None,
    distinct: Mapping[str, object] | None = None,
) -> Readiness:
    """Check all ranks before the first step; return the table. **Every rank must call it**, with the same arguments.

    These are always checked:

    - The program's files, the versions of libraries, the environment and the devices are equal on all ranks.
    - XLA knows its flags, and has read them.
    - No variable is set that nothing reads.
    - How long collectives wait.
    - Whether un-awaited steps can deadlock.

    The arguments add checks:

    - ``batch``: the number of rows of a global batch, split over all devices of all ranks and ``accumulation`` steps.
      Give a BatchPlan if only some devices are data-parallel.
    - ``data``: this rank's first rows (a tree of arrays), or its DataLoader, of which sample 0 is read.
    - ``same``: values that must be equal on all ranks (a configuration, the key of the parameters).
    - ``distinct``: values that must differ between all ranks and devices (keys of dropout, seeds, generators). Each is
      a key, or an array of keys.

    Rank 0 prints the table on stderr. Raises NotReady, with the table's errors, on every rank.
    """
    files = code.loaded_files()
    found = run_checks(world, _CheckRequest(batch, accumulation, data, same or {}, distinct or {}, files))
    if world.is_main:
        print(found, file=sys.stderr, flush=True)
    if found.errors:
        world.barrier("preflight: the table is printed")  # after a rank's error the output of the others is cut short
        ranks = {rank for row in found.errors for rank in row.ranks}
        raise NotReady(f"rank {world.rank}: not ready for the first step: {found.problems}", ranks=ranks)
    return found


def examine_files(world: World, files: Sequence[Path], *, batch: int | None, accumulation: int) -> Readiness:
    """Check these files without running them, and return the table. **Every rank must call it.**

    It neither prints nor raises.
    """
    return run_checks(world, _CheckRequest(batch, accumulation, None, {}, {}, files))


def run_checks(world: World, request: _CheckRequest) -> Readiness:
    """Run the checks of a request, and return the table with the rows of all ranks, the same on every rank."""
    rows, named_values = _check_rank(world, request)
    parts = {
        f"distinct: {name}": values.element_digests(value, value_name=name) for name, value in request.distinct.items()
    }
    mine: Value = {
        "rows": [row.to_json() for row in rows if world.is_main or row.verdict != "ok"],
        "fine": [row.topic for row in rows if not world.is_main and row.verdict == "ok"],
        "facts": {one.check: one.digest for one in named_values},
        "parts": parts,
    }
    merged = world.exchange(
        "preflight", "preflight", mine, decide=lambda reports: _merge_reports(reports, named_values)
    )
    by_check = {one.check: one for one in named_values}
    differ: dict[str, list[list[int]]] = merged["differ"]
    found = [Row.from_json(row) for row in merged["rows"]]
    if differ:
        found += _rows_of_differences(world, differ, by_check)
    rows = sorted(found, key=lambda row: row.verdict != "error")
    return Readiness(tuple(rows), tuple(dict.fromkeys(world.hosts)), world.size)


def _merge_reports(reports: Sequence[Value], named_values: Sequence[NamedValue]) -> Value:
    differ = find_differences([one["facts"] for one in reports])
    fine = Counter(check for one in reports for check in one["fine"])
    rows = merge_rows(((rank, Row.from_json(row)) for rank, one in enumerate(reports) for row in one["rows"]), fine)
    rows += [ok(one.check, one.found) for one in named_values if one.check not in differ]
    names = {name: None for one in reports for name in one["parts"]}
    rows += [distinct_row(name, [one["parts"].get(name, []) for one in reports]) for name in names]
    return {"rows": [row.to_json() for row in rows], "differ": differ}


def _rows_of_differences(
    world: World, differ: Mapping[str, list[list[int]]], named_values: Mapping[str, NamedValue]
) -> list[Row]:
    """Return the report rows about values that differ. One rank of each group of equal ranks sends its values."""
    mine = {
        check: named_values[check].value
        for check, groups in differ.items()
        if check in named_values and world.rank in first_rank_of_groups(groups)
    }

    def decide(reports: Sequence[Value]) -> Value:
        found = []
        for check, groups in differ.items():
            fact = named_values.get(check) or NamedValue(
                check, None, "not checked here", "Every rank must check the same."
            )
            there = {rank: one[check] for rank, one in enumerate(reports) if one and check in one}
            found.append(difference_row(fact, groups, there).to_json())
        return found

    return [Row.from_json(row) for row in world.exchange("preflight", "differences", mine, decide=decide)]


def _check_rank(world: World, request: _CheckRequest) -> tuple[list[Row], list[NamedValue]]:
    """Return this rank's report rows, and the values to compare over ranks."""
    jax = import_adapter("jax") if world.backend != "torch" else None
    count, kind = jax.devices_of_process() if jax is not None else (1, "")
    rows = list(_data_rows(world, request, devices=count, jax=jax is not None))
    if world.local_rank == 0:
        rows.append(variables.unread_row(os.environ, lambda name: contains_name(name, request.files)))
        rows.append(_flags_row(jax is not None and jax.is_started()))
    rows += _timeout_rows()
    if jax is not None and (row := jax.thread_pool_row()):
        rows.append(row)
    named_values = list(_values_to_compare(request, main=world.is_main))
    if jax is not None:
        named_values.append(
            NamedValue("devices", [count, kind], f"{count} {kind} a rank", "Give every rank as many of the same kind.")
        )
    return rows, named_values


def _values_to_compare(request: _CheckRequest, *, main: bool) -> Iterator[NamedValue]:
    """Yield the values that must be equal on all ranks; only the descriptions of the ``main`` rank are used."""
    files = code.file_digests(request.files)
    text = f"{len(files)} file{'' if len(files) == 1 else 's'} of the program" + (
        _commit_text(request.files) if main else ""
    )
    yield NamedValue("code", files, text, "Copy the same files to every host, and start again.", partial=True)
    versions = code.installed_versions()
    text = ", ".join(f"{name} {versions[name]}" for name in ("python", "jax", "torch", "numpy") if name in versions)
    yield NamedValue("versions", versions, text, "Install the same versions on every host.", partial=True)
    decisive, others = variables.decisive_variables(os.environ), variables.other_variables(os.environ)
    advice = "Set them equally on every rank."
    yield NamedValue("variables", decisive, f"{len(decisive)} that decide what is computed are equal", advice)
    yield NamedValue("other variables", others, f"{len(others)} are equal", advice, if_not="warning")
    if hasattr(getattr(request.data, "dataset", None), "__len__"):
        steps = len(cast(Sized, request.data))
        yield NamedValue(
            "loader steps",
            steps,
            f"{steps} an epoch on every rank",
            "Give every rank equally many steps: one with fewer leaves the others waiting.",
        )
    for name, value in request.same.items():
        text = values.to_json_value(value, value_name=name)
        yield NamedValue(f"same: {name}", text, "equal on all ranks", "Compute it on rank 0, and world.broadcast() it.")


def _commit_text(files: Sequence[Path]) -> str:
    """Return the program's git commit and how many files differ from it, as text; "" outside of a repository."""
    place = files[0].resolve().parent if files else None
    commit = code.git_commit(place) if place else ""
    if place is None or not commit:
        return ""
    changed = code.changed_count(files, place)
    since = "" if changed is None else f", {changed} of them changed since" if changed else ", as committed"
    return f", git {commit[:10]}{since}"


def _data_rows(world: World, request: _CheckRequest, *, devices: int, jax: bool) -> Iterator[Row]:
    plan: BatchPlan | None = None
    if isinstance(request.batch, BatchPlan):
        plan = request.batch
        yield ok("batch", str(plan))
    elif request.batch is not None:
        row, plan = batches.plan_row(request.batch, world.size, devices, request.accumulation)
        yield row
    if request.data is None:
        return
    if type(request.data).__module__.startswith(f"{__package__.partition('.')[0]}."):
        yield ok("each rank its own rows", "planned by allranks: equal steps, every sample once")
    elif hasattr(request.data, "batch_sampler"):
        yield from batches.loader_rows(
            _loader_settings(request.data), plan, rank=world.rank, ranks=world.size, uses_jax=jax
        )
        yield generators.global_draws_row(request.data)
    elif values.spans_ranks(request.data):
        yield batches.global_rows_row(values.array_shapes(request.data), plan)
    else:
        yield batches.first_rows_row(values.array_shapes(request.data), plan, devices, request.accumulation)


def _loader_settings(loader: Any) -> batches.LoaderSettings:
    sized = hasattr(loader.dataset, "__len__")
    sampler = getattr(loader, "sampler", None)
    context = getattr(loader, "multiprocessing_context", None)
    method = context.get_start_method() if context is not None else "fork"
    return batches.LoaderSettings(
        batch_size=getattr(loader, "batch_size", None),
        drop_last=bool(getattr(loader, "drop_last", False)),
        samples=len(loader.dataset) if sized else None,
        replicas=getattr(sampler, "num_replicas", None),
        replica=getattr(sampler, "rank", None),
        workers=getattr(loader, "num_workers", 0),
        forks=method == "fork",
    )


def _flags_row(in_use: bool) -> Row:
    """Return a report row that says whether XLA knows the flags in XLA_FLAGS.

    If XLA has read its flags (``in_use``), the row also says whether it has read these.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not has_jaxlib() or not (flags or in_use):
        return ok("XLA flags", "none are set")
    read = read_in_child(flags)
    if read.refused:
        return error(
            "XLA flags", read.refused, remedy="Remove it from XLA_FLAGS: every process that starts JAX ends there."
        )
    jax = import_adapter("jax")
    if not in_use or jax is None:
        return ok("XLA flags", f"{len(flags.split())} are known to this jaxlib")
    if jax.options_digest() != read.digest:
        found = "XLA_FLAGS was changed after XLA had read it: the flags in it now have no effect"
        return error("XLA flags", found, remedy="Set it before the program starts, or before JAX is first used.")
    return ok("XLA flags", f"{len(flags.split())} are known to this jaxlib, and in effect" if flags else "none are set")


def _timeout_rows() -> Iterator[Row]:
    """Yield the report row about how long ranks wait for each other in a collective.

    It is a warning if that time is not the time that was requested of the launcher.
    """
    requested = os.environ.get("ALLRANKS_RENDEZVOUS_TIMEOUT")
    flags = dict(_WAITS.findall(os.environ.get("XLA_FLAGS", "")))
    text = [", ".join(f"{name.removeprefix('xla_')} {value}" for name, value in flags.items()) or _DEFAULT_WAITS]
    torch = import_adapter("torch")
    limit = torch.group_timeout() if torch is not None else None
    if limit is not None:
        text.append(f"torch's group: {limit:g} s")
    if requested is not None and limit is not None and limit != float(requested):
        found = f"--rendezvous-timeout {requested}, and torch's group waits {limit:g} s"
        remedy = "The program sets timeout= itself; leave it out to use the launcher's."
        yield warning("collectives wait", found, remedy=remedy)
    else:
        yield ok("collectives wait", "; ".join(text))
