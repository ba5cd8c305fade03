"""Everything that can be seen to be wrong before the first step, on all ranks, in one table."""

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
from allranks.readiness import code, values, variables
from allranks.readiness.detect import framework, has_jaxlib
from allranks.readiness.facts import Fact, difference, differing, distinct, leaders, merged
from allranks.readiness.flags import read_by_a_child
from allranks.readiness.installed import contains
from allranks.report.readiness import Readiness
from allranks.world.base import World
from allranks.world.codec import Value

_DEFAULT_WAITS = "XLA on CPU: warning after 20 s, end 40 s later; Gloo 1800 s; XLA on GPU: 20 s and 40 s"
_WAITS = re.compile(r"--(xla_\w*(?:terminate|termination|collective)_timeout\w*)=(-?\d+)")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the user wants checked, beside what is always."""

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
    """Check before the first step what can be checked; **every rank must call it**, in the same way.

    Always: the program's own files, the versions of libraries, the environment and the devices are equal on all ranks;
    XLA knows its flags, and has read them; no variable is set that nothing reads; how long collectives wait; whether
    steps that nobody awaits can deadlock.

    ``batch`` is the number of rows of a global batch, cut over all devices of all ranks and ``accumulation`` steps; a
    BatchPlan, where only some devices are data-parallel. ``data`` is this rank's first rows (a tree of arrays), or the
    DataLoader that brings them. ``same`` are values that must be equal on all ranks (a configuration, the key of the
    parameters), ``distinct`` those of which all ranks and devices must have their own (keys of dropout, seeds,
    generators): a key, or an array of them.

    Rank 0 prints the table on stderr. Raises NotReady with its errors, on every rank.
    """
    files = code.loaded_files()
    found = examine(world, _Asked(batch, accumulation, data, same or {}, distinct or {}, files))
    if world.is_main:
        print(found, file=sys.stderr, flush=True)
    if found.errors:
        world.barrier("preflight: the table is printed")  # what a rank prints after another's error is cut short
        ranks = {rank for row in found.errors for rank in row.ranks}
        raise NotReady(f"rank {world.rank}: not ready for the first step: {found.problems}", ranks=ranks)
    return found


def examine_files(world: World, files: Sequence[Path], *, batch: int | None, accumulation: int) -> Readiness:
    """Check what needs no program: its files are given. **Every rank must call it.** Neither prints nor raises."""
    return examine(world, _Asked(batch, accumulation, None, {}, {}, files))


def examine(world: World, asked: _Asked) -> Readiness:
    """Return the rows of all ranks, the same on every rank."""
    rows, facts = _look(world, asked)
    parts = {f"distinct: {name}": values.parts(value, what=name) for name, value in asked.distinct.items()}
    mine: Value = {
        "rows": [row.to_json() for row in rows if world.is_main or row.verdict != "ok"],
        "fine": [row.topic for row in rows if not world.is_main and row.verdict == "ok"],
        "facts": {fact.check: fact.digest for fact in facts},
        "parts": parts,
    }
    met = world.exchange("preflight", "preflight", mine, decide=lambda said: _decide(said, facts))
    told = {fact.check: fact for fact in facts}
    differ: dict[str, list[list[int]]] = met["differ"]
    found = [Row.from_json(row) for row in met["rows"]]
    if differ:
        found += _differences(world, differ, told)
    rows = sorted(found, key=lambda row: row.verdict != "error")
    return Readiness(tuple(rows), tuple(dict.fromkeys(world.hosts)), world.size)


def _decide(said: Sequence[Value], facts: Sequence[Fact]) -> Value:
    differ = differing([one["facts"] for one in said])
    fine = Counter(check for one in said for check in one["fine"])
    rows = merged(((rank, Row.from_json(row)) for rank, one in enumerate(said) for row in one["rows"]), fine)
    rows += [ok(fact.check, fact.found) for fact in facts if fact.check not in differ]
    names = {name: None for one in said for name in one["parts"]}
    rows += [distinct(name, [one["parts"].get(name, []) for one in said]) for name in names]
    return {"rows": [row.to_json() for row in rows], "differ": differ}


def _differences(world: World, differ: Mapping[str, list[list[int]]], facts: Mapping[str, Fact]) -> list[Row]:
    """Have one rank of each group say what it has."""
    mine = {
        check: facts[check].value
        for check, groups in differ.items()
        if check in facts and world.rank in leaders(groups)
    }

    def decide(said: Sequence[Value]) -> Value:
        found = []
        for check, groups in differ.items():
            fact = facts.get(check) or Fact(check, None, "not checked here", "Every rank must check the same.")
            there = {rank: one[check] for rank, one in enumerate(said) if one and check in one}
            found.append(difference(fact, groups, there).to_json())
        return found

    return [Row.from_json(row) for row in world.exchange("preflight", "differences", mine, decide=decide)]


def _look(world: World, asked: _Asked) -> tuple[list[Row], list[Fact]]:
    """Return what this rank sees by itself, and what it has to be compared."""
    jax = framework("jax") if world.backend != "torch" else None
    count, kind = jax.devices() if jax is not None else (1, "")
    rows = list(_data(world, asked, devices=count, jax=jax is not None))
    if world.local_rank == 0:
        rows.append(variables.unread(os.environ, lambda name: contains(name, asked.files)))
        rows.append(_flags(jax is not None and jax.started()))
    rows += _waits()
    if jax is not None and (row := jax.pool()):
        rows.append(row)
    facts = list(_facts(asked, main=world.is_main))
    if jax is not None:
        facts.append(
            Fact("devices", [count, kind], f"{count} {kind} a rank", "Give every rank as many of the same kind.")
        )
    return rows, facts


def _facts(asked: _Asked, *, main: bool) -> Iterator[Fact]:
    """Yield what must be alike; what is found is told by the ``main`` rank."""
    files = code.digests(asked.files)
    told = f"{len(files)} file{'' if len(files) == 1 else 's'} of the program" + (_commit(asked.files) if main else "")
    yield Fact("code", files, told, "Bring the same files to every host, and start again.", partial=True)
    versions = code.versions()
    told = ", ".join(f"{name} {versions[name]}" for name in ("python", "jax", "torch", "numpy") if name in versions)
    yield Fact("versions", versions, told, "Install the same versions on every host.", partial=True)
    decisive, others = variables.decisive(os.environ), variables.others(os.environ)
    advice = "Set them equally on every rank."
    yield Fact("variables", decisive, f"{len(decisive)} that decide what is computed are equal", advice)
    yield Fact("other variables", others, f"{len(others)} are equal", advice, if_not="warning")
    if hasattr(getattr(asked.data, "dataset", None), "__len__"):
        steps = len(cast(Sized, asked.data))
        yield Fact(
            "loader steps", steps, f"{steps} an epoch on every rank", "A rank with fewer steps leaves the others."
        )
    for name, value in asked.same.items():
        text = values.described(value, what=name)
        yield Fact(f"same: {name}", text, "equal on all ranks", "Make it on rank 0, and world.broadcast() it.")


def _commit(files: Sequence[Path]) -> str:
    """Return the commit of the program, and whether it has changed since; "" outside of a repository."""
    place = files[0].resolve().parent if files else None
    commit = code.commit(place) if place else ""
    if place is None or not commit:
        return ""
    changed = code.changed(files, place)
    since = "" if changed is None else f", {changed} of them changed since" if changed else ", as committed"
    return f", git {commit[:10]}{since}"


def _data(world: World, asked: _Asked, *, devices: int, jax: bool) -> Iterator[Row]:
    plan: BatchPlan | None = None
    if isinstance(asked.batch, BatchPlan):
        plan = asked.batch
        yield ok("batch", str(plan))
    elif asked.batch is not None:
        row, plan = batches.planned(asked.batch, world.size, devices, asked.accumulation)
        yield row
    if asked.data is None:
        return
    if type(asked.data).__module__.startswith(f"{__package__.partition('.')[0]}."):
        yield ok("each rank its own rows", "planned by allranks: equal steps, every sample once")
    elif hasattr(asked.data, "batch_sampler"):
        yield from batches.loader(_loader_facts(asked.data), plan, rank=world.rank, ranks=world.size, jax=jax)
    elif values.spans_ranks(asked.data):
        yield batches.global_rows(values.shapes(asked.data), plan)
    else:
        yield batches.first_rows(values.shapes(asked.data), plan, devices, asked.accumulation)


def _loader_facts(loader: Any) -> batches.LoaderFacts:
    sized = hasattr(loader.dataset, "__len__")
    sampler = getattr(loader, "sampler", None)
    context = getattr(loader, "multiprocessing_context", None)
    method = context.get_start_method() if context is not None else "fork"
    return batches.LoaderFacts(
        batch_size=getattr(loader, "batch_size", None),
        drop_last=bool(getattr(loader, "drop_last", False)),
        samples=len(loader.dataset) if sized else None,
        replicas=getattr(sampler, "num_replicas", None),
        replica=getattr(sampler, "rank", None),
        workers=getattr(loader, "num_workers", 0),
        forks=method == "fork",
    )


def _flags(in_use: bool) -> Row:
    """Return whether XLA knows its flags, and if it has read them (``in_use``) has read these."""
    flags = os.environ.get("XLA_FLAGS", "")
    if not has_jaxlib() or not (flags or in_use):
        return ok("XLA flags", "none are set")
    read = read_by_a_child(flags)
    if read.refused:
        return error(
            "XLA flags", read.refused, remedy="Take it out of XLA_FLAGS: every process that starts JAX ends there."
        )
    jax = framework("jax")
    if not in_use or jax is None:
        return ok("XLA flags", f"{len(flags.split())} are known to this jaxlib")
    if jax.options_digest() != read.digest:
        found = "XLA_FLAGS was changed after XLA had read it: what is there now is not in effect"
        return error("XLA flags", found, remedy="Set it before the program starts, or before JAX is first used.")
    return ok("XLA flags", f"{len(flags.split())} are known to this jaxlib, and in effect" if flags else "none are set")


def _waits() -> Iterator[Row]:
    """Yield how long ranks wait for each other in a collective, and whether that is what was asked for."""
    asked = os.environ.get("ALLRANKS_RENDEZVOUS_TIMEOUT")
    flags = dict(_WAITS.findall(os.environ.get("XLA_FLAGS", "")))
    told = [", ".join(f"{name.removeprefix('xla_')} {value}" for name, value in flags.items()) or _DEFAULT_WAITS]
    torch = framework("torch")
    limit = torch.group_timeout() if torch is not None else None
    if limit is not None:
        told.append(f"torch's group: {limit:g} s")
    if asked is not None and limit is not None and limit != float(asked):
        found = f"--rendezvous-timeout {asked}, and torch's group waits {limit:g} s"
        remedy = "The program says timeout= itself; leave it out to have the launcher's."
        yield warning("collectives wait", found, remedy=remedy)
    else:
        yield ok("collectives wait", "; ".join(told))
