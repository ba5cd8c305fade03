"""Judge by its name whether a file is a checkpoint."""

from __future__ import annotations

import re

_ENDINGS = (
    ".pt",
    ".pth",
    ".ckpt",
    ".safetensors",
    ".bin",
    ".pkl",
    ".pickle",
    ".npz",
    ".npy",
    ".msgpack",
    ".h5",
    ".tar",
    ".distcp",
)
_WORDS = ("ckpt", "checkpoint", "snapshot", "orbax", "state")


def has_checkpoint_ending(path: str) -> bool:
    """Return whether a path ends as files of weights do."""
    return path.endswith(_ENDINGS)


def is_checkpoint(path: str) -> bool:
    """Return whether a path is a checkpoint, judged by its name."""
    return has_checkpoint_ending(path) or any(word in path.rpartition("/")[2].lower() for word in _WORDS)


def is_temporary(path: str) -> bool:
    """Return whether a path is, or is in, what a library renames when it is complete, judged by the names of both."""
    folder, _, name = path.rpartition("/")
    return any(_TEMPORARY.search(one) for one in (name, folder.rpartition("/")[2]))


_TEMPORARY = re.compile(r"[._-]te?mp([._-]|\d|$)|^te?mp[._-]|\.(part|partial|incomplete)$")
