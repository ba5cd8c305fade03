"""Load what other libraries saved into a template (``allranks.load``), and report what was loaded."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from allranks.arrays.base import FillTarget, OpenTree
from allranks.arrays.detect import open_tree
from allranks.arrays.leaves.numpy import DTYPES
from allranks.arrays.saved_tree import SavedArray, SavedTree, notes_on_settings
from allranks.checkpoint import agree, template_fill
from allranks.checkpoint.names import Rename, choose_key, make_renamer, map_names, names_below_key, unused_renames
from allranks.checkpoint.per_rank import glob_tuple
from allranks.checkpoint.template_fill import DecodedObjects
from allranks.consistency import verify
from allranks.consistency.digests import digest_of_arrays, digest_of_memory
from allranks.consistency.placement import open_world_tree
from allranks.digest import digest, show
from allranks.errors import AllranksError, DoesNotFit, Mismatch, name_ranks
from allranks.extent import Extent
from allranks.gate.log import log
from allranks.loading.dequantize import DequantizedSource
from allranks.loading.fit import FitResult, LeafAmount, StoredArray, fit_leaves, fit_values, mark_allowed
from allranks.loading.formats.base import CheckpointSource, bytes_of, check_memory, new_array
from allranks.loading.formats.detect import open_source
from allranks.loading.quantized import find_quantized, quantized_advice, quantized_by_path, quantized_note
from allranks.loading.rename_suggestions import suggest_rename
from allranks.loading.report import LoadReport, coverage_by_prefix, refusal_text
from allranks.world.base import World
from allranks.world.detect import current
from allranks.world.progress import progress

# The template if none is given. (None may be a variable that somebody forgot to set.)
_Leaves = Mapping[str, StoredArray]
_AS_IN_THE_FILE: Any = object()


def load(
    path: str | os.PathLike[str],
    into: Any = _AS_IN_THE_FILE,
    *,
    strict: bool | float = True,
    rename: Rename | None = None,
    allow_missing: Iterable[str] = (),
    allow_unexpected: Iterable[str] = (),
    key: str | None = None,
    allow_pickle: bool = False,
    dequantize: bool = False,
    world: World | None = None,
) -> LoadReport:
    """Load a file that another program saved, and report it. **Every rank must call**, with the same arguments.

    ``path``: a file of safetensors (also Hugging Face's index), a ``.pt``, ``.ckpt`` or ``.bin`` file, or Flax msgpack.
    Or a directory of torch.distributed.checkpoint or Orbax; a run of allranks, or the folder of one of its steps.
    ``into``: a template as for ``Checkpointer.restore``. Torch modules, tensors and NumPy arrays are filled in place.
    JAX arrays are made new, with the same shardings, in the report's ``state``. Each rank reads only what it holds.
    Floats are cast to the template's dtype, which the report lists. Without ``into``, ``state`` has NumPy arrays by
    their names.
    ``strict``: True: each leaf of both sides must be used; a leaf of another shape counts as missing. A number from 0
    to 1: the least fraction of the template's leaves and parameters. False: one leaf is enough.
    ``allow_missing``, ``allow_unexpected``: globs for leaves of the template, or the file, that may be unused.
    ``rename``: maps names of the file to the template's, ``{"model.*": "*", "fc1.weight": "0.weight"}``, or a function.
    ``key``: the key of the file below which the leaves are (default: found, and reported).
    ``allow_pickle``: read pickles, too, which runs their code.
    ``dequantize``: read weights of FP8, int8 and bitsandbytes as floats (default: only into arrays of their own dtype).

    Raises the same error on every rank: DoesNotFit with all differences and a ``rename`` that would help, before
    anything changes; Damaged; Unsafe; UnknownFormat; Mismatch if ranks see different files, or hold different values
    afterwards.
    """
    allowed = (
        glob_tuple(allow_missing, name="allow_missing"),
        glob_tuple(allow_unexpected, name="allow_unexpected"),
    )
    settings = _LoadSettings(os.fspath(path), strict, rename, *allowed, key, allow_pickle, dequantize)
    with progress.inside("load", settings.path), template_fill.pause_gc():
        return _LoadCall(world or current(), settings).run_load(into)


def _is_part(strict: object) -> bool:
    return isinstance(strict, bool | int | float) and 0 <= strict <= 1


@dataclass(frozen=True, slots=True)
class _LoadSettings:
    path: str
    strict: bool | float
    rename: Rename | None
    allow_missing: tuple[str, ...]
    allow_unexpected: tuple[str, ...]
    key: str | None
    allow_pickle: bool
    dequantize: bool


@dataclass(frozen=True, slots=True)
class _LoadPlan:
    """What to load from a file into a template.

    ``tied``: arrays that share the memory of another array, which is read. ``names``: the full names in the file, by
    those below the key. ``values``: new JSON values by path. ``scalars``: by path, arrays that provide values.
    """

    source: CheckpointSource
    tree: OpenTree
    fit: FitResult
    tied: Mapping[int, int]
    names: Mapping[str, str]
    values: Mapping[str, Any]
    scalars: Mapping[str, str]
    report: LoadReport

    @property
    def plan_digest(self) -> str:
        """A digest of everything in the plan that must be equal on all ranks."""
        source = sorted((name, str(one)) for name, one in self.source.leaves.items())
        return show(digest(repr((source, self.fit.pairs, self.values, self.scalars))))


@dataclass(frozen=True, slots=True)
class _FillTargets:
    """The memory to fill, by name in the file, and the JSON ``values``. ``held``: a digest of the old contents."""

    decoded: DecodedObjects
    targets: Sequence[tuple[str, FillTarget]]
    values: Mapping[str, Any]
    held: str


class _LoadCall:
    """Runs one call of ``load`` on one rank."""

    def __init__(self, world: World, settings: _LoadSettings) -> None:
        self._world, self._settings = world, settings
        self._name = f"load of {os.path.basename(settings.path.rstrip('/'))}"  # hosts may have it at different places
        self._who = f"rank {world.rank}: load of {settings.path}"

    def run_load(self, into: Any) -> LoadReport:
        began = time.monotonic()
        plan, error = None, None
        try:
            plan = self._make_plan(into)
        except Exception as found:  # any error: the other ranks must not wait for this rank
            error = found
        self._raise_on_all(error, plan.plan_digest if plan and self._world.size > 1 else "")
        assert plan is not None
        report = self._read_and_fill(plan, self._prepare_fill(plan))
        report = replace(report, seconds=time.monotonic() - began)
        log("%s", report, level=30 if report.missing else 20)
        return report

    def _make_plan(self, into: Any) -> _LoadPlan:
        """Open the file, match it with the template, and return what to load. Raises DoesNotFit."""
        asked, world = self._settings, self._world
        if not _is_part(asked.strict):
            raise AllranksError(
                f"{self._who}: strict={asked.strict!r}: expected True, False, or a fraction from 0 to 1."
            )
        source = open_source(asked.path, allow_pickle=asked.allow_pickle)
        quantised = find_quantized(source.leaves)
        if asked.dequantize and quantised:
            source = DequantizedSource(source, quantised)
            quantised = find_quantized(source.leaves)
        into = _template_of_file(source, asked.key) if into is _AS_IN_THE_FILE else into
        tree = open_tree(into, rank=world.rank, size=world.size, for_restore=True)
        key = choose_key(source.leaves, [*(one.path for one in tree.declared_arrays), *tree.values], asked.key)
        names = names_below_key([*source.leaves, *source.values], key)
        leaves = {name: source.leaves[full] for name, full in names.items() if full in source.leaves}
        file_names = map_names(names, asked.rename)
        stored = {name: source.values[full] for name, full in names.items() if full in source.values}
        if tree.follows_checkpoint:
            saved = _leaves_by_template_name(file_names, leaves, stored)
            tree = open_tree(into, rank=world.rank, size=world.size, for_restore=True, saved=saved)
        values, scalars, unfit = fit_values(tree.values, stored, leaves, file_names)
        arrays = {new: name for new, name in file_names.items() if name in leaves}
        by_path, taken = quantized_by_path(quantised, file_names, names), set(scalars.values())
        fitted = partial(fit_leaves, tree.declared_arrays, leaves, arrays, used_elsewhere=taken, quantized=by_path)
        found = fitted()
        there = {number: names[name] for number, name in found.pairs}
        pairs = template_fill.arrays_with_shared_memory(tree, there)
        conflicts = _find_conflicts(source, tree, there, {one: pairs[one] for one in pairs if one in there})
        tied = {one: other for one, other in pairs.items() if one not in conflicts}
        for number in tied:
            tree.targets_of_array(number)  # on the meta device it gets the memory of the other
        if pairs or conflicts:
            found = fitted(tied=tied, conflicts=conflicts)
        found = replace(found, differences=(*found.differences, *unfit))
        found = mark_allowed(found, allow_missing=asked.allow_missing, allow_unexpected=asked.allow_unexpected)
        report = self._make_report(source, tree, found, leaves, set(scalars.values()))
        unused = [f"rename {old!r} matches no name" for old in unused_renames(names, asked.rename)]
        notes = (
            *report.notes,
            *quantized_note(source.description.quantization, quantised),
            *notes_on_settings(tree.kept_settings),
            *_note_of_key(source, key, asked),
            *unused,
            *self._idle_globs(found),
        )
        report = replace(report, notes=notes)
        nothing = _reason_for_nothing(report, others=bool(values or scalars))
        if why := nothing or _reason_to_refuse(report, found, asked.strict) or self._without_values(tree, found):
            remedy = "If a difference is intended, allow it: rename=, allow_missing=, allow_unexpected=, key=, strict=."
            if report.of_kind("packed"):
                remedy = quantized_advice(quantised)
            raise DoesNotFit(refusal_text(report, why), differences=found.differences, remedy=remedy)
        return _LoadPlan(source, tree, found, tied, names, values, scalars, report)

    def _make_report(
        self, source: CheckpointSource, tree: OpenTree, found: FitResult, leaves: _Leaves, used_elsewhere: set[str]
    ) -> LoadReport:
        amounts = {one.path: StoredArray(one.shape, one.dtype, one.kind).amount for one in tree.declared_arrays}
        loaded = {tree.declared_arrays[number].path for number, _ in found.pairs}
        loaded |= {one.path for one in found.differences if one.kind == "tied"}
        used = {name for _, name in found.pairs} | used_elsewhere
        return LoadReport(
            path=self._settings.path,
            format=source.description.format,
            checked=source.description.checked,
            notes=source.description.notes,
            template=LeafAmount.sum_of_amounts(amounts.values()),
            loaded=LeafAmount.sum_of_amounts(amounts[path] for path in loaded),
            file=LeafAmount.sum_of_amounts(one.amount for one in leaves.values()),
            used=LeafAmount.sum_of_amounts(leaves[name].amount for name in used),
            by_prefix=coverage_by_prefix(amounts, loaded),
            differences=found.differences,
            rename=_suggested_rename(found, tree, leaves, self._settings.rename),
        )

    def _idle_globs(self, found: FitResult) -> list[str]:
        """Return a note on each glob of the user that matches no difference."""
        used = {one.allowed for one in found.differences}
        asked = {"allow_missing": self._settings.allow_missing, "allow_unexpected": self._settings.allow_unexpected}
        return [
            f"{name}={glob!r} allows nothing" for name, globs in asked.items() for glob in globs if glob not in used
        ]

    def _without_values(self, tree: OpenTree, found: FitResult) -> str:
        """Return a text that names leaves for which neither template nor file has data; "" if there are none."""
        missing = {one.path for one in found.differences if one.kind in ("missing", "reshaped", "unlike", "packed")}
        mine = [
            number
            for number, one in enumerate(tree.declared_arrays)
            if one.path in missing and any(self._world.rank in ranks for ranks in one.split.holders)
        ]
        empty = [tree.declared_arrays[number].path for number in mine if not tree.copies_of_array(number)]
        if not empty:
            return ""
        return (
            f"the template only describes {len(empty)} leaves, first {empty[0]!r}, and the file has no values for them"
        )

    def _prepare_fill(self, plan: _LoadPlan) -> _FillTargets:
        """Make the objects of registered types. If this fails on one rank, all ranks raise and keep their values."""
        tree = plan.tree
        fill, error = None, None
        try:
            names = {number: plan.names[name] for number, name in plan.fit.pairs}
            left = [number for number in names if number not in plan.tied]
            targets = [(names[number], one) for number in left for one in tree.targets_of_array(number)]
            in_place = all(target.live for _, target in targets)
            held = digest_of_memory(targets) if in_place else digest_of_arrays(tree, list(names))
            values = dict(plan.values) | self._read_scalars(plan)
            decoded = DecodedObjects(tree, names, twins=plan.tied, read=plan.source.read, values=values, who=self._who)
            fill = _FillTargets(decoded, targets, values, held)
        except Exception as found:  # the other ranks must not wait
            error = found
        try:
            self._raise_on_all(error, "")
        except AllranksError:
            fill.decoded.restore_previous_values() if fill is not None else None
            raise
        assert fill is not None
        return fill

    def _read_and_fill(self, plan: _LoadPlan, fill: _FillTargets) -> LoadReport:
        """Read the file and fill the tree; return the report when all ranks hold the same values."""
        world, tree = self._world, plan.tree
        numbers = [number for number, _ in plan.fit.pairs]
        error: Exception | None = None
        state = after = None
        partial_checksums, said = None, ""
        in_place = all(target.live for _, target in fill.targets)
        try:
            plan.source.read([one for one in fill.targets if one[0] not in fill.decoded.filled])
            partial_checksums = plan.source.partial_checksums()
            state = tree.rebuild_tree(fill.values)
            if world.size > 1 or not in_place:
                after = open_world_tree(state, world)
            said = digest_of_memory(fill.targets) if in_place or after is None else digest_of_arrays(after, numbers)
        except Exception as found:  # the other ranks must not wait
            error = found
        told = world.all_gather([agree.refusal_of(error), partial_checksums, fill.held, said], name=self._name)
        if error is not None:
            raise error
        if refused := agree.first_refusal([one[0] for one in told]):
            raise agree.refusal_error(refused, operation=self._who, step=None)
        plan.source.check_partial([one[1] for one in told])
        if after is not None:
            verify.require_equal_copies(after, world, name=self._name)
        read = sum(target.buffer.nbytes for _, target in fill.targets)
        before, now = (tuple(one[at] for one in told) for at in (2, 3))
        return replace(plan.report, before=before, after=now, read=read, state=state)

    def _read_scalars(self, plan: _LoadPlan) -> dict[str, Any]:
        """Read the JSON values that the file stores as arrays without dimensions; return them by path."""
        names = {path: plan.names[name] for path, name in plan.scalars.items()}
        found = {path: np.empty((), DTYPES[plan.source.leaves[name].dtype]) for path, name in names.items()}
        plan.source.read([(name, FillTarget(Extent((), ()), found[path])) for path, name in names.items()])
        kinds: dict[str, Any] = {path: type(plan.tree.values[path]) for path in found}
        return {path: kinds[path](buffer.item()) for path, buffer in found.items()}

    def _raise_on_all(self, error: Exception | None, said: str) -> None:
        """Raise on every rank if one rank has an error, or if the ranks see different files."""
        told = self._world.all_gather([agree.refusal_of(error), said], name=self._name)
        if error is not None:
            raise error
        if refused := agree.first_refusal([one[0] for one in told]):
            raise agree.refusal_error(refused, operation=self._who, step=None)
        if odd := [rank for rank, one in enumerate(told) if one[1] != told[0][1]]:
            raise Mismatch(
                f"{self._who}: {name_ranks(odd)} see another file than rank 0, or load it into another template.",
                ranks=odd,
                remedy="Use the same file, the same model and the same arguments on all hosts.",
            )


def _leaves_by_template_name(file_names: Mapping[str, str], leaves: _Leaves, values: Mapping[str, Any]) -> SavedTree:
    """Return the file's leaves, by the names that they have in the template."""
    arrays = {name: SavedArray(one.shape, one.dtype, one.kind) for name, one in leaves.items()}
    there = {**arrays, **values}
    return SavedTree({new: there[name] for new, name in file_names.items() if name in there}, separators="./")


def _template_of_file(source: CheckpointSource, key: str | None) -> dict[str, Any]:
    """Return a template made from the file: every array and value below ``key``."""
    names = names_below_key([*source.leaves, *source.values], key or "")
    arrays = {name: source.leaves[full] for name, full in names.items() if full in source.leaves}
    values = {name: source.values[full] for name, full in names.items() if full in source.values}
    check_memory("all arrays of the file", sum(map(bytes_of, arrays.values())))
    return {name: new_array(name, one) for name, one in arrays.items()} | values


def _reason_for_nothing(report: LoadReport, *, others: bool) -> str:
    """Return a text that says why nothing is loaded; "" if something is. ``others``: there are other values."""
    if report.loaded.leaves or (others and not report.template.leaves):
        return ""
    if not report.file.leaves:
        return "the file has no array" if report.template.leaves else ""
    return "no leaf of the file fits" if report.template.leaves else "into= has no array"


def _reason_to_refuse(report: LoadReport, found: FitResult, strict: bool | float) -> str:
    """Return a text that says why too few leaves fit; "" if enough do."""
    if strict is True:
        return f"{len(found.refused_differences)} leaves do not fit" if found.refused_differences else ""
    if strict is not False and report.coverage < strict:
        return f"{report.coverage:.6g} of the template is covered: expected at least strict={strict:g}"
    return ""


def _suggested_rename(found: FitResult, tree: OpenTree, leaves: _Leaves, asked: Rename | None) -> dict[str, str]:
    """Return a rename that would make more leaves fit; {} if none is found."""
    change = make_renamer(asked)
    shapes = {one.path: one.shape for one in tree.declared_arrays}
    missing = {one.path: shapes[one.path] for one in found.differences if one.kind == "missing" and one.path in shapes}
    origin = {change(one.name): one.name for one in found.differences if one.kind == "unexpected"}
    unexpected = {new: leaves[name].shape for new, name in origin.items()}
    if not missing or not unexpected:
        return {}
    offered = suggest_rename(missing, unexpected, [tree.declared_arrays[number].path for number, _ in found.pairs])
    if not offered or not isinstance(asked, Mapping):
        return offered
    return {**asked, **{origin.get(old, old): new for old, new in offered.items()}}


def _note_of_key(source: CheckpointSource, key: str, asked: _LoadSettings) -> list[str]:
    if not key or asked.key is not None:
        return []
    others = [name for name in source.leaves if not name.startswith(f"{key}/")]
    besides = f"; {len(others)} arrays outside of it are ignored" if others else ""
    return [f"the weights are below key={key!r}{besides}"]


def _find_conflicts(
    source: CheckpointSource, tree: OpenTree, names: Mapping[int, str], pairs: Mapping[int, int]
) -> dict[int, int]:
    """Return the arrays that share the memory of another array, but have other bytes in the file. Raises Damaged."""
    same = source.are_known_equal
    found = template_fill.find_conflicting_ties(tree, names, pairs, source.read, same) if pairs else {}
    found |= template_fill.find_conflicting_overlaps(tree, names, source.read)
    if found:
        source.partial_checksums()  # they may differ because of damage
    return found
