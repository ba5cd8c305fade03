"""Read the file of findings that a project has accepted (``--baseline``)."""

from __future__ import annotations

from pathlib import Path

from allranks.check.results.baseline import Baseline, read
from allranks.cli.local_path import read_settings
from allranks.errors import NotThere
from allranks.settings import ConfigWrong


def read_baseline(path: str) -> Baseline:
    """Return the baseline in a file. Raises AllranksError if there is none."""
    try:
        return read(read_settings(Path(path)), path)
    except NotThere as error:
        raise ConfigWrong(f"baseline {path} cannot be read: there is no such file") from error
