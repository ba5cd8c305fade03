"""Remove what killed launchers and ranks of this user have left in the folder for temporary files."""

from __future__ import annotations

import os
from contextlib import suppress

from allranks.errors import AllranksError, StorageError
from allranks.launch.control_socket import abandoned_folders


def remove_leftovers() -> None:
    """Remove the folders of launchers that were killed, without following links. What cannot be removed stays."""
    for folder in abandoned_folders():
        from allranks.storage.deletion import delete_tree

        with suppress(OSError, StorageError):
            delete_tree(folder)
    if _has_sockets():
        from allranks.hang.endpoint import known_addresses

        with suppress(OSError, AllranksError):
            known_addresses()  # it removes the sockets of ended ranks


def _has_sockets() -> bool:
    try:
        with os.scandir(f"/tmp/allranks-{os.getuid()}") as entries:  # noqa: S108 - as `allranks.hang.endpoint` has it
            return any(entries)
    except OSError:
        return False
