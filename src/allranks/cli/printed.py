"""Print a report of findings, or write it to a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.settings import ConfigWrong

if TYPE_CHECKING:
    from allranks.report.base import Report


def print_report(report: Report, form: str, file: Path | None) -> None:
    """Print a report in one of its formats, or write it to a file.

    Colours are used on a terminal without NO_COLOR. Raises ConfigWrong if the file cannot be written.
    """
    from allranks.report.forms import render

    colour = file is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print_text(render(report, form, colour=colour), file)


def print_text(text: str, file: Path | None) -> None:
    """Print a text, or write it to a file. Raises ConfigWrong if the file cannot be written."""
    if file is not None:
        write_file(file, text + "\n")
    elif text:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(text)


def write_file(target: Path, content: str | bytes) -> None:
    """Write a file. Raises ConfigWrong if it cannot be written."""
    try:
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigWrong(f"{target} cannot be written: {error.strerror}") from error


def must_be_writable(target: Path) -> None:
    """Raise ConfigWrong if it is known already that a file cannot be written."""
    if not target.parent.is_dir():
        raise ConfigWrong(f"{_shown(target)} cannot be written: there is no folder {_shown(target.parent)}.")
    if target.is_dir():
        raise ConfigWrong(f"{_shown(target)} cannot be written: it is a folder.")


def _shown(path: Path) -> str:
    return os.path.relpath(path)
