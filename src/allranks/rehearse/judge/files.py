"""Find paths that two ranks use without any order between them.

For each path, everything that the ranks did to it is checked: calls that make, change, need, or look for it. A fault is
reported once, under its main cause: two writes before a write and a read; a check before its consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from allranks.findings import Finding
from allranks.rehearse.checkpoint_names import has_checkpoint_ending
from allranks.rehearse.judge.base import Case, Kind, finding, moment, who
from allranks.rehearse.order import Order
from allranks.rehearse.trace import Event

_WRITES = ("write", "create", "append", "truncate")
_MAKES = (*_WRITES, "exclusive", "mkdir", "link")

CHECKPOINT = Kind(
    "AR101",
    "ungated-checkpoint-write",
    "error",
    "Ranks overwrite each other's bytes: the file is the last one's, or a mixture that cannot be loaded.",
    "Let one rank write (if rank == 0), or give each rank a file of its own; then a barrier before anybody reads.",
)
WRITE = Kind(
    "AR102",
    "ungated-file-write",
    "error",
    "Ranks overwrite each other's bytes: the file is the last one's, or a mixture.",
    "Let one rank write (if rank == 0), or give each rank a file of its own.",
)
SAME_BYTES = Kind(
    WRITE.code,
    WRITE.name,
    "warning",
    "The ranks write the same bytes, and nobody reads them in this run: a reader at that moment gets half of the file.",
    WRITE.advice,
)
APPEND = Kind(
    "AR102",
    "ungated-file-write",
    "warning",
    "Lines of all ranks are in one file, in any order; on NFS some are lost.",
    "Let one rank write (if rank == 0), or give each rank a file of its own.",
)
CHECK = Kind(
    "AR108",
    "check-then-act-on-path",
    "error",
    "Two ranks find nothing and both act, or one finds what the other has half done.",
    "Let one rank check and act, then a barrier; or make the act one that may happen twice (exist_ok=True).",
)
DELETE = Kind(
    "AR109",
    "ungated-delete",
    "error",
    "A rank deletes what another one still uses, or has deleted already.",
    "Let one rank delete, after a barrier behind the last use.",
)
MODIFY = Kind(
    "AR110",
    "read-modify-write-on-every-rank",
    "error",
    "Each rank reads the file, changes it and writes it back: changes of the others are lost.",
    "Let one rank read, change and write (if rank == 0).",
)
IN_PLACE = Kind(
    "AR401",
    "non-atomic-publish",
    "warning",
    "A job that is killed while it saves has neither the new checkpoint nor the old one.",
    "Write to another name and rename it (os.replace), or keep the last two.",
)
BARRIER = Kind(
    "AR405",
    "missing-barrier",
    "error",
    "A rank that is faster finds nothing, what the last run has left, or half of a file.",
    "Put a barrier between the two, on all ranks (dist.barrier(), sync_global_devices()).",
)


@dataclass(slots=True)
class _Path:
    """The events at one path, by kind."""

    path: str
    makes: list[Event] = field(default_factory=list)
    writes: list[Event] = field(default_factory=list)
    reads: list[Event] = field(default_factory=list)
    checks: list[Event] = field(default_factory=list)
    removals: list[Event] = field(default_factory=list)
    moves: list[Event] = field(default_factory=list)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each fault with files. Paths with a fault at the same lines give one finding."""
    reported: set[tuple[object, ...]] = set()
    locks = {event.data["path"] for event in case.trace.of("lock")}
    guards = [event for event in case.trace.of("lock", "unlock", "file") if _is_guard(event)]
    for name, path in sorted(_paths(case).items()):
        if name in locks:
            continue  # a lock file: who holds the lock does not matter for its content
        for one in _of_path(case, path, guards):
            lines = (one.code, one.place, *(note.place for note in one.notes[:2]))
            if lines not in reported:
                reported.add(lines)
                yield one


def _paths(case: Case) -> dict[str, _Path]:
    paths: dict[str, _Path] = {}
    for event in case.trace.of("file"):
        operation, names = event.data["operation"], event.data["paths"]
        for place, name in enumerate(names):
            path = paths.setdefault(name, _Path(name))
            if operation == "rename":
                (path.moves if place else path.removals).append(event)
            elif operation in ("remove", "rmdir"):
                path.removals.append(event)
            elif operation == "exists":
                path.checks.append(event)
            elif operation == "read":
                path.reads.append(event)
            elif operation in _MAKES and place == len(names) - 1:  # a link is the last of two paths
                path.makes.append(event)
                if operation in _WRITES:
                    path.writes.append(event)
    return paths


def _of_path(case: Case, path: _Path, guards: Sequence[Event]) -> Iterator[Finding]:
    """Yield the faults of one path. A serious fault hides the faults that follow from it."""
    order = case.order
    if pair := _unordered(order, path.writes, path.writes) or _replaced(order, path.moves):
        yield from _writes(case, path, *pair)
        return
    yield from _overwritten(case, path)
    if one := _check_then_act(case, path, guards):
        yield one
        return
    if pair := _unordered(order, path.removals, [*path.reads, *path.makes, *path.removals]):
        yield from _removal(case, path, *pair)
        return
    made = [event for event in (*path.writes, *path.moves) if event.data["operation"] != "append"]
    reads = [read for read in path.reads if not _is_complete(order, path, read)]
    first = [read for read in reads if not any(_is_checked_again(order, one, read, guards) for one in made)]
    if pair := _unordered(order, made, first):
        yield from _read(case, path, *pair)
    elif one := _directory_used(case, path):
        yield one


def _unordered(order: Order, some: Sequence[Event], others: Sequence[Event]) -> tuple[Event, Event] | None:
    """Return two events of different ranks that nothing orders, or None. The first event is from ``some``."""
    for a in some:
        for b in others:
            if a.rank != b.rank and not order.is_ordered(a, b):
                return a, b
    return None


def _is_complete(order: Order, path: _Path, read: Event) -> bool:
    """Return whether a rank can only read a complete file, though nothing orders the read and the write.

    The file is only ever renamed into place, and the rank has published it itself, or has seen that it is there, or
    goes on without it.
    """
    if path.writes:
        return False
    if read.data.get("caught"):
        return True
    seen = [one for one in (*path.moves, *path.checks) if one.rank == read.rank and order.before(one, read)]
    return any(one.data["operation"] == "rename" or one.data["existed"] for one in seen)


def _is_checked_again(order: Order, made: Event, read: Event, guards: Sequence[Event]) -> bool:
    """Return whether a rank only looks first, and then takes the lock that the other rank had while it made the path.

    Libraries with a cache do so: they look for an entry, and look again under the lock before they build it.
    """
    locks = [event for event in guards if event.kind == "lock" and made.data["operation"] == "rename"]
    held = {one.data["path"] for one in locks if one.rank == made.rank and order.before(one, made)}
    mine = [one for one in locks if one.rank == read.rank and one.data["path"] in held]
    return any(order.before(read, one) and order.before(made, one) for one in mine)


def _replaced(order: Order, moves: Sequence[Event]) -> tuple[Event, Event] | None:
    """Return two unordered renames that give a path different contents, or None. Equal contents do no harm."""
    known = [event for event in moves if event.data.get("content")]
    pairs = ((a, b) for a in known for b in known if a.data["content"] != b.data["content"])
    return next((found for a, b in pairs if (found := _unordered(order, [a], [b]))), None)


def _writes(case: Case, path: _Path, a: Event, b: Event) -> Iterator[Finding]:
    writers = [event for event in (*path.writes, *path.moves) if event.where in (a.where, b.where)]
    ranks = who(writers)
    appends = all(event.data["operation"] == "append" for event in writers)
    is_read_before = all(
        any(read.rank == one.rank and case.order.before(read, one) and read.data["existed"] for read in path.reads)
        for one in (a, b)
    )
    kind = CHECKPOINT if has_checkpoint_ending(path.path) else WRITE
    kind = MODIFY if is_read_before else APPEND if appends else kind
    if kind is WRITE and not path.reads and _are_equal(path.writes):
        kind = SAME_BYTES
    yield from _one(
        finding(kind, f"{ranks} write {case.name(path.path)}, and nothing orders them", a, _evidence(case, a, b))
    )


def _are_equal(writes: Sequence[Event]) -> bool:
    """Return whether each of several writes has left the same content, as the next one has found it."""
    left = [event.data["content_after"] for event in writes if "content_after" in event.data]
    return len(left) == len(writes) > 1 and len(set(left)) == 1 and bool(left[0])


def _overwritten(case: Case, path: _Path) -> Iterator[Finding]:
    """Yield a finding if a rank overwrites its only complete checkpoint."""
    if not has_checkpoint_ending(path.path):
        return
    again = [one for one in path.writes if one.data["existed"] and one.data["operation"] == "create"]
    first = next((one for one in path.writes if one not in again), None)
    if first is not None and again and again[0].rank == first.rank and again[0].step > first.step:
        text = (
            f"rank {first.rank} writes {case.name(path.path)} again in place: meanwhile there is no complete checkpoint"
        )
        evidence = [(f"rank {one.rank}, {moment(one)}: {_describe(case, one)}", one) for one in (first, again[0])]
        yield from _one(finding(IN_PLACE, text, again[0], evidence))


def _check_then_act(case: Case, path: _Path, guards: Sequence[Event]) -> Finding | None:
    """Return a finding if two ranks check for a path at one line and one of them then makes it, or None.

    Calls that make the path and may happen twice are ignored.
    """
    for made in [*path.makes, *path.moves]:
        if made.data["operation"] == "mkdir" and (made.data["existed"] or _tolerates(case, made)):
            continue
        mine = [check for check in path.checks if check.rank == made.rank and case.order.before(check, made)]
        if _is_locked(case.order, mine, made, guards):
            continue
        lines = {check.where for check in mine if not check.data["existed"]}
        for check in path.checks:
            if check.where in lines and check.rank != made.rank and not case.order.is_ordered(check, made):
                text = f"{who([check, made])} check for {case.name(path.path)} and act on it, and nothing orders them"
                return finding(CHECK, text, check, _evidence(case, made, check))
    return None


def _is_guard(event: Event) -> bool:
    """Return whether an event takes or releases a lock, or creates a file that only one rank can create."""
    return event.kind != "file" or (event.data["operation"] == "exclusive" and not event.data["existed"])


def _is_locked(order: Order, checks: Sequence[Event], made: Event, guards: Sequence[Event]) -> bool:
    """Return whether a rank checks and acts under a lock.

    The lock is a file lock that the rank took before its last check, or a file that only one rank can create.
    """
    if not checks:
        return False
    mine = [e for e in guards if e.rank == made.rank and order.before(e, made)]
    locks = [e for e in mine if e.kind != "file" and order.before(e, checks[-1])]
    if locks and locks[-1].kind == "lock":
        return True
    return any(
        e.kind == "file" and e.data["paths"][0] not in made.data["paths"] and order.before(checks[-1], e) for e in mine
    )


def _tolerates(case: Case, made: Event) -> bool:
    """Return whether the call that made a folder accepts an existing folder (exist_ok=True)."""
    return any(
        one.rank == made.rank and one.data["path"] == made.data["paths"][-1] and one.data["exist_ok"]
        for one in case.trace.of("mkdir")
    )


def _removal(case: Case, path: _Path, removal: Event, other: Event) -> Iterator[Finding]:
    word = "delete" if other in path.removals else "use"
    text = f"{who([removal])} removes {case.name(path.path)} while {who([other])} may still {word} it"
    yield from _one(finding(DELETE, text, removal, _evidence(case, removal, other)))


def _read(case: Case, path: _Path, made: Event, read: Event) -> Iterator[Finding]:
    if any(one.rank == read.rank and case.order.before(one, read) for one in path.writes):
        return  # it reads what it has written itself; who else writes it is another fault
    readers = [one for one in path.reads if one.where == read.where and one.rank != made.rank]
    verb = "reads" if len(_ranks(readers)) == 1 else "read"
    text = f"{who(readers)} {verb} {case.name(path.path)}, which {who([made])} writes, and nothing orders the two"
    yield from _one(finding(BARRIER, text, read, _evidence(case, made, read)))


def _directory_used(case: Case, path: _Path) -> Finding | None:
    """Return a finding if a rank makes files in a folder that another rank makes, or None.

    A rank that has checked for the folder, or made it itself, is ignored.
    """
    made = [one for one in path.makes if one.data["operation"] == "mkdir" and not one.data["existed"]]
    if not made:
        return None
    folder = path.path + "/"
    sure = {one.rank for one in (*path.makes, *path.checks)}
    sure |= {e.rank for e in case.trace.of("mkdir") if e.data["parents"] and e.data["path"].startswith(folder)}
    for use in case.trace.of("file"):
        name = use.data["paths"][-1]
        if not name.startswith(folder) or use.data["operation"] not in (*_MAKES, "rename") or use.rank in sure:
            continue
        for one in made:
            if one.rank != use.rank and not case.order.is_ordered(one, use):
                text = (
                    f"{who([use])} makes {case.name(name)} in a folder that {who([one])} makes, and nothing orders "
                    "the two"
                )
                return finding(BARRIER, text, use, _evidence(case, one, use))
    return None


def _evidence(case: Case, *events: Event) -> list[tuple[str, Event]]:
    """Return the two events in order of time, each with a text; the second text says how this was seen."""
    first, second = sorted(events, key=lambda event: event.time)
    gap = 1000 * (second.time - first.time)
    return [
        (f"rank {first.rank}, {moment(first)}: {_describe(case, first)}", first),
        (f"rank {second.rank}, {moment(second)}: {_describe(case, second)}, {gap:.0f} ms later; {case.seen}", second),
    ]


_VERBS = {
    "read": "opens {} to read",
    "write": "opens {} to write",
    "create": "opens {} to write",
    "append": "opens {} to append",
    "exclusive": "creates {}",
    "truncate": "truncates {}",
    "mkdir": "makes the folder {}",
    "rename": "renames {} to {}",
    "remove": "removes {}",
    "rmdir": "removes the folder {}",
    "link": "links {}",
    "exists": "checks whether {} is there",
    "list": "lists {}",
}


def _describe(case: Case, event: Event) -> str:
    operation = event.data["operation"]
    text = _VERBS[operation].format(*map(case.name, event.data["paths"]), "")
    if operation in ("exists", "read") and not event.data["existed"]:
        text += " (it is not)"
    return text


def _ranks(events: Sequence[Event]) -> set[int]:
    return {event.rank for event in events}


def _one(found: Finding | None) -> Iterator[Finding]:
    if found is not None:
        yield found
