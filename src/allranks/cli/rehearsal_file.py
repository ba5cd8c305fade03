"""Read the JSON report of a rehearsal (``allranks check --rehearsal FILE``)."""

from __future__ import annotations

import json
from pathlib import Path

from allranks.report.confirm import Rehearsed, read_rehearsal
from allranks.settings import ConfigWrong


def rehearsed_in(file: Path, root: Path) -> Rehearsed:
    """Return what a file says about a rehearsal, with paths relative to ``root``. Raises ConfigWrong."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigWrong(f"--rehearsal {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigWrong(f"--rehearsal {file} is not JSON: {error}") from error
    return read_rehearsal(document, str(file), root.resolve().as_posix())
