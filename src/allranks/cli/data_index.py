"""Implement ``allranks data index``: count the samples of data, and keep the index."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from allranks.cli import screen
from allranks.cli.data_place import add_place, indexed, opened
from allranks.data.sources.files import FileSource
from allranks.failure import one_line

DESCRIPTION = """\
Find out how many samples there are, and where: once, by one pass over lines and by the footers of Parquet. Kept beside
the data, or in the user's cache; files that have not changed since are not read again. Loaders do it by themselves.
  allranks data index 'data/**/*.jsonl.zst'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    source = opened(arguments, arguments.pattern)
    found = indexed(source)
    index = found.index
    kept = source.cached_place() if isinstance(source, FileSource) else None
    document: dict[str, Any] = {
        "data": source.where,
        "kind": index.kind,
        "files": len(index.files),
        "empty": len(index.files) - len(np.unique(index.file)),
        "blocks": len(index),
        "samples": index.samples,
        "bytes": index.nbytes,
        "digest": index.digest,
        "scanned": {"files": found.files, "bytes": found.nbytes, "seconds": round(found.seconds, 3)},
        "kept": None if kept is None else {"at": kept[0], "bytes": kept[1]},
    }
    if arguments.json:
        screen.show_json(document)
    else:
        _show(document)
    return 0


def _show(said: dict[str, Any]) -> None:
    scanned, kept = said["scanned"], said["kept"]
    empty = f" ({said['empty']:,} without a sample)" if said["empty"] else ""
    screen.show(f"{one_line(said['data'])}: {said['kind']}", style="bold")
    screen.show(f"  files    {said['files']:,}{empty}, {screen.size(said['bytes'])}")
    screen.show(f"  samples  {said['samples']:,} in {screen.count(said['blocks'], 'block')}")
    screen.show(f"  digest   {said['digest']}")
    if scanned["files"]:
        speed = screen.size(int(scanned["bytes"] / max(scanned["seconds"], 1e-3)))
        many = screen.count(scanned["files"], "file")
        screen.show(f"  indexed  {many} now, {screen.size(scanned['bytes'])} in {scanned['seconds']:.1f} s ({speed}/s)")
    else:
        screen.show("  indexed  before; no file has changed" if kept else "  indexed  by a listing")
    if kept:
        share = 100 * kept["bytes"] / max(said["bytes"], 1)
        screen.show(f"  kept     {screen.size(kept['bytes'])} ({share:.2g} % of the data) in {one_line(kept['at'])}")
    elif said["kind"] != "folder":
        screen.show("  kept     nowhere: neither beside the data nor in the user's cache can be written")
