"""Check the data: each rank gets its own part, each epoch has another order, and all ranks have equally many batches.

The evidence is digests of samples: of the rows that loaders yield, and of the outermost module's inputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from allranks.errors import name_ranks
from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.judge.replicas import FULLY_SHARDED, Row, tables_of
from allranks.rehearse.trace import Event

SAME = Kind(
    "AR301",
    "dataset-not-sharded",
    "error",
    "All ranks compute the same: N times the machines, the speed of one, and each sample counts N times.",
    "Give each rank its part: DistributedSampler, split_dataset_by_node, a seed or an offset that depends on the rank.",
)
SAME_EPOCHS = Kind(
    "AR302",
    "missing-set-epoch",
    "error",
    "Each epoch has the same order: the shuffle is done once, and batches are the same ones for ever.",
    "Call sampler.set_epoch(epoch) before each epoch.",
)
UNEVEN = Kind(
    "AR304",
    "uneven-steps",
    "error",
    "The rank with more batches waits in a collective for those that have left the loop: the job hangs.",
    "Give all ranks the same number of batches: drop_last=True, DistributedSampler, or Join.",
)
SHUFFLE = Kind(
    "AR308",
    "rank-divergent-shuffle",
    "error",
    "Ranks take their parts of different orders: some samples come several times in an epoch, others never.",
    "Shuffle with one seed on all ranks (seed + epoch), and take the rank's part afterwards.",
)
WORKERS = Kind(
    "AR301",
    "dataset-not-sharded",
    "error",
    "Each sample comes once from each worker: an epoch is as many times as long as there are workers.",
    "Part the samples in __iter__ by get_worker_info() and the rank, or use a map-style data set.",
)
PARTS = Kind(
    "AR303",
    "sampler-misuse",
    "error",
    "Some samples are never read, in no epoch.",
    "Leave num_replicas and rank to the sampler, or take both from the process group.",
)
_FEWEST = 2
_OVERLAP = 0.25
_SHARED = 6


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for what is wrong with the data, once for each loader."""
    if case.trace.ranks == 1:
        return
    loaders = sorted({event.data["loader"] for event in case.trace.of("epoch")})
    found = False
    for loader in loaders:
        for one in _of_loader(case, loader):
            found = True
            yield one
    if not found:
        yield from _inputs(case)


def _of_loader(case: Case, loader: int) -> Iterator[Finding]:
    batches = _by_rank(case, "batch", loader)
    epochs = _by_rank(case, "epoch", loader)
    first = {rank: [e for e in events if e.data["epoch"] == 0] for rank, events in batches.items()}
    if not all(first.values()):
        return
    reported = next(iter(epochs.values()))[0]
    if reported.data["workers"] > 1 and (one := _workers(first, reported)):
        yield one
        return
    replicas = _replicas(case)
    if (one := _same(case, first, replicas, reported)) or (one := _overlap(first, replicas, epochs, reported)):
        yield one
        return
    if one := _unread(epochs):
        yield one
        return
    if one := _same_epochs(batches, epochs, _by_rank(case, "exhausted", loader)):
        yield one
    if one := _uneven(case, loader):
        yield one


def _unread(epochs: Mapping[int, Sequence[Event]]) -> Finding | None:
    """Return a finding if the sampler divides the data into more parts than the ranks read, or None."""
    events = [those[0] for those in epochs.values() if those]
    parts: list[list[int]] = [event.data.get("part") or [] for event in events]
    if not all(parts) or len({total for _, total in parts}) != 1:
        return None
    total = parts[0][1]
    left = sorted(set(range(total)) - {part for part, _ in parts})
    if not left:
        return None
    text = (
        f"the {events[0].data['sampler']} divides the data into {total} parts, and no rank reads "
        f"{'parts' if len(left) > 1 else 'part'} {', '.join(map(str, left))}"
    )
    pairs = zip(events, parts, strict=True)
    evidence = [(f"rank {event.rank} reads part {part} of {total}", event) for event, (part, _) in pairs]
    return finding(PARTS, text, events[0], evidence[:4])


def _by_rank(case: Case, kind: str, loader: int) -> Mapping[int, list[Event]]:
    events = case.trace.by_rank(kind)
    return {rank: [e for e in those if e.data["loader"] == loader] for rank, those in events.items()}


def _replicas(case: Case) -> list[tuple[int, int]]:
    """Return the pairs of ranks that train one model: with equal weights at their first step, or with unknown weights.

    Ranks with different weights hold parts of one model, and may correctly get the same batch.
    """
    pairs = list(combinations(range(case.trace.ranks), 2))
    tables = tables_of(case)
    firsts = [those[0] for those in tables.values()]
    weights = case.trace.by_rank("weights")
    if not firsts:
        return [] if any(weights.values()) else pairs
    return [(a, b) for a, b in pairs if all(_are_replicas(table.rows[a], table.rows[b]) for table in firsts)]


def _are_replicas(a: Sequence[Row], b: Sequence[Row]) -> bool:
    """Return whether two ranks train one model. Shards of fully sharded data parallelism count; other shards do not."""
    if any(row.layout for row in a):
        return all(row.layout.startswith(FULLY_SHARDED) for row in a if row.layout)
    return [row.value for row in a] == [row.value for row in b]


def _same(
    case: Case, events: Mapping[int, Sequence[Event]], replicas: Sequence[tuple[int, int]], at: Event
) -> Finding | None:
    """Return a finding if two replicas get the same batches, as far as both have batches. Otherwise return None."""
    del case
    for a, b in replicas:
        pairs = [
            (one, other)
            for one, other in zip(events[a], events[b], strict=False)
            if one.data["samples"] and other.data["samples"]
        ]
        if len(pairs) < _FEWEST or not _varies([one for one, _ in pairs]):
            continue
        if all(sorted(one.data["samples"]) == sorted(other.data["samples"]) for one, other in pairs):
            ranks = [
                r
                for r in sorted(events)
                if r in (a, b) or ((a, r) in replicas and _samples(events[r]) == _samples(events[a]))
            ]
            text = (
                f"{name_ranks(ranks)} get the same {len(pairs)} batches of {len(pairs[0][0].data['samples'])} samples"
            )
            evidence = [
                (f"rank {one.rank}, batch {n}: samples {', '.join(one.data['samples'][:3])}, ...", one)
                for n, pair in enumerate(pairs[:1])
                for one in pair
            ]
            return finding(SAME, text, at, evidence)
    return None


def _varies(events: Sequence[Event]) -> bool:
    """Return whether batches differ from each other.

    If a program always feeds one constant batch, they prove nothing.
    """
    return len({tuple(event.data["samples"]) for event in events}) > 1


def _samples(events: Sequence[Event]) -> list[str]:
    return [sample for event in events for sample in event.data["samples"]]


def _overlap(
    events: Mapping[int, Sequence[Event]],
    replicas: Sequence[tuple[int, int]],
    epochs: Mapping[int, Sequence[Event]],
    at: Event,
) -> Finding | None:
    """Return a finding if two replicas read the same samples in different orders, or None."""
    for a, b in replicas:
        mine, theirs = _samples(events[a]), _samples(events[b])
        if not epochs.get(a) or not epochs.get(b) or epochs[a][0].data["replacement"]:
            continue
        if len(set(mine)) < len(mine) or len(set(theirs)) < len(theirs):
            continue  # drawn with replacement, or of equal samples
        shared = len(set(mine) & set(theirs))
        data = epochs[a][0].data
        reads_all = data["samples"] == data["dataset"] > 0
        if shared > max(len(epochs), _OVERLAP * min(len(mine), len(theirs))) or (reads_all and shared >= _FEWEST):
            how = "each goes through all of the data" if reads_all else "each takes its part of another order"
            text = f"ranks {a} and {b} share {shared} of {min(len(mine), len(theirs))} samples of an epoch: {how}"
            evidence = [(f"rank {rank}: {_loader(epochs[rank][0])}", epochs[rank][0]) for rank in (a, b)]
            return finding(SAME if reads_all else SHUFFLE, text, at, evidence)
    return None


def other_orders(events: Mapping[int, Sequence[Event]], pairs: Sequence[tuple[int, int]]) -> Finding | None:
    """Return a finding if two ranks share samples of their first epoch, as if each had shuffled by itself, or None."""
    steps = _steps_of_first_epoch(events)
    first = {rank: set(_samples(those[:steps])) for rank, those in events.items()}
    for a, b in pairs:
        shared, fewest = len(first[a] & first[b]), min(len(first[a]), len(first[b]))
        if shared >= max(_SHARED, _OVERLAP * fewest) and first[a] != first[b]:
            text = (
                f"ranks {a} and {b} share {shared} of {fewest} samples before one of them comes again: each takes its "
                "part of another order"
            )
            evidence = [(f"rank {rank}: {len(first[rank])} samples", events[rank][0]) for rank in (a, b)]
            return finding(SHUFFLE, text, events[a][0], evidence)
    return None


def _steps_of_first_epoch(events: Mapping[int, Sequence[Event]]) -> int:
    """Return after how many steps a rank first gets a sample again; 0 if samples are drawn with replacement."""
    seen: dict[int, set[str]] = {rank: set() for rank in events}
    steps = 0
    for those in zip(*events.values(), strict=False):
        if any(len(set(e.data["samples"]) - seen[e.rank]) < len(e.data["samples"]) for e in those):
            break
        for event in those:
            seen[event.rank] |= set(event.data["samples"])
        steps += 1
    is_epoch = all(len(seen[rank]) >= len(set(_samples(events[rank]))) / 3 for rank in events)
    return steps if is_epoch else 0


def _loader(epoch: Event) -> str:
    data = epoch.data
    return f"a loader of {data['length']} batches, {data['sampler']} of {data['samples']} samples"


def _workers(first: Mapping[int, Sequence[Event]], at: Event) -> Finding | None:
    for rank, events in first.items():
        counts = Counter(_samples(events))
        workers = at.data["workers"]
        repeated = sum(1 for number in counts.values() if number == workers)
        if len(counts) >= _FEWEST and repeated > len(counts) / 2:
            text = f"{repeated} of {len(counts)} samples of rank {rank} come {workers} times: once from each worker"
            return finding(WORKERS, text, at, [(f"rank {rank}: a loader with {workers} workers", at)])
    return None


def _same_epochs(
    batches: Mapping[int, Sequence[Event]],
    epochs: Mapping[int, Sequence[Event]],
    ended: Mapping[int, Sequence[Event]],
) -> Finding | None:
    """Return a finding if the first two epochs have the same order. A look at one batch is no epoch."""
    for rank, events in batches.items():
        counts = Counter(event.data["epoch"] for event in events)
        complete = {event.data["epoch"] for event in ended[rank]}
        real = [e for e in epochs[rank] if counts[e.data["epoch"]] > 1 or e.data["epoch"] in complete]
        if len(real) < 2 or not real[0].data["shuffle"]:
            continue
        orders: dict[int, list[str]] = defaultdict(list)
        for event in events:
            orders[event.data["epoch"]] += event.data["samples"]
        first, second = (orders[e.data["epoch"]] for e in real[:2])
        size = min(len(first), len(second))
        if size >= 4 and len(set(first[:size])) > 2 and first[:size] == second[:size]:
            pair = f"epochs {real[0].data['epoch']} and {real[1].data['epoch']}"
            text = f"{pair} have the same order on rank {rank}, though the sampler shuffles"
            evidence = [(f"rank {rank}, epoch {e.data['epoch']}: {e.data['sampler']}", e) for e in real[:2]]
            return finding(SAME_EPOCHS, text, real[1], evidence)
    return None


def _uneven(case: Case, loader: int) -> Finding | None:
    if any(case.trace.of("join")):
        return None
    ended = _by_rank(case, "exhausted", loader)
    for epoch in sorted({e.data["epoch"] for events in ended.values() for e in events}):
        those = [e for events in ended.values() for e in events if e.data["epoch"] == epoch]
        counts = {e.rank: e.data["batches"] for e in those}
        if len(counts) == case.trace.ranks and len(set(counts.values())) > 1:
            text = f"epoch {epoch} has another number of batches on each rank: " + ", ".join(
                f"rank {rank}: {number}" for rank, number in sorted(counts.items())
            )
            return finding(UNEVEN, text, those[0], [(f"rank {e.rank}: {e.data['batches']} batches", e) for e in those])
    return None


def _inputs(case: Case) -> Iterator[Finding]:
    """Yield the same finding for programs that use no loader, from the inputs of the outermost module in training."""
    events = case.trace.by_rank("input")
    if all(events.values()):
        pairs = _replicas(case)
        if one := _same(case, events, pairs, events[0][0]) or other_orders(events, pairs):
            yield one
