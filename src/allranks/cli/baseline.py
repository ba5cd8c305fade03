"""Read the file of findings that a project has accepted (``--baseline``)."""

from __future__ import annotations

from pathlib import Path

from allranks.check.results.baseline import Baseline, read
from allranks.settings import ConfigWrong


def read_baseline(path: str) -> Baseline:
    """Return the baseline in a file. Raises AllranksError if there is none."""
    try:
        return read(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigWrong(f"baseline {path} cannot be read: {error.strerror}") from error
