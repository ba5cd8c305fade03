"""Convert errors of the file system into StorageErrors that say what the user can do."""

from __future__ import annotations

import errno

from allranks.errors import AlreadyThere, NotAFile, NotThere, StorageError, Truncated, Unsafe

from .limits import advice_on_limit, metadata_limit

_ADVICE = {
    errno.ENOSPC: ("the file system is full", "Free space, keep fewer checkpoints, or save elsewhere."),
    errno.EDQUOT: ("the quota is used up", "Free space, ask for more, or save elsewhere."),
    errno.EROFS: ("the file system is mounted read-only", "Save elsewhere, or mount it writable on every host."),
    errno.EACCES: ("this user has no permission", "Check the owner and the mode of the folder on every host."),
    errno.EPERM: ("the file system does not allow it", "Check the owner and the attributes of the folder."),
    errno.EIO: ("the device failed", "See the kernel's log (dmesg) of this host; trust no file written since."),
    errno.ESTALE: (
        "the server no longer knows the file",
        "Check whether the file was removed, or the export changed, during the job.",
    ),
    errno.ENOENT: ("it does not exist", ""),
    errno.EEXIST: ("it exists already", "Choose another name."),
    errno.ENOTDIR: ("expected a folder, found a file", "Check the path."),
    errno.EISDIR: ("it is a folder", "Check the path."),
    errno.EFBIG: ("the file system does not allow files of this size", "Save from more ranks, or elsewhere."),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter path."),
    errno.EMFILE: ("this process has too many files open", "Raise the limit (ulimit -n)."),
    errno.ENFILE: ("this host has too many files open", "Raise the limit (sysctl fs.file-max)."),
}
_KINDS = {errno.ENOENT: NotThere, errno.ENOTDIR: NotThere, errno.EEXIST: AlreadyThere}


def split_path(path: str) -> list[str]:
    """Return the components of a path. Raises StorageError for a path that is absolute or leads out of the storage."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise StorageError(
            f"{path!r} is not a path in a storage: expected names joined by '/', none of them empty, '.' or '..'.",
            path=path,
        )
    return parts


def storage_error(error: OSError, operation: str, path: str, place: str, observation: str = "") -> StorageError:
    """Return the StorageError to raise for an OSError: the operation ``operation`` failed at ``path``.

    ``observation`` is added to the message.
    """
    code = error.errno or 0
    meaning, remedy = _ADVICE.get(code, ("the file system refused", ""))
    name = f"{errno.errorcode.get(code, code)}: {error.strerror}"
    more = f"; {observation}" if observation else ""
    kind = _KINDS.get(code, StorageError)
    return kind(f"cannot {operation} {path!r} in {place}: {meaning} ({name}){more}.", path=path, remedy=remedy)


def missing_file_error(path: str, place: str) -> NotThere:
    """Return the error for a missing file."""
    return NotThere(f"there is no file {path!r} in {place}.", path=path)


def existing_file_error(path: str, place: str, why: str = "") -> AlreadyThere:
    """Return the error for a file that already exists at the path of a new file."""
    return AlreadyThere(f"{path!r} already exists in {place}{why}.", path=path, remedy="Choose another name.")


def link_in_path_error(folder: str, name: str, place: str) -> StorageError:
    """Return the error for a change that is refused because ``name``, in the path, is a symbolic link."""
    return StorageError(
        f"nothing is written or removed in {folder!r} of {place}: {name!r} is a symbolic link, and what "
        "it leads to may be somebody else's.",
        path=folder,
        remedy="Remove the link, or what it leads to, by hand.",
    )


def mount_in_path_error(folder: str, name: str, place: str) -> StorageError:
    """Return the error for a change that is refused because ``name``, in the path, is a mount point."""
    return StorageError(
        f"nothing is written or removed in {folder!r} of {place}: {name!r} is a mount point, and what is "
        "mounted there may be somebody else's.",
        path=folder,
        remedy="Unmount it, or remove the files by hand.",
    )


def too_large_error(where: str, content: str, size: int, most: int) -> Unsafe:
    """Return the error for metadata of ``size`` bytes, ``content``, of which at most ``most`` are read."""
    return Unsafe(
        f"{where}: {content} has {size:,} bytes: expected at most {most:,}.",
        path=where,
        remedy=advice_on_limit() if most == metadata_limit() else "Remove the file, or replace it by a valid one.",
    )


def not_a_file_error(path: str, place: str, kind: str) -> NotAFile:
    """Return the error for a path that must be a file and is a ``kind``: a folder, a pipe, a socket or a device."""
    return NotAFile(
        f"{path!r} in {place} is a {kind}: expected a file.", path=path, remedy="Remove it, or give another path."
    )


def truncated_file_error(path: str, place: str, *, requested_end: int, size: int) -> Truncated:
    """Return the error for a file of ``size`` bytes of which the bytes up to ``requested_end`` were requested."""
    return Truncated(
        f"{path!r} in {place} is too short: expected {requested_end:,} bytes or more, found {size:,}.",
        path=path,
        remedy="Wait until its writer has finished. If it has, the file is damaged.",
    )
