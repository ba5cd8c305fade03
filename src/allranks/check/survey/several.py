"""Which files of a JAX project belong to programs of several processes: they ask which one, or train by pmap."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project, closed
from allranks.check.summaries.summary import Summary

# Who distinguishes a process, or its own devices, from all.
ASKED = frozenset(
    [
        *("process_index", "process_count", "host_id", "host_count", "local_device_count", "local_devices"),
        *("multihost_utils", "sync_global_devices", "process_allgather", "make_array_from_process_local_data"),
    ]
)

# What a training step under pmap does with gradients: the way of JAX to train on several hosts, as DDP is torch's.
_REDUCED = re.compile(r"pmean|psum")


def several(project: Project) -> frozenset[str]:
    """Return the files of programs in which one asks: what leads to it by imports, and all that this imports in turn.

    Tests bear witness for nobody.
    """
    files = {path: summary for path, summary in project.summaries.items() if not is_test(path)}
    asking = {path for path, summary in files.items() if _asks(summary)}
    if not asking:
        return frozenset()
    uses = {path: [used for used in project.imported(path) if used in files] for path in files}
    users: dict[str, list[str]] = defaultdict(list)
    for path, used in uses.items():
        for one in used:
            if not path.endswith("__init__.py"):  # who imports a package need not mean that part of it
                users[one].append(path)
    return frozenset(closed(closed(asking, lambda path: users.get(path, ())), lambda path: uses.get(path, ())))


_OWN_SEED = re.compile(r"seed\w*\s*(\+=|=(?!=)[^=]*\+).*(process_index|process_id|host_id|rank)")


def files_with_own_seeds(project: Project, lines: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the files that set a seed to one of this process (``args.seed += jax.process_index()``), and all that
    import them."""
    made = set()
    for path, summary in project.summaries.items():
        words = set().union(*(facts.words for facts in summary.functions.values()))
        if words & ASKED and "seed" in words and any(map(_OWN_SEED.search, lines[path])):
            made.add(path)
    return frozenset().union(*map(project.users, made))


# What waits for a save in the background; a method of such a name waits when somebody calls it.
_WAITING = frozenset(["wait_until_finished"])
_CLOSING = frozenset(["close", "__exit__"])
_CLOSED = re.compile(r"(?i)(ckpt|checkpoint|mngr|manager|saver)\w*(\(\))?\.close\(")
_SAVER = "heckpoint"
_WITHIN = re.compile(r"^\s*with [^#]*(Checkpointer|CheckpointManager|(ckpt|checkpoint)\w*(manager|mngr|er))\b", re.I)


def awaits_saves(project: Project, lines: Mapping[str, list[str]]) -> bool:
    """Say whether anything waits for what saves in the background, or closes it. ``lines``: of each file."""
    for path, summary in project.summaries.items():
        if is_test(path):
            continue
        for facts in summary.functions.values():
            words = set(facts.words)
            if facts.name in _WAITING or facts.name in _CLOSING:
                continue
            if words & _WAITING or (words & _CLOSING and any(map(_CLOSED.search, lines[path]))):
                return True
        if any(_SAVER in dotted for dotted, _ in summary.imports) and any(map(_WITHIN.search, lines[path])):
            return True
    return False


# A mesh of several axes, a spec that cuts something but the first axis or only where a leaf allows it, an axis or a
# setting that is called after models' parts.
_MESH = re.compile(r"\bMesh\(|\bmake_mesh\(")
_CUTS = re.compile(
    r"\b(P|PS|PartitionSpec)\((?!None\W*\)|\W*\)|[\"']\w+[\"']\W*\)|\([^()]*\)\W*\))"
    r"|[mM]esh[^#]*\(\s*[\"']\w+[\"']\s*,\s*[\"']"
    r"|[(,]\s*[\"'](fsdp|model|mp|tp|mdl|tensor\w*|expert\w*|ep|pp|stages?|zero|shards?)[\"']\s*[,)]"
    r"|fsdp|FSDP|ZeRO|\bzero_?[123]\b|\b(P|PS|PartitionSpec)\([^()]*\) if\b"
    r"|with_partitioning|logical_(axis|to_mesh)|partition_(rules|spec)\b|PositionalSharding"
)


def cuts_state(project: Project, lines: Mapping[str, list[str]]) -> bool:
    """Say whether a state may lie in parts: with a mesh of one axis, along which rows are dealt, each has all of it."""
    files = [path for path, summary in project.summaries.items() if summary.uses("jax") and not is_test(path)]
    meshed = any(any(map(_MESH.search, lines[path])) for path in files)
    return not meshed or any(any(map(_CUTS.search, lines[path])) for path in files)


def _asks(summary: Summary) -> bool:
    if not summary.uses("jax"):
        return False
    words = {dotted.rpartition(".")[2] for dotted, _ in summary.imports}.union(
        *(f.words for f in summary.functions.values())
    )
    return bool(words & ASKED) or ("pmap" in words and any(map(_REDUCED.match, words)))
