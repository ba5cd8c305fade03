"""Parse paths of this machine in command lines. A URL is refused, so that it never becomes a folder called ``s3:``."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.errors import StorageError
from allranks.storage.detect import path_of_file_address


def local_path(text: str) -> Path:
    """Convert the text of an argument to a path; ``file://`` is allowed. For argparse, as ``type=``."""
    scheme, separator, _ = text.partition("://")
    if not separator or "/" in scheme:
        return Path(text)
    if scheme == "file":
        try:
            return Path(path_of_file_address(text))
        except StorageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"expected a file or folder of this machine, found {text!r}")


def local_text(text: str) -> str:
    """Check the text of an argument as ``local_path`` does, and return the path as text. For argparse, as ``type=``."""
    return str(local_path(text))
