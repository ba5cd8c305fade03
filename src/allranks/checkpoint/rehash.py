"""Read every byte of a checkpoint and compare digests: report missing, truncated, changed and foreign files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from allranks.checkpoint import detect, inventory, paths
from allranks.checkpoint.manifest import Manifest, StoredFile
from allranks.checkpoint.stage import fresh_block
from allranks.digest import hasher_by_name
from allranks.errors import NotThere, StorageError, Truncated
from allranks.storage import limits
from allranks.storage.base import BLOCK, Storage

Kind = Literal["missing", "cut off", "too long", "changed", "unreadable", "foreign"]


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A range of bytes in a file that differs from what was saved. ``where``: (begin, end).

    ``leaves``: the leaves that have bytes there. ``what``: a description of the fault.
    """

    file: str
    kind: Kind
    where: tuple[int, int]
    leaves: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class _StoredCheckpoint:
    """A checkpoint to verify. ``folder``: the text before the names of its files."""

    storage: Storage
    manifest: Manifest
    folder: str

    def path(self, file: StoredFile) -> str:
        return f"{self.folder}{file.name}"


class _ChunkRange(NamedTuple):
    """The chunks ``first`` to ``last`` of a file, which are read together."""

    file: int
    first: int
    last: int


def verify_checkpoint(
    storage: Storage,
    manifest: Manifest,
    *,
    folder: str | None = None,
    threads: int = 4,
    report_progress: Callable[[int], None] = lambda _: None,
) -> tuple[DamagedRange, ...]:
    """Return all faults of a checkpoint, by file and position. Adjacent faults are joined.

    ``folder``: the text before the file names of the manifest (default: the folder of the step, and ``/``).
    ``report_progress``: called with the number of bytes of every piece that is verified, from any thread.
    """
    stored = _StoredCheckpoint(storage, manifest, f"{paths.step_folder(manifest.step)}/" if folder is None else folder)
    faults: list[DamagedRange] = []
    todo: list[_ChunkRange] = []
    for number, file in enumerate(manifest.files):
        fault, complete = _check_size(stored, number)
        faults += [fault] if fault else []
        todo += _chunk_ranges(number, file, complete)
    rehash = _ChunkVerifier(stored, report_progress)
    with ThreadPoolExecutor(threads) as workers:
        for found in workers.map(rehash.verify_range, todo):
            faults += found
    order = {file.name: number for number, file in enumerate(manifest.files)}
    faults.sort(key=lambda fault: (order[fault.file], fault.where))
    return tuple(_attribute_faults(stored, _join_faults(faults)))


def _check_size(stored: _StoredCheckpoint, number: int) -> tuple[DamagedRange | None, int]:
    """Check the size of a file. Return the fault, or None, and the number of chunks that are complete."""
    file = stored.manifest.files[number]
    size = stored.storage.size(stored.path(file))
    if size is None:
        return DamagedRange(file.name, "missing", (0, file.bytes), (), "the file does not exist"), 0
    if size > file.size:
        what = f"the file has {size:,} bytes: expected {file.size:,}"
        return DamagedRange(file.name, "too long", (file.bytes, file.bytes + size - file.size), (), what), len(
            file.ends
        )
    complete = sum(end <= size for end in file.stored or file.ends)
    if size < file.size:
        begin = file.ends[complete - 1] if complete else 0
        what = f"the file has {size:,} bytes: expected {file.size:,}"
        return DamagedRange(file.name, "cut off", (begin, file.bytes), (), what), complete
    return None, complete


def _chunk_ranges(number: int, file: StoredFile, complete: int) -> Iterator[_ChunkRange]:
    """Yield the first ``complete`` chunks of a file in pieces of at most one block, or of one larger chunk."""
    first = begin = 0
    for chunk, end in enumerate(file.ends[:complete]):
        if end - begin > BLOCK and chunk > first:
            yield _ChunkRange(number, first, chunk - 1)
            first, begin = chunk, file.ends[chunk - 1]
    if complete:
        yield _ChunkRange(number, first, complete - 1)


class _ChunkVerifier(threading.local):
    """Verifies ranges of chunks. Each thread has one buffer, which it reuses for every range."""

    def __init__(self, stored: _StoredCheckpoint, progress: Callable[[int], None]) -> None:
        self._stored, self._progress = stored, progress
        self._digest = hasher_by_name(stored.manifest.integrity)
        self._memory = fresh_block().data

    def verify_range(self, piece: _ChunkRange) -> list[DamagedRange]:
        file = self._stored.manifest.files[piece.file]
        begin, end = (file.ends[piece.first - 1] if piece.first else 0), file.ends[piece.last]
        faults = []
        try:
            for start, stop, saved, found in self._digests(piece, begin):
                if found != saved:
                    what = "their digest differs from that in the manifest"
                    faults.append(DamagedRange(file.name, "changed", (start, stop), (), what))
        except (NotThere, Truncated) as error:  # since its size was looked at
            return [DamagedRange(file.name, "cut off", (begin, end), (), str(error))]
        except StorageError as error:  # a bad sector: the bytes next to it may be good
            return [DamagedRange(file.name, "unreadable", (begin, end), (), str(error))]
        self._progress(end - begin)
        return faults

    def _digests(self, piece: _ChunkRange, begin: int) -> Iterator[tuple[int, int, str, str]]:
        """Yield, for each chunk, its begin, its end, the saved digest, and the digest of the bytes that were read."""
        file = self._stored.manifest.files[piece.file]
        path, end = self._stored.path(file), file.ends[piece.last]
        if file.stored:
            yield from self._digests_of_frames(file, piece, path)
            return
        if end - begin > BLOCK:  # one chunk, and none of ours
            stream = self._digest.stream()
            for at in range(begin, end, BLOCK):
                data = self._memory[: min(BLOCK, end - at)]
                self._stored.storage.read(path, at, [data])
                stream.update(data)
            yield begin, end, file.digests[piece.first], stream.hexdigest()
            return
        data = self._memory[: end - begin]
        self._stored.storage.read(path, begin, [data])
        start = begin
        for chunk in range(piece.first, piece.last + 1):
            stop = file.ends[chunk]
            yield start, stop, file.digests[chunk], self._digest(data[start - begin : stop - begin])
            start = stop

    def _digests_of_frames(
        self, file: StoredFile, piece: _ChunkRange, path: str
    ) -> Iterator[tuple[int, int, str, str]]:
        library = detect.zstd_library(f"step {self._stored.manifest.step}")
        for chunk in range(piece.first, piece.last + 1):
            start, stop = (file.ends[chunk - 1] if chunk else 0), file.ends[chunk]
            begin, end = file.stored_range(chunk, chunk)
            frame = memoryview(bytearray(end - begin))
            self._stored.storage.read(path, begin, [frame])
            try:
                found = self._digest(library.decompress_chunk(frame, stop - start))
            except ValueError as error:
                found = str(error)
            yield start, stop, file.digests[chunk], found


def _join_faults(faults: Sequence[DamagedRange]) -> Iterator[DamagedRange]:
    last: DamagedRange | None = None
    for fault in faults:
        if last and (last.file, last.kind, last.where[1]) == (fault.file, fault.kind, fault.where[0]):
            last = replace(last, where=(last.where[0], fault.where[1]))
            continue
        if last:
            yield last
        last = fault
    if last:
        yield last


def _attribute_faults(stored: _StoredCheckpoint, faults: Iterator[DamagedRange]) -> Iterator[DamagedRange]:
    """Add to each fault the leaves that it concerns. All faults of a file of another save are reported as one."""
    manifest = stored.manifest
    numbers = {file.name: number for number, file in enumerate(manifest.files)}
    foreign: set[str] = set()
    for fault in faults:
        number = numbers[fault.file]
        file = manifest.files[number]
        if fault.where[0] == 0 and fault.kind != "missing" and (whose := _foreign_owner(stored, file)):
            foreign.add(file.name)
            fault = replace(fault, kind="foreign", where=(0, file.bytes), what=whose)
        elif file.name in foreign:
            continue
        yield replace(fault, leaves=inventory.leaves_in_byte_range(manifest, number, *fault.where))


def _foreign_owner(stored: _StoredCheckpoint, file: StoredFile) -> str | None:
    """Return a description of a file whose header contradicts the manifest; None if it does not, or cannot be read."""
    said = _header_information(stored.storage, stored.path(file))
    named = paths.parse_shard_file(file.name)
    if said is None or named is None:
        return None
    if said.get("nonce") != stored.manifest.nonce:
        return f"it belongs to another save: of step {said.get('step')}, nonce {str(said.get('nonce'))[:8]}"
    if said.get("rank") != named.rank:
        return f"it is the file of rank {said.get('rank')} of this save: expected that of rank {named.rank}"
    return None


def _header_information(storage: Storage, path: str) -> dict[str, object] | None:
    """Return the information on the save in the header of a shard file; None if there is no such header."""
    try:
        length = bytearray(8)
        storage.read(path, 0, [memoryview(length)])
        size = min(int.from_bytes(length, "little"), storage.size(path) or 0)
        if size > limits.metadata_limit():
            return None
        header = bytearray(size)
        storage.read(path, len(length), [memoryview(header)])
        about = json.loads(json.loads(header)["__metadata__"]["allranks"])
    except (StorageError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return about if isinstance(about, dict) else None
