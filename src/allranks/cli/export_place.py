"""Where an export goes: a path of this machine, or an address of a bucket, which is filled from a temporary folder."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from allranks.checkpoint.upload import files_below, upload
from allranks.cli.local_path import local_path
from allranks.storage.detect import CLOUDS, open_storage


def export_place(text: str) -> Path | str:
    """Return the path that was typed, or the address of a bucket as it is. For argparse, as ``type=``."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in CLOUDS:
        return local_path(text)
    if "/" not in rest.rstrip("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is a whole bucket: expected {scheme}://bucket/name")
    return text.rstrip("/")


def fill(where: Path | str, write: Callable[[Path], tuple[Path, ...]], *, force: bool) -> tuple[str, ...]:
    """Have ``write`` write to a path; return what there is then. ``write`` returns its files, the last one last.

    Of a bucket the path is a temporary one, whose files are uploaded. Raises AlreadyThere, StorageError.
    """
    if isinstance(where, Path):
        return tuple(map(str, write(where)))
    parent, _, name = where.rpartition("/")
    storage = open_storage(parent)
    with tempfile.TemporaryDirectory(prefix="allranks-export-") as folder:
        out = Path(folder, name)
        written = write(out)
        below = written if all(path.is_file() for path in written) else [out / one for one in files_below(out)]
        return upload(Path(folder), [str(path.relative_to(folder)) for path in below], storage, force=force)
