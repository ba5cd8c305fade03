"""Parse paths of this machine in command lines, and read files of settings.

A URL is refused, so that it never becomes a folder called ``s3:``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.errors import NotThere, StorageError
from allranks.settings import ConfigWrong
from allranks.storage.detect import path_of_file_address
from allranks.storage.local import LocalStorage

_LARGEST_SETTINGS = 20_000_000


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


def read_settings(file: Path) -> str:
    """Return the text of a file of settings. Raises NotThere, and ConfigWrong for what is no text, no file or huge."""
    storage = LocalStorage(file.parent)
    try:
        nbytes = storage.size(file.name) or 0
        if nbytes > _LARGEST_SETTINGS:
            raise ConfigWrong(f"{file} cannot be read: it has {nbytes:,} bytes: expected {_LARGEST_SETTINGS:,} at most")
        return storage.get(file.name).decode()
    except NotThere:
        raise
    except (StorageError, UnicodeDecodeError) as error:
        raise ConfigWrong(f"{file} cannot be read: {error}") from error
