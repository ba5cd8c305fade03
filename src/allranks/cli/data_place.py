"""What a person types for data: a pattern, and what kind of files it names; opened, and indexed with a bar."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass

from allranks.cli import screen
from allranks.data.base import Source
from allranks.data.index import Index
from allranks.data.recipe import Recipe
from allranks.data.sources.detect import source
from allranks.data.sources.files import FileSource
from allranks.data.sources.listing import find
from allranks.data.sources.patterns import place
from allranks.errors import DataError
from allranks.storage.detect import open_storage

SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "text": (".txt", ".text"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
    "webdataset": (".tar",),
}
_PACKED = (".gz", ".zst")
_LINES = ("jsonl", "text")
_PROGRAM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
KINDS = (*SUFFIXES, "folder")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add PATTERN and what is to be known of it to a command."""
    parser.add_argument("pattern", metavar="PATTERN", help="a file, a folder, a quoted glob, or s3://bucket/...")
    add_kind(parser)


def add_kind(parser: argparse.ArgumentParser) -> None:
    """Add what a pattern alone does not say."""
    parser.add_argument("--kind", choices=KINDS, help="of the files (default: by their names)")
    parser.add_argument("--block-bytes", type=int, metavar="N", help="of lines, as the program has it (default 64 KiB)")
    parser.add_argument("--cache", metavar="FOLDER", help="where indexes are kept (default: beside the data)")


def of_program(text: str) -> Recipe | None:
    """Return the data set that ``module:name`` is of a program, or that the function of this name returns.

    None for what is no such address, but a pattern. Raises DataError where there is no data set of that name.
    """
    if not _PROGRAM.fullmatch(text):
        return None
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"{text}: {error}.", remedy="MODULE:NAME is imported from here; a pattern has no colon."
        ) from error
    made = found() if callable(found) else found
    if not isinstance(made, Recipe):
        raise DataError(f"{text} is a {type(made).__name__}, and no allranks.Dataset or function that returns one.")
    return made


def kind_of(names: list[str]) -> str | None:
    """Return the kind that all files with a known name are of; None where there is no single one."""
    found = {kind for name in names for kind, suffixes in SUFFIXES.items() if _bare(name).endswith(suffixes)}
    return found.pop() if len(found) == 1 else None


def _bare(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _PACKED if name.endswith(suffix)), name)


def opened(arguments: argparse.Namespace, pattern: str) -> Source:
    """Return the source that is meant. Raises DataError: no such file, or of no kind that its name tells."""
    kind = arguments.kind or _guessed(pattern)
    options = {"cache": arguments.cache, "block_bytes": arguments.block_bytes}
    given = {name: value for name, value in options.items() if value is not None}
    if kind not in _LINES and "block_bytes" in given:
        raise DataError(f"--block-bytes is of lines, and these files are of the kind {kind}.")
    if kind == "folder":
        given.pop("cache", None)  # its index is a listing, and not kept
    return source(kind, pattern, **given)


def _guessed(pattern: str) -> str:
    where = place(pattern)
    names = [one.name for one in find(where, open_storage(where.root))]
    kind = kind_of(names)
    if kind is not None:
        return kind
    ends = Counter("." + name.rpartition("/")[2].partition(".")[2] for name in names)
    shown = ", ".join(f"{many} {'without a suffix' if end == '.' else end}" for end, many in ends.most_common(5))
    raise DataError(
        f"{where.written}: the names do not tell one kind of data: {shown}.",
        path=where.written,
        remedy=f"Say --kind {', '.join(KINDS[:-1])} or {KINDS[-1]}.",
    )


@dataclass(frozen=True, slots=True)
class IndexedShard:
    """An index, and what had to be looked at for it now: files, their bytes, seconds."""

    index: Index
    files: int
    nbytes: int
    seconds: float


def indexed(one: Source) -> IndexedShard:
    """Return the index, from where it is kept or built now, under a bar. Raises DataError where there is no sample."""
    began = time.monotonic()
    new = _new(one)
    with screen.waiting("index", sum(new)) as bar:
        last = 0

        def progress(done: int, _total: int) -> None:
            nonlocal last
            bar.advance(done - last)
            last = done

        index = one.index(progress=progress)
    if not index.samples:
        raise DataError(f"{one.where}: no file has a sample.", path=one.where)
    return IndexedShard(index, len(new), sum(new), time.monotonic() - began)


def _new(one: Source) -> list[int]:
    """Return the bytes of each file of which no index is kept."""
    if not isinstance(one, FileSource):
        return []
    found = one.found()
    have = {file.name for file in one.known(found).files}
    return [file.nbytes for file in found if file.name not in have]
