"""Restore the files as they were before a run, so that every run of a rehearsal starts from the same files.

Before the first call that may change a path, the watcher keeps what is there. At the end, each such path is restored,
the last one first. Paths that nobody was seen to change are not touched.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from allranks.rehearse.watch.syscalls import CHANGES

# Larger files are not copied before they are changed; they are left as the run has made them, and named.
_LARGEST = 1 << 30
PATHS = "paths.jsonl"  # of the copies
# Calls that change what a symbolic link points to. All others change the link itself.
_FOLLOW_LINKS = ("write", "append", "create", "truncate")


class _Entry(NamedTuple):
    """What to restore at a path. ``other`` is the copy of a file, the target of a link, or where a folder went.

    ``was`` is the status of what was there, if something was there.
    """

    kind: Literal["absent", "file", "folder", "link", "moved", "times"]
    path: str
    other: str = ""
    was: os.stat_result | None = None


@dataclass(slots=True)
class Journal:
    """The changes of one run. ``folder`` is for copies; ``not_restored`` lists the files that cannot be restored."""

    folder: str
    not_restored: list[str] = field(default_factory=list)
    _log: list[_Entry] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def note(self, operation: str, paths: Sequence[str]) -> None:
        """Keep a copy of what a call may change. Must be called before the call is made."""
        if operation not in CHANGES:
            return
        follows = operation in _FOLLOW_LINKS
        paths = [path for path in paths if not path.startswith("/proc/")]  # an unnamed file gets its name by a link
        places = [os.path.realpath(path) if follows else _without_links(path) for path in paths]
        for place in places:
            self._note(place)
        if operation == "rename" and os.path.isdir(places[0]) and not os.path.islink(places[0]):
            self._log.append(_Entry("moved", places[0], places[-1]))
            # From here on, these paths are of other files than before.
            above = tuple(place + os.sep for place in places)
            self._known = {one for one in self._known if one not in places and not one.startswith(above)}

    def _note(self, path: str) -> None:
        if path in self._known:
            return
        self._known.add(path)
        folder = os.path.dirname(path)
        if not os.path.lexists(folder):
            self._note(folder)  # Path.mkdir(parents=True) tries the innermost folder first
        elif folder + os.sep not in self._known:
            self._known.add(folder + os.sep)
            self._log.append(_Entry("times", folder, was=os.stat(folder)))
        try:
            kept = self._kept(path)
        except OSError:  # no right to read it, or no space for a copy
            self.not_restored.append(path)
        else:
            self._log += [kept] if kept else []

    def _kept(self, path: str) -> _Entry | None:
        """Return what is at a path; None for sockets and pipes, which live as long as a program uses them."""
        try:
            was = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return _Entry("absent", path)
        if stat.S_ISLNK(was.st_mode):
            return _Entry("link", path, os.readlink(path), was)
        if stat.S_ISDIR(was.st_mode):
            return _Entry("folder", path, was=was)
        if not stat.S_ISREG(was.st_mode):
            return None
        if was.st_size > _LARGEST:
            raise OSError(f"{path} has more than {_LARGEST} bytes")
        copy = os.path.join(self.folder, str(len(self._log)))
        shutil.copy2(path, copy)
        with open(os.path.join(self.folder, PATHS), "a") as listed:  # for a person, if this process is killed
            listed.write(json.dumps({"copy": os.path.basename(copy), "path": path}) + "\n")
        return _Entry("file", path, copy, was)

    def undo(self) -> dict[str, OSError]:
        """Restore all noted paths, and clear the journal. Return the paths that cannot be restored, and why."""
        failed: dict[str, OSError] = {}
        for entry in reversed(self._log):
            try:
                _restore(entry)
            except OSError as error:
                failed[entry.path] = error
        self._log.clear()
        self._known.clear()
        return failed


def _restore(entry: _Entry) -> None:
    kind, path, other, was = entry
    if kind == "absent":
        _remove(path)
    elif kind == "moved":
        if os.path.lexists(other) and not os.path.lexists(path):
            os.rename(other, path)
    elif kind == "link":
        if not (os.path.islink(path) and os.readlink(path) == other):
            _remove(path)
            os.symlink(other, path)
    elif kind == "file":
        _restore_file(entry)
    elif was is not None:
        if not os.path.isdir(path) or os.path.islink(path):
            _remove(path)
            os.makedirs(path)
        with suppress(PermissionError):  # the folder of another user, as /tmp
            os.chmod(path, stat.S_IMODE(was.st_mode))
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _restore_file(entry: _Entry) -> None:
    """Write the copy of a file into the file, or into a new one if the path is of another file now.

    A file that has a second name (a hard link) keeps it in the first case. In the second case, the other file, which
    may have a second name too, is not changed.
    """
    assert entry.was is not None
    is_same = os.path.isfile(entry.path) and os.path.samestat(os.lstat(entry.path), entry.was)
    if not is_same or not os.access(entry.path, os.W_OK):
        _remove(entry.path)
    os.makedirs(os.path.dirname(entry.path), exist_ok=True)
    shutil.copy2(entry.other, entry.path)


def _without_links(path: str) -> str:
    """Return a path whose folder has no symbolic links; the last part may be one."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _remove(path: str) -> None:
    """Remove what a run made at a path: a file, a link, or an empty folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        if not os.listdir(path):
            os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)
