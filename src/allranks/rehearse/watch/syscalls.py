"""Define which system calls change or read files, and how to decode their arguments.

A seccomp filter stops exactly these calls; `decode` converts the registers of a stopped call to a `Call`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

Operation: TypeAlias = Literal[
    "read", "write", "append", "create", "exclusive", "truncate", "mkdir", "rename", "remove", "rmdir", "link"
]
# The operations that change files.
CHANGES: tuple[Operation, ...] = tuple(one for one in get_args(Operation) if one != "read")

AT_FDCWD = -100
# By machine: the kernel's number of the architecture, and the numbers of the system calls.
_X86_64 = {
    "open": 2, "creat": 85, "openat": 257, "openat2": 437, "truncate": 76, "rename": 82, "renameat": 264,
    "renameat2": 316, "mkdir": 83, "mkdirat": 258, "rmdir": 84, "unlink": 87, "unlinkat": 263, "link": 86,
    "linkat": 265, "symlink": 88, "symlinkat": 266, "mknod": 133, "mknodat": 259,
}  # fmt: skip
_AARCH64 = {
    "openat": 56, "openat2": 437, "truncate": 45, "renameat": 38, "renameat2": 276, "mkdirat": 34, "unlinkat": 35,
    "linkat": 37, "symlinkat": 36, "mknodat": 33,
}  # fmt: skip
_AUDIT = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
_NUMBERS = MappingProxyType({"x86_64": _X86_64, "aarch64": _AARCH64})
SECCOMP = MappingProxyType({"x86_64": 317, "aarch64": 277})

_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4


@dataclass(frozen=True, slots=True)
class Call:
    """One stopped call: its operation, and its paths, each as (directory descriptor, address of the text).

    ``flags_at`` is the address of openat2's structure, 0 for all other calls.
    """

    operation: Operation
    paths: tuple[tuple[int, int], ...]
    flags_at: int = 0


def machines() -> tuple[str, ...]:
    """Return the machines (as in ``platform.machine()``) for which there is a table of system calls."""
    return tuple(_NUMBERS)


def filter_program(machine: str) -> bytes:
    """Return the BPF program that stops the calls in the table of a machine and allows all other calls."""
    numbers = sorted(_NUMBERS[machine].values())
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_JUMP_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _ALLOW),  # a call of another architecture (32 bit)
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    steps += [(_JUMP_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def decode(machine: str, number: int, arguments: Sequence[int]) -> Call | None:
    """Return what a stopped call does, or None for a call number that is not in the table."""
    name = _NAMES[machine].get(number)
    if name is None:
        return None
    a = arguments
    here = AT_FDCWD
    if name == "open":
        return _opening(a[1], (here, a[0]))
    if name == "creat":
        return _opening(os.O_CREAT | os.O_WRONLY | os.O_TRUNC, (here, a[0]))
    if name == "openat":
        return _opening(a[2], (_signed(a[0]), a[1]))
    if name == "openat2":
        return Call("read", ((_signed(a[0]), a[1]),), flags_at=a[2])
    if name in ("renameat", "renameat2", "linkat"):
        return Call("link" if name == "linkat" else "rename", ((_signed(a[0]), a[1]), (_signed(a[2]), a[3])))
    if name in ("rename", "link"):
        return Call("rename" if name == "rename" else "link", ((here, a[0]), (here, a[1])))
    if name == "unlinkat":
        return Call("rmdir" if a[2] & _AT_REMOVEDIR else "remove", ((_signed(a[0]), a[1]),))
    if name == "mkdirat":
        return Call("mkdir", ((_signed(a[0]), a[1]),))
    if name == "mknodat":
        return Call("exclusive", ((_signed(a[0]), a[1]),))
    if name == "symlink":
        return Call("link", ((here, a[1]),))
    if name == "symlinkat":
        return Call("link", ((_signed(a[1]), a[2]),))
    return Call(_ONE_PATH[name], ((here, a[0]),))


_AT_REMOVEDIR = 0x200
_ONE_PATH: MappingProxyType[str, Operation] = MappingProxyType(
    {"truncate": "truncate", "mkdir": "mkdir", "rmdir": "rmdir", "unlink": "remove", "mknod": "exclusive"}
)
_NAMES = {machine: {number: name for name, number in numbers.items()} for machine, numbers in _NUMBERS.items()}


def _opening(flags: int, path: tuple[int, int]) -> Call:
    return Call(opened_for(flags), (path,))


def opened_for(flags: int) -> Operation:
    """Return the operation for which open(2) with these flags opens a file."""
    reads = flags & os.O_ACCMODE == os.O_RDONLY
    if reads and not flags & (os.O_CREAT | os.O_TRUNC):
        return "read"
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return "exclusive"
    if flags & os.O_APPEND or (reads and not flags & os.O_TRUNC):  # what is there stays
        return "append"
    return "create" if flags & os.O_TRUNC else "write"


def _signed(register: int) -> int:
    low = register & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low
