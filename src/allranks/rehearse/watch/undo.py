"""Restore the files as they were before a run, so that every run of a rehearsal starts from the same files.

Before the first call that may change a path, the watcher keeps what is there. At the end, each such path is restored,
the last one first. Paths that nobody was seen to change are not touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

from allranks.rehearse.watch.syscalls import CHANGES

# Larger files are not copied before they are changed; they are left as the run has made them, and named.
_LARGEST = 1 << 30


@dataclass(slots=True)
class Journal:
    """The changes of one run. ``folder`` is for copies; ``not_restored`` lists the files that cannot be restored."""

    folder: str
    not_restored: list[str] = field(default_factory=list)
    # What to do at the end, in the order in which it was noted: (kind, path, what belongs to it).
    _log: list[tuple[str, str, str]] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def note(self, operation: str, paths: Sequence[str]) -> None:
        """Keep a copy of what a call may change. Must be called before the call is made."""
        if operation not in CHANGES:
            return
        if operation == "rename" and os.path.isdir(paths[0]) and not os.path.islink(paths[0]):
            self._log.append(("moved", paths[0], paths[1]))
            return
        for path in paths if operation == "rename" else paths[-1:]:
            if path not in self._known:
                self._known.add(path)
                self._keep(path)

    def _keep(self, path: str) -> None:
        if os.path.islink(path):
            self._log.append(("link", path, os.readlink(path)))
        elif os.path.isdir(path):
            self._log.append(("folder", path, ""))
        elif not os.path.exists(path):
            self._log.append(("absent", path, ""))
        elif os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            copy = os.path.join(self.folder, str(len(self._log)))
            shutil.copy2(path, copy)
            self._log.append(("file", path, copy))
        else:
            self.not_restored.append(path)

    def undo(self) -> None:
        """Restore all noted paths, and clear the journal."""
        full: list[str] = []
        for kind, path, other in reversed(self._log):
            if kind == "absent":
                _remove(path)
                full += [path] if os.path.isdir(path) else []
            elif kind == "moved":
                if os.path.lexists(other) and not os.path.lexists(path):
                    os.rename(other, path)
            elif kind == "folder":
                os.makedirs(path, exist_ok=True)
            elif kind == "file":
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copy2(other, path)
            elif not os.path.lexists(path):
                os.symlink(other, path)
        # Path.mkdir(parents=True) tries the innermost folder first, so that its parents are noted after it.
        for path in sorted(full, key=len, reverse=True):
            _remove(path)
        self._log.clear()
        self._known.clear()


def _remove(path: str) -> None:
    """Remove what a run made at a path: a file, a link, or an empty folder."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path) and not os.listdir(path):
        os.rmdir(path)
