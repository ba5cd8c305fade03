"""Pretend that this rank is on another host: with its own host name, local ranks, and temporary and local folders.

The folders are in a mount namespace (Linux): over each folder, another one is mounted, different for each host. The
files of the rehearsal itself are mounted into it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18


def pretend(settings: Mapping[str, Any], rank: int, size: int) -> str:
    """Put this process on its pretended host. Return why the process has no private folders, or "" if it has.

    ``settings`` has ``hosts`` (how many) and ``folder`` (where each host's folders are). ``private`` are the folders
    that each host has for itself; files that are already in them stay shared. ``local`` are the folders of which each
    host has a copy.
    """
    hosts = settings["hosts"]
    per_host = -(-size // hosts)
    host = host_of(rank, size, hosts)
    _name(f"host{host}")
    first = host * per_host
    local = min(per_host, size - first)
    os.environ |= {
        "LOCAL_RANK": str(rank - first),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(host),
        "ALLRANKS_LOCAL_RANK": str(rank - first),
        "ALLRANKS_HOST": f"host{host}",
    }
    try:
        _mount_folders(settings, host)
    except OSError as error:
        return f"{error.strerror}: {error.filename or 'mount namespaces'}"
    return ""


def host_of(rank: int, size: int, hosts: int) -> int:
    """Return the number of the host that a rank is on. Ranks fill one host after another."""
    return rank // -(-size // hosts)


def real_path(settings: Mapping[str, Any], host: int, path: str) -> str:
    """Return the real path of a file of a host.

    It differs from ``path`` if the file is in a private folder of the host.
    """
    for number, folder in reversed([*enumerate(folders(settings))]):
        inside = os.path.relpath(path, folder) if path.startswith(folder + os.sep) else ""
        is_copied = number >= len(settings["private"])
        if inside and (is_copied or not os.path.lexists(os.path.join(folder, inside.split(os.sep)[0]))):
            return os.path.join(private_folder(settings, host, number), inside)
    return path


def folders(settings: Mapping[str, Any]) -> list[str]:
    """Return the folders that differ between hosts: the private ones, then the local ones."""
    return [*settings["private"], *settings["local"]]


def private_folder(settings: Mapping[str, Any], host: int, number: int) -> str:
    return os.path.join(settings["folder"], f"host{host}", str(number))


def _name(name: str) -> None:
    """Make Python report this host name. (Gloo would look up the kernel's host name, which is in no table.)"""
    uname = os.uname()
    mine = os.uname_result((uname.sysname, name, uname.release, uname.version, uname.machine))
    socket.gethostname = lambda: name
    platform.node = lambda: name
    os.uname = lambda: mine


def _mount_folders(settings: Mapping[str, Any], host: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.geteuid() == 0
    user, group = os.geteuid(), os.getegid()
    _check(libc.unshare(_NEW_NAMESPACE if root else _NEW_NAMESPACE | _NEW_USER), "")
    if not root:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "/")
    here = os.getcwd()
    for number, path in enumerate(folders(settings)):
        own = private_folder(settings, host, number)
        for name in os.listdir(path) if number < len(settings["private"]) else ():
            _keep(libc, os.path.join(path, name), os.path.join(own, name))
        _bind(libc, own, path, _RECURSIVE)
    os.chdir(here)


def _keep(libc: Any, source: str, target: str) -> None:
    """Make an existing file visible at ``target``, inside the folder that is mounted over the original folder."""
    if os.path.islink(source):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    else:
        return
    _bind(libc, source, target)


def _bind(libc: Any, source: str, target: str, flags: int = 0) -> None:
    _check(libc.mount(os.fsencode(source), os.fsencode(target), None, _BIND | flags, None), target)


def _check(result: int, path: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
