"""Run a command in which some system calls fail with EPERM, as in a container: denied.py 317,272 command ..."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

SECCOMP, UNSHARE, PROCESS_VM_READV = 317, 272, 310
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def deny(calls: list[int]) -> None:
    """Install a filter in this process, which its children inherit."""
    one = struct.Struct("HBBI")
    program = one.pack(_LOAD, 0, 0, 0)
    for call in calls:
        program += one.pack(_JUMP_IF_EQUAL, 0, 1, call) + one.pack(_RETURN, 0, 0, _EPERM)
    program += one.pack(_RETURN, 0, 0, _ALLOW)
    text = ctypes.create_string_buffer(program, len(program))
    holder = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    for result in (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, holder, 0, 0),
    ):
        if result:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    deny([int(call) for call in sys.argv[1].split(",")])
    os.execvp(sys.argv[2], sys.argv[2:])
