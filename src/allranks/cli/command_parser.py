"""Parse the command line of a command: an error is one line, and help that cannot be written is an error."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from allranks.failure import one_line

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser for what a user types, also names of files with line ends, into any output."""

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # As in argparse, but a full disk is an error: argparse ignores it, and exits with 0.
        if message and file is not None:
            file.write(message)
