"""Use the kernel's seccomp filter: install it in a rank, and receive and answer the stopped calls.

A rank calls `install` once, in its first thread, before its program runs. It sends the descriptor to the launcher,
which calls `receive` and `answer`. All threads and children that the rank starts later are stopped at the same
descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
from typing import NamedTuple

from allranks.rehearse.watch.syscalls import SECCOMP, filter_program, machines

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
# A call that the launcher has received is not interrupted by a signal (Linux 5.19): unlink, for one, is not repeated.
_WAIT_KILLABLE = 1 << 5
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_RESPONSE = struct.Struct("QqiI")


class Stopped(NamedTuple):
    """A thread that is stopped in a system call: the kernel's id of the stop, the thread, the number of the call."""

    number: int
    thread: int
    call: int
    arguments: tuple[int, ...]


def unavailable() -> str:
    """Return why the kernel cannot watch file calls here, or "" if it can."""
    if not hasattr(os, "pidfd_open") or platform.system() != "Linux":
        return "only Linux can stop the file calls of a process (seccomp)"
    if platform.machine() not in machines():
        return f"there is no table of system calls for {platform.machine()}"
    probe = ctypes.create_string_buffer(b"x")
    if read_memory(os.getpid(), ctypes.addressof(probe), 1) != b"x":
        return "this container does not allow process_vm_readv"
    if _ptrace_scope() >= _ADMINISTRATOR and os.geteuid() != 0:
        return "this kernel does not let a process read its children's memory (kernel.yama.ptrace_scope)"
    return ""


# From this value of kernel.yama.ptrace_scope on, only an administrator may read another process' memory.
_ADMINISTRATOR = 2


def _ptrace_scope() -> int:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def install() -> int:
    """Stop the file calls of this process, and of all its later children; return the listening descriptor.

    Raises OSError if the kernel, or the container, does not allow it.
    """
    machine = platform.machine()
    libc = ctypes.CDLL(None, use_errno=True)
    program = filter_program(machine)
    text = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text))
    holder = ctypes.create_string_buffer(filters, len(filters))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    number = ctypes.c_long(SECCOMP[machine])
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = libc.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(holder))
        if listener >= 0 or ctypes.get_errno() != errno.EINVAL:
            break
    if listener < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.set_inheritable(listener, False)
    return int(listener)


def receive(listener: int) -> Stopped | None:
    """Return the next stopped call, or None if it was withdrawn meanwhile (by a signal, or the end of the process)."""
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
    return Stopped(number, thread, call, tuple(arguments))


def has_ended(listener: int) -> bool:
    """Return whether all processes have ended whose calls arrive at this listener."""
    poll = select.poll()
    poll.register(listener)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def answer(listener: int, stopped: Stopped, *, failing: int = 0) -> bool:
    """Let a stopped call continue, or fail with an error number.

    Return False if nobody waits for the answer any more.
    """
    response = _RESPONSE.pack(stopped.number, 0, -failing, 0 if failing else _CONTINUE)
    try:
        fcntl.ioctl(listener, _SEND, bytearray(response))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    return True


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_PAGE = 4096
_LONGEST = 4096


def read_memory(process: int, address: int, size: int) -> bytes:
    """Return ``size`` bytes of another process' memory.

    Return fewer bytes at the end of mapped memory; b"" if it has ended.
    """
    buffer = ctypes.create_string_buffer(size)
    mine = _Span(ctypes.addressof(buffer), size)
    theirs = _Span(address, size)
    got = _libc.process_vm_readv(process, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    return buffer.raw[: max(got, 0)]


def read_text(process: int, address: int) -> str:
    """Return the text at an address of another process, up to a zero byte."""
    text = b""
    while len(text) < _LONGEST and b"\0" not in text:
        size = _PAGE - (address + len(text)) % _PAGE  # never across a page that may not be mapped
        more = read_memory(process, address + len(text), min(size, 512))
        if not more:
            break
        text += more
    return os.fsdecode(text.partition(b"\0")[0])
