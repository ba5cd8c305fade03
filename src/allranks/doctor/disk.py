"""Make the report rows about a folder from the results of trials in it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from allranks.doctor.hosts import format_bytes, format_duration, name_hosts
from allranks.findings import Row, error, not_determined, ok, warning

GB = 1_000_000_000
# The longest name of a folder in a topic.
_LONGEST = 16
_LITTLE_SPACE, _FEW_FILES = 10 * GB, 100_000
# Gone with the machine, or with the container.
_FLEETING = {
    "tmpfs": "memory, not a disk: it is lost with the machine",
    "ramfs": "memory, not a disk: it is lost with the machine",
    "overlay": "a layer of the container: it is lost with the container",
}
# What checkpoints and caches need of a folder; what follows where it is not there.
_NEEDED = {
    "write": "nothing can be written",
    "rename": "a reader may see no file, or half of one, when it is replaced",
    "fsync": "written data may not survive a crash",
}
_WANTED = {
    "exclusive": "two writers can both create a file",
    "link": "a file that must be new is put by a claim and a rename (docs/storage.md)",
    "flock": "two processes can both hold a lock: caches of data sets and compilers",
    "record lock": "two processes can both hold a lock: databases, HDF5",
    "mmap": "files cannot be mapped: Arrow, safetensors",
}


@dataclass(frozen=True, slots=True)
class DiskTrial:
    """The result of one trial in a folder: whether it passed, and what was seen."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FolderReport:
    """The results of one host's trials in a folder. Sizes are in bytes, times in seconds.

    - ``label``: its name in topics; ``where``: its complete path.
    - ``kind`` and ``source``: those of the file system.
    - ``doing``: the step that had no answer after ``seconds``; "" if all steps had one.
    - ``trouble``: why nothing could be tried.
    - ``speed``: bytes a second for "write" and "read"; ``cached``: they went through the page cache.
    - ``durable``: how long it takes until a small file would survive a crash.
    """

    label: str
    where: str = ""
    kind: str = ""
    source: str = ""
    total: int = 0
    free: int = 0
    inodes: int | None = None
    tried: tuple[DiskTrial, ...] = ()
    trouble: str = ""
    doing: str = ""
    seconds: float = 0.0
    speed: Mapping[str, float] = field(default_factory=dict)
    durable: float | None = None
    cached: bool = False
    measured: int = 0


def folder_rows(folder_report: FolderReport) -> Iterator[Row]:
    """Yield one host's report rows about a folder: what it is, what it supports, and how fast it is."""
    topic = f"files {folder_report.label}"
    source = f" ({folder_report.source})" if folder_report.source not in ("", folder_report.kind) else ""
    where = f"{folder_report.where}, {folder_report.kind}{source}" if folder_report.kind else folder_report.where
    if folder_report.doing:
        told = f"{where}: no answer to `{folder_report.doing}` after {folder_report.seconds:.0f} s"
        remedy = "Your program will hang there too. Is its server up? (mount, df, dmesg)"
        yield error(topic, told, remedy=remedy)
        return
    if folder_report.trouble:
        bucket = "The doctor looks at file systems only, not at object stores." if "://" in folder_report.where else ""
        remedy = bucket or "Name a folder that this user may write into."
        yield error(topic, f"{where}: {folder_report.trouble}", remedy=remedy)
        return
    yield _file_system_row(topic, where, folder_report)
    yield _abilities_row(f"abilities {folder_report.label}", folder_report.tried)
    yield _speed_row(f"speed {folder_report.label}", folder_report)


def folder_labels(paths: Sequence[str]) -> dict[str, str]:
    """Return a short label for each folder: the end of a long path, if no other folder has the same end."""
    ends = {path: path if len(path) <= _LONGEST else f"...{path[3 - _LONGEST :]}" for path in paths}
    return {path: end if list(ends.values()).count(end) == 1 else path for path, end in ends.items()}


def _file_system_row(topic: str, where: str, found: FolderReport) -> Row:
    told = f"{where}: {format_bytes(found.free)} free of {format_bytes(found.total)}"
    if found.inodes is not None:
        told += f", {found.inodes:,} more files"
    fleeting = _FLEETING.get(found.kind)
    if found.free < _LITTLE_SPACE:
        why = f"little, for checkpoints{f'; {fleeting}' if fleeting else ''}"
        return warning(topic, told, why, remedy="Free some, or name another folder.")
    if found.inodes is not None and found.inodes < _FEW_FILES:
        return warning(topic, told, "few more files can be made", remedy="Remove small files, or name another folder.")
    if fleeting:
        return warning(topic, told, fleeting, remedy="Save elsewhere: a mounted volume, or a bucket.")
    if found.kind.startswith("fuse"):
        told_more = "a mount by a program: its fsync promises what that program does"
        return warning(topic, told, told_more, remedy="For a bucket, use its own address (docs/storage.md).")
    return ok(topic, told, margin=float(found.free))


def _abilities_row(topic: str, tried: Sequence[DiskTrial]) -> Row:
    lacks = {one.name: one for one in tried if not one.passed}
    fine = [one.detail or one.name for one in tried if one.passed]
    told = [f"tried: {'; '.join(fine)}"] if fine else []
    if needed := [name for name in _NEEDED if name in lacks]:
        why = [f"{name}: {lacks[name].detail}: {_NEEDED[name]}" for name in needed]
        return error(topic, *why, *told, remedy="Save elsewhere: this folder cannot keep a checkpoint intact.")
    if wanted := [name for name in _WANTED if name in lacks]:
        why = [f"{name}: {lacks[name].detail}: {_WANTED[name]}" for name in wanted]
        return warning(topic, *why, *told, remedy="Keep caches and locks on another file system (HF_HOME, TMPDIR).")
    if "O_DIRECT" in lacks:
        told.append(
            f"no O_DIRECT ({lacks['O_DIRECT'].detail}): saves go through the page cache, as durable, but slower"
        )
    return ok(topic, *told)


def _speed_row(topic: str, found: FolderReport) -> Row:
    if not found.speed:
        return not_determined(topic, "not measured: there is too little space")
    how = "through the page cache, then fsync" if found.cached else "past the page cache"
    write = found.speed["write"]
    read = format_bytes(found.speed["read"])
    told = [f"write {format_bytes(write)}/s, read {read}/s ({format_bytes(found.measured)}, {how})"]
    if found.durable is not None:
        told.append(f"a small file is durable after {format_duration(found.durable)}")
    if write < 50e6:
        told.append(f"10 GB of a checkpoint take {10 * GB / write / 60:.0f} min")
        return warning(topic, *told, remedy="Use a faster volume for checkpoints, or save less often.")
    return ok(topic, *told, margin=write)


def shared_folder_row(folder_label: str, main_host: str, seen_folders: Mapping[str, SeenFolder]) -> Row | None:
    """Return a report row that says whether all hosts have the same folder; None if there is only one host.

    ``seen_folders`` maps the hosts other than ``main_host`` to what they found.
    """
    if not seen_folders:
        return None
    topic = f"shared {folder_label}"
    silent = {host: sight.trouble for host, sight in seen_folders.items() if sight.trouble}
    seen = [host for host, sight in seen_folders.items() if sight.seconds is not None]
    blind = [host for host in seen_folders if host not in seen and host not in silent]
    if silent:
        return not_determined(topic, *[f"host {host}: {why}" for host, why in list(silent.items())[:4]])
    if not seen:
        told = f"local: what host {main_host} wrote is not there on {name_hosts(blind)}"
        remedy = "Save to a folder that all hosts share: of a checkpoint, each host would have a part."
        return warning(topic, told, remedy=remedy)
    if blind:
        told = f"what host {main_host} wrote is there on {name_hosts(seen)}, and not on {name_hosts(blind)}"
        return error(topic, told, remedy="Mount it on every host: else some ranks find a checkpoint, and others none.")
    deaf = [host for host, sight in seen_folders.items() if not sight.answered]
    longest = max(sight.seconds or 0.0 for sight in seen_folders.values())
    told = (
        f"shared: what host {main_host} wrote was there on {name_hosts(seen)}, after {format_duration(longest)} at most"
    )
    if deaf:
        unheard = f"what {name_hosts(deaf)} wrote did not come to host {main_host}"
        return warning(
            topic, told, unheard, remedy="It may be read-only there, or its cache stale: check the mount options."
        )
    locks = [host for host, sight in seen_folders.items() if sight.lock is False]
    if locks:
        why = f"a lock of host {main_host} does not hold on {name_hosts(locks)} (NFS with nolock, Lustre without flock)"
        return warning(topic, f"{told}, and back", why, remedy="Keep caches with locks on a local disk of each host.")
    held = ", and its lock holds there" if all(sight.lock for sight in seen_folders.values()) else ""
    return ok(topic, f"{told}, and back{held}")


@dataclass(frozen=True, slots=True)
class SeenFolder:
    """What a host found out about another host's folder.

    - ``seconds``: after how long the other host's file was there; None: never.
    - ``answered``: the other host saw this host's answer.
    - ``lock``: the other host's lock held on this host; None: not tried.
    - ``trouble``: why the host could not look.
    """

    seconds: float | None = None
    answered: bool = False
    lock: bool | None = None
    trouble: str = ""
