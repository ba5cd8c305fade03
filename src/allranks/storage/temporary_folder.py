"""Make folders for temporary files. The next start of allranks finds those whose process was killed.

A process holds a lock on its folder while it lives; the kernel releases the lock, however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_NAME = re.compile("allranks-([a-z]+)-[a-z0-9_]{8}")


@contextmanager
def temporary_folder(purpose: str) -> Iterator[str]:
    """Yield the path of a new folder of this user, ``allranks-PURPOSE-...``, which is removed at the end.

    ``purpose`` is a word in lower case.
    """
    while True:
        with tempfile.TemporaryDirectory(prefix=f"allranks-{purpose}-") as folder:
            lock = _locked(folder)
            if lock is None:
                continue
            try:
                yield folder
            finally:
                os.close(lock)
            return


def _locked(folder: str) -> int | None:
    """Lock a new folder, and return its descriptor; None if it was taken for that of a killed process, and removed."""
    try:
        opened = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks: nobody can take the lock, and the folder stays
        fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        if os.path.samestat(os.stat(folder), os.fstat(opened)):
            return opened
    except FileNotFoundError:
        pass
    os.close(opened)
    return None


@contextmanager
def abandoned_folder(path: str) -> Iterator[str | None]:
    """Yield the purpose of a folder of this user whose process was killed. No process can lock it meanwhile.

    Yields None for any other folder, file or link: of a process that lives, of another program, of another user.
    """
    found = _NAME.fullmatch(os.path.basename(path))
    try:
        opened = os.open(path, _FOLDER) if found else -1
    except OSError:
        opened = -1
    try:
        is_abandoned = opened >= 0 and _is_of_this_user(opened) and _lock_now(opened)
        yield found[1] if found and is_abandoned else None
    finally:
        if opened >= 0:
            os.close(opened)


def _is_of_this_user(opened: int) -> bool:
    about = os.fstat(opened)
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _lock_now(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is locked, or cannot be
        return False
    return True
