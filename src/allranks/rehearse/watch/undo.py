"""Put the files back as they were before a run: every run of a rehearsal starts from the same ones.

What a call is about to change is noted, and kept where it would be lost, before the call goes on. What the run made is
removed, what it changed is put back, in the opposite order. Files that nobody was seen to touch are not touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

# Larger files are not copied before they are changed in place; they are kept as they are after the run.
_LARGEST = 1 << 30


@dataclass(slots=True)
class Journal:
    """The changes of one run. ``folder`` holds what was there before; ``not_restored`` cannot be put back."""

    folder: str
    not_restored: list[str] = field(default_factory=list)
    _log: list[tuple[str, str, str]] = field(default_factory=list)
    _made: set[str] = field(default_factory=set)

    def note(self, operation: str, paths: Sequence[str]) -> None:
        """Take note of a call that is about to be made."""
        path = paths[-1]
        if operation == "rename":
            self._keep(path)
            self._log.append(("rename", paths[0], path))
            if paths[0] in self._made:
                self._made.add(path)
        elif operation in ("remove", "rmdir", "truncate", "write", "append", "create", "exclusive", "mkdir", "link"):
            self._keep(path)

    def _keep(self, path: str) -> None:
        if path in self._made:
            return
        if not os.path.lexists(path):
            self._made.add(path)
            self._log.append(("made", path, ""))
        elif os.path.islink(path):
            self._log.append(("link", path, os.readlink(path)))
        elif os.path.isdir(path):
            self._log.append(("folder", path, ""))
        elif os.path.isfile(path) and not any(kind == "kept" and one == path for kind, one, _ in self._log):
            self._copy(path)

    def _copy(self, path: str) -> None:
        if os.path.getsize(path) > _LARGEST:
            if path not in self.not_restored:
                self.not_restored.append(path)
            return
        copy = os.path.join(self.folder, str(len(self._log)))
        shutil.copy2(path, copy)
        self._log.append(("kept", path, copy))

    def undo(self) -> None:
        """Put everything back."""
        for kind, path, other in reversed(self._log):
            if kind == "made":
                _remove(path)
            elif kind == "rename":
                if os.path.lexists(other) and not os.path.lexists(path):
                    os.rename(other, path)
            elif kind == "kept":
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copy2(other, path)
            elif kind == "link" and not os.path.lexists(path):
                os.symlink(other, path)
            elif kind == "folder":
                os.makedirs(path, exist_ok=True)
        self._log.clear()
        self._made.clear()


def _remove(path: str) -> None:
    """Remove what a run made: a file, a link, a folder in which nothing is left."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path) and not os.listdir(path):
        os.rmdir(path)
