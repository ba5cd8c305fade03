"""Report what was loaded, computed from both sides: as text, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.checkpoint.names import canonical_path
from allranks.failure import one_line
from allranks.loading.fit import Kind, LeafAmount, LoadDifference

_LISTED, _ROWS, _DEEPEST = 20, 12, 6

_TITLES: tuple[tuple[Kind, str], ...] = (
    ("missing", "in the template, not in the file"),
    ("unexpected", "in the file, not in the template"),
    ("packed", "quantised in the file, not in the template: not loaded"),
    ("reshaped", "different shape, not loaded"),
    ("unlike", "dtype that cannot be cast, not loaded"),
    ("conflict", "one memory in the template, different arrays in the file"),
    ("recast", "cast"),
    ("tied", "the same memory as a leaf that is loaded"),
)


@dataclass(frozen=True, slots=True)
class PrefixCoverage:
    """How much of the template below the path ``prefix`` was loaded: ``loaded`` of ``whole`` leaves, elements and
    bytes.
    """

    prefix: str
    loaded: LeafAmount
    whole: LeafAmount


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of ``allranks.load``; equal on all ranks except ``state``, ``read`` and ``seconds``.

    ``format``: the format of the file. ``checked``: how its bytes were verified. ``notes``: further remarks.
    ``template``, ``file``: the amounts of leaves on both sides. ``loaded``, ``used``: how much of each was loaded.
    ``by_prefix``: how much of the template was loaded, by prefix of the paths.
    ``differences``: all leaves that were not loaded unchanged.
    ``rename``: a ready argument ``rename=`` with which more leaves would fit.
    ``before``, ``after``: digests of the loaded leaves, by rank ("" if they had no values).
    ``read``: the bytes of arrays that this rank needed. ``state``: the loaded tree.
    """

    path: str
    format: str
    checked: str
    notes: tuple[str, ...]
    template: LeafAmount
    loaded: LeafAmount
    file: LeafAmount
    used: LeafAmount
    by_prefix: tuple[PrefixCoverage, ...]
    differences: tuple[LoadDifference, ...]
    rename: Mapping[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    read: int = 0
    seconds: float = 0.0
    state: Any = field(default=None, compare=False, repr=False)

    @property
    def coverage(self) -> float:
        """The fraction of the template that was loaded: the smallest of the fractions of leaves, elements and bytes."""
        return self.loaded.share_of(self.template)

    @property
    def used_of_file(self) -> float:
        """The fraction of the file that was used: the smallest of the fractions of leaves, elements and bytes."""
        return self.used.share_of(self.file)

    def of_kind(self, kind: Kind) -> tuple[LoadDifference, ...]:
        """Return the differences of one kind, such as ``"missing"``."""
        return tuple(one for one in self.differences if one.kind == kind)

    @property
    def missing(self) -> tuple[str, ...]:
        """The paths of the template that got nothing from the file, for any reason."""
        return tuple(
            one.path for one in self.differences if one.kind in ("missing", "reshaped", "unlike", "conflict", "packed")
        )

    @property
    def unexpected(self) -> tuple[str, ...]:
        """The names of leaves in the file that were not used."""
        return tuple(one.name for one in self.differences if one.kind == "unexpected")

    def to_json(self) -> str:
        """Return the report as one JSON object: all fields except ``state``, and ``coverage`` and ``used_of_file``."""
        names = [one.name for one in dataclasses.fields(self) if one.name != "state"]
        found = {name: _as_json(getattr(self, name)) for name in names}
        return json.dumps(found | {"coverage": self.coverage, "used_of_file": self.used_of_file})

    def __str__(self) -> str:
        lines = [_report_headline(self), *_amounts_table(self), *difference_lines(self.differences), *_note_lines(self)]
        return "\n".join(map(one_line, lines))


def refusal_text(report: LoadReport, why: str) -> str:
    """Return the message of the error that refuses a load: the reason, and below it the report."""
    return f"{one_line(f'load of {report.path}: {why}.')}\n{report}\n "


def _as_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, tuple):
        return [_as_json(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value


def coverage_by_prefix(template: Mapping[str, LeafAmount], loaded_paths: Iterable[str]) -> tuple[PrefixCoverage, ...]:
    """Return how much was loaded below each prefix of the paths, the lowest coverage first.

    All prefixes have the smallest number of components at which there are at least two prefixes.
    """
    loaded_paths, depth = set(loaded_paths), 1
    parts = {path: canonical_path(path).split(".")[:_DEEPEST] for path in template}
    while depth < _DEEPEST and len({tuple(of[:depth]) for of in parts.values()}) < 2 < len(template):
        depth += 1
    below: defaultdict[str, list[str]] = defaultdict(list)
    for path, of in parts.items():
        below[".".join(of[:depth])].append(path)
    found = [
        PrefixCoverage(
            prefix,
            LeafAmount.sum_of_amounts(template[path] for path in paths if path in loaded_paths),
            LeafAmount.sum_of_amounts(map(template.__getitem__, paths)),
        )
        for prefix, paths in below.items()
    ]
    return tuple(sorted(found, key=lambda one: one.loaded.share_of(one.whole)))


def difference_lines(differences: Sequence[LoadDifference]) -> list[str]:
    """Return the differences as lines of text, grouped by kind. Long groups are shortened."""
    lines = []
    for kind, title in _TITLES:
        group = [one for one in differences if one.kind == kind]
        if not group:
            continue
        lines.append(f"  {title} ({len(group)}):")
        lines += [f"    {_difference_line(one)}" for one in group[:_LISTED]]
        lines += [f"    ... and {len(group) - _LISTED} more"] if len(group) > _LISTED else []
    return lines


def _difference_line(one: LoadDifference) -> str:
    allowed = f" (allowed by {one.allowed!r})" if one.allowed else ""
    match one.kind:
        case "missing":
            return f"{one.path}: {one.wanted}{allowed}"
        case "unexpected":
            return f"{one.name}: {one.found}{allowed}"
        case "tied":
            return f"{one.path}: {one.wanted} is {one.name}"
        case "conflict":
            return f"{one.path} is {one.name}{allowed}"
        case "recast":
            return f"{one.path}: {one.found} -> {one.wanted}{', rounded' if one.lossy else ''}"
        case _:
            return f"{one.path}: {one.found} in the file ({one.name}), {one.wanted} here{allowed}"


def _report_headline(report: LoadReport) -> str:
    share = report.coverage
    return f"load of {report.path} ({report.format}): {_percent_text(share)} of the template loaded"


def _amounts_table(report: LoadReport) -> list[str]:
    rows = [("", "leaves", "parameters", "bytes", "")]
    rows.append(_amounts_row("template", report.loaded, report.template))
    rows.append(_amounts_row("file", report.used, report.file))
    rows += [_amounts_row(f"  {one.prefix}", one.loaded, one.whole) for one in report.by_prefix[:_ROWS]]
    if (more := len(report.by_prefix) - _ROWS) > 0:
        rows.append((f"  and {more} more", "", "", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    return ["  ".join(["", *line]).rstrip() for line in lines]


def _amounts_row(name: str, part: LeafAmount, whole: LeafAmount) -> tuple[str, str, str, str, str]:
    pairs = ((part.leaves, whole.leaves), (part.parameters, whole.parameters), (part.bytes, whole.bytes))
    leaves, parameters, size = (f"{mine:,} of {all_:,}" for mine, all_ in pairs)
    return name, leaves, parameters, size, _percent_text(part.share_of(whole))


def _percent_text(share: float) -> str:
    """Return a fraction as a text in per cent. A fraction below 1 is never rounded to 100 %."""
    if share == 1:
        return "100 %"
    digits = next((n for n in range(1, 12) if round(share * 100, n) < 100), 12)
    return f"{share * 100:.{digits}f} %"


def _note_lines(report: LoadReport) -> list[str]:
    lines = [f"  {note}" for note in report.notes]
    lines.append(f"  bytes checked: {report.checked}")
    if report.rename:
        lines.append(f"  did you mean: rename={json.dumps(dict(report.rename))}")
    same = [
        rank for rank, pair in enumerate(zip(report.before, report.after, strict=False)) if pair[0] == pair[1] != ""
    ]
    if report.after and len(same) == len(report.after):
        lines.append("  the loaded leaves had the same values before: nothing has changed")
    return lines
