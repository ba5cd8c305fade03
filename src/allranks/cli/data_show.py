"""Implement ``allranks data show``: show files, their samples, and the first samples."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from allranks.cli import screen
from allranks.cli.data_place import add_place, indexed, opened
from allranks.data.base import BadSample, Reader, Source
from allranks.data.batch import sample_columns
from allranks.data.index import DatasetIndex
from allranks.failure import one_line

DESCRIPTION = """\
Show what there is: files with their samples, bytes and blocks, what a sample looks like, and the first of them.
With --check everything is read and decoded, and what cannot be used is named.
  allranks data show 'data/*.jsonl' --sample 3"""
_LONGEST, _MOST_FILES, _MOST_BAD = 300, 40, 20
_READERS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("--sample", type=int, default=3, metavar="N", help="how many to show (default 3)")
    parser.add_argument("--check", action="store_true", help="read and decode everything; exit code 1 if some is bad")


def run(arguments: argparse.Namespace) -> int:
    source = opened(arguments, arguments.pattern)
    index = indexed(source).index
    reader = source.open(index)
    samples = _first(reader, index, max(arguments.sample, 1))
    bad = _bad(reader, index) if arguments.check else None
    document: dict[str, Any] = {
        "data": source.where,
        "kind": index.kind,
        "samples": index.samples,
        "bytes": index.nbytes,
        "blocks": len(index),
        "files": _files(index),
        "columns": _columns(samples),
        "first": [_to_json(sample) for sample in samples[: arguments.sample]],
        "bad": None if bad is None else [{"sample": one, "why": why} for one, why in bad],
    }
    if arguments.json:
        screen.show_json(document)
    else:
        _show(source, document)
    return 1 if bad else 0


def _files(index: DatasetIndex) -> list[dict[str, Any]]:
    many = len(index.files)
    rows = np.bincount(index.file, weights=index.rows, minlength=many).astype(int).tolist()
    blocks = np.bincount(index.file, minlength=many).tolist()
    return [
        {"name": file.name, "samples": rows[at], "bytes": file.nbytes, "blocks": blocks[at], "stamp": file.stamp}
        for at, file in enumerate(index.files)
    ]


def _first(reader: Reader, index: DatasetIndex, count: int) -> list[Any]:
    found: list[Any] = []
    for block in range(len(index)):
        many = min(int(index.rows[block]), count - len(found))
        found += reader.read(block).take(np.arange(many) + int(index.skip[block]))
        if len(found) == count:
            break
    return found


def _bad(reader: Reader, index: DatasetIndex) -> list[tuple[int, str]]:
    """Return all samples that cannot be used: their ids, and why. Raises DataError for files that cannot be read."""

    def bad_samples(block: int) -> list[tuple[int, str]]:
        rows = np.arange(int(index.rows[block]))
        samples = reader.read(block).take(rows + int(index.skip[block]))
        first = int(index.first_ids[block])
        return [(first + at, sample.why) for at, sample in enumerate(samples) if isinstance(sample, BadSample)]

    found: list[tuple[int, str]] = []
    pool = ThreadPoolExecutor(_READERS)
    try:
        with screen.waiting("check", index.nbytes) as bar:
            for some in pool.map(bad_samples, range(len(index))):
                found += some
                bar.advance(index.nbytes // len(index))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _columns(samples: list[Any]) -> dict[str, str]:
    usable = next((sample for sample in samples if not isinstance(sample, BadSample)), None)
    return {} if usable is None else {name: _type(value) for name, value in sample_columns(usable).items()}


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return type(value).__name__


def _to_json(sample: Any) -> Any:
    """Return a sample as JSON values. A long value is cut, and its length is added."""
    if isinstance(sample, BadSample):
        return {"bad": sample.why}
    return {name: _short(value) for name, value in sample_columns(sample).items()}


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]} ... ({len(value):,} characters)"
    if isinstance(value, bytes):
        return f"{value[:24]!r}{' ...' if len(value) > 24 else ''} ({len(value):,} bytes)"
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _show(source: Source, said: dict[str, Any]) -> None:
    files = said["files"]
    total = f"{screen.count(len(files), 'file')}, {said['samples']:,} samples, {screen.size(said['bytes'])}"
    screen.show(
        f"{one_line(source.where)}: {said['kind']}, {total}, {screen.count(said['blocks'], 'block')}", style="bold"
    )
    screen.show("")
    names = ["file", "samples", "size", "blocks", "stamp"]
    rows = [
        [one["name"], f"{one['samples']:,}", screen.size(one["bytes"]), f"{one['blocks']:,}", one["stamp"]]
        for one in files[:_MOST_FILES]
    ]
    screen.show(screen.table(names, rows, right=names[1:4]))
    for note in _notes(files):
        screen.show(note)
    screen.show(
        "\na sample: "
        + (", ".join(f"{one_line(name)} {kind}" for name, kind in said["columns"].items()) or "none usable")
    )
    for number, sample in enumerate(said["first"]):
        screen.show(f"  {number}  {'BAD: ' + one_line(sample['bad']) if list(sample) == ['bad'] else sample}")
    _show_bad(said["bad"], said["samples"])


def _notes(files: list[dict[str, Any]]) -> Iterator[str]:
    if len(files) > _MOST_FILES:
        yield f"... and {len(files) - _MOST_FILES:,} more: --json has all."
    counts = [one["samples"] for one in files]
    empty = counts.count(0)
    if empty:
        yield f"{screen.count(empty, 'file')} without a sample."
    some = [count for count in counts if count]
    if len(some) > 1 and max(some) > 2 * min(some):
        yield f"uneven: {min(some):,} to {max(some):,} samples a file; ranks get equal parts all the same."


def _show_bad(bad: list[dict[str, Any]] | None, samples: int) -> None:
    if bad is None:
        return
    if not bad:
        screen.show(f"\nchecked: all {samples:,} samples can be decoded.")
        return
    screen.show(f"\nchecked: {len(bad):,} of {samples:,} samples cannot be used:", style="bold red")
    for one in bad[:_MOST_BAD]:
        screen.show(f"  sample {one['sample']:,}: {one_line(one['why'])}")
    if len(bad) > _MOST_BAD:
        screen.show(f"  and {len(bad) - _MOST_BAD:,} more: --json has all.")
