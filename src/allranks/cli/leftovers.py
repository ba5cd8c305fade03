"""Remove what killed processes of this user have left in the folder for temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress

from allranks.errors import AllranksError, StorageError
from allranks.launch.control_socket import abandoned_folders

_PURPOSES = ("rehearse", "export")
COPIES = "undo"  # of files of the user, as they were before a rehearsal


def remove_leftovers() -> None:
    """Remove the folders of launchers, rehearsals and exports that were killed, without following links.

    What cannot be removed stays. So do copies of files of the user (``copies_of_killed_rehearsals``).
    """
    for folder in abandoned_folders():
        _remove(folder)
    for folder, purpose in _abandoned():
        if purpose in _PURPOSES or (purpose == COPIES and not os.listdir(folder)):
            _remove(folder)
    if _has_sockets():
        from allranks.hang.endpoint import known_addresses

        with suppress(OSError, AllranksError):
            known_addresses()  # it removes the sockets of ended ranks


def _remove(folder: str) -> None:
    from allranks.storage.deletion import delete_tree

    with suppress(OSError, StorageError):
        delete_tree(folder)


def copies_of_killed_rehearsals() -> list[str]:
    """Return the folders in which killed rehearsals have left files of the user as they were before."""
    return [folder for folder, purpose in _abandoned() if purpose == COPIES]


def _abandoned() -> Iterator[tuple[str, str]]:
    """Yield the temporary folders of killed processes of this user, each with its purpose. Each is locked meanwhile."""
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith("allranks-")]
    except OSError:
        return
    for path in paths:
        from allranks.storage.temporary_folder import abandoned_folder

        with abandoned_folder(path) as purpose:
            if purpose:
                yield path, purpose


def _has_sockets() -> bool:
    try:
        with os.scandir(f"/tmp/allranks-{os.getuid()}") as entries:  # noqa: S108 - as `allranks.hang.endpoint` has it
            return any(entries)
    except OSError:
        return False
