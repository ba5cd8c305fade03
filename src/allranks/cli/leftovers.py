"""Remove what killed launchers and ranks of this user have left in the folder for temporary files."""

from __future__ import annotations

from contextlib import suppress

from allranks.errors import StorageError
from allranks.launch.control_socket import abandoned_folders


def remove_leftovers() -> None:
    """Remove the folders of launchers that were killed, without following links. What cannot be removed stays."""
    for folder in abandoned_folders():
        from allranks.storage.deletion import delete_tree

        with suppress(OSError, StorageError):
            delete_tree(folder)
