"""What a run's directory holds: steps that are whole as far as their manifests say, and what is left over."""

from __future__ import annotations

import mmap
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from allranks.checkpoint import manifest_json, paths
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, StoredFile
from allranks.digest import hasher
from allranks.errors import Damaged, NotThere, Truncated
from allranks.storage.base import BLOCK, Storage


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes ``where`` (from, to) of a file are not what was saved; ``leaves`` lie there, as far as is known."""

    file: str
    where: tuple[int, int]
    leaves: tuple[str, ...]
    what: str


def steps(storage: Storage) -> tuple[int, ...]:
    """Return the steps that have a manifest, in ascending order."""
    named = [paths.step_of(entry.name) for entry in storage.list("") if entry.size is None]
    found = sorted(step for step in named if step is not None)
    return tuple(step for step in found if storage.size(paths.manifest_path(step)) is not None)


def load(storage: Storage, step: int) -> Manifest:
    """Return a step's manifest. Raises NotThere, and Damaged for one that is not sound or is another step's."""
    path = paths.manifest_path(step)
    manifest = manifest_json.decode(storage.get(path), path=f"{storage.url}/{path}")
    if manifest.step != step:
        raise Damaged(f"{storage.url}/{path} is the manifest of step {manifest.step}.", path=path, step=step)
    return manifest


def leaves_at(manifest: Manifest, file: int, begin: int, end: int) -> tuple[str, ...]:
    """Return the leaves of which some bytes lie between ``begin`` and ``end`` of a file, in the manifest's order."""
    found = []
    for path, leaf in manifest.leaves.items():
        item = DTYPES[leaf.dtype].size
        if any(s.file == file and s.begin < end and begin < s.begin + s.extent.size * item for s in leaf.shards):
            found.append(path)
    return tuple(found)


def verify(
    storage: Storage, manifest: Manifest, *, threads: int = 2, progress: Callable[[int], None] = lambda _: None
) -> tuple[Fault, ...]:
    """Read and digest every byte of a checkpoint; return what is not as it was saved.

    ``progress`` is told the bytes of every piece that is done, from any thread.
    """
    pieces = [(number, piece) for number, file in enumerate(manifest.files) for piece in _pieces(file)]

    def check(job: tuple[int, tuple[int, int]]) -> list[Fault]:
        number, (first, last) = job
        ends = manifest.files[number].ends
        faults = _check(storage, manifest, number, first, last)
        progress(ends[last] - (ends[first - 1] if first else 0))
        return faults

    with ThreadPoolExecutor(threads) as workers:
        return tuple(fault for faults in workers.map(check, pieces) for fault in faults)


def _pieces(file: StoredFile) -> Iterator[tuple[int, int]]:
    """Yield the chunks of a file, in groups (first, last) that one read takes: a block at most."""
    first = begin = 0
    for chunk, end in enumerate(file.ends):
        if end - begin > BLOCK:
            yield first, chunk - 1
            first, begin = chunk, file.ends[chunk - 1]
    if file.ends:
        yield first, len(file.ends) - 1


def _check(storage: Storage, manifest: Manifest, number: int, first: int, last: int) -> list[Fault]:
    file, digest = manifest.files[number], hasher(manifest.integrity)
    begin, end = (file.ends[first - 1] if first else 0), file.ends[last]
    data = memoryview(_block.buffer)[: end - begin]
    path = f"{paths.step_folder(manifest.step)}/{file.name}"
    try:
        storage.read(path, begin, [data])
    except (NotThere, Truncated) as error:
        cut = min(max(first, bisect_right(file.ends, storage.size(path) or 0)), last)
        begin = file.ends[cut - 1] if cut else 0
        lost = Fault(file.name, (begin, end), leaves_at(manifest, number, begin, end), str(error))
        return [*(_check(storage, manifest, number, first, cut - 1) if cut > first else ()), lost]
    faults, start = [], begin
    for stop, saved in zip(file.ends[first : last + 1], file.digests[first : last + 1], strict=True):
        if (found := digest(data[start - begin : stop - begin])) != saved:
            what = f"their digest is {found}, and was {saved}"
            faults.append(Fault(file.name, (start, stop), leaves_at(manifest, number, start, stop), what))
        start = stop
    return faults


class _Block(threading.local):
    """Each thread's memory, used for one piece after the other."""

    def __init__(self) -> None:
        self.buffer = mmap.mmap(-1, BLOCK)


_block = _Block()
