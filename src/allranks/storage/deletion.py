"""Delete files and folders, and nothing that they lead to. Everything of allranks that deletes files of a user is here.

A name is deleted relative to the descriptor of its folder. A folder below the one that the user named is opened without
following a symbolic link, and refused if it is a mount point: what is behind either may belong to somebody else. So a
folder that is replaced by a link between a check and the deletion is refused, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from .os_errors import link_in_path_error, mount_in_path_error

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_PASSED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MAY_BE_LINK = (errno.ELOOP, errno.ENOTDIR)
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_DEEPEST = 200  # folders in a tree: each needs a descriptor while what is below it is deleted


@contextmanager
def open_folder(root: str, folders: Sequence[str] = ()) -> Iterator[int]:
    """Yield the descriptor of a folder: ``folders`` are the names that lead from ``root`` to it.

    ``root``: an absolute path without symbolic links, as ``os.path.realpath`` returns it. It may contain mount points;
    the folders below it may not. Raises StorageError for a symbolic link or a mount point, and OSError.
    """
    with _descend("/", [name for name in root.split("/") if name], root, flags=_PASSED) as top:
        opened = os.open(".", _FOLDER, dir_fd=top)
    try:
        mount = _mount_of(opened)
        for name in folders:
            below = _open_below(opened, name, "/".join(folders), root, flags=_FOLDER)
            os.close(opened)
            opened = below
            if _mount_of(opened) != mount:
                raise mount_in_path_error("/".join(folders), name, root)
        yield opened
    finally:
        os.close(opened)


def delete_name(folder: int, name: str) -> None:
    """Delete a file, or a symbolic link (not its target), in an open folder. Does nothing if it does not exist."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def delete_empty_folder(folder: int, name: str) -> bool:
    """Delete an empty folder in an open folder; return whether it is gone. A link or a full folder stays."""
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
        return False
    return True


def delete_files(folder: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Delete files of a folder by their names. The folder may be reached through links.

    Raises OSError, StorageError.
    """
    with open_folder(os.path.realpath(folder)) as opened:
        for name in names:
            delete_name(opened, name)


def delete_tree(path: str | os.PathLike[str], *, is_ours: Callable[[str], bool] = lambda _: True) -> tuple[str, ...]:
    """Delete a file, a link, or the files of a folder and the folders that are empty then. Return what stays.

    ``is_ours``: whether the file with this path below the folder may be deleted. Links in the folder are deleted, not
    followed. Mount points stay, and so do folders that are more than 200 levels deep. The paths that stay are sorted.
    What is not there needs no deletion. Raises OSError, StorageError.
    """
    above, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(above):
        return ()
    stay: list[str] = []
    with open_folder(os.path.realpath(above)) as folder:
        try:
            about = os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return ()
        if not stat.S_ISDIR(about.st_mode):
            delete_name(folder, name)
        else:
            _delete_below(folder, name, "", _mount_of(folder), is_ours, stay)
    return tuple(sorted(stay))


def _delete_below(
    above: int, name: str, path: str, mount: str, is_ours: Callable[[str], bool], stay: list[str]
) -> None:
    """Delete the folder ``name`` in ``above``, whose path below the tree is ``path``, as far as it is ours."""
    folder = _open_below(above, name, path or name, "", flags=_FOLDER)
    try:
        if _mount_of(folder) != mount or path.count("/") >= _DEEPEST:
            stay.append(path or name)
            return
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_folder in found:
            below = f"{path}/{child}" if path else child
            if is_folder:
                _delete_below(folder, child, below, mount, is_ours, stay)
            elif is_ours(below):
                delete_name(folder, child)
            else:
                stay.append(below)
    finally:
        os.close(folder)
    delete_empty_folder(above, name)


@contextmanager
def _descend(start: str, names: Sequence[str], place: str, *, flags: int) -> Iterator[int]:
    opened = os.open(start, flags)
    try:
        for name in names:
            below = _open_below(opened, name, place, place, flags=flags)
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)


def _open_below(folder: int, name: str, where: str, place: str, *, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _MAY_BE_LINK and stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise link_in_path_error(where, name, place) from error
        raise


def _mount_of(folder: int) -> str:
    """Return a text that identifies the mount of an open folder; that of its device if /proc is not there."""
    try:
        with open(f"/proc/self/fdinfo/{folder}", encoding="ascii") as about:
            return next(line for line in about if line.startswith("mnt_id:"))
    except (OSError, StopIteration):
        return str(os.fstat(folder).st_dev)
