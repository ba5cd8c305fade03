"""Read a run from one rank, without the others: ``read`` returns a step, ``follow`` yields each new step."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from allranks.arguments import expect, several
from allranks.arrays.base import FillTarget
from allranks.arrays.detect import open_tree
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint import fence, holds, inventory, match, paths, template_fill
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.compare import are_known_equal
from allranks.checkpoint.manifest import Manifest, StoredLeaf
from allranks.checkpoint.per_rank import glob_tuple, manifest_for_rank
from allranks.checkpoint.restore import Restored
from allranks.checkpoint.template_fill import DecodedObjects
from allranks.errors import AllranksError, BarrierTimeout, Damaged, DoesNotFit, NotThere, StepRemoved
from allranks.extent import Extent
from allranks.storage.base import Storage
from allranks.storage.detect import canonical_place, open_storage

T = TypeVar("T")
Kind = Literal["numpy", "torch", "jax", "shapes"]
Best = tuple[str, Literal["min", "max"]]

_MOST_ATTEMPTS = 10
_HOLD_MINUTES = 60.0


class ArrayShape(NamedTuple):
    """The shape and dtype (NumPy's name) of an array whose bytes are not read."""

    shape: tuple[int, ...]
    dtype: str


def read(
    where: str | os.PathLike[str] | Storage,
    step: int | Literal["latest", "best"] = "latest",
    *,
    like: Any = None,
    only: str | Iterable[str] = "*",
    slices: Mapping[str, Sequence[slice]] | None = None,
    to: Kind = "numpy",
    best: Best | None = None,
) -> Restored[Any]:
    """Return ``(state, step)`` of a checkpoint, with ``.extra`` and ``.metrics``. Any rank may call it alone.

    ``where``: a run, or the folder of one step, of any name.
    ``step``: a number, ``latest``, or ``best`` with ``best=("val_loss", "min")``, a metric and the order.

    Nothing is resumed: neither the run nor the job's position changes. Every byte that is read is verified.

    Without ``like``, the state is nested dicts, one level for each ``/`` in a path, of JSON values and arrays.
    ``to``: the arrays are of ``numpy``, ``torch`` (on the CPU), ``jax`` (on the default device), or ``shapes``, for
    which only the manifest is read.
    ``only``: globs of paths that select leaves: ``params/*``.
    ``slices``: a part of an array, by path: ``(slice(0, 10), slice(None))``. Only the chunks that hold it are read.

    With ``like``, a template as of ``Checkpointer.restore`` (or a part of one) is filled. Other leaves are not read.
    For a leaf that each rank has saved, it gets rank 0's.

    Raises NotThere, StepRemoved, DoesNotFit (the checkpoint lacks leaves of ``like``), NewerFormat, Damaged.
    """
    storage = open_storage(where)
    parts = {} if slices is None else slices
    expect(isinstance(parts, Mapping), "slices", slices, "slices by path: {'params/w': (slice(0, 8),)}")
    wanted = _ReadSelection(like, glob_tuple(only, name="only"), parts, to)
    said = several(best) or ()
    fits = len(said) == 2 and isinstance(said[0], str) and said[1] in ("min", "max")
    expect(fits or (best is None and step != "best"), "best", best, "(metric, 'min' or 'max')")
    for attempt in range(_MOST_ATTEMPTS):
        manifest, folder = _choose_manifest(storage, step, best)
        hold = _try_hold(storage, manifest.step) if attempt and folder is None else None
        try:
            with template_fill.pause_gc():
                return Restored(_read_manifest(storage, manifest, folder, wanted), manifest, ())
        except Damaged as error:
            if inventory.is_current(storage, manifest, folder):
                raise
            gone = StepRemoved(
                f"step {manifest.step} of {storage.url} was removed while it was read.",
                path=paths.step_folder(manifest.step),
                remedy="Read another step. Checkpointer.hold(step) keeps a step while it is read.",
            )
            if isinstance(step, int) or attempt == _MOST_ATTEMPTS - 1:
                raise gone from error
        finally:
            if hold is not None:
                holds.release_hold(storage, hold)
    raise AssertionError("the last attempt returns or raises")


class _ReadSelection(NamedTuple):
    like: Any
    only: tuple[str, ...]
    slices: Mapping[str, Sequence[slice]]
    to: Kind


def _choose_manifest(storage: Storage, step: int | str, best: Best | None) -> tuple[Manifest, str | None]:
    """Return the manifest to read, and its folder: "" for the top of the storage, None for the folder of its step."""
    if storage.size(paths.MANIFEST) is not None:
        manifest = inventory.load_folder(storage, "")
        if isinstance(step, int) and step != manifest.step:
            raise NotThere(f"{storage.url} is step {manifest.step}: expected step {step}.", path=paths.MANIFEST)
        return manifest, ""
    for _ in range(_MOST_ATTEMPTS):
        number = _resolve_step(storage, step, best)
        try:
            return inventory.load_manifest(storage, number), None
        except NotThere:  # since the run was listed
            if isinstance(step, int):
                raise
    raise StepRemoved(f"{storage.url}: each of {_MOST_ATTEMPTS} newest steps was removed before it could be read.")


def _resolve_step(storage: Storage, step: int | str, best: Best | None) -> int:
    there = inventory.complete_steps(storage)
    if isinstance(step, int) and step in there:
        return step
    if not there:
        raise NotThere(f"read: {storage.url} has no complete step: expected the folder of a run with at least one.")
    if isinstance(step, int):
        raise NotThere(f"read: {storage.url} has no step {step}: expected one of {', '.join(map(str, there))}.")
    if step == "latest":
        return there[-1]
    if step != "best" or best is None:
        raise AllranksError(f"read: step={step!r}: expected a number, 'latest' or 'best'.")
    metric, order = best
    ranked: list[tuple[float, int]] = []
    names: set[str] = set()
    for one in there:
        try:
            metrics = inventory.load_manifest(storage, one).metrics
        except NotThere:
            continue
        names |= metrics.keys()
        if (value := metrics.get(metric)) is not None and not math.isnan(value):
            ranked.append((value if order == "max" else -value, one))
    if not ranked:
        raise NotThere(f"{storage.url}: no step has the metric {metric!r}: expected one of {sorted(names) or 'none'}.")
    return max(ranked)[1]


def _try_hold(storage: Storage, step: int) -> str | None:
    try:
        return holds.take_hold(storage, step, minutes=_HOLD_MINUTES)
    except AllranksError:  # a reader without the right to write reads without a hold
        return None


def _read_manifest(storage: Storage, manifest: Manifest, folder: str | None, wanted: _ReadSelection) -> Any:
    if wanted.like is not None:
        manifest = manifest_for_rank(manifest, rank=0, size=manifest.world_size, choice_of=lambda _: "main")
        return _fill_template(ChunkReader(storage, manifest, folder=folder), manifest, wanted.like)
    reader = ChunkReader(storage, manifest, folder=folder)
    chosen = [path for path in (*manifest.leaves, *manifest.values) if _is_wanted(path, wanted.only)]
    if not chosen and (manifest.leaves or manifest.values):
        raise NotThere(f"step {manifest.step} of {storage.url} has no leaf that matches {', '.join(wanted.only)}.")
    if unknown := [path for path in wanted.slices if path not in manifest.leaves]:
        raise NotThere(f"slices: step {manifest.step} of {storage.url} has no array {unknown[0]!r}.")
    arrays = [path for path in chosen if path in manifest.leaves]
    targets = {path: _target_of_slice(path, manifest.leaves[path], wanted.slices.get(path)) for path in arrays}
    if wanted.to == "shapes":
        found: dict[str, Any] = {
            path: ArrayShape(target.extent.shape, manifest.leaves[path].dtype) for path, target in targets.items()
        }
    else:
        buffers = {
            path: FillTarget(one.extent, np.empty(one.extent.shape, one.buffer.dtype)) for path, one in targets.items()
        }
        reader.fill_targets(list(buffers.items()))
        make = _array_maker(wanted.to)
        found = {path: make(one.buffer, manifest.leaves[path]) for path, one in buffers.items()}
    return nested_dicts({path: found[path] if path in found else manifest.values[path] for path in chosen})


def _is_wanted(path: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def _target_of_slice(path: str, leaf: StoredLeaf, part: Sequence[slice] | None) -> FillTarget:
    """Return the box of elements to read of a leaf, as a Target with an empty array of the leaf's dtype."""
    whole = (slice(None),) * len(leaf.shape)
    given = several(part if part is not None else ())
    cuts = (*(given or ()), *whole[len(given or ()) :])
    plain = given is not None and all(isinstance(cut, slice) and cut.step in (None, 1) for cut in cuts)
    if not plain or len(cuts) != len(leaf.shape):
        raise AllranksError(f"slices[{path!r}]={part}: expected {len(leaf.shape)} slices of step 1.", leaf=path)
    bounds = [cut.indices(many)[:2] for cut, many in zip(cuts, leaf.shape, strict=True)]
    extent = Extent(tuple(start for start, _ in bounds), tuple(max(0, stop - start) for start, stop in bounds))
    return FillTarget(extent, np.empty(0, DTYPES[leaf.dtype]))


def _array_maker(to: str) -> Callable[[np.ndarray[Any, Any], StoredLeaf], Any]:
    """Return a function that makes an array of the framework ``to`` from a NumPy array."""
    if to == "numpy":
        return lambda buffer, _: buffer
    if to not in ("torch", "jax"):
        raise AllranksError(f"read: to={to!r}: expected numpy, torch, jax or shapes.")
    from_stored = import_module(f"allranks.arrays.leaves.{to}").from_stored
    return lambda buffer, leaf: from_stored(buffer, leaf.kind)


def _fill_template(reader: ChunkReader, manifest: Manifest, like: T) -> T:
    """Return a template filled from the checkpoint. The template may be a part of the checkpoint's tree."""
    tree = open_tree(like, rank=0, size=1, for_restore=True, saved=match.saved_tree(manifest))
    found = match.find_differences(tree.declared_arrays, tree.values, manifest)
    lacking = tuple(one for one in found if one.kind != "unexpected")
    names = {number: one.path for number, one in enumerate(tree.declared_arrays)}
    if not lacking:
        pairs = template_fill.arrays_with_shared_memory(tree, names)
        conflicts = template_fill.find_conflicting_ties(
            tree, names, pairs, reader.fill_targets, partial(are_known_equal, manifest)
        )
        lacking = match.find_tied_differences(
            conflicts | template_fill.find_conflicting_overlaps(tree, names, reader.fill_targets), tree.declared_arrays
        )
    if lacking:
        raise DoesNotFit(
            f"read: {match.report_differences(lacking, tree.declared_arrays, manifest)}",
            differences=lacking,
            step=manifest.step,
        )
    decoded = DecodedObjects(tree, names, twins={}, read=reader.fill_targets, values=manifest.values, who="read")
    left = [number for number, name in names.items() if name not in decoded.filled]
    reader.fill_targets([(names[number], target) for number in left for target in tree.targets_of_array(number)])
    made: Any = tree.rebuild_tree(manifest.values)
    return made  # type: ignore[no-any-return]


def nested_dicts(leaves: Mapping[str, Any]) -> Any:
    """Convert leaves by path into nested dicts, with one level for each ``/`` of the paths.

    Below a path that is a leaf itself, names keep their ``/``. A state that is a single leaf is returned as that leaf.
    """
    if set(leaves) == {""}:
        return leaves[""]
    made: dict[str, Any] = {}
    for path, value in leaves.items():
        into, done, rest = made, "", path
        while "/" in rest:
            part, _, behind = rest.partition("/")
            done += part
            if done in leaves:
                break
            into, done, rest = into.setdefault(part, {}), f"{done}/", behind
        into[rest] = value
    return made


def follow(
    where: str | os.PathLike[str] | Storage,
    *,
    after: int = -1,
    hold: bool = True,
    every: float = 5.0,
    timeout: float | None = None,
) -> Iterator[int]:
    """Yield the steps of a run as they are saved, in ascending order, until the run ends. Any rank may call it alone.

    Existing steps are yielded first. A step that is removed before it could be yielded is skipped. The run has ended
    when its job has closed it, or, if the job ran on this machine, when the job's process has ended.

    ``after``: skip steps up to this one.
    ``hold``: keep a step from being removed while the body of the loop runs (for an hour at most).
    ``every``: the seconds between two listings of the run.
    ``timeout``: raise BarrierTimeout after so many seconds without a new step (None: never).
    """
    storage = open_storage(where)
    since = time.monotonic()
    while True:
        ended = _has_ended(storage)  # before the steps are listed: the last one is among them
        for step in inventory.complete_steps(storage):
            if step <= after:
                continue
            after = step
            yield from _yield_step(storage, step, hold=hold)
            since = time.monotonic()
        if ended:
            return
        if timeout is not None and time.monotonic() - since > timeout:
            raise BarrierTimeout(f"follow: {storage.url} has had no new step for {timeout:g} s.", step=max(after, 0))
        time.sleep(every)


def _yield_step(storage: Storage, step: int, *, hold: bool) -> Iterator[int]:
    if not hold:
        yield step
        return
    try:
        path = holds.take_hold(storage, step, minutes=60)
    except StepRemoved:
        return
    try:
        yield step
    finally:
        holds.release_hold(storage, path)


def _has_ended(storage: Storage) -> bool:
    found = fence.newest_fence(storage)
    if found is None:
        return False  # it has not begun
    me = fence.this_process()
    ours = (found.owner.pid, found.owner.started) == (me.pid, me.started)
    here = bool(found.owner.machine) and found.owner.machine == me.machine and not ours
    return found.released or (here and not fence.owner_is_alive_here(found, me, canonical_place(storage)))
