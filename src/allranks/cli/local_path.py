"""Paths of this machine in command lines: a URL is no such path, and never becomes a folder called ``s3:``."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.errors import StorageError
from allranks.storage.detect import path_of


def local_path(text: str) -> Path:
    """Return the path that was typed, of ``file://`` too. For argparse, as ``type=``."""
    scheme, separator, _ = text.partition("://")
    if not separator or "/" in scheme:
        return Path(text)
    if scheme == "file":
        try:
            return Path(path_of(text))
        except StorageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"{text!r} is no path of this machine: only files and folders are taken here")


def local_text(text: str) -> str:
    """Return the same as text."""
    return str(local_path(text))
