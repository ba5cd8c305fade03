"""Open the data that a command line names: by a pattern and a kind of files, with an index and a progress bar."""

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
from allranks.data.index import DatasetIndex
from allranks.data.recipe import DatasetRecipe
from allranks.data.sources.detect import open_source
from allranks.data.sources.files import FileSource
from allranks.data.sources.listing import list_matching_files
from allranks.data.sources.patterns import parse_pattern
from allranks.errors import DataError
from allranks.storage.detect import open_storage

SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "text": (".txt", ".text"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
    "webdataset": (".tar",),
    "mds": (".mds",),
    "tfrecord": (".tfrecord", ".tfrecords"),
    "array_record": (".array_record", ".arrayrecord"),
}
_PACKED = (".gz", ".zst")
_LINES = ("jsonl", "text")
# Options that only some kinds have, by their names in Python.
_OPTIONS = {
    "block_bytes": (*_LINES, "tokens"),
    **dict.fromkeys(("length", "stride", "targets", "eos_id", "dtype", "vocab_size"), ("tokens",)),
}
_PROGRAM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
KINDS = (*SUFFIXES, "tokens", "litdata", "folder")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the argument PATTERN and its options to a command's parser."""
    parser.add_argument("pattern", metavar="PATTERN", help="a file, a folder, a quoted glob, or s3://bucket/...")
    add_kind(parser)


def add_kind(parser: argparse.ArgumentParser) -> None:
    """Add to a command's parser the options for what a pattern alone does not say."""
    parser.add_argument("--kind", choices=KINDS, help="of the files (default: by their names)")
    parser.add_argument("--block-bytes", type=int, metavar="N", help="of lines and tokens, as the program has it")
    parser.add_argument("--cache", metavar="FOLDER", help="where indexes are kept (default: beside the data)")
    tokens = parser.add_argument_group("options of --kind tokens, as the program has them")
    tokens.add_argument("--length", type=int, metavar="N", help="the tokens of a window (default: documents)")
    tokens.add_argument("--stride", type=int, metavar="N", help="from window to window (default: the length)")
    tokens.add_argument("--targets", action="store_true", default=None, help="as in targets=True")
    tokens.add_argument("--eos-id", type=int, metavar="ID", help="the token that ends a document")
    tokens.add_argument("--dtype", metavar="TYPE", help="of the tokens of files without a header (default uint16)")
    tokens.add_argument("--vocab-size", type=int, metavar="N", help="a token that is not below is an error")


def of_program(text: str) -> DatasetRecipe | None:
    """Return the dataset ``module:name`` of a program, or the dataset that the function of this name returns.

    Return None if the text is a pattern. Raises DataError if there is no dataset of that name.
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
    if not isinstance(made, DatasetRecipe):
        raise DataError(
            f"{text}: expected an allranks.Dataset or a function that returns one, found a {type(made).__name__}."
        )
    return made


def kind_of(names: list[str]) -> str | None:
    """Return the common kind of all files with a known name ending, or None if there is no single kind."""
    found = {kind for name in names for kind, suffixes in SUFFIXES.items() if _bare(name).endswith(suffixes)}
    return found.pop() if len(found) == 1 else None


def _bare(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _PACKED if name.endswith(suffix)), name)


def opened(arguments: argparse.Namespace, pattern: str) -> Source:
    """Return the source of the data. Raises DataError if no file exists, or if the names do not show the kind."""
    kind = arguments.kind or _guessed(pattern)
    options = {name: getattr(arguments, name) for name in ("cache", *_OPTIONS)}
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if kind not in _OPTIONS.get(name, KINDS):
            expected = " or ".join(_OPTIONS[name])
            raise DataError(f"--{name.replace('_', '-')}: expected files of the kind {expected}, found {kind}.")
    if kind == "folder":
        given.pop("cache", None)  # its index is a listing, and not kept
    return open_source(kind, pattern, **given)


def _guessed(pattern: str) -> str:
    where = parse_pattern(pattern)
    names = [one.name for one in list_matching_files(where, open_storage(where.root))]
    kind = kind_of(names)
    if kind is not None:
        return kind
    ends = Counter("." + name.rpartition("/")[2].partition(".")[2] for name in names)
    shown = ", ".join(f"{many} {'without a suffix' if end == '.' else end}" for end, many in ends.most_common(5))
    raise DataError(
        f"{where.written}: expected files of one kind, found {shown}.",
        path=where.written,
        remedy=f"Give --kind {', '.join(KINDS[:-1])} or {KINDS[-1]}.",
    )


@dataclass(frozen=True, slots=True)
class IndexedShard:
    """An index, and what had to be indexed now: the number of files, their bytes, and the seconds it took."""

    index: DatasetIndex
    files: int
    nbytes: int
    seconds: float


def indexed(one: Source) -> IndexedShard:
    """Return the source's index, from the cache or built now with a progress bar.

    Raises DataError if it has no sample.
    """
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
    """Return the sizes, in bytes, of the files that have no cached index."""
    if not isinstance(one, FileSource):
        return []
    found = one.list_files()
    have = {file.name for file in one.cached_index(found).files}
    return [file.nbytes for file in found if file.name not in have]
