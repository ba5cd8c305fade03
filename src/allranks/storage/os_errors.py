"""What the errors of a file system mean, and what to do about them."""

from __future__ import annotations

import errno

from allranks.errors import AlreadyThere, NotThere, StorageError, Truncated

_ADVICE = {
    errno.ENOSPC: ("the file system is full", "Free space, keep fewer checkpoints, or save elsewhere."),
    errno.EDQUOT: ("the quota is used up", "Free space, ask for more, or save elsewhere."),
    errno.EROFS: ("the file system is mounted read-only", "Save elsewhere, or mount it writable on every host."),
    errno.EACCES: ("this user may not", "Check the owner and the mode of the folder on every host."),
    errno.EPERM: ("the file system does not allow it", "Check the owner and the attributes of the folder."),
    errno.EIO: ("the device failed", "See the kernel's log (dmesg) of this host; trust no file written since."),
    errno.ESTALE: ("the server forgot the file", "Was it removed or its export changed under a running job?"),
    errno.ENOENT: ("it does not exist", ""),
    errno.EEXIST: ("it exists already", "Choose another name."),
    errno.ENOTDIR: ("what should be a folder is a file", "Check the path."),
    errno.EISDIR: ("it is a folder", "Check the path."),
    errno.EFBIG: ("the file would be larger than the file system allows", "Save from more ranks, or elsewhere."),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter path."),
    errno.EMFILE: ("this process has too many files open", "Raise the limit (ulimit -n)."),
    errno.ENFILE: ("this host has too many files open", "Raise the limit (sysctl fs.file-max)."),
}
_KINDS = {errno.ENOENT: NotThere, errno.ENOTDIR: NotThere, errno.EEXIST: AlreadyThere}


def split_path(path: str) -> list[str]:
    """Split a path of a storage. Raises StorageError for one that is not relative or leads out of the storage."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise StorageError(
            f"{path!r} is no path inside a storage: expected names joined by '/', no empty one, no '.' and no '..'.",
            path=path,
        )
    return parts


def storage_error(error: OSError, doing: str, path: str, place: str, found: str = "") -> StorageError:
    """Return the error to raise in place of an OSError; ``found`` is what is known besides."""
    code = error.errno or 0
    meaning, remedy = _ADVICE.get(code, ("the file system refused", ""))
    name = f"{errno.errorcode.get(code, code)}: {error.strerror}"
    more = f"; {found}" if found else ""
    kind = _KINDS.get(code, StorageError)
    return kind(f"cannot {doing} {path!r} in {place}: {meaning} ({name}){more}.", path=path, remedy=remedy)


def missing_file(path: str, place: str) -> NotThere:
    """Return the error for a file that is missing."""
    return NotThere(f"there is no file {path!r} in {place}.", path=path)


def existing_file(path: str, place: str, why: str = "") -> AlreadyThere:
    """Return the error for a file that is in the way of a new one."""
    return AlreadyThere(f"{path!r} is in {place} already{why}.", path=path, remedy="Choose another name.")


def link_in_path(folder: str, name: str, place: str) -> StorageError:
    """Return the error for a removal that a symbolic link called ``name`` would lead out of the storage."""
    return StorageError(
        f"nothing is removed in {folder!r} of {place}: {name!r} is a symbolic link, and what it leads to may be "
        "somebody else's.",
        path=folder,
        remedy="Remove the link, or what it leads to, by hand.",
    )


def truncated(path: str, place: str, *, until: int, size: int) -> Truncated:
    """Return the error for a file that ends early: bytes up to ``until`` were asked for, ``size`` are there."""
    return Truncated(
        f"{path!r} in {place} is too short: expected {until:,} bytes or more, found {size:,}.",
        path=path,
        remedy="Its writer has not finished, or the file was cut.",
    )
